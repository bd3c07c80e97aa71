"""Load reports that are made when somebody reads them, and looks left out, change no decision."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import ReportsAt
from serving.record.journal import header_text
from serving.record.replay import replay
from tests.worlds.migrating import Played, Setting, controller_of, play
from tests.worlds.migrating_cases import BUSY, KINDS_OF_REPORTS, ROWS, migrating, with_reports
from tests.worlds.naive_engine import Case
from tests.worlds.plain_llumnix import PlainFreeness, PlainLlumnix


def decided(played: Played) -> list[object]:
    """What was answered when, but for when to be woken."""
    found = list[object]()
    for line in played.lines:
        now_ns, _, actions, *_ = json.loads(line)
        found += [[now_ns, action] for action in actions if action[0] != "wake"]
    return found


def assert_as_by_looking_at_everything(setting: Setting, rule: str, threshold: float, rounds: int) -> None:
    lazy = play(setting, migrator=Llumnix(rule, threshold, rounds=rounds), dispatcher=Freeness(rule))
    migrator = PlainLlumnix(rule, threshold, rounds=rounds)
    plain = play(setting, migrator=migrator, dispatcher=PlainFreeness(rule))
    assert decided(lazy) == decided(plain)
    assert lazy.records == plain.records
    assert lazy.recorder.done == plain.recorder.done


@given(
    setting=migrating(),
    rule=st.sampled_from(("shipped", "paper")),
    threshold=st.sampled_from((-4.0, 0.0, 1.0, 3.0, 10.0)),
    rounds=st.integers(1, 4),
    reports_at=st.sampled_from(("changes", "step_ends", "ticks")),
)
@settings(max_examples=50)
def test_what_is_left_out_changes_nothing(
    setting: Setting, rule: str, threshold: float, rounds: int, reports_at: ReportsAt
) -> None:
    assert_as_by_looking_at_everything(with_reports(setting, reports_at), rule, threshold, rounds)


@pytest.mark.parametrize("rule", ["shipped", "paper"])
@pytest.mark.parametrize(("asynchronous", "reports_at"), KINDS_OF_REPORTS)
def test_what_is_left_out_changes_nothing_in_a_busy_world(
    rule: str, asynchronous: bool, reports_at: ReportsAt
) -> None:
    setting = Setting(replace(BUSY, asynchronous=asynchronous), reports_at=reports_at)
    for threshold in (1.0, 2.0, 6.0):
        assert_as_by_looking_at_everything(setting, rule, threshold, 1)


def _long() -> Setting:
    """Six instances that run for long between two arrivals: what they have left falls all the time."""
    requests = tuple((n * 40, 8 + 40 * (n % 5 == 0), 60 + 160 * (n % 3 == 0), 240) for n in range(60))
    return Setting(Case("prefill_first", 6, 4, 160, 1, 8, 64, "round_robin", requests, ROWS), period_ns=23)


def _journal(lines: Sequence[str]) -> list[str]:
    return [header_text({"carries_out": []}), *lines]


def test_what_the_world_was_asked_is_in_the_journal_and_replay_hears_it_again() -> None:
    setting = _long()
    played = play(setting, migrator=Llumnix(), dispatcher=Freeness())
    told = [number for number, line in enumerate(played.lines) if len(json.loads(line)) == 4]
    assert len(told) > 20

    def replayed(lines: Sequence[str]) -> tuple[int, str | None]:
        fresh = controller_of(setting, migrator=Llumnix(), dispatcher=Freeness())
        report = replay(_journal(lines), fresh)
        return report.different, report.first_difference

    assert replayed(played.lines) == (0, None)
    lines = list(played.lines)
    now_ns, event, actions, answers = json.loads(lines[told[5]])
    lines[told[5]] = json.dumps([now_ns, event, actions, [*answers, 1]])
    different, first = replayed(lines)
    assert different == 1 and first is not None
    assert first.endswith(f"1 of {len(answers) + 1} recorded step counts were not used")
    lines[told[5]] = json.dumps([now_ns, event, actions])
    different, first = replayed(lines)
    assert different and first is not None and "the journal line has no step count for instance" in first
