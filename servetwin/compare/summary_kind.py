"""Detects result folders of real workers."""

from pathlib import Path

from servetwin.config.read_file import json_in


def is_real(place: Path) -> bool:
    """Return whether the summary is a real run's; False if it cannot be read."""
    try:
        return "real" in json_in(place / "summary.json")
    except (OSError, ValueError, TypeError):
        return False
