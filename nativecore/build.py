"""Compiles the core: python -m nativecore.build (what make fast does).

Sources go through mypyc into C and one shared library. The new files take the place of the old ones at the
end, when all is there.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from nativecore import BUILT_NAME, LIB, LIBRARY, ROOT, hash_of, interpreter
from nativecore.modules import compiled_modules

# GCC's -O1 takes half the time of -O2 to compile. Most branches of mypyc's C code handle errors; with these
# moved out of the hot path (static runs: 3 to 7 % less CPU, medians of 4 and 8 processes) -O1 runs as fast.
OPTIMIZATION: Final = "1"
COLD_ERROR_BRANCHES: Final = (
    "-fvisibility=hidden",
    "-freorder-blocks-algorithm=stc",
    "-freorder-blocks-and-partition",
)
# Ctrl-C in the middle of a multiplication stops the run in order.
INTERRUPTS: Final = (
    f"-I{sysconfig.get_path('include')}",
    "-include",
    str(Path(__file__).with_name("interrupts.h")),
)
_GROUP: Final = LIBRARY.removesuffix("__mypyc")


def build(into: Path = LIB, root: Path = ROOT) -> None:
    """Compile the core of the sources below ``root``. Exits with a sentence where that cannot be done."""
    modules = compiled_modules(root)
    sources = {name: hash_of(root / name) for name in _with_imports(modules, root)}
    with tempfile.TemporaryDirectory(dir=_made(into.parent)) as folder:
        lib = Path(folder) / "lib"
        _compile(modules, root, lib, Path(folder) / "c")
        names = [name.removesuffix(".py").replace("/", ".") for name in modules]
        built = {"interpreter": interpreter(), "sources": sources, "modules": names}
        (lib / BUILT_NAME).write_text(json.dumps(built, indent=1) + "\n")
        if into.exists():
            into.rename(Path(folder) / "old")
        lib.rename(into)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _compile(modules: list[str], root: Path, lib: Path, c_files: Path) -> None:
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        sys.exit("there is no C compiler: install one (Debian: apt-get install gcc), or run interpreted")
    from mypyc.build import mypycify
    from setuptools import Distribution

    here = Path.cwd()
    os.chdir(root)
    try:
        # mypyc's headers are wanted whole: one C file is quicker than one for each module.
        extensions: Any = mypycify(
            modules, opt_level=OPTIMIZATION, debug_level="0", group_name=_GROUP, target_dir=str(c_files)
        )
        for options in (INTERRUPTS, COLD_ERROR_BRANCHES):
            for extension in extensions if _takes(compiler, options) else ():
                extension.extra_compile_args.extend(options)
        command: Any = Distribution({"name": "nativecore", "ext_modules": extensions}).get_command_obj(
            "build_ext"
        )
        command.build_lib, command.build_temp = str(lib), str(c_files / "objects")
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(here)


def _takes(compiler: str, options: tuple[str, ...]) -> bool:
    """Whether the compiler knows these options; GCC does, others may not."""
    empty = [compiler, "-Werror", *options, "-fsyntax-only", "-x", "c", os.devnull]
    return subprocess.run(empty, capture_output=True).returncode == 0


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
    build()
    cpu_s = sum(os.times()[:4]) - began_cpu_s
    size_mb = sum(path.stat().st_size for path in LIB.rglob("*.so")) / 1e6
    print(
        f"compiled {len(compiled_modules())} modules in {time.monotonic() - began_s:.0f} s "
        f"({cpu_s:.0f} CPU-s), {size_mb:.1f} MB in {LIB.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    main()
