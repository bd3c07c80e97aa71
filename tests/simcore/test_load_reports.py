"""Load reports, dispatch by freeness and Llumnix's migration are the same coalesced and step by step."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import LoadReport, ReportsAt
from serving.vocabulary.events import Woke
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.drawn_reports import check_reports
from tests.worlds.migrating import Played, Setting, play
from tests.worlds.migrating_cases import BUSY, KINDS_OF_REPORTS, ROWS, migrating, with_reports
from tests.worlds.naive_engine import Case


class Notes:
    """A controller that notes after every event what its schedulers know, as often as that changes."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.noted = inner, list[tuple[int, dict[int, LoadReport]]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def handle(self, now_ns: int, event: Any) -> Any:
        actions = self.inner.handle(now_ns, event)
        (service,) = self.inner.services.values()
        reports = service.inner.fleet.reports
        known = {one: reports.of(one) for one in sorted(self.inner.engines)}
        if not self.noted or self.noted[-1][1] != known:
            self.noted.append((now_ns, known))
        if type(event) is Woke:
            source = self.inner.step_counts.source
            for replica, report in known.items():  # after a tick they are true of this instant
                engine, steps = self.inner.engines[replica], source.steps(replica, now_ns)
                if not steps and not actions:
                    assert report.free_blocks == engine.ledger.free_blocks
        return actions


class AskedInEveryPeriod:
    """A migrator of which no round is left out, so that both modes look at the same times."""

    def __init__(self, inner: Llumnix) -> None:
        self.pair, self.choose = inner.pair, inner.choose


def noted(setting: Setting, coalesce: bool, migrator: Llumnix) -> tuple[Played, list[Any]]:
    made = list[Notes]()

    def wrap(one: Any) -> Any:
        made.append(Notes(one))
        return made[0]

    return play(setting, coalesce, migrator=AskedInEveryPeriod(migrator), wrap=wrap), made[0].noted


def assert_same(setting: Setting, rule: str, threshold: float, rounds: int) -> None:
    setting = replace(setting, freeness=True)
    coalesced, exact = [
        noted(setting, coalesce, Llumnix(rule, threshold, rounds=rounds)) for coalesce in (True, False)
    ]
    assert coalesced[1] == exact[1]
    assert coalesced[0].records == exact[0].records
    assert coalesced[0].recorder.done == exact[0].recorder.done
    assert sorted(coalesced[0].recorder.all_gaps) == sorted(exact[0].recorder.all_gaps)


def lasts(setting: Setting) -> bool:
    """Whether every step takes a nanosecond: else several reports come at one instant, in another order."""
    rows = setting.case.rows
    return min(rows.intercept, rows.mixed_intercept) >= 1 << 24


@given(
    setting=migrating().filter(lasts),
    rule=st.sampled_from(("shipped", "paper")),
    threshold=st.sampled_from((-4.0, 0.0, 1.0, 3.0, 10.0)),
    rounds=st.integers(1, 4),
    reports_at=st.sampled_from(("changes", "step_ends", "ticks")),
)
@settings(max_examples=40)
def test_both_modes_know_and_do_the_same(
    setting: Setting, rule: str, threshold: float, rounds: int, reports_at: ReportsAt
) -> None:
    """Those of an asynchronous engine cannot come at step ends: it chooses a step while one runs."""
    assert_same(with_reports(setting, reports_at), rule, threshold, rounds)


@pytest.mark.parametrize("rule", ["shipped", "paper"])
@pytest.mark.parametrize(("asynchronous", "reports_at"), KINDS_OF_REPORTS)
def test_both_modes_are_the_same_in_a_busy_world(
    rule: str, asynchronous: bool, reports_at: ReportsAt
) -> None:
    case = replace(BUSY, asynchronous=asynchronous)
    assert_same(Setting(case, reports_at=reports_at), rule, 2.0, 1)


@on_drawn_seeds((76, 99, 102, 278, 290, 316, 1056, 1167))
def test_both_modes_decide_the_same_where_memory_is_short(seed: int) -> None:
    """In these worlds a halted instance told of its queue before it chose, or of what came in mid-step."""
    assert check_reports(seed).records


def _crowded() -> Setting:
    """Three instances with little memory, one of which gets the long requests."""
    requests = tuple((n * 9, 4 + 20 * (n % 3 == 0), 20 + 60 * (n % 3 == 0), 120) for n in range(18))
    case = Case("prefill_first", 3, 4, 40, 1, 8, 64, "round_robin", requests, ROWS)
    return Setting(case, period_ns=15)


def test_a_busy_world_migrates_and_moves_nothing_to_instances_in_which_requests_wait() -> None:
    played, known = noted(_crowded(), True, Llumnix(migrate_out_threshold=2.0, rounds=1))
    found = Counter(one.outcome for one in played.records)
    assert found["committed"] > 2
    for one in played.records:
        at = [reports for now_ns, reports in known if now_ns <= one.begun_ns][-1]
        assert one.source != one.destination and at[one.source] != at[one.destination]
