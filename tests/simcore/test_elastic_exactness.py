"""Elastic and split systems over drawn cases: invariants after every event, coalesced = step by step to the
nanosecond, the same journal every time, and a replay without differences.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.vocabulary.actions import Send
from tests.worlds.drawing import drawn_seeds
from tests.worlds.drawn_elastic import (
    Drawn,
    assert_repeats_and_replays,
    assert_same_times,
    draw_requests,
    draw_setting,
    on_links,
    simulate,
    step_world,
)
from tests.worlds.elastic_world import KV_BYTES_PER_TOKEN, MS


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    random = Random(draw(st.integers(0, 1 << 48)))
    setting = draw_setting(random)
    return Drawn(setting, draw_requests(random, setting))


# A world of single steps


@given(case=drawn(), seed=st.integers(0, 1 << 32))
@settings(max_examples=30)
def test_invariants_hold_and_everybody_is_served(case: Drawn, seed: int) -> None:
    world = step_world(case, seed)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    assert world.ended == {"finished": len(case.requests)}
    sent_bytes = sum(action.size_bytes for action in world.actions if isinstance(action, Send))
    moved = [id for action in world.actions if isinstance(action, Send) for id in action.requests]
    assert len(moved) == len(set(moved)), "KV was sent twice, though nobody was lost"
    assert sent_bytes == KV_BYTES_PER_TOKEN * sum(world.prompts[id] for id in moved)


@given(case=drawn(), seed=st.integers(0, 1 << 32), data=st.data())
@settings(max_examples=30)
def test_invariants_hold_whatever_is_lost(case: Drawn, seed: int, data: st.DataObject) -> None:
    """Who is not served is of a model that lacks a role and finds no GPUs that are left."""
    world = step_world(case, seed)
    times = st.integers(0, 3000)
    for at, replica in data.draw(st.lists(st.tuples(times, st.integers(0, 7)), max_size=3)):
        world.lose(at * MS, replica)
    for at, host in data.draw(st.lists(st.tuples(times, st.integers(0, 1)), max_size=1)):
        world.lose_host(at * MS, host)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    instances = world.controller.elastic.deployment.instances
    for model in {world.controller.requests[request].model for request in world.outputs}:
        assert not all(instances.supply(model, role) for role in case.setting.start)
        assert not instances.free_slots(model).groups


@pytest.mark.drawn
def test_invariants_hold_when_less_is_reserved_than_is_written() -> None:
    for seed in drawn_seeds(range(30)):
        random = Random(seed)
        setting = replace(draw_setting(random), coalesce=False)
        case = Drawn(setting, draw_requests(random, setting, reserved=1))
        step_world(case, seed).run(case.requests[-1][0].arrival_ns + 100_000 * MS)


# Virtual time with links


@given(case=drawn())
@settings(max_examples=30)
def test_coalesced_equals_step_by_step(case: Drawn) -> None:
    case = on_links(case)
    assert_same_times(simulate(case), simulate(case, coalesce=False), len(case.requests))


@given(case=drawn())
@settings(max_examples=40)
def test_the_same_case_gives_the_same_journal_and_replays(case: Drawn) -> None:
    case = on_links(case)
    lines, again = simulate(case)[2].lines, simulate(case)[2].lines
    assert_repeats_and_replays(lines, again, case.setting.controller())


@pytest.mark.parametrize("seed", [0])
def test_the_drawn_cases_reach_what_they_are_for(seed: int) -> None:
    """Else the properties above would hold of nothing."""
    random = Random(seed)
    acts: set[str] = set()
    for _ in range(60):
        setting = draw_setting(random)
        world = step_world(Drawn(setting, draw_requests(random, setting)), seed)
        world.run(50_000 * MS)
        acts |= {event.act for event in world.controller.elastic.deployment.log.events}
        acts |= {type(action).__name__ for action in world.actions}
    assert acts >= {
        "cancel_drain", "revive", "mutate", "load", "drain", "shortage", "ready", "released",
        "Send", "JoinBatch", "Preempt", "SwitchRole", "AllocateGpus", "ReleaseGpus", "Load", "Wake",
    }  # fmt: skip
