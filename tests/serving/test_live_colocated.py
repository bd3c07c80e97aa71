"""Live scaling of instances that prefill and decode: invariants whoever is lost, layers and parts of KV once
each, coalesced = step by step, and nothing else where it is switched off.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import StopTheWorld
from serving.vocabulary.actions import JoinBatch, Run, Send
from tests.worlds.drawn_elastic import (
    Drawn,
    assert_repeats_and_replays,
    assert_same_times,
    draw_requests,
    on_links,
    simulate,
    step_world,
)
from tests.worlds.elastic_world import KV_BYTES_PER_TOKEN, LAYERS, MS, StepWorld
from tests.worlds.live_systems import (
    assert_every_layer_runs_once,
    layer_runs,
    live_setting,
    with_losses,
)


@st.composite
def live_cases(draw: st.DrawFn) -> Drawn:
    random = Random(draw(st.integers(0, 1 << 48)))
    setting = live_setting(random)
    return Drawn(setting, draw_requests(random, setting))


def played(case: Drawn, seed: int) -> StepWorld:
    world = step_world(case, seed)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    return world


def sends(world: StepWorld, what: str) -> Iterator[Send]:
    return (one for one in world.actions if isinstance(one, Send) and one.what == what)


@given(case=live_cases(), seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_everybody_is_served_and_every_layer_runs_once(case: Drawn, seed: int) -> None:
    world = played(case, seed)
    assert world.ended == {"finished": len(case.requests)}
    assert_every_layer_runs_once(world)


@given(case=live_cases(), seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_a_part_is_sent_once_to_where_the_last_layers_ran(case: Drawn, seed: int) -> None:
    """And it is as large as its layers; who decodes has had it sent, or had all layers in one place."""
    world = played(case, seed)
    first, last = dict[int, tuple[int, int]](), dict[int, int]()
    for one in layer_runs(world):
        assert one.layers is not None
        for request, _, _ in one.chunks:
            last[request] = one.replica
            if one.layers[0] == 0 or first[request][0] == one.replica:
                first[request] = one.replica, one.layers[1]
    sent = dict[int, Send]()
    for one in sends(world, "kv"):
        assert sent.keys().isdisjoint(one.requests)
        sent |= dict.fromkeys(one.requests, one)
        for request in one.requests:
            assert (one.source, one.target) == (first[request][0], last[request])
        parts = [KV_BYTES_PER_TOKEN * world.prompts[one] * first[one][1] // LAYERS for one in one.requests]
        assert one.size_bytes == sum(parts)
    for action in world.actions:
        if isinstance(action, JoinBatch):
            for request in action.requests:
                assert action.replica == last[request]
                assert (request in sent) == (first[request][0] != last[request])
    for one in sends(world, "activations"):
        assert one.size_bytes == 2 * sum(world.prompts[request] for request in one.requests)


@given(case=live_cases(), seed=st.integers(0, 1 << 32), data=st.data())
@settings(max_examples=15)
def test_invariants_hold_whoever_is_lost(case: Drawn, seed: int, data: st.DataObject) -> None:
    """Who is not served at the end is of a model without instances that finds no GPUs that are left."""
    world = with_losses(case, seed, data)
    instances = world.controller.elastic.deployment.instances
    for model in {world.controller.requests[request].model for request in world.outputs}:
        assert not instances.supply(model, "both") and not instances.free_slots(model).groups


def test_switched_off_it_is_the_system_without_it() -> None:
    random = Random(7)
    for _ in range(40):
        setting = live_setting(random)
        requests = draw_requests(random, setting)
        worlds = []
        for live in (None, lambda: LiveScaling(StopTheWorld(), 0)):
            worlds.append(played(Drawn(replace(setting, live=live), requests), 3))
        assert worlds[0].actions == worlds[1].actions


def test_the_drawn_cases_reach_what_they_are_for() -> None:
    """Layers on both sides, KV sent after them, batches pulled by instances that decode, and by several."""
    random, decoding, partners, kinds = Random(1), 0, set[int](), set[str]()
    for _ in range(40):
        setting = live_setting(random)
        world = played(Drawn(setting, draw_requests(random, setting)), 5)
        kinds |= {one.what for one in world.actions if isinstance(one, Send)}
        partners |= {one.replica for one in layer_runs(world) if one.layers and one.layers[0]}
        before = dict[int, Run]()
        for one in (one for one in world.actions if isinstance(one, Run)):
            if one.layers is not None and one.replica in before:
                decoding += before[one.replica].decode
            before[one.replica] = one
    assert kinds >= {"kv", "activations"} and len(partners) > 2 and decoding > 5


@given(case=live_cases())
@settings(max_examples=15)
def test_coalesced_equals_step_by_step(case: Drawn) -> None:
    case = on_links(case)
    assert_same_times(simulate(case), simulate(case, coalesce=False), len(case.requests))


@given(case=live_cases())
@settings(max_examples=15)
def test_the_same_case_gives_the_same_journal_and_replays(case: Drawn) -> None:
    case = on_links(case)
    lines, again = simulate(case)[2].lines, simulate(case)[2].lines
    assert_repeats_and_replays(lines, again, case.setting.controller())
