"""Every system of conf/system by what it alone does: whole runs, told apart by their action lists."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.config.compose.compose import load_config
from servetwin.config.options import CONF_DIR
from servetwin.run.simulate import Prepared, Simulated, execute, prepare
from serving.vocabulary.actions import Action, AllocateGpus, Assign, Load, Run, Send, SwitchRole, Wake
from serving.vocabulary.events import Event
from tests.worlds.elastic_world import MS
from tests.worlds.told_systems import both, wait

# 300 prompts within 0.1 s, on hosts of one GPU each: everything goes over the network or from an own host.
BURST = (
    "cluster=blitz_b_10x1", "trace=gamma", "trace.requests=300", "trace.rate_per_s=3000",
    "trace.high_priority_share=0.1",
)  # fmt: skip
TRACES = Path(os.environ.get("SERVETWIN_TRACES", ""))
recorded = pytest.mark.skipif(
    not list(TRACES.glob("**/*conv*")) or Path() == TRACES,
    reason="SERVETWIN_TRACES does not name the folder of recorded traces",
)


class Seen:
    """A journal that keeps the objects."""

    def __init__(self) -> None:
        self.lists: list[list[Action]] = []

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        self.lists.append(list(actions))


@dataclass(frozen=True)
class Ran:
    """A run: what it was prepared with, what it did, what it gave."""

    prepared: Prepared
    lists: list[list[Action]]
    done: Simulated

    @property
    def kinds(self) -> Counter[str]:
        return Counter(type(action).__name__ for actions in self.lists for action in actions)

    @property
    def first(self) -> list[Load]:
        """The loads of the first scale-up's first decision: those for its first role."""
        for actions in self.lists:
            loads = [action for action in actions if isinstance(action, Load)]
            if loads:
                role = {action.replica: action.role for action in actions if isinstance(action, AllocateGpus)}
                return [one for one in loads if role[one.targets[0][1]] == role[loads[0].targets[0][1]]]
        return []


@cache
def run(system: str, *words: str) -> Ran:
    config = load_config([f"system={system}", "engine.front_end=none", *words, "out=unused"], "simulate")
    seen, prepared = Seen(), prepare(config)
    return Ran(prepared, seen.lists, execute(prepared, seen))


def fed(one: Ran) -> Counter[Any]:
    """How many of the first loads each source feeds."""
    return Counter(source for load in one.first for source in load.sources)


def relays(one: Ran) -> bool:
    """Whether a source is itself a target of these loads."""
    targets = {target for load in one.first for target in load.targets}
    return any(source in targets for load in one.first for source in load.sources)


def from_own(one: Ran, kind: str) -> bool:
    """Whether each comes from that place of the target's host (of one GPU, so of the same number)."""
    gpus = {
        action.replica: action.gpus
        for list in one.lists
        for action in list
        if isinstance(action, AllocateGpus)
    }
    return bool(one.first) and all(
        load.sources == ((kind, gpus[load.targets[0][1]][0]),) for load in one.first
    )


def cold_layers(one: Ran) -> bool:
    return any(load.every_layer for load in one.first)


def works_while_loading(one: Ran) -> bool:
    """Whether layers run on an instance that was placed without parameters, before it has them all."""
    cold = {action.replica for actions in one.lists for action in actions if isinstance(action, AllocateGpus)}
    runs = [action for actions in one.lists for action in actions if isinstance(action, Run)]
    return any(run.layers is not None and run.layers[0] == 0 and run.replica in cold for run in runs)


def in_stages(one: Ran) -> bool:
    """Whether a run brings what another replica has computed of a pass."""
    runs = [action for actions in one.lists for action in actions if isinstance(action, Run)]
    return any(run.inputs for run in runs)


def last_load(one: Ran) -> str:
    return ["", *(action.reason for actions in one.lists for action in actions if isinstance(action, Load))][
        -1
    ]


def is_static(one: Ran) -> bool:
    return not one.kinds["Send"] + one.kinds["Load"]


def assigned(one: Ran) -> str:
    """Why the last request went where it went."""
    return [action.reason for actions in one.lists for action in actions if isinstance(action, Assign)][-1]


def wakes(one: Ran) -> set[str]:
    return {action.reason for actions in one.lists for action in actions if isinstance(action, Wake)}


def hands_over(one: Ran) -> bool:
    """Without new instances, and without migrations, whose KV is sent too."""
    return one.kinds["Send"] > 0 == one.kinds["Load"] + one.kinds["Migrate"]


def pairs(one: Ran) -> bool:
    return wakes(one) == {"instances are paired for migration"}


def sets_apart(one: Ran) -> bool:
    """Whether requests of high priority are on few instances, and only they."""
    columns = one.done.columns
    high, normal = (set(columns["replica"][columns["priority"] == urgent].tolist()) for urgent in (1, 0))
    return len(high) < 5 and len(normal) > 5 and not high & normal


def on_few(one: Ran) -> bool:
    """Whether requests of high priority are on half of the instances at most."""
    columns = one.done.columns
    high = set(columns["replica"][columns["priority"] == 1].tolist())
    return 2 * len(high) <= len(set(columns["replica"].tolist()))


def stays(one: Ran) -> bool:
    """Whether every instance keeps its GPUs and its role."""
    return not one.kinds["ReleaseGpus"] + one.kinds["SwitchRole"]


def converts(one: Ran) -> bool:
    """Whether decode instances take prompts, in chunks."""
    reasons = [action.reason for actions in one.lists for action in actions if isinstance(action, Assign)]
    return any("ms in chunks of" in reason for reason in reasons)


def by_freeness(one: Ran) -> bool:
    return "freeness" in assigned(one) or "no requests" in assigned(one)


CHARACTER: dict[str, Callable[[Ran], bool]] = {
    "blitz_multicast": lambda one: (
        relays(one) and max(fed(one).values()) == 1 and not works_while_loading(one)
    ),
    "blitzscale": lambda one: relays(one) and max(fed(one).values()) == 1 and works_while_loading(one),
    "blitz_network": lambda one: bool(one.first) and not relays(one) and max(fed(one).values()) >= 2,
    "lambdascale": lambda one: relays(one) and max(fed(one).values()) >= 2,
    "serverlessllm": lambda one: from_own(one, "ssd") and not cold_layers(one) and not converts(one),
    "tokenscale": lambda one: from_own(one, "ssd") and converts(one),
    "llumnix_v2": lambda one: pairs(one) and one.kinds["SwitchRole"] > 0,
    "pipeswitch": lambda one: from_own(one, "ssd") and cold_layers(one),
    "allcache": lambda one: from_own(one, "host"),
    "distserve_full": lambda one: hands_over(one) and gpus_of(one) == 10,
    "distserve_half": lambda one: hands_over(one) and gpus_of(one) < 10,
    "vllm_full": lambda one: is_static(one) and gpus_of(one) == 10 and "outstanding" in assigned(one),
    "vllm_half": lambda one: is_static(one) and gpus_of(one) < 10,
    "round_robin": lambda one: (
        is_static(one) and assigned(one) == "its turn" and not one.kinds["ReleaseGpus"]
    ),
    "infaas_pp": lambda one: is_static(one) and not wakes(one) and "freeness" in assigned(one),
    "llumnix_base": lambda one: pairs(one) and stays(one) and not sets_apart(one),
    "llumnix": lambda one: pairs(one) and stays(one) and sets_apart(one),
    "round_robin_autoscaled": lambda one: one.kinds["ReleaseGpus"] > 0 and assigned(one) == "its turn",
    "infaas_pp_autoscaled": lambda one: one.kinds["ReleaseGpus"] > 0 and by_freeness(one) and not pairs(one),
    "llumnix_base_autoscaled": lambda one: one.kinds["ReleaseGpus"] > 0 and pairs(one) and not on_few(one),
    "llumnix_autoscaled": lambda one: one.kinds["ReleaseGpus"] > 0 and pairs(one) and on_few(one),
    "pipeline": lambda one: not one.kinds["Load"],
    "quart": lambda one: "target" in last_load(one),
    "infless": lambda one: "models" in last_load(one),
    "inferline": lambda one: "lately" in last_load(one),
    "cocktail": lambda one: "forecast" in last_load(one),
}
STAGED = ("pipeline", "quart", "infless", "inferline", "cocktail")
SAME = {"vllm": "vllm_full"}  # by its own file
# The half systems are computed from the mean rate, which a burst of 0.1 s does not have, and freeness is
# looked at every 10 s: a steady trace.
STAGES = ("cluster=quart", "trace=gamma", "trace.gap_cv=4", "trace.rate_per_s=60", "trace.requests=600")
STEADY = ("cluster=blitz_b_10x1", "trace=gamma", "trace.requests=200", "trace.rate_per_s=4")
# With fewer requests at once, few of low priority share an instance with those of high priority anyway.
SCALED = ("cluster=blitz_b_10x1", "trace=gamma", "trace.requests=200", "trace.rate_per_s=5")


def gpus_of(one: Ran) -> int:
    return sum(len(replica.gpus) for replica in one.prepared.replicas)


def of(system: str) -> Ran:
    if system in STAGED:
        return run(system, *STAGES)
    if system.endswith("autoscaled"):
        return run(system, *SCALED, "trace.high_priority_share=0.2")
    return run(system, *(STEADY if system.endswith("half") else BURST))


def systems() -> list[str]:
    return sorted(file.stem for file in CONF_DIR.glob("system/*.yaml"))


@pytest.mark.parametrize("system", systems())
def test_every_system_does_what_no_other_does(system: str) -> None:
    one, own = of(system), SAME.get(system, system)
    alike = {name: has for name, has in CHARACTER.items() if (name in STAGED) == in_stages(one)}
    assert [name for name, has in alike.items() if has(one)] == [own]


def test_a_multicast_is_chains_at_full_rate() -> None:
    """One chain from each instance that KV does not leave now: here from both that serve at the start."""
    one = run("blitz_multicast", *BURST)
    assert len(one.first) >= 5
    assert {one.first[0].sources, one.first[1].sources} == {(("replica", 0),), (("replica", 1),)}
    for before, after in zip(one.first, one.first[2:]):
        assert after.sources == before.targets
    assert len({shard.rate_bytes_per_s for load in one.first for shard in load.shards}) == 1


def test_blitzscale_is_its_multicast_live_and_with_prefill_instances_that_turn() -> None:
    """The same requests, links and plans; the first scale-up is live at its tails only."""
    one, stopped = run("blitzscale", *BURST), run("blitz_multicast", *BURST)
    assert one.kinds["SwitchRole"] > 0 == stopped.kinds["SwitchRole"]
    assert [load.sources for load in one.first] == [load.sources for load in stopped.first]
    feeding = {source for load in one.first for source in load.sources}
    live = [load for load in one.first if load.reason.endswith("; live")]
    assert live and not any(load.targets[0] in feeding for load in live)
    turns = [action.role for actions in one.lists for action in actions if isinstance(action, SwitchRole)]
    assert set(turns) == {"decode"}
    gained = np.mean(stopped.done.columns["ttft_ms"]) - np.mean(one.done.columns["ttft_ms"])
    assert gained > 0


def test_doubling_rounds_have_twice_as_many_givers_each_time() -> None:
    one = run("lambdascale", *BURST)
    targets = {target for load in one.first for target in load.targets}
    givers = dict.fromkeys(source for load in one.first for source in load.sources)  # in order, as no set is
    have, loads = [giver for giver in givers if giver not in targets], list(one.first)
    while loads:
        turn, loads = loads[: len(have)], loads[len(have) :]
        assert [load.sources[0] for load in turn] == have[: len(turn)]
        have += [load.targets[0] for load in turn]


def test_one_to_one_divides_a_source_among_those_it_feeds() -> None:
    one = run("blitz_network", *BURST)
    full = max(
        shard.rate_bytes_per_s for load in run("blitz_multicast", *BURST).first for shard in load.shards
    )
    feeds = fed(one)
    for load in one.first:
        (shard,) = load.shards
        assert shard.rate_bytes_per_s == pytest.approx(full / feeds[load.sources[0]], rel=1e-6)


def test_a_half_system_has_the_instances_that_the_mean_load_needs() -> None:
    one = run("distserve_half", *STEADY)
    workload, (own,) = one.prepared.workload, one.prepared.estimates.models
    span_s = (workload.arrival_ns[-1] - workload.arrival_ns[0]) / 1e9
    needed = workload.prompt_tokens.sum() / span_s / own.prefill_tokens_per_s
    roles = Counter(replica.role for replica in one.prepared.replicas)
    assert roles["prefill"] == max(1, round(needed))
    assert roles["decode"] == max(1, round(roles["prefill"] * 4 / 6))  # as the full system's 6 and 4


def test_serverlessllm_reads_the_ssd_once_per_time_to_live() -> None:
    """Instances that go and come again: from the SSD, within 30 s from host memory, later from the SSD."""
    told = both(provision="host_or_ssd", copies="ttl")

    def come_and_go(number: int) -> str:
        loads = [action for action in told.arrive(number) if isinstance(action, Load)]
        told.loaded(number), told.ran(0), told.ran(0, number, steps=9), wait(told, 5)
        assert told.states == {}
        return loads[0].sources[0][0]

    assert [come_and_go(0), come_and_go(1)] == ["ssd", "host"]
    told.now_ns += 30_000 * MS
    assert come_and_go(2) == "ssd"


@pytest.mark.parametrize("system", ["distserve_full", "blitz_multicast"])
def test_kv_of_every_prompt_that_is_handed_over_is_sent_once(system: str) -> None:
    one = run(system, *BURST)
    sends = [action for actions in one.lists for action in actions if isinstance(action, Send)]
    moved = [request for send in sends for request in send.requests]
    assert len(moved) == len(set(moved)) > 200
    per_token = 2 * 32 * 8 * 128 * 2  # keys and values, layers, KV heads, their width, bytes
    tokens = sum(int(one.prepared.workload.prompt_tokens[request]) for request in moved)
    assert sum(send.size_bytes for send in sends) == tokens * per_token


@recorded
@pytest.mark.parametrize(("prefill", "decode"), [(5, 3), (2, 6)])
def test_distserve_is_an_elastic_system_whose_bounds_are_its_split(prefill: int, decode: int) -> None:
    """Request by request, every column, on recorded arrivals."""
    trace = ("cluster=blitz_a_2x4", "trace=azure_conv", "trace.limit=600", "trace.rate_scale=4")
    split = f"system.instances.prefill={prefill}", f"system.instances.decode={decode}"
    bounds = tuple(
        f"system.instances.{role}_{bound}={count}"
        for role, count in (("prefill", prefill), ("decode", decode))
        for bound in ("min", "max")
    )
    static, elastic = run("distserve_full", *trace, *split), run("blitz_multicast", *trace, *bounds)
    assert static.done.columns.keys() == elastic.done.columns.keys()
    for name, column in static.done.columns.items():
        assert np.array_equal(column, elastic.done.columns[name]), name
    assert len(static.done.columns["request"]) == 600
    assert elastic.kinds["Wake"] > 0 == elastic.kinds["Load"]


def test_coalesced_equals_step_by_step_where_a_decode_instance_wants_a_spare_block() -> None:
    """Room is kept to the last of 20 blocks, and vLLM v0 wants one more: somebody has to be preempted."""
    words = (
        "engine=vllm_v0", "engine.kv_tokens=320", "engine.max_new_tokens=16", "cluster=blitz_a_1x2",
        "system.instances.prefill=1", "system.instances.decode=1", "trace=azure_conv_like",
        "trace.requests=80", "trace.tokens_scale=0.05", "trace.rate_per_s=400",
    )  # fmt: skip
    ran, exact = run("distserve_full", *words), run("distserve_full", *words, "engine.exact=true")
    assert ran.kinds["Preempt"] == exact.kinds["Preempt"] > 0
    for name, column in ran.done.columns.items():
        np.testing.assert_array_equal(column, exact.done.columns[name])
