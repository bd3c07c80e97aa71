"""Tokens that a lost replica gave before its loss count, with its work till then: of every kind of replica.

A naive engine that loses nothing says what happened till then: tokens that have appeared at the nanosecond of
the loss, and not those of steps in progress.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.pool import EngineOptions
from serving.vocabulary.actions import Run
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from simcore.faults.plan import Fault, FaultPlan
from simcore.lockstep.groups import GroupPlan
from simcore.pipeline.circuits import Circuit
from simcore.pipeline.pipelines import PipelinePlan
from simcore.replica.lifetime import Lifetime
from simcore.replica.lost_machine import lose
from simcore.replica.machine import Machine
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case, Outcome, run_naive, run_naive_logged
from tests.worlds.naive_group import ToyExperts, run_naive_group
from tests.worlds.naive_pipeline import ToyStages, run_naive_pipeline
from tests.worlds.naive_virtual import run_naive_virtual
from tests.worlds.strategies import NS, cases
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, controller_of, requests_of

BOTH_WAYS = pytest.mark.parametrize("coalesce", [True, False], ids=["coalesced", "step by step"])
SHARES = st.tuples(st.floats(0, 1), st.sampled_from((-1, 0, 0, 1)))


@dataclass
class Losing(Collected):
    """A recorder of runs in which requests fail."""

    failures: dict[int, str] = field(default_factory=dict)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        self.failures[request.id] = reason


def moment_ns(outcomes: Iterable[Outcome], share: tuple[float, int]) -> int:
    """When some token appears, or a nanosecond beside it."""
    times = sorted(at_ns for one in outcomes for at_ns in one.token_ns) or [10]
    return max(0, times[int(share[0] * (len(times) - 1))] + share[1])


def gaps_until(outcomes: Iterable[Outcome], at_ns: int) -> list[int]:
    """Gaps that end with a token which has appeared at this nanosecond."""
    until = (at_ns + 1) << FRACTION_BITS
    found = []
    for one in outcomes:
        pairs = zip(one.token_fixed, one.token_fixed[1:])
        found += [later - earlier for earlier, later in pairs if later < until]
    return sorted(found)


def lost(case: Case, at_ns: int, options: EngineOptions, pools: int = 1, **plans: Any) -> tuple[Losing, Any]:
    """The run of a case all of whose replicas are lost at once."""
    checked, recorder = Checked(controller_of(case, options=options, kv_pools=pools)), Losing()
    gpus, groups = [(one,) for one in range(case.replicas)], ()
    if "groups" in plans:
        groups = (tuple(range(case.replicas)),)
    faults = FaultPlan([Fault(at_ns, "replica", 0)], gpus, None, groups)
    rows: Any = [case.rows] * case.replicas
    simulation = Simulation(checked, requests_of(case), rows, recorder, faults=faults, **plans)
    simulation.run()
    return recorder, simulation


def computed_until(spans: Iterable[tuple[int, int]], at_ns: int) -> int:
    """Computing time; a step that ends within this nanosecond counts to its end, which adds less than one."""
    at = at_ns << FRACTION_BITS
    return sum(min(end, at) - begin for begin, end in spans if begin < at)


STEP_NS = 100
CONSTANT = ToyRows(STEP_NS * NS, 0, 0, STEP_NS * NS, 0)


def test_gaps_by_hand() -> None:
    """A prompt ends at 100 ns, then a token every 100 ns: at 470 ns there are 4 tokens and 3 gaps."""
    case = Case("chunked", 1, 4, 40, 0, 8, 64, "round_robin", ((0, 8, 40, 64),), CONSTANT)
    assert [one.token_ns[:4] for one in run_naive(case)] == [(100, 200, 300, 400)]
    for at_ns, gaps in ((99, 0), (100, 0), (199, 0), (200, 1), (470, 3), (500, 4)):
        for coalesce in (True, False):
            recorder, _ = lost(case, at_ns, EngineOptions(coalesce=coalesce))
            assert recorder.all_gaps == [STEP_NS * NS] * gaps
            assert recorder.busy_ns == {0: at_ns} and list(recorder.failures) == [0]


@pytest.mark.parametrize(("at_ns", "gaps"), [(180, 0), (199, 0), (200, 2), (299, 2), (300, 4)])
def test_a_step_in_which_others_join_counts_once_it_has_ended(at_ns: int, gaps: int) -> None:
    """Request 0 decodes from 100 ns on. Request 1, with a token as old, joins at 150 ns, from 200 on."""
    seen = Collected()
    lives = {id: Lifetime(Request(id, 0, 8, 10**6, "m"), 40) for id in (0, 1)}
    lives[1].generated, lives[1].last_token_fixed = 1, 100 * NS
    machine = Machine(0, CONSTANT, lives, seen)  # type: ignore[arg-type]
    machine.start(0, Run(0, 0, ((0, 0, 8),), True, 1, False, ""))
    machine.complete()
    machine.start(100, Run(0, 0, (), True, 30, False, ""))
    assert machine.join_batch(150, (1,))
    lose(machine, at_ns)
    expected = {0: [], 2: [100], 4: [100, 100, 200]}[gaps]
    assert [gap // NS for gap in sorted(seen.all_gaps)] == expected and machine.busy_ns == at_ns


def test_a_lost_stage_replica_computes_till_its_loss() -> None:
    """Passes that it has begun, or would begin after others, do not end; those of others do."""
    circuit = Circuit()
    circuit.free, circuit.work = (
        {1: 500 * NS, 2: 500 * NS, 3: 200 * NS},
        {1: 450 * NS, 2: 450 * NS, 3: 9 * NS},
    )
    for replica in (1, 3, 4):
        circuit.stop(replica, 300)
    assert circuit.work == {1: 250 * NS, 2: 450 * NS, 3: 9 * NS}
    assert circuit.free == {1: 300 * NS, 2: 500 * NS, 3: 200 * NS}


def staged(case: Case, factors: Sequence[int]) -> ToyStages:
    rows = case.rows
    assert isinstance(rows, ToyRows)
    stages = [
        replace(rows, intercept=rows.intercept * one, slope=rows.slope * (one - 1), output_token=0)
        for one in factors
    ]
    return ToyStages(tuple(stages), NS // 3, 0)


@BOTH_WAYS
def test_a_pipeline_by_hand(coalesce: bool) -> None:
    """Two stages of 100 ns: tokens at 200 and 400 ns; the third step has computed 70 ns when it is lost."""
    case = Case("chunked", 1, 4, 40, 0, 8, 64, "round_robin", ((0, 8, 40, 64),), CONSTANT)
    plans = [PipelinePlan(0, ToyStages((CONSTANT, CONSTANT), 0, 0))]
    options = EngineOptions(coalesce=coalesce, pipeline_stages=2, max_num_batched_tokens=64)
    recorder, simulation = lost(case, 470, options, pipelines=plans)
    assert recorder.all_gaps == [200 * NS]
    replica = simulation.pipelines.of[0]
    assert replica.shop.computed() == 470 * NS and replica.used_fixed == 470 * NS
    assert (replica.steps, recorder.busy_ns) == (2, {0: 235})


@BOTH_WAYS
def test_a_group_by_hand(coalesce: bool) -> None:
    """A rank with work steps every 100 ns, the other runs dummy steps: at 470 ns there are 4 of each."""
    case = Case("chunked", 2, 4, 40, 0, 8, 64, "round_robin", ((0, 8, 40, 64),), CONSTANT)
    plans = [GroupPlan((0, 1), CONSTANT, ToyExperts(0, 0, False))]  # type: ignore[arg-type]
    recorder, simulation = lost(case, 470, EngineOptions(coalesce=coalesce, lockstep=True), groups=plans)
    assert recorder.all_gaps == [100 * NS] * 3 and recorder.busy_ns == {0: 470, 1: 0}
    group = simulation.groups.groups[0]
    assert (group.steps, group.dummy_steps, group.worked_fixed) == (4, [0, 4], [400 * NS, 0])


@BOTH_WAYS
@given(case=cases(), share=SHARES)
@settings(max_examples=50, deadline=None)
def test_an_engine(coalesce: bool, case: Case, share: tuple[float, int]) -> None:
    case = replace(case, replicas=1)
    outcomes, log = run_naive_logged(case)
    at_ns = moment_ns(outcomes, share)
    order = "priority" if case.priorities else "fcfs"
    recorder, _ = lost(
        case, at_ns, EngineOptions(coalesce=coalesce, asynchronous=case.asynchronous, order=order)
    )
    assert sorted(recorder.all_gaps) == gaps_until(outcomes, at_ns)
    busy_ns = sum(min(step.end_ns, at_ns) - step.start_ns for step in log if step.start_ns < at_ns)
    assert recorder.busy_ns[0] == busy_ns


@BOTH_WAYS
@given(case=cases(), share=SHARES, factors=st.lists(st.integers(1, 4), min_size=2, max_size=4))
@settings(max_examples=33, deadline=None)
def test_micro_batches(coalesce: bool, case: Case, share: tuple[float, int], factors: list[int]) -> None:
    case = replace(
        case, replicas=1, batcher="chunked", asynchronous=False, prefix_caching=False, priorities=(),
        decode_spare_block=False,
    )  # fmt: skip
    stages = staged(case, factors)
    outcomes, (naive,) = run_naive_pipeline(case, stages)
    at_ns = moment_ns(outcomes, share)
    options = EngineOptions(
        coalesce=coalesce, pipeline_stages=len(factors), max_num_batched_tokens=case.max_num_batched_tokens
    )
    recorder, simulation = lost(case, at_ns, options, pipelines=[PipelinePlan(0, stages)])
    assert sorted(recorder.all_gaps) == gaps_until(outcomes, at_ns)
    replica = simulation.pipelines.of[0]
    assert abs(replica.shop.computed() - computed_until(naive.spans, at_ns)) <= len(factors) * NS
    assert replica.steps == sum(end >> FRACTION_BITS <= at_ns for end in naive.ends)
    assert recorder.busy_ns[0] == replica.shop.computed() // len(factors) >> FRACTION_BITS


@BOTH_WAYS
@given(case=cases(), share=SHARES, factors=st.lists(st.integers(1, 4), min_size=2, max_size=4))
@settings(max_examples=33, deadline=None)
def test_virtual_engines(coalesce: bool, case: Case, share: tuple[float, int], factors: list[int]) -> None:
    count = len(factors)
    case = replace(
        case, replicas=1, batcher="prefill_first", asynchronous=False, prefix_caching=False, priorities=(),
        reserve_full_prompt=False, total_blocks=case.total_blocks * count,
        watermark_blocks=case.watermark_blocks * count,
    )  # fmt: skip
    stages = staged(case, factors)
    outcomes, (naive,) = run_naive_virtual(case, stages)
    at_ns = moment_ns(outcomes, share)
    plans = [PipelinePlan(0, stages, True)]
    options = EngineOptions(coalesce=coalesce, pipeline_stages=count)
    recorder, simulation = lost(case, at_ns, options, count, pipelines=plans)
    assert sorted(recorder.all_gaps) == gaps_until(outcomes, at_ns)
    replica = simulation.pipelines.of[0]
    assert abs(replica.shop.computed() - computed_until(naive.spans, at_ns)) <= len(factors) * NS
    assert replica.steps == sum(end >> FRACTION_BITS <= at_ns for end in naive.step_ends)


@BOTH_WAYS
@given(case=cases(), share=SHARES, ranks=st.integers(2, 4), expert=st.integers(0, 5 * NS))
@settings(max_examples=33, deadline=None)
def test_a_group(coalesce: bool, case: Case, share: tuple[float, int], ranks: int, expert: int) -> None:
    case = replace(case, replicas=ranks, batcher="chunked", decode_spare_block=False)
    experts = ToyExperts(expert, NS, False)
    outcomes, _ = run_naive_group(case, experts)
    at_ns = moment_ns(outcomes, share)
    options = EngineOptions(coalesce=coalesce, asynchronous=case.asynchronous, lockstep=True)
    plans = [GroupPlan(tuple(range(ranks)), case.rows, experts)]
    recorder, simulation = lost(case, at_ns, options, groups=plans)
    assert sorted(recorder.all_gaps) == gaps_until(outcomes, at_ns)
    group = simulation.groups.groups[0]
    alone = lost(case, at_ns, replace(options, coalesce=False), groups=plans)[1].groups.groups[0]
    counted = group.steps, group.dummy_steps, group.worked_fixed, group.waited_fixed
    assert counted == (alone.steps, alone.dummy_steps, alone.worked_fixed, alone.waited_fixed)
