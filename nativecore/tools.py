"""The C compiler of this Python, and what is compiled otherwise by another one."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Tools:
    """Commands less their files, and a text that differs for another compiler, Python or mypyc."""

    compile: tuple[str, ...]
    link: tuple[str, ...]
    identity: str


def tools() -> Tools:
    """As setuptools finds them; CC and CFLAGS of the environment say otherwise. Exits where there is none."""
    from setuptools import Distribution, Extension

    named: Any = Distribution({"name": "nativecore", "ext_modules": [Extension("nativecore", [])]})
    command = named.get_command_obj("build_ext")
    # It then chooses the compiler, and compiles nothing.
    command.build_extensions = lambda: None
    command.ensure_finalized()
    command.run()
    compiler, linker = command.compiler.compiler_so, command.compiler.linker_so
    if shutil.which(compiler[0]) is None:
        sys.exit("there is no C compiler: install one (Debian: apt-get install gcc), or run interpreted")
    said = subprocess.run([compiler[0], "--version"], capture_output=True, text=True).stdout
    headers = f"-I{sysconfig.get_path('include')}"
    return Tools((*compiler, headers), tuple(linker), f"{said}; {sys.version}; mypy {version('mypy')}")


def takes(command: tuple[str, ...], *options: str) -> bool:
    """Whether the compiler can do with these options; GCC does with its own, others may not."""
    empty = [*command, "-Werror", *options, "-fsyntax-only", "-x", "c", os.devnull]
    return subprocess.run(empty, capture_output=True).returncode == 0
