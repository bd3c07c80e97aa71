"""ShareGPT conversations (one JSON array) as requests: lengths from the texts, arrivals drawn.

Source of the format: the file ShareGPT_V3_unfiltered_cleaned_split.json that serving benchmarks use:
[{"id": "...", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}].
It is about 650 MB, so it is read through a window and never held whole.
"""

import codecs
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, MutableSequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from traces.columns import Names
from traces.errors import TraceError
from traces.importers.drawn_arrivals import checked_rate_per_s, with_drawn_arrivals
from traces.importers.json_lines import (
    STRICT,
    JsonProblem,
    Spot,
    int64,
    json_problem,
    shown,
    word,
)
from traces.importers.requests import check_limit
from traces.importers.texts import CHARS_PER_TOKEN, Measure, measure_of
from traces.reading import Origin, pieces
from traces.turns import Turns
from traces.workload import Workload

Taken = Literal["first", "all"]
WINDOW_CHARS: Final = 16 << 20
"""Longest conversation, in characters as written: far above the longest known one."""
DROPPED_SHORT: Final = "fewer than two turns"
DROPPED_START: Final = "does not begin with a human turn"
DROPPED_EMPTY: Final = "a turn without text"
DROPPED_ROLE: Final = "a turn of neither human, gpt nor system"
DROPPED_ANSWER: Final = "no answer after the human turn"
EXAMPLE: Final = (
    '{"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}'
)

_WHAT: Final = {
    "first": "first human turn and its answer of each conversation",
    "all": "every answer of each conversation with all text before it as its prompt",
}
_PIECE_BYTES: Final = 1 << 20
_NEAR_END_CHARS: Final = 16  # no literal or escape is longer, so an error further in is not a cut text
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ROLES: Final = {"human": "human", "user": "human", "system": "system"} | dict.fromkeys(
    ("gpt", "chatgpt", "bard", "bing", "assistant"), "gpt"
)


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str  # human, gpt, system, or "" for any other
    text: str


@dataclass(slots=True)
class _Rows:
    """The source's rows while they grow: a request, or a conversation that is left out, with its reason."""

    prompt: MutableSequence[int] = field(default_factory=lambda: array("q"))
    output: MutableSequence[int] = field(default_factory=lambda: array("q"))
    session: list[str] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)  # (rows before it, reason)
    named: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.prompt) + len(self.left_out)


def read_sharegpt(
    path: str | Path,
    *,
    rate_per_s: float | None,
    name: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    gap_cv: float = 1.0,
    chars_per_token: float = CHARS_PER_TOKEN,
    turns: Taken = "first",
    count_tokens: Callable[[str], int] | None = None,
) -> Workload:
    """The conversations of one file as requests; arrivals are drawn, the first at 0.

    turns: "first": one request per conversation, its first human turn (after a system turn, if there is one)
    and the answer that follows. "all": every answer is a request whose prompt is all text before it, and the
    conversation is its session, whose text its prompts share. Either way the n-th request of the file takes
    the n-th arrival: the turns of a conversation come one after another, without think time, before the next
    conversation begins.
    rate_per_s, gap_cv, seed: of the drawn Gamma gaps, over all requests.
    chars_per_token: characters of a text per token (rounded up). count_tokens: counts them instead, turn by
    turn, and a prompt is the sum of its turns. limit: only the first rows; the whole file is still judged.
    Conversations that are no request are counted in ``dropped``: with fewer than two turns, not begun by a
    human, without an answer, with a turn of another role or without text (among the turns that are used).
    Raises TraceError naming file, conversation (the first is 1), key and remedy for what is none.
    """
    check_limit(limit)
    measure = measure_of(count_tokens, chars_per_token)
    if turns not in ("first", "all"):
        raise TraceError(f"trace.turns={turns!r} is unknown: write first or all")
    file = Path(path)
    rate = checked_rate_per_s(rate_per_s, file)
    origin = Origin.of(file)
    rows = _Rows()
    for spot, conversation in conversations(file):
        _add(rows, conversation, turns == "all", measure, spot)
    total, taken = len(rows), min(len(rows), limit or len(rows))
    left_out = [reason for before, reason in rows.left_out if before < taken]
    used = taken - len(left_out)
    if not used:
        raise TraceError(f"{file}: no conversation is a request: name a file with answers of gpt")
    session = Names.of(rows.session[:used]) if turns == "all" else None
    limited = (f"first {taken} of {total} requests",) if taken < total else ()
    workload = Workload(
        arrival_ns=np.zeros(used, np.int64),
        prompt_tokens=int64(rows.prompt[:used]),
        output_tokens=int64(rows.output[:used]),
        session=session,
        prefix=None if session is None else Turns(session.codes.astype(np.int64)),
        name=name or origin.name,
        source=origin.source,
        labels=(*limited, _WHAT[turns], f"lengths {measure.label()}"),
        dropped=dict(sorted(Counter(left_out).items())),
        rows_read=taken,
    )
    order = ", turns of a conversation one after another" if turns == "all" else ""
    return with_drawn_arrivals(
        workload, rate_per_s=rate, seed=seed, gap_cv=gap_cv, reader="sharegpt", order=order
    )


def _add(rows: _Rows, conversation: dict[str, Any], every: bool, measure: Measure, spot: Spot) -> None:
    turns = _turns(conversation, spot)
    session = _session(rows, conversation, spot)
    reason, last = _fault(turns, every)
    if reason:
        rows.left_out.append((len(rows), reason))
        return
    before = 0
    for turn in turns[: last + 1]:
        size = measure.size(turn.text, spot)
        if turn.role == "gpt":
            rows.prompt.append(measure.tokens(before, spot, "value"))
            rows.output.append(measure.tokens(size, spot, "value"))
            rows.session.append(session)
        before += size


def _fault(turns: list[_Turn], every: bool) -> tuple[str, int]:
    """(why the conversation is left out, or "", the last turn that is used)."""
    if len(turns) < 2:
        return DROPPED_SHORT, 0
    first = 1 if turns[0].role == "system" else 0
    if turns[first].role != "human":
        return DROPPED_START, 0
    answers = [at for at, turn in enumerate(turns) if turn.role == "gpt"]
    last = answers[-1] if every and answers else first + 1
    used = turns[: last + 1]
    if any(not turn.role for turn in used):
        return DROPPED_ROLE, 0
    if last >= len(turns) or used[-1].role != "gpt":
        return DROPPED_ANSWER, 0
    return (DROPPED_EMPTY if any(not turn.text.strip() for turn in used) else ""), last


def _turns(conversation: dict[str, Any], spot: Spot) -> list[_Turn]:
    listed = conversation.get("conversations")
    if not isinstance(listed, list):
        problem = "the list is missing" if listed is None else f"{shown(listed)} is not a list"
        raise spot.error(problem, "write the turns, each with from and value", "conversations")
    return [_turn(turn, number, spot) for number, turn in enumerate(listed, start=1)]


def _turn(turn: Any, number: int, spot: Spot) -> _Turn:
    where = f"conversations, turn {number}"
    if not isinstance(turn, dict):
        raise spot.error(f"{shown(turn)} is not an object", 'write {"from": ..., "value": ...}', where)
    for key in ("from", "value"):
        if not isinstance(turn.get(key), str):
            raise spot.error(f"{key} is {shown(turn.get(key))}", "write a text in quotes", where)
    return _Turn(_ROLES.get(turn["from"].lower(), ""), turn["value"])


def _session(rows: _Rows, conversation: dict[str, Any], spot: Spot) -> str:
    """The conversation's id; one that comes again is another conversation and named so."""
    name = word(conversation, "id", spot) or f"conversation {spot.number}"
    rows.named[name] += 1
    while rows.named[name] > 1:
        name = f"{name}/{rows.named[name]}"
        rows.named[name] += 1
    return name


def conversations(path: Path) -> Iterator[tuple[Spot, dict[str, Any]]]:
    """(place, object) of every element of the array in a file, of which only a window is held."""
    window = _Window(_texts(path))
    _expect(window, "[", Spot(path, 1, "conversation"), f"begin the file with [ and write {EXAMPLE}")
    for number in count(1):
        spot = Spot(path, number, "conversation")
        if number == 1 and window.take("]"):
            raise TraceError(f"{path} has no conversations: write {EXAMPLE}")
        value = _element(window, spot)
        if not isinstance(value, dict):
            raise spot.error(f"{shown(value)} is not an object", f"write {EXAMPLE}")
        yield spot, value
        if window.take("]"):
            break
        _expect(window, ",", spot, "write , or ] after it")
    if window.char():
        raise spot.error("more text follows the array", "write one array and nothing after its ]")


@dataclass(slots=True)
class _Window:
    """The text not yet read, from ``at`` on; ``more`` brings the next piece."""

    texts: Iterator[str]
    text: str = ""
    at: int = 0

    def more(self, chars: int) -> bool:
        """Adds at least ``chars`` characters, or what is left; False at the file's end."""
        pieces = [self.text[self.at :]]
        before = size = len(pieces[0])
        while size < before + chars and (piece := next(self.texts, "")):
            pieces.append(piece)
            size += len(piece)
        self.text, self.at = "".join(pieces), 0
        return size > before

    def char(self) -> str:
        """The next character that is no space, or "" at the end."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more(1):
                return ""

    def take(self, char: str) -> bool:
        """Whether ``char`` comes next; if so it is read."""
        there = self.char() == char
        self.at += there
        return there


def _expect(window: _Window, char: str, spot: Spot, remedy: str) -> None:
    if not window.take(char):
        next_char = window.char()
        problem = f"found {next_char!r} instead of {char}" if next_char else "the file ends too early"
        raise spot.error(problem, remedy)


def _element(window: _Window, spot: Spot) -> Any:
    """The next element; a text that is cut off by the window's end is read on, up to WINDOW_CHARS."""
    window.char()
    while True:
        try:
            value, window.at = STRICT.raw_decode(window.text, window.at)
            return value
        except (ValueError, RecursionError, JsonProblem) as error:
            held = len(window.text) - window.at
            cut = isinstance(error, json.JSONDecodeError) and (
                error.msg.startswith("Unterminated string") or error.pos > len(window.text) - _NEAR_END_CHARS
            )
            if cut and held > WINDOW_CHARS:
                problem = f"the conversation has over {WINDOW_CHARS} characters"
                raise spot.error(problem, "split or delete it") from error
            if cut and window.more(min(held, WINDOW_CHARS + 1 - held)):
                continue
            # The decoder counts characters from the window's start, which means nothing to the reader.
            problem = json_problem(error).partition(", character")[0]
            raise spot.error(problem, f"write an array of {EXAMPLE}") from error


def _texts(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces(path, _PIECE_BYTES):
            if text := decoder.decode(piece):  # a piece may be a part of one character
                yield text
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not UTF-8 text ({error.reason}): save the file as UTF-8") from error
