"""Whether the core runs as native code, and where that code is.

``make fast`` compiles the modules listed in ``nativecore.modules`` with mypyc, from the same source that the
interpreter runs. Native files lie below ``nativecore/lib``, apart from the sources, with the hashes of all
sources they were made from (``built.json``). They are used all together or not at all: when one source, the
interpreter or the platform is another one, everything runs interpreted. ``SERVETWIN_INTERPRETED=1`` asks for
that. A package with native modules imports this one first, which puts a finder of them in front of Python's.
"""

import hashlib
import json
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
LIB: Final = Path(__file__).parent / "lib"
BUILT_NAME: Final = "built.json"
# All native code is in one library; the few files beside it only hand out its modules.
LIBRARY: Final = "servetwin_core__mypyc"
SWITCH: Final = "SERVETWIN_INTERPRETED"
# How the reason ends when native files are there and a source is another one by now.
OUT_OF_DATE: Final = "has changed since it was compiled"


def interpreter() -> str:
    """Who may load the native files: implementation, version and platform, as their names end."""
    return EXTENSION_SUFFIXES[0]


def hash_of(path: Path) -> str:
    """SHA-256 of the file, as ``built.json`` has it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def why_interpreted() -> str:
    """Why the native core is not used, in words for people; empty: it is."""
    return _WHY


def core() -> str:
    """Which core runs: ``compiled`` or ``interpreted``."""
    return "interpreted" if _WHY else "compiled"


def section() -> dict[str, str]:
    """For summary.json: ``core``, and ``why_interpreted`` where that has a reason to be told."""
    return {"core": core(), "why_interpreted": _WHY}


class NativeFinder:
    """Finds the modules that are compiled, before anybody finds their sources."""

    def __init__(self, files: dict[str, str]) -> None:
        """``files``: module -> the native file that hands it out."""
        self.files = files

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As ``importlib.abc.MetaPathFinder`` has it."""
        file = self.files.get(name)
        return None if file is None else spec_from_file_location(name, file)


def _look() -> str:
    if os.environ.get(SWITCH, "") not in ("", "0"):
        return f"{SWITCH} is set"
    try:
        built: dict[str, Any] = json.loads((LIB / BUILT_NAME).read_bytes())
        made_for, sources, files = built["interpreter"], built["sources"], dict(built["modules"])
    except FileNotFoundError:
        return "it is not compiled"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{LIB / BUILT_NAME} is damaged"
    if made_for != interpreter():
        return f"it was compiled for {made_for}, and this is {interpreter()}"
    for name, its_hash in sources.items():
        if not (ROOT / name).is_file() or hash_of(ROOT / name) != its_hash:
            return f"{name} {OUT_OF_DATE}"
    return _load() or _find(files)


def _find(files: dict[str, str]) -> str:
    sys.meta_path.insert(0, NativeFinder({module: str(LIB / file) for module, file in files.items()}))
    return ""


def _load() -> str:
    """Load the library, so that its modules are found wherever it lies."""
    path = LIB / (LIBRARY + EXTENSION_SUFFIXES[0])
    spec = spec_from_file_location(LIBRARY, path, loader=ExtensionFileLoader(LIBRARY, str(path)))
    assert spec is not None and spec.loader is not None
    try:
        sys.modules[LIBRARY] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        sys.modules.pop(LIBRARY, None)
        return f"{path.name} cannot be loaded ({error})"
    return ""


_WHY: Final = _look()
