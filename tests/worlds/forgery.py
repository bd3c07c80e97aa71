"""Configurations with a hostile value somewhere, and a module that tells when it is imported or called."""

from pathlib import Path
from typing import Any

import pytest
import yaml

EVIL = "evil_module"
ATTACKS = (f"{EVIL}:boom", f"{EVIL}:Boom", {"_target_": f"{EVIL}.boom"}, f"{EVIL}.boom", [f"{EVIL}:boom"])


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that appears as soon as anything imports the module EVIL or calls what it has."""
    told = tmp_path / "imported"
    (tmp_path / f"{EVIL}.py").write_text(
        f"from pathlib import Path\nPath({str(told)!r}).touch()\n"
        f"def boom(*a, **k): Path({str(told)!r}).touch()\n"
        "class Boom:\n    def __init__(self, *a, **k): boom()\n    dispatch = choose = admit = scale = boom\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return told


def config_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    return found


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a configuration has anything but a number: words, lists, mappings, and nothing."""
    if not isinstance(data, dict):
        return [] if isinstance(data, int | float) else [path]
    return [path, *(place for key, value in data.items() for place in places(value, (*path, key)))]


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    return data | {path[0]: put(data[path[0]], path[1:], value)}
