"""Elastic and split systems over drawn cases: invariants after every event, coalesced = step by step to the
nanosecond, the same journal every time, and a replay without differences.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.catalogue import load_llm
from hwmodels.loading.startup import load_start_up
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import Topology, build
from serving.record.journal import whole
from serving.record.replay import replay
from serving.vocabulary.actions import Send
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.simulation import SimReport, Simulation
from tests.drawing import drawn_seeds
from tests.elastic_world import KV_BYTES_PER_TOKEN, MS, PROVISIONERS, Setting, StepWorld, Whims
from tests.strategies import NS
from tests.toy_rows import ToyRows
from tests.world import Checked, Collected

SHAPE = load_llm("tiny_llama")
# Steps of some ms, of odd fractions, that grow with batch and context, so that few reports coincide.
ROWS = ToyRows(
    intercept=2_000_003 * NS + 7, per_sequence=300_001 * NS, slope=9_001 * NS, mixed_intercept=3_000_017 * NS,
    per_token=200_003 * NS,
)  # fmt: skip


def ahead(random: Random) -> Random:
    """The same stream from here on: what is drawn from it shifts nothing else of a world."""
    other = Random(0)
    other.setstate(random.getstate())
    return other


@cache
def topology() -> Topology:
    return build(load_cluster("blitz_a_2x4"))


@dataclass(frozen=True)
class Drawn:
    """A setting and (request, output tokens) by arrival."""

    setting: Setting
    requests: tuple[tuple[Request, int], ...]


def draw_setting(random: Random) -> Setting:
    """Small memories, slow instances and short periods, so that all of it is needed within a few seconds."""
    split, count = random.random() < 0.75, random.choice([0, 1, 1])
    models = {"m": 1} if random.random() < 0.5 else {"a": 1, "b": random.choice([1, 2])}
    provision = random.choice(sorted(PROVISIONERS))
    caching = provision in ("host_or_ssd", "pipelined") and random.random() < 0.5
    copies = "everywhere" if provision == "host" else "ttl" if caching else "pool"
    start: Any = {"prefill": count, "decode": count} if split else {"both": count}
    seed = random.getrandbits(32)
    whims: Callable[[], Whims] | None = (lambda: Whims(Random(seed))) if random.random() < 0.4 else None
    return Setting(
        models=models,
        hosts=2,
        gpus_per_host=4,
        start=start,
        bounds={role: (random.choice([0, count]), 6) for role in start},
        provision=provision,
        copies=copies,
        ways=tuple(way for way in ("cancel_drain", "revive", "mutate") if random.random() < 0.7),
        rules={"prescale_from": random.choice([0, 1])},
        whims=whims,
        kv_blocks=random.choice([8, 16, 40]),
        max_num_seqs=random.choice([2, 4, 8]),
        batch_tokens=random.choice([8, 16]),
        park_ns=random.choice([0, 300 * MS]),
        prefill_tokens_per_s=random.choice([20.0, 100.0, 1000.0]),
        pass_ns=random.choice([0, 200 * MS]),
        scale_up_bytes_per_s=random.choice([0, 1000]),
        queue=None if split else ahead(random).choice([None, "per_instance", "per_instance"]),
    )


def draw_requests(random: Random, setting: Setting, reserved: int = 0) -> tuple[tuple[Request, int], ...]:
    """Bursts and pauses. ``reserved``: the output that room is kept for, 0: all that it may be."""
    arrival_ns, found = 0, []
    for id in range(random.randint(1, 40)):
        arrival_ns += random.choice([0, 1, 10 * MS, 50 * MS, random.choice([1, 2000]) * MS])
        prompt = random.randint(1, 20)
        cap = random.randint(1, 31 - prompt)
        model = random.choice(sorted(setting.models))
        found.append((Request(id, arrival_ns, prompt, cap, model, 0, reserved), random.randint(1, 30)))
    return tuple(found)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    random = Random(draw(st.integers(0, 1 << 48)))
    setting = draw_setting(random)
    return Drawn(setting, draw_requests(random, setting))


# A world of single steps


def step_world(case: Drawn, seed: int) -> StepWorld:
    random = Random(seed)
    longest = {"step": 30, "load": 400, "send": 60}
    setting = replace(case.setting, coalesce=False)
    world = StepWorld(setting, lambda kind: random.randint(1, longest[kind]) * MS)
    for request, output_tokens in case.requests:
        world.arrive(request, output_tokens)
    return world


@given(case=drawn(), seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_invariants_hold_and_everybody_is_served(case: Drawn, seed: int) -> None:
    world = step_world(case, seed)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    assert world.ended == {"finished": len(case.requests)}
    sent_bytes = sum(action.size_bytes for action in world.actions if isinstance(action, Send))
    moved = [id for action in world.actions if isinstance(action, Send) for id in action.requests]
    assert len(moved) == len(set(moved)), "KV was sent twice, though nobody was lost"
    assert sent_bytes == KV_BYTES_PER_TOKEN * sum(world.prompts[id] for id in moved)


@given(case=drawn(), seed=st.integers(0, 1 << 32), data=st.data())
@settings(max_examples=60)
def test_invariants_hold_whatever_is_lost(case: Drawn, seed: int, data: st.DataObject) -> None:
    """Who is not served is of a model that lacks a role and finds no GPUs that are left."""
    world = step_world(case, seed)
    times = st.integers(0, 3000)
    for at, replica in data.draw(st.lists(st.tuples(times, st.integers(0, 7)), max_size=3)):
        world.lose(at * MS, replica)
    for at, host in data.draw(st.lists(st.tuples(times, st.integers(0, 1)), max_size=1)):
        world.lose_host(at * MS, host)
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    assert world.controller.elastic is not None
    instances = world.controller.elastic.deployment.instances
    for model in {world.controller.requests[request].model for request in world.outputs}:
        assert not all(instances.supply(model, role) for role in case.setting.start)
        assert not instances.free_seats(model)


@pytest.mark.drawn
def test_invariants_hold_when_less_is_reserved_than_is_written() -> None:
    for seed in drawn_seeds(range(100)):
        random = Random(seed)
        setting = replace(draw_setting(random), coalesce=False)
        case = Drawn(setting, draw_requests(random, setting, reserved=1))
        step_world(case, seed).run(case.requests[-1][0].arrival_ns + 100_000 * MS)


# Virtual time with links


def simulate(case: Drawn, coalesce: bool = True) -> tuple[Collected, SimReport, Checked]:
    setting = replace(case.setting, coalesce=coalesce)
    checked, recorder = Checked(setting.controller()), Collected()
    placed = setting.placed()
    shapes = dict.fromkeys(setting.models, SHAPE)
    data_plane = DataPlane(
        DataPlaneSetup(
            topology(), shapes, [one.model for one in placed], [one.gpus for one in placed], "direct",
            load_start_up("none"),
        )
    )  # fmt: skip
    driven: Any = checked
    simulation = Simulation(
        driven, case.requests, [ROWS] * len(placed), recorder, None, data_plane,
        dict.fromkeys(setting.models, ROWS),
    )  # fmt: skip
    return recorder, simulation.run(), checked


def on_links(case: Drawn) -> Drawn:
    """The same with the cluster, model and links of the data plane."""
    setting = replace(
        case.setting,
        topology=topology(),
        size_bytes=SHAPE.weight_bytes,
        kv_bytes_per_token=SHAPE.kv_bytes_per_token,
    )
    return Drawn(setting, case.requests)


def journal_of(lines: list[str]) -> list[str]:
    return whole({"source": "test"}, lines, sum(len(json.loads(text)[2]) for text in lines))


def but_for_steps(lines: list[str]) -> list[Any]:
    """(time, action) of all that depends on no step: who goes where, what moves, what comes and goes.

    Not when requests are told to join: step by step that is at a boundary, else when their KV comes.
    """
    kinds = ("assign", "reject", "load", "send", "place", "turn", "reclaim", "wake", "preempt")
    return [
        (now_ns, action)
        for now_ns, _, actions in map(json.loads, lines)
        for action in actions
        if action[0] in kinds
    ]


@given(case=drawn())
@settings(max_examples=60)
def test_coalesced_equals_step_by_step(case: Drawn) -> None:
    case = on_links(case)
    (ran, _, checked), (exact, _, stepped) = simulate(case), simulate(case, coalesce=False)
    assert ran.done == exact.done and len(ran.done) == len(case.requests)
    assert sorted(ran.all_gaps) == sorted(exact.all_gaps)
    assert ran.busy_ns == exact.busy_ns
    assert but_for_steps(checked.lines) == but_for_steps(stepped.lines)


@given(case=drawn())
@settings(max_examples=40)
def test_the_same_case_gives_the_same_journal_and_replays(case: Drawn) -> None:
    case = on_links(case)
    lines = simulate(case)[2].lines
    assert simulate(case)[2].lines == lines
    report = replay(journal_of(lines), case.setting.controller())
    assert (report.different, report.first_difference) == (0, None)
    assert report.events == len(lines)


@pytest.mark.parametrize("seed", [0])
def test_the_drawn_cases_reach_what_they_are_for(seed: int) -> None:
    """Else the properties above would hold of nothing."""
    random = Random(seed)
    acts: set[str] = set()
    for _ in range(60):
        setting = draw_setting(random)
        world = step_world(Drawn(setting, draw_requests(random, setting)), seed)
        world.run(50_000 * MS)
        assert world.controller.elastic is not None
        acts |= {event.act for event in world.controller.elastic.deployment.history}
        acts |= {type(action).__name__ for action in world.actions}
    assert acts >= {
        "cancel_drain", "revive", "mutate", "load", "drain", "short", "ready", "reclaimed",
        "Send", "Adopt", "Preempt", "Turn", "Place", "Reclaim", "Load", "Wake",
    }  # fmt: skip
