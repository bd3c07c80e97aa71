"""Translates words of other tools, and ranges in other notations, into this program's."""

import re
from typing import Final

# Words that users write, and the keys that they mean.
MEANT: Final = {
    "duration": "trace.window_s",
    "duration_s": "trace.window_s",
    "seconds": "trace.window_s",
    "rate": "trace.rate_per_s",
    "request_rate": "trace.rate_per_s",
    "rps": "trace.rate_per_s",
    "qps": "trace.rate_per_s",
    "num_prompts": "trace.limit",
    "policy": "system/dispatch",
}
# vLLM's words, understood in any group.
MEANT_ANYWHERE: Final = {"tensor_parallel_size": "model.tp", "pipeline_parallel_size": "model.pp"}
_SPAN: Final = re.compile(r"(?:range\()?\[?([0-9]{1,18}) ?(?:-|\.\.\.?|:|to) ?([0-9]{1,18})\]?\)?")
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?) ?(us|ms|s|min|h)")
_IN_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3}
_LIST: Final = re.compile(r"\[[^\[\]{}]+\]")


def span_of(text: str) -> str:
    """Rewrite ``0-7``, ``0..7`` or ``0:7`` for a sweep, ends included: ``range(0,8)``; "" for other texts."""
    found = _SPAN.fullmatch(text)
    if found is None or int(found[1]) >= int(found[2]):
        return ""
    return f"range({int(found[1])},{int(found[2]) + 1})"


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
