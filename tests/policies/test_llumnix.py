"""Llumnix's rules: how free an instance is, who is paired, who leaves."""

from collections.abc import Sequence
from math import inf

import pytest

from policies.llumnix.dispatch import Freeness
from policies.llumnix.freeness import dispatch_rule, migration_rule
from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import LoadReport
from serving.vocabulary.request import Request


def report(
    free: int, running: int, waiting: Sequence[int] = (), preempted: int = 0, high: tuple[int, int] = (0, 0)
) -> LoadReport:
    """Of 100 blocks of 16 tokens, one of which stays free; ``waiting``: tokens of each.

    ``high``: requests of high priority that run, and that wait.
    """
    head = waiting[0] if waiting else 0
    return LoadReport(100, 1, 16, free, running, len(waiting), preempted, head, sum(waiting), *high)


@pytest.mark.parametrize(
    ("one", "dispatch", "migration", "paper"),
    [
        (report(100, 0), inf, inf, inf),
        (report(41, 10), 4.0, 4.0, 65.6),
        # Two wait for 10 and 30 blocks. As shipped they are two requests where new ones go, one where they
        # leave, and all their demand counts in both; in the paper that of the head.
        (report(21, 3, (160, 480)), -4.0, -5.0, 176 / 3),
        (report(1, 4, (32,)), -0.4, -0.4, -4.0),
        (report(100, 0, (1600,)), -1.0, -1.0, 0.0),
    ],
)
def test_freeness_by_each_rule(one: LoadReport, dispatch: float, migration: float, paper: float) -> None:
    assert dispatch_rule("shipped")(one) == pytest.approx(dispatch)
    assert migration_rule("shipped", True)(one) == pytest.approx(migration)
    assert dispatch_rule("paper")(one) == migration_rule("paper", True)(one) == pytest.approx(paper)


def test_without_defragmentation_what_waits_does_not_count() -> None:
    one = report(21, 4, (160, 480))
    assert migration_rule("shipped", False)(one) == 5.0
    assert migration_rule("paper", False)(one) == 84.0


class Reported:
    """A fleet, and instances to be paired, with these reports."""

    model = "m"
    loading: Sequence[int] = ()

    def __init__(
        self, *reports: LoadReport, leaving: Sequence[int] = (), engaged: Sequence[int] = ()
    ) -> None:
        self.reports = dict(enumerate(reports))
        self.new = list(self.reports)
        self.looks = self.round = 0
        self.leaving = leaving
        self.busy = engaged

    replicas = property(lambda self: len(self.reports))
    taking = property(lambda self: [one for one in self.reports if one not in self.leaving])

    def engaged(self, replica: int) -> bool:
        return replica in self.busy

    def short(self) -> list[int]:
        return self.taking

    def report(self, replica: int) -> LoadReport | None:
        self.looks += 1
        return self.reports.get(replica)

    def newly_reported(self) -> list[int]:
        new, self.new = self.new, []
        return new

    def renew(self, replica: int, one: LoadReport) -> None:
        self.reports[replica] = one
        self.new.append(replica)


def test_dispatch_goes_to_the_freest_the_lowest_among_equals_and_forgets_the_lost() -> None:
    fleet, policy = Reported(report(21, 4), report(41, 4), report(41, 4), report(11, 4)), Freeness()
    request = Request(0, 0, 16, 16, "m")
    assert policy.dispatch(request, fleet) == (1, "freeness 10.0, 4 running, 0 waiting")  # type: ignore[arg-type]
    fleet.renew(1, report(5, 5))
    assert policy.dispatch(request, fleet)[0] == 2  # type: ignore[arg-type]
    del fleet.reports[2]
    assert policy.dispatch(request, fleet)[0] == 0  # type: ignore[arg-type]
    fleet.renew(3, report(99, 0))
    assert policy.dispatch(request, fleet) == (3, "it has no requests")  # type: ignore[arg-type]


def test_a_decision_looks_at_the_instances_that_have_changed_alone() -> None:
    """Among 1,024 instances of which one reports between two arrivals; and the heap stays in proportion."""
    fleet, policy = Reported(*[report(50, 1 + n % 7) for n in range(1024)]), Freeness()
    policy.dispatch(Request(0, 0, 16, 16, "m"), fleet)  # type: ignore[arg-type]
    fleet.looks = 0
    for turn in range(1000):
        fleet.renew(turn, report(turn % 90, 3))
        policy.dispatch(Request(turn, 0, 16, 16, "m"), fleet)  # type: ignore[arg-type]
    assert fleet.looks < 5 * 1000


def test_a_report_that_is_told_again_adds_nothing_to_the_order() -> None:
    """Entries of one and the same report all count, so they would stay, and be gone through every time."""
    fleet, policy = Reported(*[report(50, 1 + n % 7) for n in range(64)]), Freeness()
    for turn in range(1000):
        fleet.renew(turn % 64, fleet.reports[turn % 64])
        assert policy.dispatch(Request(turn, 0, 16, 16, "m"), fleet)[0] == 0  # type: ignore[arg-type]
    assert len(policy._orders["m"][0]._heap) == 64


def pairs(policy: Llumnix, view: Reported) -> list[tuple[int, int]]:
    view.round += 1
    return [(one.source, one.destination) for one in policy.pair(view)]  # type: ignore[arg-type]


def test_the_least_free_are_paired_with_the_freest() -> None:
    view = Reported(report(9, 4), report(90, 4), report(1, 4, (160,)), report(60, 4), report(70, 4))
    assert pairs(Llumnix(rounds=1), view) == [(2, 1), (0, 4)]


def test_a_preempted_request_that_waits_makes_a_source_as_shipped() -> None:
    view = Reported(report(60, 4, (16,), preempted=1), report(90, 4))
    assert pairs(Llumnix(rounds=1), view) == [(0, 1)]
    assert pairs(Llumnix("paper", rounds=1), view) == []


def test_one_that_takes_no_requests_is_emptied_first() -> None:
    reports = (report(9, 4), report(90, 4), report(80, 4), report(90, 4))
    assert pairs(Llumnix(rounds=1), Reported(*reports, leaving=(3,))) == [(3, 1), (0, 2)]
    engaged = Reported(*reports, leaving=(3,), engaged=(1,))
    assert pairs(Llumnix("paper", 40.0, rounds=1), engaged) == [(3, 2)]


def test_without_the_heads_demand_nothing_moves_for_it() -> None:
    """The negative control of de-fragmentation."""
    view = Reported(report(41, 4, (800,)), report(90, 4))
    assert pairs(Llumnix(rounds=1), view) == [(0, 1)]
    assert pairs(Llumnix(rounds=1, defragment=False), view) == []


def test_instances_are_paired_in_every_fourth_round() -> None:
    view, policy = Reported(report(9, 4), report(90, 4)), Llumnix()
    assert [bool(pairs(policy, view)) for _ in range(8)] == [False, False, False, True] * 2


class Source:
    """An instance between two steps: request -> (priority, context); the ids are in the order of arrival.

    ``waiting`` at the destination.
    """

    replica, destination = 0, 1

    def __init__(self, requests: dict[int, tuple[int, int]], waiting: Sequence[int] = ()) -> None:
        self.requests, self.waiting = requests, waiting

    def decoding(self) -> list[int]:
        return list(self.requests)

    def arrival_ns(self, request: int) -> int:
        return request

    def priority(self, request: int) -> int:
        return self.requests[request][0]

    def context_tokens(self, request: int) -> int:
        return self.requests[request][1]

    def report(self, replica: int) -> LoadReport:
        return report(50, 2, self.waiting if replica == self.destination else ())


def test_the_newest_leaves_as_shipped_the_shortest_of_the_lowest_priority_in_the_paper() -> None:
    """By arrival, which is vLLM's order of what runs: 4 was admitted last, for it has come from elsewhere.

    As shipped a request of high priority leaves too, if one of normal priority decodes beside it: the
    artefact searches for a normal one and then takes the last that runs.
    """
    view = Source({7: (0, 50), 5: (0, 30), 8: (1, 10), 4: (0, 90)})
    shipped, paper = (Llumnix(rule, high_priority_target_tokens=160) for rule in ("shipped", "paper"))
    assert shipped.choose(view) == (8, "the newest")  # type: ignore[arg-type]
    assert shipped.choose(Source({7: (0, 50), 6: (1, 10)})) == (7, "the newest")  # type: ignore[arg-type]
    assert paper.choose(view) == (5, "the shortest, 30 tokens")  # type: ignore[arg-type]
    assert shipped.choose(Source({6: (1, 10), 9: (2, 10)})) is None  # type: ignore[arg-type]
    assert paper.choose(Source({6: (1, 10)})) == (6, "the shortest, 10 tokens")  # type: ignore[arg-type]


def test_without_a_target_all_requests_are_alike() -> None:
    view = Source({4: (0, 90), 5: (0, 60), 6: (1, 10)})
    assert Llumnix().choose(view) == (6, "the newest")  # type: ignore[arg-type]
    assert Llumnix("paper").choose(view) == (6, "the shortest, 10 tokens")  # type: ignore[arg-type]


def test_headroom_counts_as_used_where_requests_of_high_priority_are() -> None:
    """Of 100 blocks 90 are headroom with a target of 160 tokens. The paper divides it by the number of such
    requests and adds it to each: together it is the same however many run; who waits has none.
    """
    none, runs, waits = report(61, 3), report(61, 3, high=(2, 0)), report(61, 3, (16,), high=(0, 1))
    normal, high = (dispatch_rule("shipped", 160, urgent) for urgent in (False, True))
    assert [normal(none), normal(runs), normal(waits)] == [20.0, -10.0, (59 - 90) / 4]
    assert [high(none), high(runs), high(waits)] == [-10.0, 20.0, 59 / 4]
    normal, high = (dispatch_rule("paper", 160, urgent) for urgent in (False, True))
    assert [normal(none), normal(runs), normal(waits)] == [61 * 16 / 3, -29 * 16 / 3, 60 * 16 / 3]
    assert [high(none), high(runs), high(waits)] == [61 * 16 / 3, 61 * 16 / 3, 60 * 16 / 3]
    for defragment in (True, False):
        assert migration_rule("shipped", defragment, 160)(runs) == -10.0
        assert migration_rule("paper", defragment, 160)(runs) == -29 * 16 / 3
        assert migration_rule("shipped", defragment, 160)(none) == 20.0
        assert migration_rule("shipped", defragment)(runs) == 20.0


def test_urgent_requests_share_instances_that_others_leave_alone() -> None:
    fleet, policy = (
        Reported(report(91, 1, high=(1, 0)), report(61, 4)),
        Freeness(high_priority_target_tokens=160),
    )
    normal, high = Request(0, 0, 16, 16, "m"), Request(1, 0, 16, 16, "m", 1)
    assert policy.dispatch(normal, fleet)[0] == 1  # type: ignore[arg-type]
    assert policy.dispatch(high, fleet)[0] == 0  # type: ignore[arg-type]
    fleet.renew(0, report(15, 1, high=(1, 0)))
    assert policy.dispatch(high, fleet)[0] == 0  # type: ignore[arg-type]
    fleet.renew(1, report(99, 1))
    fleet.renew(0, report(1, 1, high=(1, 0)))
    assert policy.dispatch(high, fleet)[0] == 1  # type: ignore[arg-type]
    assert Freeness().dispatch(high, Reported(report(91, 1), report(61, 4)))[0] == 0  # type: ignore[arg-type]


def test_normal_requests_leave_an_instance_with_urgent_ones() -> None:
    view = Reported(report(51, 4, high=(1, 0)), report(61, 4), report(91, 1, high=(1, 0)))
    assert pairs(Llumnix(rounds=1, high_priority_target_tokens=160), view) == [(0, 1)]
    assert pairs(Llumnix(rounds=1), view) == []


def test_a_request_may_go_where_others_wait_for_memory() -> None:
    """The artefact's staged migration asks for free blocks alone (AsyncActorLLMEngine.migrate_in_stage_0)."""
    view = Source({4: (0, 90)}, waiting=(16,))
    for rule in ("shipped", "paper"):
        assert Llumnix(rule).choose(view) is not None  # type: ignore[arg-type]


def test_who_migrates_already_takes_part_in_the_pairing_as_shipped_and_its_pair_is_dropped() -> None:
    reports = (report(1, 4), report(90, 4), report(9, 4), report(60, 4))
    assert pairs(Llumnix(rounds=1), Reported(*reports, engaged=(0,))) == [(2, 3)]
    assert pairs(Llumnix("paper", 200.0, rounds=1), Reported(*reports, engaged=(0,))) == [(2, 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": "mine"},
        {"rounds": 0},
        {"migrate_out_threshold": inf},
        {"high_priority_target_tokens": 0},
    ],
)
def test_what_is_no_rule_is_refused(wrong: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError):
        Llumnix(**wrong)


@pytest.mark.parametrize(("rule", "found"), [("shipped", [(0, 1), (2, 7)]), ("paper", [(0, 1), (2, 8)])])
def test_one_that_still_loads_takes_from_whom_no_other_takes(rule: str, found: list[tuple[int, int]]) -> None:
    """A slow load would keep a source waiting for which another instance has room now."""
    full, free, fuller = report(free=2, running=6), report(free=800, running=1), report(free=8, running=6)
    view = Reported(full, free, fuller, engaged=(7,) if rule == "paper" else ())
    view.loading = (7, 8)
    assert pairs(Llumnix(rule, rounds=1, migrate_out_threshold=30.0), view) == found
