"""From Python values to the words of a command."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from serving.vocabulary.errors import UserError


def words_of(words: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """``key=value`` words as they are, then one per keyword argument. UserError for what is no word."""
    plain = list(words)
    for word in plain:
        if not isinstance(word, str) or "=" not in word:
            raise UserError(f"{word!r} is no word: write 'key=value', such as 'system=vllm'")
    return [*plain, *(f"{key_of(name)}={text_of(name, value)}" for name, value in values.items())]


def key_of(name: str) -> str:
    """``trace__rate_per_s`` as ``trace.rate_per_s``, ``system__dispatch`` as ``system/dispatch``."""
    from servetwin.config.options import option_groups

    slashed = name.replace("__", "/")
    return slashed if slashed in option_groups() else name.replace("__", ".")


def text_of(name: str, value: Any) -> str:
    """A value as a command takes it: several as ``A,B``, a class as ``module:Class``."""
    if isinstance(value, type):
        return _class_name(name, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list | tuple | range):
        return ",".join(text_of(name, item) for item in value)
    return str(value)


def _class_name(name: str, value: type) -> str:
    module = sys.modules.get(value.__module__)
    if getattr(module, value.__qualname__, None) is not value:
        raise UserError(
            f"{name}: the class {value.__qualname__} cannot be found by its name in {value.__module__}: "
            "define it at the top of a module or of a notebook's cell"
        )
    return f"{value.__module__}:{value.__qualname__}"
