"""Notices of losses: what is to be lost takes nothing new, and what decodes there migrates until then."""

from dataclasses import replace
from typing import Any

import pytest

from policies.migration import LeastLoadedPairs
from serving.protocols.migration import InstancesView, Pair, SourceView
from serving.vocabulary.events import LossNotice
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.drawn_elastic_migrations import check_world as check_elastic
from tests.worlds.drawn_elastic_migrations import drawn_world as drawn_elastic
from tests.worlds.drawn_migrations import check_world, drawn_world
from tests.worlds.migrating import Played, Setting, gpus_of, play
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24
ROWS = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5)
LOST_NS = 2000
REPLICAS = 3
# Nine requests at once, three on each instance, too long to end before the loss.
CASE = Case(
    "prefill_first", REPLICAS, 4, 2000, 0, 16, 128, "round_robin",
    tuple((0, 20, 600, 600) for _ in range(9)), ROWS,
)  # fmt: skip
SETTING = Setting(CASE, period_ns=50, control_ns=9, last_stage_blocks=8, max_stages=4)


class Nobody:
    """Pairs none."""

    def pair(self, view: InstancesView) -> tuple[Pair, ...]:
        return ()

    def choose(self, view: SourceView) -> None:
        return None


def lose(notice_ns: int, migrator: Any, what: Any = "replica", coalesce: bool = True) -> Played:
    faults = FaultPlan((Fault(LOST_NS, what, 0),), gpus_of(REPLICAS), ideal("blitz_b"), notice_ns=notice_ns)
    return play(SETTING, coalesce, faults, migrator)


def test_with_a_notice_all_leave_in_time_and_without_migration_they_fail() -> None:
    assert len(lose(0, LeastLoadedPairs()).recorder.failures) == 3, "nobody is told before"
    assert len(lose(1500, Nobody()).recorder.failures) == 3, "they decode on where they are"
    saved = lose(1500, LeastLoadedPairs())
    assert not saved.recorder.failures and len(saved.recorder.done) == 9
    assert [one.outcome for one in saved.records if one.source == 0] == ["committed"] * 3


@pytest.mark.parametrize("notice_ns", [0, 40, 110, 300, 1500, LOST_NS, 10 * LOST_NS])
def test_step_by_step_as_coalesced_and_the_more_notice_the_fewer_are_lost(notice_ns: int) -> None:
    played, exact = (lose(notice_ns, LeastLoadedPairs(), coalesce=coalesce) for coalesce in (True, False))
    assert played.records == exact.records
    assert played.recorder.done == exact.recorder.done
    assert played.recorder.failures == exact.recorder.failures
    longer = lose(notice_ns + 200, LeastLoadedPairs())
    assert len(longer.recorder.failures) <= len(played.recorder.failures)


def test_what_waits_there_is_dispatched_again() -> None:
    few_seats = replace(CASE, max_num_seqs=1)
    setting = replace(SETTING, case=few_seats)
    faults = FaultPlan((Fault(LOST_NS, "replica", 0),), gpus_of(REPLICAS), ideal("blitz_b"), notice_ns=1000)
    played = play(setting, True, faults, Nobody())
    assert len(played.recorder.failures) == 1, "one ran there, two waited"
    assert len(played.recorder.done) == 8


def test_every_replica_of_a_host_has_a_notice_and_then_the_host() -> None:
    played = lose(1500, LeastLoadedPairs(), "host")
    told = [line for line in played.lines if "lossnotice" in line]
    cause = "host 0 is wanted back"
    assert [line.split("]")[0] for line in told] == [
        f'[500,["lossnotice","{what}",{number},{LOST_NS},"{cause}"'
        for what, number in (("replica", 0), ("replica", 2), ("host", 0))
    ]
    assert not played.recorder.failures


def test_a_notice_to_what_has_left_changes_nothing() -> None:
    played = lose(1500, LeastLoadedPairs())
    controller = played.controller
    assert controller.handle(10**9, LossNotice("replica", 0, 2 * 10**9, "again")) == []


def test_where_all_are_to_be_lost_they_serve_on_until_they_are() -> None:
    faults = tuple(Fault(LOST_NS, "replica", number) for number in range(REPLICAS))
    plan = FaultPlan(faults, gpus_of(REPLICAS), ideal("blitz_b"), notice_ns=1990)
    played = play(SETTING, True, plan, LeastLoadedPairs())
    assert len(played.recorder.failures) == 9 and not played.records


@pytest.mark.parametrize("seed", [2, 35])
def test_drawn_notices_in_elastic_systems(seed: int) -> None:
    assert drawn_elastic(seed).notice_ns and drawn_elastic(seed).faults
    check_elastic(seed)


def test_drawn_notices() -> None:
    noticed = [seed for seed in range(9000, 9120) if drawn_world(seed).notice_ns and drawn_world(seed).faults]
    assert len(noticed) > 20
    for seed in noticed:
        check_world(seed)
