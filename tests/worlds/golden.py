"""Prose that tests expect: a file of tests/data/golden each. SERVETWIN_GOLDEN=write writes what comes now."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data" / "golden"


def assert_golden(name: str, text: str) -> None:
    """``text`` is that of the file, to the byte."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("SERVETWIN_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
