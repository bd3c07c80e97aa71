"""The data plane: two tables of times, and how fast loads are simulated (see docs/DATA_PLANE.md).

python -m benchmarks.data_plane                 everything
python -m benchmarks.data_plane fig21           one table or scenario

``fig21`` and ``interference`` are virtual times, the same on every machine. The others count CPU time in raw
SimPy timeouts: of a load through ``simcore.data_plane.DataPlane``, of many at once, and of building a large
topology.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import process_time

from benchmarks.raw import raw_timeout_s
from hwmodels.catalogue import load_llm
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import KV, FlowSpec
from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import Hop
from hwmodels.loading.ranks import Ranks
from hwmodels.loading.sharded import Group, sharded
from hwmodels.loading.startup import load_start_up
from hwmodels.loading.units import Unit, model_units, shard
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.link import Place, dram, gpu
from hwmodels.topology.spec import ClusterSpec, at_efficiency
from hwmodels.topology.topology import Topology, build
from serving.actions import Load, Send, Stop
from serving.events import Loaded
from simcore.data_plane import DataPlane, DataPlaneSetup

REPEATS = 5
GB = 10**9
MB_64 = 64 * 10**6
FIG_21_BYTES = 48 * GB  # 24 billion parameters of 2 bytes, as the paper counts; the catalogue's has 47.1 GB


# Plans on the fabric.


def play(
    topology: Topology,
    plans: Sequence[Ranks | Chain],
    others: Sequence[FlowSpec] = (),
    fabric: Fabric | None = None,
) -> list[dict[int, float]]:
    """Of each plan: place (``Arrival.hop``) -> seconds until everything is there.

    All begin at 0, and so do ``others``, for which nobody waits. fabric: to be asked afterwards (None: a new
    one).
    """
    fabric = fabric or fabric_of(topology)
    runs = [Ranks([plan]) if isinstance(plan, Chain) else plan for plan in plans]
    there: list[dict[int, float]] = [{} for _ in runs]
    owner = {}
    for other in others:
        fabric.start(other, 0.0)
    for number, run in enumerate(runs):
        for send in run.begin():
            owner[fabric.start(send.flow, 0.0)] = (number, send)
    while not all(run.done for run in runs):
        at_s = fabric.next_completion_s()
        for done in fabric.advance(at_s):
            number, send = owner.pop(done.flow)
            step = runs[number].finished(send.rank, send.hop, send.chunk)
            for follower in step.sends:
                owner[fabric.start(follower.flow, at_s)] = (number, follower)
            there[number].update({arrival.hop: at_s for arrival in step.arrivals})
    fabric.check()
    return there


def fabric_of(topology: Topology) -> Fabric:
    """Links that carry what their efficiency leaves of them."""
    return Fabric([link.rate_bytes_per_s for link in topology.links])


def hop(topology: Topology, source: Place, target: Place) -> Hop:
    """The path between two places, with the latency of its links."""
    path = topology.path(source, target)
    return Hop(path, latency_s=topology.latency_s(path))


def exact(spec: ClusterSpec) -> Topology:
    """The cluster with links that reach their datasheet rates at once: what closed forms are about."""
    topology = build(at_efficiency(1.0, spec))
    return replace(topology, link_latency_s=(0.0,) * len(topology.links))


def units_of(model: str, total_bytes: int) -> list[Unit]:
    """The units of a model, each scaled so that together they have ``total_bytes``."""
    shape = load_llm(model)
    units = [
        replace(unit, size_bytes=unit.size_bytes * total_bytes // shape.weight_bytes)
        for unit in model_units(shape)
    ]
    rest = total_bytes - sum(unit.size_bytes for unit in units)
    return [*units[:-1], replace(units[-1], size_bytes=units[-1].size_bytes + rest)]


# BlitzScale's Figure 21: six instances of two GPUs each on cluster A, two chains of three.


@dataclass(frozen=True)
class Fig21:
    """One line: seconds by |M|/B, until the first instances have all, until the last ones have.

    last_small_s: the same in chunks of 64 MB at most; the others are cut at the size of a layer.
    """

    set_up: str
    efficiency: str
    closed_s: float
    first_s: float
    last_s: float
    last_small_s: float


def four_nics(topology: Topology, chunk_bytes: int | None = None) -> list[Ranks]:
    """The chains' instances side by side: each GPU gets a quarter over its NIC, and swaps it over NVLink.

    GPUs 0, 1 of a host are the instance of one chain, 2 and 3 that of the other. Quarters 0 and 2 are rank
    0's, so that GPUs 0 and 2 swap, as 1 and 3 do. The sources are the two instances of host 0.
    """
    groups = [
        Group(
            tuple(hop(topology, gpu(8 * host - 8 + lane), gpu(8 * host + lane)) for lane in range(4)),
            tuple(hop(topology, gpu(8 * host + lane), gpu(8 * host + (lane + 2) % 4)) for lane in range(4)),
        )
        for host in (1, 2, 3)
    ]
    return [sharded(units_of("mistral_24b", FIG_21_BYTES), groups, chunk_bytes=chunk_bytes)]


def two_nics(topology: Topology, chunk_bytes: int | None = None) -> list[Ranks]:
    """Each chain alone: each rank gets its half over the NIC of its GPU."""
    return [
        _two_ranks(
            [
                [
                    hop(topology, gpu(8 * host - 8 + first + rank), gpu(8 * host + first + rank))
                    for host in (1, 2, 3)
                ]
                for rank in range(2)
            ],
            chunk_bytes,
        )
        for first in (0, 2)
    ]


def all_cache(topology: Topology, chunk_bytes: int | None = None) -> list[Ranks]:
    """Each of the six instances from a copy in its own host's memory."""
    return [
        _two_ranks(
            [[hop(topology, dram(host), gpu(8 * host + first + rank))] for rank in range(2)], chunk_bytes
        )
        for host in (1, 2, 3)
        for first in (0, 2)
    ]


def _two_ranks(hops: list[list[Hop]], chunk_bytes: int | None) -> Ranks:
    units = units_of("mistral_24b", FIG_21_BYTES)
    return Ranks(
        [
            Chain(shard(units, 2, rank), own, chunk_bytes=chunk_bytes, rank=rank)
            for rank, own in enumerate(hops)
        ]
    )


# name -> (plans, kind of the link that limits, so many of them side by side)
SET_UPS: dict[str, tuple[Callable[[Topology, int | None], list[Ranks]], str, int]] = {
    "four NICs": (four_nics, "nic", 4),
    "two NICs": (two_nics, "nic", 2),
    "AllCache": (all_cache, "pcie", 2),
}
EFFICIENCIES: dict[str, float | None] = {"shipped": None, "0.77": 0.77, "1.0": 1.0}


def fig21() -> Iterator[Fig21]:
    """Every set-up with every efficiency."""
    spec = load_cluster("blitz_a")
    for set_up, (plans, kind, count) in SET_UPS.items():
        for name, efficiency in EFFICIENCIES.items():
            topology = build(spec if efficiency is None else at_efficiency(efficiency, spec))
            rate = next(link.rate_bytes_per_s for link in topology.links if link.kind == kind)
            times = [at_s for plan in play(topology, plans(topology, None)) for at_s in plan.values()]
            small = [at_s for plan in play(topology, plans(topology, MB_64)) for at_s in plan.values()]
            yield Fig21(set_up, name, FIG_21_BYTES / count / rate, min(times), max(times), max(small))


def print_fig21() -> None:
    """Seconds, one line per set-up and efficiency."""
    print("fig21        set-up     efficiency   |M|/B   first    last   last, 64 MB chunks   (s)")
    for row in fig21():
        print(
            f"             {row.set_up:10s} {row.efficiency:10s} {row.closed_s:7.3f} {row.first_s:7.3f} "
            f"{row.last_s:7.3f} {row.last_small_s:12.3f}",
            flush=True,
        )


# Parameters leave a GPU whose way out (or in) carries KV.

SHARES = tuple(tenth / 10 for tenth in range(10))
SOURCE, DECODE, TARGET = 0, 8, 9  # prefill and decode instance of one GPU each; the one to be loaded


def slowdown(share: float, *, priority: int = 0, pruned: bool = False) -> float:
    """Time of a load of Llama3-8B beside steady KV of ``share`` of a NIC, over its time alone.

    KV goes from the prefill to the decode instance. The load leaves the prefill instance too, or (pruned) the
    decode instance, whose way in the KV takes. priority: of KV; parameters have 0.
    """
    topology = exact(load_cluster("blitz_b"))
    hops = [hop(topology, gpu(DECODE), gpu(1)) if pruned else hop(topology, gpu(SOURCE), gpu(TARGET))]
    units = model_units(load_llm("llama3_8b"))
    nic_rate = topology.rate_bytes_per_s(hops[0].links)
    path = topology.path(gpu(SOURCE), gpu(DECODE))
    endless_bytes = 1e6 * nic_rate
    kv = FlowSpec(path, endless_bytes, KV, cap_bytes_per_s=share * nic_rate or math.inf, priority=priority)
    ((there,),) = [plan.values() for plan in play(topology, [Chain(units, hops)], [kv] if share else [])]
    return there / (sum(unit.size_bytes for unit in units) / nic_rate)


def slowdown_in_batches(share: float, period_s: float = 0.02) -> float:
    """The same where every period brings a batch of KV that alone takes ``share`` of it, one sent at a time.

    Through ``DataPlane``, by its actions.
    """
    data = plane(exact(load_cluster("blitz_b")), [(SOURCE,), (DECODE,), (TARGET,)])
    nic_rate = 100e9 / 8
    period_ns, size_bytes = round(period_s * 1e9), round(share * period_s * nic_rate)
    data.carry_out(0, load(("replica", 0), ("replica", 2)))
    sent, busy, now_ns = 0, False, 0
    while True:
        if size_bytes and not busy and sent * period_ns <= now_ns:
            data.carry_out(now_ns, Send(sent, "kv", 0, 1, size_bytes, "a batch"))
            sent, busy = sent + 1, True
        next_ns = data.next_ns()
        assert next_ns is not None
        now_ns = next_ns if busy or not size_bytes else min(next_ns, sent * period_ns)
        for fact in data.collect(now_ns):
            if isinstance(fact, Loaded):
                return now_ns / 1e9 / (load_llm("llama3_8b").weight_bytes / nic_rate)
            busy = False


def print_interference() -> None:
    """Time over time alone, one line per share of KV."""
    print("interference   KV share   formula   steady   in batches   KV first   pruned source   (x alone)")
    for share in SHARES:
        formula, batches = 1 / (1 - min(share, 0.5)), slowdown_in_batches(share)
        print(
            f"               {share:8.1f} {formula:9.3f} {slowdown(share):8.3f} {batches:12.3f} "
            f"{slowdown(share, priority=1):10.3f} {slowdown(share, pruned=True):15.3f}",
            flush=True,
        )


# Speed.


def plane(topology: Topology, gpus_of: Sequence[tuple[int, ...]]) -> DataPlane:
    """A data plane for replicas of Llama3-8B on these GPUs; no start-up, a loader without cost."""
    shapes = {"llama3_8b": load_llm("llama3_8b")}
    models = ["llama3_8b"] * len(gpus_of)
    return DataPlane(DataPlaneSetup(topology, shapes, models, gpus_of, "direct", load_start_up("none")))


def load(*stops: Stop, id: int = 0, every_layer: bool = False) -> Load:
    """A load of Llama3-8B."""
    return Load(id, "llama3_8b", stops, every_layer, False, "benchmark")


@dataclass(frozen=True)
class Loads:
    """Rounds of loads that begin at once, on a cluster whose replica r is GPU r."""

    cluster: str
    rounds: int
    at_once: tuple[Load, ...]


def lone(*stops: Stop) -> Loads:
    """One load at a time."""
    return Loads("blitz_a", 200, (load(*stops),))


def many(cluster: str, source: Callable[[int], Stop]) -> Loads:
    """1,024 replicas at once, replica r from ``source(r)``."""
    loads = tuple(load(source(one), ("replica", one), id=one) for one in range(1_024))
    return Loads(cluster, 1, loads)


LOADS: dict[str, Callable[[], Loads]] = {
    "host": lambda: lone(("host", 0), ("replica", 0)),
    "ssd": lambda: lone(("ssd", 0), ("replica", 0)),
    "chain": lambda: lone(*(("replica", number) for number in (0, 8, 16, 24))),
    "host_1024": lambda: many("blitz_a_128x8", lambda one: ("host", one // 8)),
    "shared_1024": lambda: many("blitz_a_shared_pcie_128x8", lambda one: ("host", one // 8)),
    "rdma_1024": lambda: many("blitz_a_128x8", lambda one: ("replica", (one + 8) % 1_024)),
}


def measure(loads: Loads) -> tuple[float, int]:
    """(CPU seconds of one load, flows of one load)."""
    topology = build(load_cluster(loads.cluster))
    data = plane(topology, [(number,) for number in range(len(topology.gpus))])
    now_ns = 0
    started = process_time()
    for _ in range(loads.rounds):
        for one in loads.at_once:
            data.carry_out(now_ns, one)
        while (next_ns := data.next_ns()) is not None:
            now_ns = next_ns
            data.collect(now_ns)
    cpu_s = process_time() - started
    count = loads.rounds * len(loads.at_once)
    flows = data.fabric.start(FlowSpec((), 0), data.fabric.now_s)  # numbers count up from 0
    return cpu_s / count, flows // count


def print_loads(name: str) -> None:
    """Raw per load and per flow; the best of several runs."""
    raw_s = raw_timeout_s()
    runs = sorted(measure(LOADS[name]()) for _ in range(REPEATS))
    raw_s = min(raw_s, raw_timeout_s())
    (cpu_s, flows), (median_s, _) = runs[0], runs[REPEATS // 2]
    print(
        f"{name:14s} {cpu_s / raw_s:9,.0f} raw per load (median {median_s / raw_s:,.0f})   "
        f"{cpu_s / flows / raw_s:6.1f} raw per flow   {flows:4d} flows per load   "
        f"{cpu_s * 1e3:7.3f} ms   raw {raw_s * 1e6:.3f} us",
        flush=True,
    )


def print_topology() -> None:
    """Building 4,096 GPUs: file read, checked, every link and seat written out."""
    raw_s = raw_timeout_s()
    for cluster in ("blitz_a_512x8", "dgx_h100_512x8"):
        times = []
        for _ in range(REPEATS):
            started = process_time()
            topology = build(load_cluster(cluster))
            times.append(process_time() - started)
        print(
            f"{'topology_4096':14s} {cluster:15s} {len(topology.gpus)} GPUs, {len(topology.links)} links: "
            f"{min(times):.3f} s (median {sorted(times)[REPEATS // 2]:.3f}), {min(times) / raw_s:,.0f} raw   "
            "budget 2 s",
            flush=True,
        )


TABLES: dict[str, Callable[[], None]] = {
    "fig21": print_fig21,
    "interference": print_interference,
    "topology_4096": print_topology,
}


def main(names: list[str]) -> None:
    """Print the tables and scenarios of these names, or all."""
    for name in names or [*TABLES, *LOADS]:
        if name in TABLES:
            TABLES[name]()
        else:
            print_loads(name)


if __name__ == "__main__":
    known = [*TABLES, *LOADS]
    unknown = [name for name in sys.argv[1:] if name not in known]
    if unknown:
        sys.exit(f"benchmarks.data_plane: there is no scenario {unknown[0]!r}: write {', '.join(known)}")
    main(sys.argv[1:])
