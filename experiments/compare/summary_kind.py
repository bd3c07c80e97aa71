"""Detects result folders of real workers."""

import json
from pathlib import Path


def is_real(place: Path) -> bool:
    """Return whether the summary is a real run's; False if it cannot be read."""
    try:
        return "real" in json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False
