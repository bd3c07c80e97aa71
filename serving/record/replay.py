"""Replay: feed a recorded run's events to a fresh controller and require the same actions."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from serving.controller import Controller
from serving.record.journal import action_text, parse_event
from serving.record.journal_lines import JournalLines
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.step_counts import Recorded


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How many events and actions were compared, how many actions differ, and the first difference.

    ``cut``: where the journal breaks off, if the run was ended before it could write the last line.
    """

    events: int
    actions: int
    different: int
    first_difference: str | None
    cut: str | None = None


def replay(lines: Iterable[str], controller: Controller, name: str = "journal") -> ReplayReport:
    """Compare line by line, up to where the journal is cut. Raises UserError if it is no journal.

    The controller must be fresh and configured like the recorded one. After the first difference the two runs
    need not make sense together, so comparison stops where the controller can no longer follow. Raises
    PolicyError for a policy's fault. If a difference came before, or the journal was altered, the policy's
    input may be at fault: then the fault counts as a difference.
    """
    journal = JournalLines(lines, name)
    report, recorded = _Report(), Recorded()
    controller.step_counts.source = recorded
    for number, now_ns, event, answered, entry in journal.entries():
        recorded.begin(entry)
        wanted = [json.dumps(action, separators=(",", ":")) for action in answered]
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
                f"line {number}: this event cannot follow the events before it ({words})", max(1, len(wanted))
            )
            return report.result(journal.cut)
        report.events += 1
        report.actions += len(wanted)
        if got != wanted:
            pairs = differences(wanted, got)
            report.differ(f"line {number}: {pairs[0]}", len(pairs))
        elif recorded.unheard:
            sentence = f"{recorded.unheard} of {len(entry)} recorded step counts were not used"
            report.differ(f"line {number}: {sentence}", 1)
    if report.first is None and journal.cut is None:
        for sentence in journal.complaints(report.events, report.actions, len(controller.requests)):
            report.differ(sentence, 1)
    return report.result(journal.cut)


class _Report:
    """A ReplayReport under construction."""

    def __init__(self) -> None:
        self.events = self.actions = self.different = 0
        self.first: str | None = None

    def differ(self, sentence: str, times: int) -> None:
        self.different += times
        self.first = self.first or sentence

    def result(self, cut: str | None) -> ReplayReport:
        return ReplayReport(self.events, self.actions, self.different, self.first, cut)


def differences(wanted: list[str], got: list[str]) -> list[str]:
    """A sentence for each position at which two action lists differ."""
    sentences = []
    for position in range(max(len(wanted), len(got))):
        recorded = wanted[position] if position < len(wanted) else "nothing"
        replayed = got[position] if position < len(got) else "nothing"
        if recorded != replayed:
            sentences.append(f"action {position + 1} was {recorded}, replay gives {replayed}")
    return sentences
