"""Makes the native files: C code of all modules in one library, and files that hand out its modules."""

import os
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final

from nativecore import LIBRARY
from nativecore.objects import Batch, Compiler, compiled, ran
from nativecore.tools import Tools, takes

# GCC's -O1 takes half the time of -O2 to compile. Most branches of mypyc's C code handle errors; with these
# moved out of the hot path (static runs: 3 to 7 % less CPU, medians of 4 and 8 processes) -O1 runs as fast.
OPTIMIZATION: Final = "1"
COLD_ERROR_BRANCHES: Final = (
    "-fvisibility=hidden",
    "-freorder-blocks-algorithm=stc",
    "-freorder-blocks-and-partition",
)
# Ctrl-C in the middle of a multiplication stops the run in order.
INTERRUPTS: Final = "interrupts.h"
# Products of fixed-point times stay machine words.
MULTIPLY: Final = "multiply.h"
# Facts are made in C: the only module that is not made from Python, so its name has no source.
CONSTRUCT: Final = "construct.c"
_GROUP: Final = LIBRARY.removesuffix("__mypyc")
# What the C code of a module includes, in this order; and one file that includes them.
_HEADERS: Final = (INTERRUPTS, f"__native_internal_{_GROUP}.h", f"__native_{_GROUP}.h", MULTIPLY)
_COMMON: Final = "common.h"


def make_library(
    modules: list[str], *, root: Path, lib: Path, c_files: Path, store: Path, tools: Tools
) -> dict[str, str]:
    """Native files of the modules, in ``lib``; for each module the file that hands it out."""
    library, *shims = _c_code(modules, root, c_files)
    for name in (INTERRUPTS, MULTIPLY, CONSTRUCT):
        shutil.copy(Path(__file__).with_name(name), c_files)
    (c_files / _COMMON).write_text("".join(f'#include "{name}"\n' for name in _HEADERS))
    sources = [os.path.relpath(source, c_files) for source in library.sources]
    of_modules = tuple(source for source in sources if source.startswith("__native"))
    runtime = tuple(source for source in sources if not source.startswith("__native"))
    handing_out = shims_together([shim.name for shim in shims], c_files)
    handing_out[CONSTRUCT] = ["nativecore.construct"]
    batches = [
        Batch(of_modules, _COMMON, (_COMMON, *_HEADERS)),
        Batch((*runtime, *handing_out), INTERRUPTS, (INTERRUPTS,)),
    ]
    objects = compiled(batches, c_files, _compiler(library, c_files, tools), store)
    files = dict[str, str]()
    for source, names in handing_out.items():
        file = Path(source).stem + EXTENSION_SUFFIXES[0]
        _link([objects.pop(source)], lib / file, tools)
        files |= dict.fromkeys(names, file)
    _link(list(objects.values()), lib / (LIBRARY + EXTENSION_SUFFIXES[0]), tools)
    return files


def _c_code(modules: list[str], root: Path, c_files: Path) -> list[Any]:
    """What mypyc wants compiled: the library, and for each module a shim that hands it out."""
    from mypyc.build import mypycify

    here = Path.cwd()
    os.chdir(root)
    try:
        # One C file of all modules takes GCC three times as long.
        return mypycify(
            modules,
            opt_level=OPTIMIZATION,
            debug_level="0",
            group_name=_GROUP,
            target_dir=str(c_files),
            multi_file=True,
        )
    finally:
        os.chdir(here)


def _compiler(library: Any, c_files: Path, tools: Tools) -> Compiler:
    """With mypyc's options and ours. ``c_files`` is not named: objects of one folder fit those of another."""
    folders = ["-I." if Path(folder) == c_files else f"-I{folder}" for folder in library.include_dirs]
    command = (*tools.compile, *folders, *library.extra_compile_args)
    if not takes(command, "-include", str(c_files / INTERRUPTS)):
        sys.exit(
            f"{command[0]} does not find the header files of this Python: install them "
            "(Debian: apt-get install python3-dev), or run interpreted"
        )
    is_gcc = takes(command, *COLD_ERROR_BRANCHES)
    return Compiler((*command, *(COLD_ERROR_BRANCHES if is_gcc else ())), tools.identity, is_gcc)


def shims_together(modules: list[str], c_files: Path) -> dict[str, list[str]]:
    """C files that have the shims of many modules, each with the modules it hands out.

    Python asks a native file for the last part of a module's name. So two modules that share it are in
    different files.
    """
    files = list[dict[str, str]]()
    for name in modules:
        last = name.rpartition(".")[2]
        free = next((file for file in files if last not in file), None)
        if free is None:
            files.append(free := {})
        free[last] = name
    found = dict[str, list[str]]()
    for number, file in enumerate(files):
        lines = list[str]()
        for last, name in file.items():
            shim = Path(*name.split(".")).with_suffix(".c")
            # Every shim defines this too, for another system.
            lines += [f"#define PyInit___init__ PyInit___init__{last}", (c_files / shim).read_text()]
            lines += ["#undef PyInit___init__", ""]
        (c_files / f"modules_{number}.c").write_text("\n".join(lines))
        found[f"modules_{number}.c"] = list(file.values())
    return found


def _link(objects: list[Path], to: Path, tools: Tools) -> None:
    ran([*tools.link, *map(str, objects), "-o", str(to)], to.parent)
