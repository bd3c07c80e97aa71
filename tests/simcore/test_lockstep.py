"""Ranks of a data-parallel group: coalesced = step by step = a naive group, to the nanosecond."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.pool import EngineOptions
from simcore.lockstep.group import GroupState, LockstepGroup, slowest
from simcore.lockstep.groups import GroupPlan
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case
from tests.worlds.naive_group import Group, ToyExperts, run_naive_group
from tests.worlds.strategies import NS, cases
from tests.worlds.told_outcomes import assert_told
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, RandomCuts, controller_of, requests_of


@st.composite
def groups(draw: st.DrawFn) -> tuple[Case, ToyExperts]:
    case = draw(cases())
    while case.batcher != "chunked":
        case = draw(cases())
    experts = ToyExperts(draw(st.integers(0, 5 * NS)), draw(st.integers(0, NS)), draw(st.booleans()))
    return replace(case, replicas=draw(st.integers(2, 4))), experts


def simulate(
    case: Case, experts: ToyExperts, coalesce: bool = True, seed: int | None = None
) -> tuple[Collected, LockstepGroup, Checked]:
    random = Random(seed)
    options = EngineOptions(coalesce=coalesce, asynchronous=case.asynchronous, lockstep=True)
    wrap = (lambda batcher: batcher) if seed is None else (lambda batcher: RandomCuts(batcher, random))
    checked, recorder = Checked(controller_of(case, wrap=wrap, options=options)), Collected()
    plan = GroupPlan(tuple(range(case.replicas)), case.rows, experts)
    rows = [case.rows] * case.replicas
    simulation = Simulation(checked, requests_of(case), rows, recorder, groups=[plan])
    simulation.run()
    return recorder, simulation.groups.groups[0], checked


def assert_same(case: Case, experts: ToyExperts, recorder: Collected, group: LockstepGroup) -> None:
    outcomes, naive = run_naive_group(case, experts)
    assert_told(recorder, outcomes)
    assert_same_counts(group, naive)


def assert_same_counts(group: LockstepGroup, naive: Group) -> None:
    assert (group.steps, sum(group.dummy_steps)) == (naive.steps, naive.dummy_steps)
    assert (sum(group.worked_fixed), sum(group.waited_fixed)) == (naive.worked_fixed, naive.waited_fixed)


@given(drawn=groups())
@settings(max_examples=75)
def test_a_coalesced_group_equals_the_naive_one(drawn: tuple[Case, ToyExperts]) -> None:
    recorder, group, _ = simulate(*drawn)
    assert_same(*drawn, recorder, group)


@given(drawn=groups())
@settings(max_examples=50)
def test_a_group_step_by_step_equals_the_naive_one(drawn: tuple[Case, ToyExperts]) -> None:
    recorder, group, _ = simulate(*drawn, coalesce=False)
    assert_same(*drawn, recorder, group)


@given(drawn=groups(), seed=st.integers(0, 2**32))
@settings(max_examples=33)
def test_cuts_at_random_boundaries_change_nothing_in_a_group(
    drawn: tuple[Case, ToyExperts], seed: int
) -> None:
    recorder, group, _ = simulate(*drawn, seed=seed)
    assert_same(*drawn, recorder, group)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 7)), min_size=1, max_size=4), st.integers(1, 30))
def test_the_slowest_rank_is_the_slowest_in_every_step(lines: list[tuple[int, int]], most: int) -> None:
    first, slope, steps = slowest(lines, most)
    assert 1 <= steps <= most
    for step in range(steps):
        assert first + slope * step == max(own + steeper * step for own, steeper in lines)
    if steps < most:
        assert first + slope * steps < max(own + steeper * steps for own, steeper in lines)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("output", [31, 32, 33])
def test_dummy_steps_go_on_until_the_ranks_ask_each_other(output: int, asynchronous: bool) -> None:
    """Every 32 steps; asynchronous scheduling does not know yet that the last of them ended all."""
    requests = ((0, 3, output, 64), (10**9, 3, 2, 64))
    rows = ToyRows(7 * NS, NS, NS, 9 * NS, NS)
    case = Case("chunked", 2, 4, 40, 0, 8, 16, "round_robin", requests, rows, asynchronous=asynchronous)
    experts = ToyExperts(5 * NS, NS)
    recorder, group, _ = simulate(case, experts)
    assert_same(case, experts, recorder, group)
    assert group.steps == (64 if output > 32 - asynchronous else 32) + 32
    assert group.state is GroupState.PAUSED
