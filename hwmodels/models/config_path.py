"""Tells the path of a model's config.json from a model's name."""

from pathlib import Path
from typing import Final

CONFIG_FILE: Final = "config.json"


def looks_like_config(text: str) -> bool:
    """Whether a model's name looks like a path: of a config.json, or of a folder."""
    if "/" in text or "\\" in text or text.endswith(".json"):
        return True
    try:
        return Path(text).is_dir()
    except OSError:  # longer than a file name may be
        return False
