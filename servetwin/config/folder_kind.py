"""Recognizes folders that are not a run's, so that an error message can name their kind."""

import os
from pathlib import Path

SWEEP_POINTS = "points.jsonl"
PLAN_ANSWER = "plan.json"


def another_kind(folder: Path) -> str:
    """Return the error for a sweep's or a plan's folder given instead of a run's; "" for other folders."""
    if os.path.isfile(folder / SWEEP_POINTS):  # noqa: PTH113 (Path.is_file raises for a name that is too long)
        return f"{folder} is a sweep's: name one of {folder / 'runs'}, which folders=true keeps"
    if os.path.isfile(folder / PLAN_ANSWER):  # noqa: PTH113
        return f"{folder} is a plan's, which keeps no runs: run servetwin simulate, and name its out="
    return ""
