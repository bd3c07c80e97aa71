"""How running requests migrate, if ``system/migration`` enables migration."""

from dataclasses import dataclass
from typing import Final

from servetwin.config.key import COUNT, NOT_NEGATIVE, Range, key
from servetwin.config.readers import MIGRATING_VICTIMS
from serving.vocabulary.errors import UserError

MODES: Final = ("live", "stop_and_copy", "recompute")
VICTIMS: Final = ("recompute", "neighbour")
# The maximum number of blocks left for the last stage. paper: the blocks that the last steps added (section
# 4.2); shipped: the default of the artefact (AlibabaPAI/llumnix, branch osdi24ae).
LAST_STAGES: Final = {"paper": 1, "shipped": 16}
WITHIN_STEP: Final = "step"
# Besides the bytes of the last stage, both sides must agree and resume: Fig. 10's down time of the shortest
# context minus its copy is about 10 ms with one GPU and 29 ms with four; between and beyond, it is linear.
CONTROL_MS: Final = 10.0
CONTROL_MS_PER_GPU: Final = (29.0 - 10.0) / 3
# Decode steps take at most 1 % longer while KV is copied, at the source and at the destination (Fig. 10,
# right, and the text beside it).
SLOWDOWN: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationConfig:
    """How running requests migrate, if ``system/migration`` enables migration."""

    mode: str = key(
        "`live`, or for comparison `stop_and_copy` (one stage, in which the request stops) or "
        "`recompute` (without KV, computed again)",
        default=MODES[0],
        choices=MODES,
    )
    last_stage: str = key(
        "the request stops once at most so many blocks are left to copy: `shipped` 16, `paper` 1; `step`: "
        "once they take at most half a decode step to copy",
        default="shipped",
        choices=(*LAST_STAGES, WITHIN_STEP),
    )
    max_stages: int = key("most stages; a migration that needs one more is aborted", default=3, within=COUNT)
    period_ms: float = key(
        "milliseconds between two calls of the policy", default=50.0, within=Range(low=0.001)
    )
    control_ms: float | None = key(
        "milliseconds of the last stage beside its bytes; null: 10 with one GPU, 29 with "
        "four, else linear (Llumnix, Fig. 10)",
        default=None,
        within=NOT_NEGATIVE,
    )
    victims: str = key(
        "`neighbour`: the request that would be preempted [migrates "
        "instead](../papers/BEYOND_LLUMNIX.md#victims)",
        default=VICTIMS[0],
        choices=VICTIMS,
    )
    reserve: float = key(
        "share of free KV memory below which the next victim migrates",
        default=0.01,
        within=Range(low=0, high=1, open_low=True, open_high=True),
        read_by=(MIGRATING_VICTIMS,),
    )
    into_loading: bool = key(
        "also migrate to an instance that [is still "
        "loading](../papers/BEYOND_LLUMNIX.md#instances-that-still-load)",
        default=False,
        omit=False,
    )
    slowdown: float = key(
        "share by which simulated steps of both sides are longer while KV is copied: at most "
        "1 % in Llumnix's Fig. 10",
        default=SLOWDOWN,
        within=Range(low=0, high=1),
        omit=SLOWDOWN,
    )


LIVE: Final = MigrationConfig()


def check_migration(one: MigrationConfig) -> None:
    """Refuse settings that contradict each other."""
    if one.victims == "neighbour" and one.mode == "recompute":
        raise UserError(
            "migration.victims=neighbour sends KV, which migration.mode=recompute does not: write "
            "migration.mode=live or migration.victims=recompute"
        )
    if one.into_loading and one.mode != "live":
        raise UserError(
            f"migration.into_loading=true copies KV while the request decodes, and migration.mode={one.mode} "
            "does not: write migration.mode=live or migration.into_loading=false"
        )


def control_ms(one: MigrationConfig, gpus: int) -> float:
    """Return the last stage's control time of an instance with ``gpus`` GPUs."""
    return CONTROL_MS + CONTROL_MS_PER_GPU * (gpus - 1) if one.control_ms is None else one.control_ms
