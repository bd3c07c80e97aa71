"""Answers flags of ``vllm serve`` and SGLang's server on the command line with the words to write here.

``servetwin simulate --tensor-parallel-size 4`` is refused with ``model.tp=4``; a whole command line of a
server with one sentence, which has every word to write and every flag to leave out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from servetwin.config.config import Kind, RunConfig
from servetwin.config.key import declared_keys
from servetwin.config.meanings import meant_words
from servetwin.config.options import option_groups
from servetwin.config.overrides import echo
from servetwin.config.server_flags import (
    PAGE,
    SERVERS,
    VALUE,
    Answer,
    Flag,
    answer,
    flags_spelled,
    near_flag,
    of_servers,
    spelled,
)
from serving.vocabulary.errors import UserError

_FLAG: Final = re.compile(r"(--?[A-Za-z][\w./\-]*\+?)(?:=(.*))?", re.DOTALL)
_PAIR: Final = re.compile(r"[A-Za-z_][\w./]*=.*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_MODEL: Final = re.compile(r"[\w.\-]+/[\w.\-]+")
Patterns = Mapping[str, str]
_NONE: Final = "0"  # values behind a flag of this program


@dataclass(frozen=True, slots=True)
class _Typed:
    """A flag of a server as it was typed: its spelling, its value ("" without one) and its rows."""

    spelling: str
    text: str
    flags: tuple[Flag, ...]

    def __str__(self) -> str:
        return f"{self.spelling} {self.text}".rstrip()

    def answered(self, server: str) -> Answer:
        """Return the answer of the server's row, or of the other server's if it has none."""
        flag = next((flag for flag in self.flags if flag.server == server), self.flags[0])
        name = spelled(self.spelling)
        return answer(flag, self.text, name.startswith("--no-") and name != flag.flag)


@dataclass(slots=True)
class _Read:
    """A command's words, sorted.

    ``flags``: of servers. ``own``: keys of ours written as flags, and what to write. ``strange``: flags of
    nobody. ``models``: names of models that stand alone, as behind ``vllm serve``.
    """

    flags: list[_Typed] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


def refuse_flags(words: Sequence[str], ours: Mapping[str, str], shared: Patterns, kind: Kind) -> None:
    """Raise UserError for flags of a server, and for keys with dashes, in a command that composes runs.

    ``ours``: the flags of this program, with how many values follow each. ``shared``: those among them that
    servers have too, with a pattern of the value that makes them a server's.
    """
    read = _read(words, ours, shared, _names(kind))
    if read.flags:
        raise UserError(_of_servers(read))
    if read.own:
        raise UserError(f"{echo(' '.join(read.own))} is no flag: write {' '.join(read.own.values())}")
    for word in read.strange:
        raise UserError(_strange(word))


def _names(kind: Kind) -> list[str]:
    keys = [path for path, key in declared_keys(RunConfig).items() if key.kind in (None, kind)]
    return [*keys, *option_groups(), "config"]


def _read(words: Sequence[str], ours: Mapping[str, str], shared: Patterns, names: list[str]) -> _Read:
    read, following = _Read(), list(words)
    while following:
        word = following.pop(0)
        found = _FLAG.fullmatch(word)
        if found is None:
            read.models += [word] if _MODEL.fullmatch(word) else []
            continue
        spelling, text = found[1], found[2]
        theirs = bool(spelling in shared and following and re.fullmatch(shared[spelling], following[0]))
        if spelling in ours and not theirs:
            if ours[spelling] != _NONE and text is None and following:
                following.pop(0)
            continue
        _sort(read, spelling, text, following, names)
    return read


def _sort(read: _Read, spelling: str, text: str | None, following: list[str], names: list[str]) -> None:
    """Sort one flag that is none of this program's; take its values from the words that follow."""
    name = spelling.lstrip("-").replace("-", "_")
    is_key = name in names and spelling.startswith("--")
    flags = flags_spelled(spelling, abbreviated=not is_key)
    if flags and not (is_key and flags[0].group):  # a real run's --device is a key, not SGLang's flag
        if text is None and flags[0].values != "none":
            text = " ".join(_values(following, flags[0].values))
        read.flags.append(_Typed(spelling, text or "", flags))
        return
    meant = [f"{name}={VALUE}"] if is_key else meant_words(name, names, RunConfig)
    if meant and spelling.startswith("--"):
        value = next(_values(following, "one"), "") if text is None else text
        shown = spelling + (f" {value}" if value and text is None else f"={text}" if text else "")
        read.own[shown] = " or ".join(words.replace(VALUE, echo(value) or VALUE) for words in meant)
    elif spelling.startswith("--"):
        read.strange.append(spelling if text is None else f"{spelling}={text}")


def _values(following: list[str], values: str) -> Iterator[str]:
    """Take the values of a flag from the words that follow it."""
    while following and (_NUMBER.fullmatch(following[0]) or _is_value(following[0])):
        yield following.pop(0)
        if values != "many":
            return


def _is_value(word: str) -> bool:
    return not word.startswith("-") and not _PAIR.fullmatch(word)


def _of_servers(read: _Read) -> str:
    """Return the sentence for flags of servers: the words to write, and what to leave out by reason."""
    counts = {server: sum(_has(one, server) for one in read.flags) for server in SERVERS}
    server = max(counts, key=lambda name: counts[name])  # the first if both have as many
    named = [server, *(other for other in SERVERS if any(not _has(one, server) for one in read.flags))]
    of = of_servers(dict.fromkeys(named))
    told = [(one, one.answered(server)) for one in read.flags]
    strange = [f"{echo(word)} is none" for word in read.strange]
    if len(told) > 1:
        return "; ".join([f"{len(told)} flags are those of {of}: {_advice(told, read)}", *strange])
    ((one, words),) = told
    start = f"{echo(str(one))} is a flag of {of}"
    if not words.write and not (read.own or read.models):
        return "; ".join([f"{start} that is not modelled ({words.why}; {PAGE}): leave it out", *strange])
    return "; ".join([f"{start}: {_advice(told, read)}", *strange])


def _has(typed: _Typed, server: str) -> bool:
    return any(flag.server == server for flag in typed.flags)


def _advice(told: Sequence[tuple[_Typed, Answer]], read: _Read) -> str:
    models = [f"model={echo(model)}" for model in read.models]
    write = dict.fromkeys([*models, *read.own.values(), *(words.write for _, words in told if words.write)])
    hows = "".join(f" ({words.how})" for _, words in told if words.how)
    parts = [f"write {' '.join(write)}{hows}"] if write else []
    left: dict[str, list[str]] = {}
    for one, words in told:
        if not words.write:
            left.setdefault(words.why, []).append(echo(str(one)))
    parts += [f"leave out {', '.join(flags)}, not modelled: {why}" for why, flags in left.items()]
    return "; ".join(parts) + (f" ({PAGE})" if left else "")


def _strange(word: str) -> str:
    """Return the sentence for a flag of nobody: the flag of a server that is most like it."""
    near = near_flag(word.partition("=")[0])
    if not near:
        return f"{echo(word)} is no flag here or of {of_servers(SERVERS)}: write KEY=VALUE, such as seed=1"
    flag = flags_spelled(near)[0]
    return f"{echo(word)} is no flag: if {near} of {of_servers([flag.server])} is meant, {answer(flag, '')}"
