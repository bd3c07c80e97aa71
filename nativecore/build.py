"""Compiles the core: python -m nativecore.build (what make fast does).

Sources go through mypyc into C, a file for each module, and from there into one shared library. The new files
take the place of the old ones at the end, when all is there; until then the old ones stay as they are.
"""

import ast
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from nativecore import BUILT_NAME, LIB, ROOT, hash_of, interpreter
from nativecore.library import make_library
from nativecore.modules import compiled_modules
from nativecore.tools import Tools, tools

# Objects of the last build, for this checkout and its wheel.
STORE: Final = ROOT / "build" / "native"


def build(into: Path = LIB, root: Path = ROOT, store: Path = STORE) -> bool:
    """Compile the core of the sources below ``root``; whether there was anything to do.

    Exits with a sentence where that cannot be done.
    """
    modules, used = compiled_modules(root), tools()
    built: dict[str, Any] = {
        "interpreter": interpreter(),
        "sources": {name: hash_of(root / name) for name in _with_imports(modules, root)},
        "made_with": _made_with(used, root),
    }
    if _is_there(into, built):
        return False
    with tempfile.TemporaryDirectory(dir=_made(into.parent)) as folder:
        lib = _made(Path(folder) / "lib")
        built["modules"] = make_library(
            modules, root=root, lib=lib, c_files=Path(folder) / "c", store=store, tools=used
        )
        (lib / BUILT_NAME).write_text(json.dumps(built, indent=1) + "\n")
        if into.exists():
            into.rename(Path(folder) / "old")
        lib.rename(into)
    return True


def _is_there(lib: Path, wanted: dict[str, Any]) -> bool:
    """Whether these native files are there already."""
    try:
        built: dict[str, Any] = json.loads((lib / BUILT_NAME).read_bytes())
        files = set(dict(built.pop("modules")).values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return built == wanted and bool(files) and all((lib / file).is_file() for file in files)


def _made_with(used: Tools, root: Path) -> str:
    """A hash of what makes native files of sources: this package, the settings of mypy, the compiler."""
    recipe = [path for path in sorted(Path(__file__).parent.iterdir()) if path.suffix in {".py", ".h", ".c"}]
    settings = [path for path in [root / "pyproject.toml"] if path.is_file()]
    words = [str(used), *(hash_of(path) for path in [*recipe, *settings])]
    return hashlib.sha256(repr(words).encode()).hexdigest()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _with_imports(modules: list[str], root: Path) -> list[str]:
    """The modules and everything of this project they import, by whatever way: native code relies on it."""
    found, new = set[str](), list(modules)
    while new:
        name = new.pop()
        if name not in found:
            found.add(name)
            new += _imports(name, root)
    return sorted(found)


def _imports(name: str, root: Path) -> list[str]:
    tree = ast.parse((root / name).read_text(encoding="utf-8"))
    dotted = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            dotted += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    files = [f"{name.replace('.', '/')}{end}" for name in dotted for end in (".py", "/__init__.py")]
    return [file for file in files if (root / file).is_file()]


def main() -> None:
    """Compile, and say how long it took."""
    began_s, began_cpu_s = time.monotonic(), sum(os.times()[:4])
    anew = build()
    cpu_s = sum(os.times()[:4]) - began_cpu_s
    size_mb = sum(path.stat().st_size for path in LIB.rglob("*.so")) / 1e6
    print(
        f"{'compiled' if anew else 'nothing has changed in'} {len(compiled_modules())} modules: "
        f"{time.monotonic() - began_s:.0f} s ({cpu_s:.0f} CPU-s), {size_mb:.1f} MB in {LIB.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    main()
