"""Live scaling in whole systems: invariants after every event, whoever is lost; the three steps."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import StopTheWorld
from serving.vocabulary.actions import Load, Send
from tests.worlds.drawn_elastic import Drawn, draw_requests, draw_setting, step_world
from tests.worlds.elastic_world import KV_BYTES_PER_TOKEN, MS, Setting
from tests.worlds.live_systems import assert_every_layer_runs_once, made, with_losses


def live_setting(random: Random) -> Setting:
    setting = draw_setting(random)
    seed = random.getrandbits(32)
    split: dict[Any, int] = (
        {"prefill": 1, "decode": 1} if random.random() < 0.7 else {"prefill": 0, "decode": 1}
    )
    return replace(
        setting,
        start=split,
        bounds={role: (count, 6) for role, count in split.items()},
        provision=random.choice(["multicast", "naive", "one_to_one", "host_or_ssd"]),
        copies="pool",
        prefill_tokens_per_s=20.0,
        live=lambda: made(Random(seed)),
        queue=None,
    )


@st.composite
def live_cases(draw: st.DrawFn) -> Drawn:
    random = Random(draw(st.integers(0, 1 << 48)))
    setting = live_setting(random)
    return Drawn(setting, draw_requests(random, setting))


@given(case=live_cases(), seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_everybody_is_served_and_every_layer_runs_once(case: Drawn, seed: int) -> None:
    world = step_world(case, seed)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    assert world.ended == {"finished": len(case.requests)}
    assert_every_layer_runs_once(world)


@given(case=live_cases(), seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_the_kv_of_a_request_is_sent_once_wherever_its_layers_ran(case: Drawn, seed: int) -> None:
    world = step_world(case, seed)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    sends = [one for one in world.actions if isinstance(one, Send)]
    kv = [one for one in sends if one.what == "kv"]
    bound = KV_BYTES_PER_TOKEN * sum(world.prompts.values())
    assert sum(one.size_bytes for one in kv) <= bound
    pairs = [(request, one.source) for one in kv for request in one.requests]
    assert len(pairs) == len(set(pairs)), "a part was sent twice, though nobody was lost"
    for one in sends:
        if one.what == "activations":
            assert one.size_bytes == 2 * sum(world.prompts[request] for request in one.requests)


@given(case=live_cases(), seed=st.integers(0, 1 << 32), data=st.data())
@settings(max_examples=15)
def test_invariants_hold_whoever_is_lost(case: Drawn, seed: int, data: st.DataObject) -> None:
    with_losses(case, seed, data)


def test_switched_off_it_is_the_system_without_it() -> None:
    random = Random(7)
    for _ in range(20):
        setting = live_setting(random)
        requests = draw_requests(random, setting)
        worlds = []
        for live in (None, lambda: LiveScaling(StopTheWorld(), 0)):
            world = step_world(Drawn(replace(setting, live=live), requests), 3)
            world.run(requests[-1][0].arrival_ns + 100_000 * MS)
            worlds.append(world)
        assert worlds[0].actions == worlds[1].actions


def test_loads_of_live_instances_tell_of_every_layer() -> None:
    random, found = Random(1), 0
    for _ in range(30):
        setting = live_setting(random)
        world = step_world(Drawn(setting, requests := draw_requests(random, setting)), 5)
        world.run(requests[-1][0].arrival_ns + 100_000 * MS)
        for load in [one for one in world.actions if isinstance(one, Load)]:
            assert load.every_layer == load.reason.endswith("; live")
            found += load.every_layer
        told = [one for one in world.controller.elastic.deployment.log.events if one.act == "load"]
        works = {one.replica for one in told if one.reason.endswith("; works while it loads")}
        begun = [
            load.targets
            for load in world.actions
            if isinstance(load, Load) and load.reason.endswith("; live")
        ]
        assert works == {number for targets in begun for _, number in targets if number in works}
        assert all(works & {number for _, number in targets} for targets in begun)
    assert found > 10
