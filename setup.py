"""Metadata are in pyproject.toml. With SERVETWIN_COMPILE=1 the wheel has the compiled core (make wheel)."""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

COMPILE = os.environ.get("SERVETWIN_COMPILE", "") not in ("", "0")


class BuildWithCore(build_py):
    """Sources, and the native files where ``nativecore`` looks for them."""

    def run(self) -> None:
        """Copy the sources; compile those that were copied, so that the hashes are theirs."""
        super().run()
        if COMPILE and not self.editable_mode:
            sys.path.insert(0, str(Path(__file__).parent))
            from nativecore.build import build

            root = Path(self.build_lib).resolve()
            build(into=root / "nativecore" / "lib", root=root)


class WithNativeCode(Distribution):
    """A wheel of one interpreter and platform when it has native code."""

    def has_ext_modules(self) -> bool:
        """Whether there is native code."""
        return COMPILE


setup(cmdclass={"build_py": BuildWithCore}, distclass=WithNativeCode)
