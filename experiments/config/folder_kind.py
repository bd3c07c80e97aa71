"""What a folder is of that is no run's: so that a refusal can say what the user took it for."""

import os
from pathlib import Path

SWEEP_POINTS = "points.jsonl"
PLAN_ANSWER = "plan.json"


def another_kind(folder: Path) -> str:
    """What is to be said of a sweep's or a plan's folder where a run's is wanted; "" for any other."""
    if os.path.isfile(folder / SWEEP_POINTS):  # noqa: PTH113 (Path.is_file raises for a name that is too long)
        return f"{folder} is a sweep's: name one of {folder / 'runs'}, which folders=true keeps"
    if os.path.isfile(folder / PLAN_ANSWER):  # noqa: PTH113
        return f"{folder} is a plan's, which keeps no runs: run servetwin simulate, and name its out="
    return ""
