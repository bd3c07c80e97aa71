"""The section of summary.json about data-parallel groups."""

from collections.abc import Sequence
from typing import Any

from simcore.lockstep.group import LockstepGroup


def groups_section(groups: Sequence[LockstepGroup]) -> dict[str, Any]:
    """Return the section; empty without groups. ``steps`` counts each rank's steps, with dummy steps.

    ``waiting_share``: the share of the time of steps with work that ranks wait for the slowest rank.
    """
    if not groups:
        return {}
    steps = sum(group.steps * len(group.dummy_steps) for group in groups)
    dummy = sum(sum(group.dummy_steps) for group in groups)
    working = sum(sum(group.worked_fixed) for group in groups)
    waited = sum(sum(group.waited_fixed) for group in groups)
    return {
        "data_parallel": {
            "groups": len(groups),
            "ranks": len(groups[0].dummy_steps),
            "steps": steps,
            "dummy_steps": dummy,
            "dummy_share": dummy / steps if steps else None,
            "waiting_share": waited / working if working else None,
        }
    }
