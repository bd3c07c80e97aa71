"""Reads ``inputs.yaml``: what the sources of the experiments state, and what we declared before any run."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parent


@cache
def inputs() -> dict[str, Any]:
    """The file, by experiment."""
    read: dict[str, Any] = yaml.safe_load((FOLDER / "inputs.yaml").read_text(encoding="utf-8"))
    return read


def stated_of(experiment: str) -> dict[str, Any]:
    """What the experiment's source states."""
    stated: dict[str, Any] = inputs()[experiment]["stated"]
    return stated


def sentences(experiment: str) -> tuple[str, ...]:
    """Source, stated, derived and declared inputs, for the page."""
    part = inputs()[experiment]
    lines = [f"source: {part['source']}"]
    for kind in ("stated", "derived", "declared"):
        if kind in part:
            lines.append(f"{kind}: " + "; ".join(f"{key}: {value}" for key, value in part[kind].items()))
    return tuple(lines)
