"""What every ``python -m benchmarks.NAME`` does with its words: --help, sentences, exit status."""

import sys
from collections.abc import Callable, Iterable

from hwmodels.errors import HardwareError
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

FAULTS_OF_THE_USER = (HardwareError, TraceError, UserError)


def command(name: str, doc: str | None, main: Callable[[list[str]], int | None]) -> None:
    """Run ``main`` on this process's words and exit with its status.

    ``-h`` or ``--help`` prints ``doc`` and exits with 0; what the user can correct is one sentence and exits
    with 2.
    """
    words = sys.argv[1:]
    if {"-h", "--help"} & set(words):
        print((doc or "").strip())
        sys.exit(0)
    try:
        sys.exit(main(words) or 0)
    except FAULTS_OF_THE_USER as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)


def among(words: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Refuse the first word that is none of ``known``."""
    names = list(known)
    for word in words:
        if word not in names:
            raise UserError(f"there is no {kind} {word!r}: write {', '.join(names)}")


def no_words(words: list[str]) -> None:
    """Refuse any word."""
    if words:
        raise UserError(f"it takes no words and {words[0]!r} was given: leave it out")


def count(word: str, kind: str, example: str) -> int:
    """A whole number above 0."""
    if not (word.isascii() and word.isdigit()) or not int(word):
        raise UserError(f"{word!r} is no {kind}: write {example}")
    return int(word)
