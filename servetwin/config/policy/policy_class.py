"""Imports a policy class by its name, ``module:Class``, and checks it against its group's protocol."""

import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from servetwin.config.overrides import echo
from servetwin.config.policy.groups import PolicyGroup
from serving.vocabulary.errors import UserError

_CLASS_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def is_class_name(text: str) -> bool:
    """Return whether ``text`` has the form ``module:Class`` or ``package.module:Class``."""
    return _CLASS_NAME.fullmatch(text) is not None


def find_modules_here() -> None:
    """Append the current folder to the import path, so that its modules hide no others."""
    try:
        here = os.getcwd()  # noqa: PTH109 (as sys.path has it)
    except FileNotFoundError:
        raise UserError("the folder you are in was removed: cd to one that exists and run again") from None
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()


def policy_class(where: str, text: str, group: PolicyGroup) -> type:
    """Return the class that ``text`` names. ``where``: how it was chosen, for errors.

    Raises UserError if it cannot be imported, is no class, or lacks a method of the group's protocol.
    Does not call any code of the class.
    """
    module_name, _, name = text.partition(":")
    module = _import_module(where, module_name)
    _refuse_namesake(where, module_name)
    member = getattr(module, name, None)
    protocol = group.protocol.__name__
    if not inspect.isclass(member):
        kind = "nothing of that name" if member is None else f"the {type(member).__name__} {name}"
        known = [
            key
            for key, one in vars(module).items()
            if inspect.isclass(one) and not _missing_method(one, group)
        ]
        write = f"write {', '.join(f'{module_name}:{key}' for key in known)}" if known else "add it there"
        raise UserError(f"{where} is no class: {module_name} has {kind}; a {protocol} is a class, {write}")
    if lacks := _missing_method(member, group):
        raise UserError(f"{where} is no {protocol}: the class {name} {lacks}")
    return member


def attribute(where: str, text: str) -> Any:
    """Return the object that ``text`` names in a module of this package. UserError if there is none."""
    module_name, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{where} names the class '{echo(text)}', which cannot be found ({error}): "
            "write policy: module:Class in its YAML file"
        ) from error


def place_of(error: BaseException) -> str:
    """Return the type and message of the error, and the last line of code that it came from."""
    said = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        said, file, line = error.msg, error.filename, error.lineno
    else:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename[0] != "<"]
        file, line = (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
    at = f", {Path(file).name} line {line}" if file else ""
    return f"{type(error).__name__}: {echo(said) or 'no message'}{at}"


def _import_module(where: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            _refuse_namesake(where, name)
            if name.endswith(".py") and Path(name).is_file():
                raise UserError(
                    f"{where} names a file and not its module: write {where.replace('.py:', ':')}"
                ) from None
            raise UserError(
                f"{where} cannot be found: there is no module {error.name} in the folder you are in nor "
                "among the installed packages; write module:Class for a class of module.py in that folder"
            ) from None
        raise _import_error(where, name, error) from error
    except (Exception, SystemExit) as error:  # any error of the user's own code
        raise _import_error(where, name, error) from error


def _import_error(where: str, name: str, error: BaseException) -> UserError:
    return UserError(f"{where} cannot be imported ({place_of(error)}): mend the module {name}")


def _refuse_namesake(where: str, module_name: str) -> None:
    """Refuse a file of the current folder that another module of the same name hides."""
    top, whole = module_name.partition(".")[0], Path(*module_name.split("."))
    for here, name in (
        (Path(f"{top}.py"), top),
        (Path(top, "__init__.py"), top),
        (whole.with_suffix(".py"), module_name),
    ):
        used = getattr(sys.modules.get(name), "__file__", None)
        if here.is_file() and (used is None or not Path(used).exists() or not here.samefile(used)):
            raise UserError(
                f"{where} is ambiguous: {here} of the folder you are in is hidden by another module called "
                f"{top} ({getattr(sys.modules.get(top), '__file__', None) or 'a part of Python'}); rename it"
            )


def _missing_method(found: type, group: PolicyGroup) -> str | None:
    """Return the first protocol method that is missing or has other arguments; None if all are right."""
    for name, wanted in group.methods.items():
        method = inspect.getattr_static(found, name, None)
        call = f"{name}({', '.join(list(wanted.parameters)[1:])})"
        if method is None or not callable(getattr(found, name)):
            return f"has no method {call}; add it"
        if not _accepts_arguments(method, wanted.parameters):
            return f"has a method {name} that cannot be called as {call}; give it these arguments"
    return None


def _accepts_arguments(method: Any, wanted: Mapping[str, object]) -> bool:
    given = len(wanted)
    if isinstance(method, staticmethod):
        given -= 1
    try:
        inspect.signature(getattr(method, "__func__", method)).bind(*[None] * given)
    except TypeError:
        return False
    except ValueError:  # a C extension's method has no signature
        return True
    return True
