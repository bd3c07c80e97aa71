"""Whether a result folder is of real workers."""

import json
from pathlib import Path


def is_real(place: Path) -> bool:
    """As its summary says; of what has none that can be read: no."""
    try:
        return "real" in json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False
