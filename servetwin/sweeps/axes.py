"""Converts words with several values to axes, in the grammar of Hydra's multirun.

``seed=0,1,2``, ``seed=range(0,3)``, ``system=glob(blitz*)``, ``cluster=choice(a100_x4,h100_x2)``; for a
search also ``system.scaler.up=interval(0.5,0.9)``.
"""

import fnmatch
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    Glob,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
    Transformer,
)
from hydra.errors import HydraException

from servetwin.config.config import RunConfig
from servetwin.config.hints import span_of
from servetwin.config.options import option_groups
from servetwin.config.overrides import LITERAL_KEYS, echo, leaves
from serving.vocabulary.errors import UserError

MOST_POINTS: Final = 100_000
_LONGEST_TEXT: Final = 1 << 14  # characters; 1.5 s in Hydra's parser
_MOST_BRACKETS: Final = 1000


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """A key and its values, as texts of single runs; ``end`` only of an interval."""

    key: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchInterval:
    """A key that a search may set to any number from ``low`` to ``high``.

    ``whole``: integers only, as for ``int(interval(1,8))`` and for every key that takes an integer.
    """

    key: str
    low: float
    high: float
    whole: bool
    log: bool


def axes_of(words: Sequence[str]) -> tuple[list[str], list[SweepAxis], list[SearchInterval]]:
    """Return words of one value unchanged, then axes and intervals in the order of the words.

    Raises UserError for text that Hydra's grammar cannot parse, an axis without values and a repeated key.
    """
    plain, axes, intervals = list[str](), list[SweepAxis](), list[SearchInterval]()
    for word in words:
        values = _read(word)
        if isinstance(values, SweepAxis):
            axes.append(values)
        elif isinstance(values, SearchInterval):
            intervals.append(values)
        else:
            plain.append(word)
    refuse_twice(words)
    return plain, axes, intervals


def refuse_twice(words: Sequence[str]) -> None:
    """Raise UserError for a repeated key."""
    keys = [word.partition("=")[0] for word in words]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"{key} is given twice: write it once")


def _read(word: str) -> SweepAxis | SearchInterval | None:
    """Parse a word; None for a word of one value."""
    key, equals, text = word.partition("=")
    if not equals or not ("," in text or text.endswith(")")) or _is_file(key, text):
        return None
    _check_length(key, text)
    try:
        override = OverridesParser.create().parse_override(word)
    except (HydraException, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        if span := span_of(text):
            raise UserError(f"{key}={echo(text)} is no list of values: write {key}={span}") from error
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"{key}={echo(text)} is no list of values ({reason}): write values with commas between, such as "
            f"{key}=A,B, or range(1,5)"
        ) from error
    if not override.is_sweep_override():
        return None
    value = override.value()
    if isinstance(value, IntervalSweep):
        return _interval(key, value)
    if isinstance(value, RangeSweep):
        _check_range(key, text, value)
    texts = _matching(key, value) if isinstance(value, Glob) else _texts(override)
    if not texts:
        raise UserError(f"{key}={echo(text)} gives no value: write {key}=A,B")
    if len(texts) > MOST_POINTS:
        raise _too_many(key, text)
    return SweepAxis(key, tuple(dict.fromkeys(texts)))


def _check_length(key: str, text: str) -> None:
    """Refuse text for which Hydra's parser would need many seconds."""
    if len(text) > _LONGEST_TEXT:
        raise UserError(
            f"{key}={echo(text)} has {len(text)} characters: write at most {_LONGEST_TEXT}, or range(0,9)"
        )
    if text.count("(") + text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise UserError(
            f"{key}={echo(text)} has over {_MOST_BRACKETS} brackets: write values with commas between"
        )


def _is_file(key: str, text: str) -> bool:
    """Return whether the whole text, including commas, is one path."""
    return key in LITERAL_KEYS and os.path.exists(text)  # noqa: PTH110 (Path.exists raises for long names)


def _check_range(key: str, text: str, value: RangeSweep) -> None:
    """Refuse a range without end, and one too long to enumerate, before it is."""
    start, stop, step = (number or 0 for number in (value.start, value.stop, value.step))
    if not all(isinstance(number, int) or math.isfinite(number) for number in (start, stop, step)):
        raise UserError(f"{key}={echo(text)} has no end: write finite numbers, such as range(1,5)")
    if step == 0:
        raise UserError(f"{key}={echo(text)} has steps of 0: write range({start},{stop})")
    if (Fraction(stop) - Fraction(start)) / Fraction(step) > MOST_POINTS:
        raise _too_many(key, text)


def _too_many(key: str, text: str) -> UserError:
    return UserError(f"{key}={echo(text)} gives over {MOST_POINTS} values: write at most {MOST_POINTS}")


def _interval(key: str, value: IntervalSweep) -> SearchInterval:
    assert value.start is not None
    assert value.end is not None
    wanted = leaves(RunConfig).get(key)
    whole = isinstance(value.start, int) or (wanted is not None and wanted.type is int)
    if not math.isfinite(value.end - value.start):
        raise UserError(f"{key}=interval({value.start},{value.end}) has no end: write finite numbers")
    if not value.start < value.end:
        raise UserError(f"{key}=interval({value.start},{value.end}) is empty: write the lower number first")
    if "log" in value.tags and value.start <= 0:
        raise UserError(f"{key}: a logarithmic interval starts above 0: write interval(0.01,{value.end})")
    return SearchInterval(key, float(value.start), float(value.end), whole, "log" in value.tags)


def _matching(key: str, value: Glob) -> list[str]:
    names = option_groups().get(key)
    if names is None:
        raise UserError(f"{key}=glob(...) needs a group of options: write {key}=A,B")
    return [name for name in names if _fits(name, value.include) and not _fits(name, value.exclude)]


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _texts(override: Override) -> list[str]:
    values = override.sweep_iterator(transformer=Transformer.identity)
    texts = [text_of(value) for value in islice(values, MOST_POINTS + 1)]  # Decimals may step on the spot
    if mapping := next((text for text in texts if text[:1] == "{"), ""):
        key = override.key_or_group
        raise UserError(f"{key}={echo(mapping)} is a mapping: write values of single keys, {key}.KEY=A,B")
    if override.key_or_group in LITERAL_KEYS:
        return texts
    return ["'{}'".format(text.replace("'", "\\'")) if _needs_quotes(text) else text for text in texts]


def _needs_quotes(text: str) -> bool:
    """Return whether a single run would read the text as several values."""
    return "," in text and text[0] != "["


def text_of(value: Any) -> str:
    """Return a value as a single run takes it: ``2.0`` as 2, which is valid for integers and numbers."""
    if isinstance(value, QuotedString):
        return str(value.text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    return str(value)
