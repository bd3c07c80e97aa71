"""Checks the words of many runs before the first one, so that a common mistake is reported once."""

from collections.abc import Iterable, Sequence
from typing import Final

from servetwin.config.compose import run_again
from servetwin.config.compose.compose import check_choice, chosen_option
from servetwin.config.config import RunConfig
from servetwin.config.options import option_groups
from servetwin.config.overrides import leaves, parse_value, parse_words
from servetwin.config.unknown_key import unknown_key

# Prefixes of keys whose parameters depend on each run's policy or trace.
_OF_RUNS: Final = ("system.", "trace.")


def check_words(plain: Sequence[str], swept: Iterable[str], own: Iterable[str], kind: str) -> None:
    """Check the words of many runs.

    ``plain``: the words with one value. ``swept``: the keys with several values. ``own``: further keys that
    the command itself reads. UserError for an unknown key, an unknown option, and a value of a wrong type.
    """
    groups, known = option_groups(), leaves(RunConfig)
    words = parse_words(plain)
    for key, text in (*((word.key, word.text) for word in words), *((key, "") for key in swept)):
        if key not in known and key not in groups and key != run_again.KEY and not key.startswith(_OF_RUNS):
            raise unknown_key(key, [*known, *groups, *own], kind, text)
    for word in words:
        if word.key in groups:
            check_choice(chosen_option(word, groups), groups)
        elif word.key in known:
            parse_value(word, known[word.key])
