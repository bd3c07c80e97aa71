"""Drawn loads beside other traffic, played with relays and, where links are watched, without any."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from hwmodels.fabric.flow import KINDS, FlowSpec
from hwmodels.models.layer_stack import LayerStack
from hwmodels.models.llm_shape import LlmShape
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.spec import Rate
from hwmodels.topology.topology import Topology, build
from serving.vocabulary.actions import Action, Endpoint, Load, Send, Shard, StopLoad, StopSend
from serving.vocabulary.events import Event
from simcore.data_plane.data_plane import DataPlane
from simcore.data_plane.setup import DataPlaneSetup
from tests.worlds.data_planes import NONE, SHAPE

GPUS_PER_HOST = 4
HOSTS = 2
MODELS = ("even", "uneven", "llm")
Doing = Callable[[DataPlane, int], object]  # at a time in ns


@dataclass(frozen=True)
class Script:
    """A drawn run: what is done when, in order."""

    topology: Topology
    shapes: dict[str, LlmShape | LayerStack]
    gpus_of: list[tuple[int, ...]]
    sharded: bool  # all replicas are of one model, and replicas 0 and 1 have it
    steps: list[tuple[int, Doing]] = field(default_factory=list)


@dataclass(frozen=True)
class Played:
    """What came of it: events with their times in ns, bytes by link and kind, records, number of flows."""

    facts: list[tuple[int, Event]]
    carried_bytes: list[float]
    records: list[tuple[int, int, float]]
    flows: int


def script(seed: int) -> Script:
    """A small cluster of drawn rates and latencies, and up to 16 things that happen on it."""
    random = Random(seed)
    topology = drawn_topology(random)
    size = random.choice((1, 1, 1, 2))
    gpus_of = [tuple(range(first, first + size)) for first in range(0, GPUS_PER_HOST * HOSTS, size)]
    sizes = tuple(random.choice((1, 3, 20, 20, 60)) * 10**6 for _ in range(random.randrange(2, 9)))
    shapes: dict[str, LlmShape | LayerStack] = {
        "even": stack("even", (20 * 10**6,) * 6),
        "uneven": stack("uneven", sizes),
        "llm": replace(SHAPE, name="llm", layers=4),
    }
    drawn = Script(topology, shapes, gpus_of, size == 1 and random.random() < 0.25)
    drawn.steps.extend(sorted(_steps(random, drawn), key=lambda step: step[0]))
    return drawn


def stack(name: str, layer_bytes: tuple[int, ...]) -> LayerStack:
    return LayerStack(
        name=name,
        layer_bytes=layer_bytes,
        layer_s=(1.0,) * len(layer_bytes),
        tokens=1,
        activation_bytes=1,
        cut=(len(layer_bytes),),
        source="drawn",
    )


def drawn_topology(random: Random) -> Topology:
    spec = load_cluster(f"blitz_a_{HOSTS}x{GPUS_PER_HOST}")

    def rate(*gb_per_s: float) -> Rate:
        return Rate(random.choice(gb_per_s) * 1e9, "drawn")

    spec = replace(
        spec,
        pcie=rate(3, 8),
        pcie_shared_by=random.choice((1, 1, 2, 4)),
        pcie_peer=None,
        ssd=rate(0.5, 1, 2, 7),
        ssd_per=random.choice(("gpu", "host")),
        dram=random.choice((None, None, rate(4, 20))),
        remote=rate(0.5, 2),
        remote_per=random.choice(("cluster", "host")),
        nvlink=random.choice((None, rate(20))),
        nic=rate(2, 4),
    )
    topology = build(spec)
    most_s = random.choice((0.0, 1e-6, 1e-3, 2e-2))
    by_kind = {link.kind: random.choice((0.0, most_s)) for link in topology.links}
    return replace(topology, link_latency_s=tuple(by_kind[link.kind] for link in topology.links))


def _steps(random: Random, drawn: Script) -> Iterator[tuple[int, Doing]]:
    """(when in ns, what)."""
    horizon_s = random.choice((0.02, 0.3, 1.0, 4.0))

    def at_ns() -> int:
        return round(random.choice((0.0, random.random(), random.random())) * horizon_s * 1e9)

    yield from _loads(random, drawn, at_ns)
    yield from _transfers(random, drawn, at_ns)
    links = range(len(drawn.topology.links))
    for _ in range(random.randrange(4)):
        link, share = random.choice(links), random.choice((0.0, 0.3, 1.0, 2.0))
        yield at_ns(), degraded(link, share * drawn.topology.links[link].rate_bytes_per_s)
    for _ in range(random.randrange(4)):
        yield at_ns(), asked(random.choice(links))


def _loads(random: Random, drawn: Script, at_ns: Callable[[], int]) -> Iterator[tuple[int, Doing]]:
    """Loads to replicas of their own, some with a stop and some that another load follows."""
    count = len(drawn.gpus_of)
    pair = (count - 2, count - 1) if drawn.sharded else ()
    free = [replica for replica in range(1 + drawn.sharded, count) if replica not in pair]
    for number, target in enumerate(random.sample(free, random.randrange(1, len(free) + 1))):
        begin_ns = at_ns()
        yield begin_ns, doing(_load(random, drawn, number, target))
        if random.random() < 0.15:
            yield begin_ns + at_ns(), doing(StopLoad(number, "enough"))
        if random.random() < 0.2:
            host = drawn.gpus_of[target][0] // GPUS_PER_HOST
            onward = _plain(number + 100, drawn, ("replica", target), ("host", 1 - host))
            yield begin_ns + at_ns(), doing(onward, quiet=True)
    if pair:
        shards = tuple(Shard(one, other, 0.5, math.inf) for one, other in zip((0, 1), pair, strict=True))
        ends = [tuple(("replica", replica) for replica in side) for side in ((0, 1), pair)]
        wide = _plain(200, drawn, ("replica", 0), ("replica", pair[0]))
        yield at_ns(), doing(replace(wide, sources=ends[0], targets=ends[1], shards=shards))


def _transfers(random: Random, drawn: Script, at_ns: Callable[[], int]) -> Iterator[tuple[int, Doing]]:
    for number in range(random.randrange(6)):
        source, target = random.sample(range(len(drawn.gpus_of)), 2)
        size_bytes, begin_ns = random.choice((10**3, 10**6, 5 * 10**7)), at_ns()
        yield begin_ns, doing(Send(number, "activations", (), source, target, size_bytes, "drawn"))
        if random.random() < 0.2:
            yield begin_ns + at_ns(), doing(StopSend(number, "enough"))


def _load(random: Random, drawn: Script, number: int, target: int) -> Load:
    """From storage or a host's memory to a replica; or a sharded one from another replica."""
    host, to = drawn.gpus_of[target][0] // GPUS_PER_HOST, ("replica", target)
    kind = random.choice(("ssd", "ssd", "ssd", "remote", "host"))
    source = (kind, 0 if kind == "remote" else host)
    return replace(
        _plain(number, drawn, source, to), model=_model(drawn, target), every_layer=random.random() < 0.15
    )


def _model(drawn: Script, replica: int) -> str:
    """A stack has no ranks."""
    if drawn.sharded:
        return "uneven"
    return MODELS[replica % len(MODELS)] if len(drawn.gpus_of[0]) == 1 else "llm"


def _plain(number: int, drawn: Script, source: Endpoint, target: Endpoint) -> Load:
    replica = source[1] if source[0] == "replica" else target[1]
    shards: tuple[Shard, ...] = ()
    return Load(number, _model(drawn, replica), (source,), (target,), shards, False, False, "drawn")


def doing(action: Action, quiet: bool = False) -> Doing:
    """Carry it out; ``quiet``: unless its source has nothing."""

    def done(data: DataPlane, now_ns: int) -> None:
        try:
            data.carry_out(now_ns, action)
        except AssertionError as refused:
            if not quiet or not ("has replica" in str(refused) or "under way" in str(refused)):
                raise

    return done


def degraded(link: int, rate_bytes_per_s: float) -> Doing:
    return lambda data, now_ns: data.fabric.set_capacity(link, rate_bytes_per_s, _now_s(data, now_ns))


def asked(link: int) -> Doing:
    return lambda data, now_ns: (data.fabric.used(link), data.fabric.carried_bytes(link, KINDS[0]))


def _now_s(data: DataPlane, now_ns: int) -> float:
    return max(now_ns / 1e9, data.fabric.now_s)


def planned(drawn: Script, relays: bool = True) -> DataPlane:
    """A data plane for the script; without relays because somebody watches its links."""
    data = DataPlane(
        DataPlaneSetup(
            topology=drawn.topology,
            shapes=drawn.shapes,
            model_of=[_model(drawn, replica) for replica in range(len(drawn.gpus_of))],
            gpus_of=drawn.gpus_of,
            loader="direct",
            start_up=NONE,
        )
    )
    for replica in range(1 + drawn.sharded, len(drawn.gpus_of)):
        data.residency.clear(("replica", replica))
    if not relays:
        for link in range(len(drawn.topology.links)):
            data.fabric.watch(link)
    return data


def play(drawn: Script, relays: bool) -> Played:
    """Play a script; all links are repaired after its last step."""
    data, facts = planned(drawn, relays), list[tuple[int, Event]]()
    links = drawn.topology.links
    last_ns = drawn.steps[-1][0] + 10**8
    repairs = [(last_ns, degraded(number, link.rate_bytes_per_s)) for number, link in enumerate(links)]
    steps = deque([*drawn.steps, *repairs])
    while True:
        due_ns = data.next_ns()
        if steps and (due_ns is None or steps[0][0] < due_ns):
            at_ns, done = steps.popleft()
            done(data, at_ns)
        elif due_ns is None:
            break
        else:
            facts += [(due_ns, fact) for fact in data.collect(due_ns)]
    return Played(
        facts=facts,
        carried_bytes=[data.fabric.carried_bytes(link, kind) for link in range(len(links)) for kind in KINDS],
        records=sorted((one.load, one.size_bytes, one.seconds) for one in data.records),
        flows=data.fabric.start(FlowSpec((), 0), data.fabric.now_s),  # numbers count up from 0
    )
