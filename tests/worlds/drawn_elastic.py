"""Elastic and split systems drawn by chance, played step by step or on links in virtual time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from hwmodels.catalogue import load_llm
from hwmodels.loading.startup import load_start_up
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import Topology, build
from serving.controller import Controller
from serving.record.replay import replay
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.sim_report import SimReport
from simcore.simulation import Simulation
from tests.worlds.elastic_world import MS, PROVISIONERS, Setting, StepWorld, Whims
from tests.worlds.journals import complete_journal
from tests.worlds.strategies import NS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected

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
        max_num_batched_tokens=random.choice([8, 16]),
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


def step_world(case: Drawn, seed: int) -> StepWorld:
    random = Random(seed)
    longest = {"step": 30, "load": 400, "send": 60}
    setting = replace(case.setting, coalesce=False)
    world = StepWorld(setting, lambda kind: random.randint(1, longest[kind]) * MS)
    for request, output_tokens in case.requests:
        world.arrive(request, output_tokens)
    return world


def simulate(case: Drawn, coalesce: bool = True) -> tuple[Collected, SimReport, Checked]:
    setting = replace(case.setting, coalesce=coalesce)
    checked, recorder = Checked(setting.controller()), Collected()
    placed = setting.placed()
    shapes = dict.fromkeys(setting.models, SHAPE)
    data_plane = DataPlane(
        DataPlaneSetup(
            topology=topology(),
            shapes=shapes,
            model_of=[one.model for one in placed],
            gpus_of=[one.gpus for one in placed],
            loader="direct",
            start_up=load_start_up("none"),
        )
    )
    driven: Any = checked
    simulation = Simulation(
        driven, case.requests, [ROWS] * len(placed), recorder, journal=None, data_plane=data_plane,
        rows_of=dict.fromkeys(setting.models, ROWS),
    )  # fmt: skip
    return recorder, simulation.run(), checked


def on_links(case: Drawn, own: Random | None = None) -> Drawn:
    """The same with the cluster, model and links of the data plane.

    ``own``: draws what windows and states take of a memory that is larger by some of them; None: nothing.
    """
    token_bytes = SHAPE.kv_bytes_per_token
    sequence_blocks = 0 if own is None else own.choice((0, 0, 1, 3))
    more = 0 if own is None else sequence_blocks * own.choice((1, 2, 4))
    setting = replace(
        case.setting,
        topology=topology(),
        size_bytes=SHAPE.weight_bytes,
        kv_bytes=KvBytes(token_bytes, sequence_blocks * case.setting.block_tokens * token_bytes),
        kv_blocks=case.setting.kv_blocks + more,
        sequence_blocks=sequence_blocks,
    )
    return Drawn(setting, case.requests)


def journal_of(lines: list[str]) -> list[str]:
    return complete_journal(
        {"source": "test", "carries_out": []}, lines, sum(len(json.loads(text)[2]) for text in lines)
    )


def but_for_steps(lines: list[str]) -> list[Any]:
    """(time, action) of all that depends on no step: who goes where, what moves, what comes and goes.

    Not when requests are told to join: step by step that is at a boundary, else when their KV comes.
    """
    kinds = (
        "assign",
        "reject",
        "load",
        "send",
        "allocategpus",
        "switchrole",
        "releasegpus",
        "wake",
        "preempt",
    )
    return [
        (now_ns, action)
        for now_ns, _, actions in map(json.loads, lines)
        for action in actions
        if action[0] in kinds
    ]


def assert_same_times(
    coalesced: tuple[Collected, SimReport, Checked],
    stepped: tuple[Collected, SimReport, Checked],
    requests: int,
) -> None:
    """Coalesced and step by step: ends, gaps between tokens, and all that depends on no step are the same."""
    (ran, _, checked), (exact, _, by_steps) = coalesced, stepped
    assert ran.done == exact.done and len(ran.done) == requests
    assert sorted(ran.all_gaps) == sorted(exact.all_gaps)
    assert ran.busy_ns == exact.busy_ns
    assert but_for_steps(checked.lines) == but_for_steps(by_steps.lines)


def assert_repeats_and_replays(lines: list[str], again: list[str], controller: Controller) -> None:
    """Two runs of one case have one journal, and a fresh controller answers as it says."""
    assert again == lines
    report = replay(journal_of(lines), controller)
    assert (report.different, report.first_difference) == (0, None)
    assert report.events == len(lines)
