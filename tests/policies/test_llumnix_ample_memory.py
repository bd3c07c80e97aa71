"""Which instances Llumnix's pairing need not look at, and how many a decision looks at."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import LoadReport
from tests.worlds.migrating import Setting, play
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24


@st.composite
def reports(draw: st.DrawFn) -> LoadReport:
    """Of an instance of up to 200 blocks; some who run and wait have a high priority."""
    total, block = draw(st.integers(1, 200)), draw(st.sampled_from((1, 4, 16)))
    running, waiting = draw(st.integers(0, 40)), draw(st.integers(0, 5))
    first = draw(st.integers(1, 500)) if waiting else 0
    tokens = first + sum([draw(st.integers(1, 500)) for _ in range(waiting - 1)])
    return LoadReport(
        total, draw(st.integers(0, 3)), block, draw(st.integers(-10, total)), running, waiting,
        draw(st.integers(0, waiting)), first, tokens, draw(st.integers(0, running)),
        draw(st.integers(0, waiting)),
    )  # fmt: skip


@given(
    one=reports(),
    rule=st.sampled_from(("shipped", "paper")),
    threshold=st.floats(-50, 300),
    defragment=st.booleans(),
    target_tokens=st.one_of(st.none(), st.integers(1, 2000)),
    others=st.lists(reports(), max_size=3),
)
def test_who_has_ample_blocks_is_no_source(
    one: LoadReport,
    rule: str,
    threshold: float,
    defragment: bool,
    target_tokens: int | None,
    others: list[LoadReport],
) -> None:
    """Whatever was asked before; with the headroom of priorities, and with requests that were preempted."""
    policy = Llumnix(rule, threshold, defragment, high_priority_target_tokens=target_tokens)
    for other in others:
        policy.ample_blocks(other)
    if one.free_blocks >= policy.ample_blocks(one):
        assert not policy._pairing.is_source(one, policy._freeness(one))


class Counted:
    """What a policy sees, and of how many instances it asks for the report."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.looks = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def report(self, replica: int) -> LoadReport | None:
        self.looks += 1
        return self.inner.report(replica)  # type: ignore[no-any-return]


class CountedFreeness(Freeness):
    """Looks per dispatch."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = self.looks = 0

    def dispatch(self, request: Any, fleet: Any) -> tuple[int, str]:
        view = Counted(fleet)
        answer = super().dispatch(request, view)  # type: ignore[arg-type]
        self.decisions, self.looks = self.decisions + 1, self.looks + view.looks
        return answer


class CountedLlumnix(Llumnix):
    """Looks per round that is not left out."""

    def __init__(self) -> None:
        super().__init__(rounds=1)
        self.decisions = self.looks = 0

    def pair(self, view: Any) -> Any:
        counted = Counted(view)
        answer = super().pair(counted)  # type: ignore[arg-type]
        self.decisions, self.looks = self.decisions + 1, self.looks + counted.looks
        return answer


def looks(instances: int, running: int) -> tuple[float, float]:
    """Per dispatch and per round of 40 requests that come while so many run on every instance."""
    first = [(n // instances, 2, 60, 120) for n in range(instances * running)]
    requests = (*first, *[(400 + 9 * n, 2, 20, 40) for n in range(40)])
    rows = ToyRows(5 * NS, 0, 0, 6 * NS, NS // 5)
    case = Case("prefill_first", instances, 4, 100_000, 1, 64, 64, "round_robin", requests, rows)
    setting = replace(Setting(case), reports_at="step_ends")
    dispatcher, migrator = CountedFreeness(), CountedLlumnix()
    counts = list[tuple[int, int]]()
    play(setting, migrator=migrator, dispatcher=Marked(dispatcher, len(first), counts))
    before, after = counts[0], (dispatcher.decisions, dispatcher.looks)
    rounds = migrator.looks / max(1, migrator.decisions)
    return (after[1] - before[1]) / (after[0] - before[0]), rounds


class Marked:
    """Notes how far the count was when the first of the later requests came."""

    reads_load_reports = True

    def __init__(self, inner: CountedFreeness, first: int, counts: list[tuple[int, int]]) -> None:
        self.inner, self.first, self.counts = inner, first, counts

    def dispatch(self, request: Any, fleet: Any) -> tuple[int, str]:
        if request.id == self.first:
            self.inner.dispatch(request, fleet)  # hears of all who came before
            self.counts.append((self.inner.decisions, self.inner.looks))
        return self.inner.dispatch(request, fleet)


@pytest.mark.parametrize(("instances", "running"), [(16, 1), (16, 16), (96, 1)])
def test_a_decision_looks_at_few_instances_however_many_are_there(instances: int, running: int) -> None:
    dispatch, pairing = looks(instances, running)
    assert dispatch <= 8, "instances that have changed since, and those on top"
    assert pairing == 0, "all have memory enough: nobody is looked at"


class Short:
    """So many instances to be paired, of which two may be short of memory, and are not."""

    model, round, leaving, loading = "m", 0, (), ()

    def __init__(self, instances: int, running: int) -> None:
        self.taking = range(instances)
        self.one = LoadReport(851, 8, 16, 700, running, 0, 0, 0, 0)

    def short(self) -> list[int]:
        return [3, 7]

    def report(self, replica: int) -> LoadReport:
        return self.one


@pytest.mark.parametrize(("instances", "running"), [(16, 4), (256, 4), (1024, 4), (1024, 64)])
def test_pairing_looks_at_those_alone_that_may_be_short(instances: int, running: int) -> None:
    view = Counted(Short(instances, running))
    assert Llumnix().pair(view) == ()  # type: ignore[arg-type]
    assert view.looks == 2
