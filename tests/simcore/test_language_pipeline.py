"""Language models in stages: exact = coalesced, KV at every stage, closed forms, losses."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.record.replay import replay
from serving.vocabulary.units import FRACTION_BITS
from simcore.faults.plan import Fault, FaultPlan
from simcore.pipeline.circuits import Circuit
from tests.worlds.language_world import LanguageCase, LanguageRun, controller_of, run
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.toy_rows import ToyRows

ONE = 1 << FRACTION_BITS


@st.composite
def cases(draw: st.DrawFn) -> LanguageCase:
    """Uneven stages, paths that share replicas, little memory, long outputs."""
    stages = draw(st.integers(1, 4))
    cost = st.integers(1, 40 * ONE)
    seldom = st.integers(0, 3).map(lambda one: one * ONE // 7)
    knot = draw(st.none() | st.integers(20, 600))
    skew = draw(st.sampled_from((0, 0, 30)))
    rows = tuple(
        ToyRows(draw(cost), draw(cost) // 8, draw(seldom), draw(cost), draw(cost) // 20, 0, knot,
                draw(cost), draw(seldom), skew)
        for _ in range(stages)
    )  # fmt: skip
    costs = ToyStages(rows, draw(st.sampled_from((0, ONE, 3 * ONE + 5))), draw(st.sampled_from((0, 7))))
    request = st.tuples(st.integers(0, 3000), st.integers(1, 40), st.integers(1, 200), st.integers(1, 200))
    counts = draw(st.lists(st.integers(1, 3), min_size=stages, max_size=stages).filter(lambda n: sum(n) < 9))
    blocks = draw(st.lists(st.integers(60, 200), min_size=stages, max_size=stages))
    found = draw(st.lists(request, min_size=1, max_size=12))
    return LanguageCase(found, costs, counts, blocks, draw(st.integers(1, 4)), draw(st.sampled_from((5, 64))))


def told(one: LanguageRun) -> tuple[object, ...]:
    recorder = one.recorder
    return recorder.done, recorder.refusals, sorted(recorder.all_gaps), recorder.busy_ns


@given(cases())
@settings(max_examples=40, deadline=None)
def test_coalesced_is_exact(case: LanguageCase) -> None:
    assert told(run(case)) == told(run(case, coalesce=False))


@given(cases())
@settings(max_examples=20, deadline=None)
def test_what_is_added_up_at_once_is_what_goes_step_by_step(case: LanguageCase) -> None:
    whole = told(run(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Circuit, "_jump", lambda self, until: False)
        assert told(run(case)) == whole


FLAT = ToyRows(10 * ONE, 0, 0, 10 * ONE, 0)
PLENTY = 10_000


def lost(replica: int) -> FaultPlan:
    """After 500 ns."""
    return FaultPlan((Fault(500, "replica", replica),), [(gpu,) for gpu in range(8)], None)


def case_of(stages: int, requests: list[tuple[int, int, int, int]], replicas: int = 1) -> LanguageCase:
    """Every pass takes 10 ns, activations take no time, and nothing lacks memory."""
    costs = ToyStages((FLAT,) * stages, 0, 0)
    return LanguageCase(requests, costs, (replicas,) * stages, (PLENTY,) * stages, 1)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_the_bubble_is_that_of_the_closed_form(stages: int, batches: int) -> None:
    """So many batches of a request each get a token every ``stages`` passes; each stage works m / N of it."""
    rounds = 1000
    found = run(case_of(stages, [(0, 1, rounds, rounds)] * batches))
    together = min(batches, stages)
    if batches <= stages:
        ends = [finish for _, _, _, finish, _ in found.recorder.done.values()]
        assert sorted(ends) == [10 * (stages * rounds + late) for late in range(batches)]
    span = max(finish for _, _, _, finish, _ in found.recorder.done.values())
    if batches <= stages:
        assert found.recorder.busy_ns[0] / span == pytest.approx(together / stages, rel=2e-3)


def test_events_do_not_grow_with_output_length() -> None:
    def events(tokens: int) -> int:
        return run(case_of(4, [(1000 * at, 5, tokens, tokens) for at in range(10)], 2)).report.events

    assert events(1500) <= events(100) + 10
    assert events(1500) <= 10 * 6


def test_long_decoding_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches over one path: a few rounds show the curve, the others are not gone through."""
    operations = []
    operate = Circuit._operate
    monkeypatch.setattr(
        Circuit, "_operate", lambda self, one: (operations.append(one.index), operate(self, one))[1]
    )
    rows = ToyRows(10 * ONE, ONE, ONE // 100, 20 * ONE, ONE)
    case = replace(case_of(3, [(0, 4, 1900, 1900)] * 3), costs=ToyStages((rows,) * 3, ONE, 0))
    assert told(run(case)) == told(run(case, coalesce=False))
    operations.clear()
    run(case)
    assert len(operations) < 300  # of 17,100


def test_each_stage_keeps_the_kv_of_its_layers_for_who_passes_it() -> None:
    """The second stage holds one request at a time, the first one two."""
    requests = [(0, 10, 10, 10)] * 2
    case = replace(case_of(2, requests), blocks=(10, 5))
    first, second = sorted(run(case).recorder.done.values(), key=lambda one: one[3])
    assert (first[3], second[2]) == (
        200,
        220,
    )
    wide = sorted(finish for _, _, _, finish, _ in run(replace(case, blocks=(10, 10))).recorder.done.values())
    assert wide == [200, 210]


def test_a_request_that_no_replica_of_a_stage_can_hold_is_refused() -> None:
    found = run(replace(case_of(2, [(0, 10, 20, 20)]), blocks=(10, 7)))
    assert found.recorder.refusals == {0: "prompt + max_new_tokens exceed the 28 KV tokens of a replica"}


def test_a_lost_replica_takes_the_requests_of_its_paths_with_it() -> None:
    """Those on other paths go on; what comes later has a path without it."""
    case = case_of(2, [(0, 4, 100, 100), (0, 4, 100, 100), (900, 4, 10, 10)], 2)
    found = run(case, faults=lost(0))
    assert set(found.recorder.done) == {1, 2}
    assert found.recorder.refusals == {0: "replica 0 failed"}
    assert told(found) == told(run(case, False, lost(0)))


def test_a_stage_without_replicas_fails_what_waits_and_refuses_what_comes() -> None:
    case = case_of(2, [(0, 4, 100, 100), (10, 4, 10, 10), (20, 4, 10, 10), (900, 4, 10, 10)])
    found = run(case, faults=lost(1))
    assert not found.recorder.done or 0 not in found.recorder.done
    assert found.recorder.refusals[3] == "no replica of stage 1 of m is alive"


def test_a_journal_replays() -> None:
    case = case_of(3, [(at * 70, 7, 40, 30 + at) for at in range(8)], 2)
    assert replay(run(case).journal(), controller_of(case)).first_difference is None
