"""Replay: feed a recorded run's events to a fresh controller and demand the same actions."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from serving.controller import Controller
from serving.record.journal import FORMAT, action_text, parse_event
from serving.vocabulary.errors import PolicyError, UserError


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How many events and actions were compared, how many actions differ, and the first difference.

    ``cut``: where the journal breaks off, of a run that was ended before it could write the last line.
    """

    events: int
    actions: int
    different: int
    first_difference: str | None
    cut: str | None = None


def replay(lines: Iterable[str], controller: Controller, name: str = "journal") -> ReplayReport:
    """Compare line by line, up to where the journal is cut. Raises UserError when it is no journal.

    The controller must be as fresh and as configured as the recorded one. After the first difference the
    two runs need not make sense together, so comparison stops where the controller can no longer follow.
    Raises PolicyError for a policy's fault; where a difference came before, or the journal is not as it was
    written, it may be the fault of what the policy was shown, and is a difference.
    """
    journal = _Journal(lines, name)
    report = _Report()
    for number, now_ns, event, wanted in journal.entries():
        try:
            got = [action_text(action) for action in controller.handle(now_ns, parse_event(event))]
        except PolicyError as fault:
            if report.first is None and journal.is_intact():
                raise
            report.differ(f"line {number}: {fault}", max(1, len(wanted)))
            return report.result(journal.cut)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            words = f"{type(error).__name__} {error}".strip()
            report.differ(
                f"line {number}: this event cannot follow what came before ({words})", max(1, len(wanted))
            )
            return report.result(journal.cut)
        report.events += 1
        report.actions += len(wanted)
        if got != wanted:
            pairs = differences(wanted, got)
            report.differ(f"line {number}: {pairs[0]}", len(pairs))
    if report.first is None and journal.cut is None:
        for sentence in journal.complaints(report.events, report.actions, len(controller.requests)):
            report.differ(sentence, 1)
    return report.result(journal.cut)


class _Report:
    """A ReplayReport in the making."""

    def __init__(self) -> None:
        self.events = self.actions = self.different = 0
        self.first: str | None = None

    def differ(self, sentence: str, times: int) -> None:
        self.different += times
        self.first = self.first or sentence

    def result(self, cut: str | None) -> ReplayReport:
        return ReplayReport(self.events, self.actions, self.different, self.first, cut)


class _Journal:
    """The text of a journal: header, entries, footer; UserError for what is none.

    ``cut``, at the end of the entries: a sentence when there was no footer.
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self._lines = enumerate(lines, start=1)
        self._name = name
        self._digest = sha256()
        self._footer: dict[str, Any] = {}
        self.cut: str | None = None

    def entries(self) -> Iterator[tuple[int, int, list[Any], list[str]]]:
        """(line number, time, event as an array, actions as canonical text) between header and footer."""
        _, text = next(self._lines, (0, ""))
        read_header(self._parsed(1, text), self._name)
        self._hash(text)
        yield from self._rest()

    def _rest(self) -> Iterator[tuple[int, int, list[Any], list[str]]]:
        number = 1
        for number, text in self._lines:
            match self._entry(number, text):
                case None if self.cut is not None:
                    return
                case [int(now_ns), list(event), list(actions)]:
                    self._hash(text)
                    wanted = [json.dumps(action, separators=(",", ":")) for action in actions]
                    yield number, now_ns, event, wanted
                case dict(footer):
                    self._footer = footer
                    self._end()
                    return
                case _:
                    raise self._altered(number, "it is not [time, event, actions]")
        self.cut = self._cut(f"ends behind line {number}")

    def _entry(self, number: int, text: str) -> Any:
        """A line's content; None, and ``cut``, for a last line that was not written to its end."""
        try:
            return self._parsed(number, text)
        except UserError:
            begun = text == "" or text[0] in "[{"
            if text.endswith("\n") or not begun or next(self._lines, None) is not None:
                raise
        self.cut = self._cut(f"breaks off in line {number}")
        return None

    def _cut(self, where: str) -> str:
        return (
            f"{self._name} {where} and has no footer: its run was ended before it was complete, and only "
            "what came before is compared"
        )

    def complaints(self, events: int, actions: int, in_flight: int) -> Iterator[str]:
        """What is wrong though every action is as recorded."""
        counted = {"events": events, "actions": actions}
        if any(self._footer.get(key) != value for key, value in counted.items()):
            yield f"footer: it counts {self._footer}, the journal holds {counted}"
        elif in_flight:
            yield f"after the last line: {in_flight} requests are still in flight"
        elif self._footer.get("sha256") != self._digest.hexdigest():
            yield "footer: the lines above are not those that were written (their sha256 differs)"

    def is_intact(self) -> bool:
        """Whether this is the text that was written; reads what is left of it."""
        try:
            for _ in self._rest():
                pass
        except UserError:
            return False
        return self._footer.get("sha256") == self._digest.hexdigest()

    def _end(self) -> None:
        for number, text in self._lines:
            if text.strip():
                raise UserError(
                    f"{self._name}: line {number} follows the footer; use a journal as it was written"
                )

    def _hash(self, text: str) -> None:
        self._digest.update(text.rstrip("\n").encode(errors="surrogatepass") + b"\n")

    def _parsed(self, number: int, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._altered(number, str(error)) from None

    def _altered(self, number: int, why: str) -> UserError:
        return UserError(
            f"{self._name}: line {number} is cut or altered ({why}); use a journal as it was written"
        )


def differences(wanted: list[str], got: list[str]) -> list[str]:
    """A sentence for each position at which two action lists differ."""
    sentences = []
    for position in range(max(len(wanted), len(got))):
        recorded = wanted[position] if position < len(wanted) else "nothing"
        replayed = got[position] if position < len(got) else "nothing"
        if recorded != replayed:
            sentences.append(f"action {position + 1} was {recorded}, replay gives {replayed}")
    return sentences


def read_header(record: object, name: str) -> dict[str, object]:
    """The header's fields. Raises UserError when it is no journal of this format."""
    if not isinstance(record, dict) or record.get("servetwin_journal") != FORMAT:
        raise UserError(f"{name}: the first line is not a ServeTwin journal header of format {FORMAT}")
    return record
