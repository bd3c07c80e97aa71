"""Keys that a command has of its own, beside or instead of those of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.config.overrides import Wanted, closest, echo, parse_value, parse_words
from serving.vocabulary.errors import UserError


def split_own(words: Sequence[str], own: Mapping[str, Wanted]) -> tuple[dict[str, Any], list[str]]:
    """Return the typed values of the keys in ``own``, and the words of a run that remain."""
    mine = [word for word in words if word.partition("=")[0] in own]
    values = {word.key: parse_value(word, own[word.key]) for word in parse_words(mine)}
    return values, [word for word in words if word not in mine]


def only_own(words: Sequence[str], own: Mapping[str, Wanted], command: str, hint: str) -> dict[str, Any]:
    """Return the typed values of a command without other keys; UserError for an unknown one.

    ``hint``: what to write where no key in ``own`` resembles the unknown one.
    """
    values = {}
    for word in parse_words(words):
        if word.key not in own:
            near = closest(word.key, own)
            advice = f"{near}=VALUE if that is meant" if near else hint
            raise UserError(f"unknown key '{echo(word.key)}' for {command}: write {advice}")
        values[word.key] = parse_value(word, own[word.key])
    return values


def check_range(word: str, value: int, low: int, high: int) -> int:
    """Return ``value``; UserError naming ``word`` if it is not from ``low`` to ``high``."""
    if not low <= value <= high:
        raise UserError(f"{word} is out of range: write a number from {low} to {high}")
    return value
