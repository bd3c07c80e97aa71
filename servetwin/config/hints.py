"""Translates ranges, lists and quantities in other notations into this program's."""

import re
from typing import Final

_SPAN: Final = re.compile(r"(?:range\()?\[?([0-9]{1,18}) ?(?:-|\.\.\.?|:|to) ?([0-9]{1,18})\]?\)?")
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?) ?(us|ms|s|min|h)")
_IN_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3}
_LIST: Final = re.compile(r"\[[^\[\]{}]+\]")


def span_of(text: str) -> str:
    """Rewrite ``0-7``, ``0..7`` or ``0:7`` for a sweep, ends included: ``range(0,8)``; "" for other texts."""
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) >= int(match[2]):
        return ""
    return f"range({int(match[1])},{int(match[2]) + 1})"


def unit_advice(key: str, text: str) -> str:
    """Advise what to write for ``500ms`` or ``1s`` if the key has the unit; "" for other texts and keys."""
    found, unit = _QUANTITY.fullmatch(text), key.rpartition("_")[2]
    if found is None or unit not in ("us", "ms", "s"):
        return ""
    return f"in {unit}, without the unit: write {key}={float(found[1]) * _IN_MS[found[2]] / _IN_MS[unit]:g}"


def several_advice(key: str, text: str) -> str:
    """Advise what to write for several values of a key that takes one; "" for other texts."""
    if span := span_of(text):
        return f'and servetwin sweep takes several: write "{key}={span}" there for {text}'
    if _LIST.fullmatch(text):
        return f"and servetwin sweep takes several: write {key}={text[1:-1].replace(' ', '')} there"
    return ""
