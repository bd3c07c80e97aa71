"""Replay: feed a recorded run's events to a fresh controller and demand the same actions."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from serving.controller import Controller
from serving.errors import UserError
from serving.journal import FORMAT, action_text, parse_event


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How many events and actions were compared, how many actions differ, and the first difference."""

    events: int
    actions: int
    different: int
    first_difference: str | None


def replay(lines: Iterable[str], controller: Controller, name: str = "journal") -> ReplayReport:
    """Compare line by line. Raises UserError when the text is not a whole journal.

    The controller must be as fresh and as configured as the recorded one. After the first difference the
    two runs need not make sense together, so comparison stops where the controller can no longer follow.
    """
    records = _records(lines, name)
    read_header(next(records, (0, None))[1], name)
    events = actions = different = 0
    first: str | None = None
    footer: dict[str, int] | None = None
    for number, record in records:
        if isinstance(record, dict):
            footer = record
            continue
        if footer is not None:
            raise UserError(f"{name}: line {number} follows the footer; use a journal as it was written")
        wanted = _wanted(record, name, number)
        try:
            got = [action_text(a) for a in controller.handle(record[0], parse_event(record[1]))]
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            if first is None:
                first = f"line {number}: this event cannot follow what came before ({_words(error)})"
            return ReplayReport(events, actions, different + max(1, len(wanted)), first)
        events += 1
        actions += len(wanted)
        if got != wanted:
            pairs = differences(wanted, got)
            different += len(pairs)
            first = first or f"line {number}: {pairs[0]}"
    return _closed(ReplayReport(events, actions, different, first), footer, name)


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


def _records(lines: Iterable[str], name: str) -> Iterator[tuple[int, Any]]:
    for number, text in enumerate(lines, start=1):
        try:
            yield number, json.loads(text)
        except ValueError as error:
            raise UserError(
                f"{name}: line {number} is cut or altered ({error}); use a journal as it was written"
            ) from None


def _wanted(record: object, name: str, number: int) -> list[str]:
    """The recorded actions in canonical text."""
    match record:
        case [int(), list(), list(actions)]:
            return [json.dumps(action, separators=(",", ":")) for action in actions]
    raise UserError(f"{name}: line {number} is not [time, event, actions]; use a journal as it was written")


def _closed(report: ReplayReport, footer: dict[str, int] | None, name: str) -> ReplayReport:
    """A journal without its footer was cut; one whose footer counts otherwise was altered."""
    if footer is None:
        raise UserError(f"{name}: the last line is missing, so the run was cut; record it again")
    counted = {"events": report.events, "actions": report.actions}
    if footer != counted and report.first_difference is None:
        sentence = f"footer: it counts {footer}, the journal holds {counted}"
        return ReplayReport(report.events, report.actions, report.different + 1, sentence)
    return report


def _words(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()
