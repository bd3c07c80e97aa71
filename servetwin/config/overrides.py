"""Parses command-line words ``key=value`` into typed values, and refuses others with a sentence."""

import difflib
import functools
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from servetwin.config.hints import several_advice, unit_advice
from servetwin.config.key import declared_keys
from serving.vocabulary.errors import UserError

# Paths may have any character that a file system takes, so their values are not parsed.
LITERAL_KEYS: Final = frozenset(
    {"out", "trace.path", "engine.profile", "engine.overhead", "engine.front_end", "config"}
)

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./][A-Za-z_][A-Za-z0-9_]*)*")
_MODEL = re.compile(r"[A-Za-z][\w.\-]*/[\w.\-]+")  # a name on Hugging Face
_SWEEP = re.compile(r"(?:range|choice|interval|glob|sort|shuffle|tag|extend_list)\(.*\)", re.DOTALL)
_CAST = re.compile(r"(?:int|float|str|bool|json_str)\((.*)\)", re.DOTALL)
_FIRST_PAIR = re.compile(r"\{\s*['\"]?([A-Za-z_][\w.]*)['\"]?\s*:\s*([^,{}]+)")
_QUOTED: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ONE_QUOTED = re.compile(_QUOTED, re.DOTALL)
_COMMA = re.compile(rf"{_QUOTED}|\\.|,", re.DOTALL)  # or what hides one
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")  # what Hydra's grammar escapes outside quotes
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_ROUND_NUMBER = re.compile(r"[+-]?[0-9]{1,19}(?:\.[0-9]{1,19})?[eE]\+?[0-9]{1,2}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGEST_INTEGER: Final = 2**63 - 1
_LONGEST_ECHO: Final = 60


@dataclass(frozen=True, slots=True)
class Override:
    """One word of the command line, split at its first '='."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}={echo(self.text)}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The type of a key: int, float, bool, str, list or ``Any`` (whichever fits); whether it may be null.

    ``items``: the type of a list's items. ``choices``: the allowed words, if limited.
    """

    type: Any
    optional: bool = False
    items: Any = Any
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the type with its article, such as "an integer or null", as the object of a sentence."""
        words = {int: "an integer", float: "a number", bool: "true or false", str: "a word", list: "a list"}
        items = {int: " of integers", float: " of numbers", bool: " of true and false", str: " of words"}
        if self.choices:
            return f"one of {', '.join(self.choices)}" + (" or null" if self.optional else "")
        of_items = items.get(self.items, "") if self.type is list else ""
        return words.get(self.type, "a value") + of_items + (" or null" if self.optional else "")

    @property
    def example(self) -> str:
        """A valid value, for error messages."""
        if self.choices:
            return self.choices[0]
        if self.type is list:
            return {int: "[1,2]", float: "[0.5,2]", bool: "[true,false]"}.get(self.items, "[A,B]")
        return {int: "8", float: "0.5", bool: "true"}.get(self.type, "VALUE")


def echo(text: str) -> str:
    """Return the user's text as one printable line of bounded length."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return shown if len(shown) <= _LONGEST_ECHO else shown[: _LONGEST_ECHO - 3] + "..."


def parse_words(words: Iterable[str]) -> list[Override]:
    """Return the overrides in order; UserError for a word that is not ``key=value`` or is repeated."""
    seen: dict[str, Override] = {}
    for word in words:
        override = _parse_word(word)
        key = canonical(override.key)
        if key in seen:
            raise UserError(f"{override.key} is given twice ({seen[key]} and {override}): write it once")
        seen[key] = override
    return list(seen.values())


def _parse_word(word: str) -> Override:
    key, equals, text = word.partition("=")
    if word[:1] in ("+", "~"):
        plain = word.lstrip("+~")
        raise UserError(
            f"'{echo(word)}' would add or remove a key, and the set of keys is fixed: "
            f"write {echo(plain) if '=' in plain else echo(plain) + '=VALUE'} to set one"
        )
    if not equals:
        model = f"write model={echo(word)}" if _MODEL.fullmatch(word) else "write key=value, such as seed=1"
        wanted = f"write {word}=VALUE" if _KEY.fullmatch(word) else model
        raise UserError(f"'{echo(word)}' has no '=': {wanted}")
    if _KEY.fullmatch(key.lstrip("-")) and key[0] == "-":
        raise UserError(f"'{echo(word)}' is no flag of this command: write {echo(word.lstrip('-'))}")
    if not _KEY.fullmatch(key):
        if _KEY.fullmatch(plain := key.replace("-", "_")):
            raise UserError(f"'{echo(word)}' has '-' in its key: {_with_underscores(plain, text)}")
        raise UserError(
            f"'{echo(word)}' does not start with a key: write key=value without spaces around '=', "
            "the key in letters, digits, '_', '.' and '/'"
        )
    if not text:
        raise UserError(f"{key}= has no value: write {key}=VALUE")
    if key not in LITERAL_KEYS:
        if not text.isprintable():
            raise UserError(f"{Override(key, text)} has a character that cannot be printed: write it without")
        _refuse_grammar(Override(key, text))
        text = text if text[0] in "'\"[" else _ESCAPED.sub(r"\1", text)
    return Override(key, text)


def _with_underscores(key: str, text: str) -> str:
    from servetwin.config.server_flags import key_answer

    return key_answer(key, text) or f"write {key}={echo(text) or 'VALUE'}"


def _refuse_grammar(override: Override) -> None:
    """Refuse Hydra's sweeps and interpolations, which other commands may accept but a single run does not."""
    text = override.text
    inner = cast[1] if (cast := _CAST.fullmatch(text)) else text
    if "@" in text and "," in text and text[0] != "[":
        raise UserError(f'{override} has several stages: write them in brackets, "{override.key}=[{text}]"')
    if _SWEEP.fullmatch(inner) or _has_several(text):
        first = text.partition(",")[0]
        one = "VALUE" if _SWEEP.fullmatch(inner) or not first else echo(first)
        raise UserError(
            f"{override} has several values: write servetwin sweep {override} for a run of each, or one "
            f"value, such as {override.key}={one}"
        )
    if cast:
        raise UserError(
            f"{override} converts a value, and a key converts by itself: write {override.key}={echo(inner)}"
        )
    if text[0] == "{":
        pair = _FIRST_PAIR.match(text)
        one = f"{override.key}.{pair[1]}={echo(pair[2].strip())}" if pair else f"{override.key}.KEY=VALUE"
        raise UserError(
            f"{override} is a mapping: write each of its keys as a word of its own, such as {one}"
        )
    if "${" in text:
        raise UserError(
            f"{override} refers to another value, which works in YAML files only: "
            f"write the value itself, {override.key}=VALUE"
        )


def _has_several(text: str) -> bool:
    """Return whether a comma outside quotes, lists and escapes separates values."""
    if text[0] in "'\"":
        return "," in text and not _ONE_QUOTED.fullmatch(text)
    return "," in _ESCAPED.sub("", text) and text[0] not in "[{("


def unquoted(choice: Override) -> Override:
    """Return a chosen option without the quotes around its name."""
    return Override(choice.key, _parse_text(choice.text) or choice.text)


def canonical(key: str) -> str:
    """Return a parameter's short form: ``system.admission.params.burst`` is ``system.admission.burst``."""
    parts = key.split(".")
    if parts[-2:-1] == ["params"] and (parts[0], len(parts)) in (("system", 4), ("trace", 3)):
        del parts[-2]
    return ".".join(parts)


@functools.cache
def leaves(config_class: type) -> Mapping[str, Wanted]:
    """Map each dotted key to its type, for every key of a configuration class except free parameters."""
    return {path: wanted_by(declared.hint) for path, declared in declared_keys(config_class).items()}


def wanted_by(hint: Any) -> Wanted:
    """Translate a type hint: ``int | None`` is an optional int, and so on."""
    if isinstance(hint, types.UnionType):
        (inner,) = (part for part in hint.__args__ if part is not types.NoneType)
        return Wanted(inner, optional=True)
    return Wanted(hint)


def parse_value(override: Override, wanted: Wanted) -> Any:
    """Return the typed value of a word; UserError naming the key if the type is wrong."""
    if override.key in LITERAL_KEYS:
        return override.text
    if wanted.optional and override.text == "null":
        return None
    if wanted.type is list:
        value: Any = _parse_list(override.text, _PARSERS.get(wanted.items, _parse_any))
    else:
        value = _PARSERS.get(wanted.type, _parse_any)(override.text)
    if value is None or (wanted.choices and value not in wanted.choices):
        raise UserError(f"{override} is wrong: {override.key} wants {wanted}, {_advice(override, wanted)}")
    return value


def _advice(override: Override, wanted: Wanted) -> str:
    if wanted.type in (int, float) and (several := several_advice(override.key, override.text)):
        return several
    if wanted.type in (int, float) and (number := unit_advice(override.key, override.text)):
        return number
    if wanted.type is int and _NUMBER.fullmatch(override.text):
        return "a whole one below 2^63: write it without a fraction"
    if wanted.type is float and override.text.lower().strip("+-") in (
        "nan",
        "inf",
        "infinity",
        ".nan",
        ".inf",
    ):
        return f"a finite one: write {override.key}={wanted.example}"
    return f"so write for example {override.key}={wanted.example}"


def _parse_integer(text: str) -> int | None:
    """Parse digits, or a whole power-of-ten form: 1e3 is 1000, 1.5e3 is 1500; 1e-3 and 10.0 are refused."""
    if _INTEGER.fullmatch(text):
        value = int(text)
    elif _ROUND_NUMBER.fullmatch(text) and (exact := Decimal(text)) == exact.to_integral_value():
        value = int(exact)
    else:
        return None
    return value if abs(value) <= _LARGEST_INTEGER else None


def _parse_number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _parse_bool(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _parse_text(text: str) -> str | None:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace(f"\\{text[0]}", text[0])
    return None if text == "null" else text


def _parse_list(text: str, parse_item: Callable[[str], Any]) -> list[Any] | None:
    """Parse ``[A,B]``: plain values separated by commas; ``[]`` is empty."""
    if len(text) < 2 or (text[0], text[-1]) != ("[", "]") or any(mark in text[1:-1] for mark in "[]{}"):
        return None
    parts = _items(text[1:-1]) if text[1:-1].strip() else []
    values = [parse_item(part) if part else None for part in parts]
    return None if None in values else values


def _items(text: str) -> list[str]:
    """Split a list's text at the commas outside quotes."""
    commas = [found.start() for found in _COMMA.finditer(text) if found[0] == ","]
    ends = zip([-1, *commas], [*commas, len(text)], strict=True)
    items = [text[before + 1 : end].strip() for before, end in ends]
    return [item if item[:1] in ("'", '"') else _ESCAPED.sub(r"\1", item) for item in items]


def _parse_any(text: str) -> Any:
    """Parse a policy parameter whose YAML default does not give its type."""
    for parse in (_parse_integer, _parse_number, _parse_bool):
        if (value := parse(text)) is not None:
            return value
    items = _parse_list(text, _parse_any)
    return _parse_text(text) if items is None else items


_PARSERS: Final[dict[Any, Any]] = {
    int: _parse_integer,
    float: _parse_number,
    bool: _parse_bool,
    str: _parse_text,
}


def is_too_long(value: Any) -> bool:
    """Return whether the value is a whole number too large for a float."""
    return type(value) is int and value.bit_length() >= sys.float_info.max_exp


def checked_value(value: Any, wanted: Wanted, key: str, source: str) -> Any:
    """Return a file's value if the key takes it; otherwise raise UserError naming key and file."""
    if value is None and wanted.optional:
        return None
    if is_too_long(value):
        raise UserError(f"{key} in {source} is a number of too many digits: write {wanted}")
    if wanted.type is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted.type or value != value or value in (float("inf"), float("-inf")):
        raise UserError(f"{key}={value!r} in {source} is wrong: write {wanted}")
    return value


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the name most like ``word``, by its whole or its last part (``limit`` finds ``trace.limit``).

    In an existing group only the last part is compared: the group would make any two keys look alike.
    """
    names = sorted(known)
    owner, _, last = word.rpartition(".")
    beside = {name.rpartition(".")[2]: name for name in names if owner and name.rpartition(".")[0] == owner}
    last_parts: dict[str, str] = {}
    for name in names:
        last_parts.setdefault(re.split(r"[./]", name)[-1], name)
    plain = {} if beside else {name.lower(): name for name in names}
    for wanted, there in ((word.lower(), plain), (last, beside), (last, last_parts)):
        if near := difflib.get_close_matches(wanted, list(there), n=1, cutoff=0.75):
            return there[near[0]]
    return None
