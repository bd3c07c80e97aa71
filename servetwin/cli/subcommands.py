"""Commands with subcommands, such as ``servetwin traces fetch``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import telling
from servetwin.config.overrides import closest, echo
from serving.vocabulary.errors import UserError

_ASKING: Final = ("-h", "--help", "help")


def by_verb(
    command: str, words: Sequence[str], verbs: Mapping[str, Callable[[Sequence[str]], int]], usage: str
) -> int:
    """Run the subcommand of the first word, or print ``usage``; exit status 2 without a verb.

    Raises UserError for an unknown verb.
    """
    rest, _ = asked_for_json(words)
    if not rest or any(word in _ASKING for word in rest):
        with telling():
            print(usage, end="")
        return 0 if rest else 2
    if words[0] not in verbs:
        near = closest(words[0], verbs) or " | ".join(verbs)
        raise UserError(f"there is no command '{command} {echo(words[0])}': write servetwin {command} {near}")
    return verbs[words[0]](words[1:])
