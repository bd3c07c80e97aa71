"""The data plane: two tables of times, and how fast loads are simulated (see docs/explanation/DATA_PLANE.md).

python -m benchmarks.data_plane                 everything
python -m benchmarks.data_plane fig21           one table or scenario

``fig21`` and ``interference`` are virtual times, the same on every machine. The others count CPU time in raw
SimPy timeouts: of a load through ``simcore.data_plane.data_plane.DataPlane``, of many at once, and of
building a large topology.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import process_time

from benchmarks.command import among, command
from benchmarks.raw import measured
from experiments.blitzscale.fig08 import SHARES
from experiments.blitzscale.fig21 import load_times
from experiments.blitzscale.load_plans import DECODE, SOURCE, TARGET, exact, slowdown
from hwmodels.catalogue import load_llm
from hwmodels.fabric.flow import FlowSpec
from hwmodels.loading.startup import load_start_up
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import Topology, build
from serving.vocabulary.actions import Endpoint, Load, Send, Shard
from serving.vocabulary.events import Loaded
from simcore.data_plane.data_plane import DataPlane
from simcore.data_plane.setup import DataPlaneSetup

REPEATS = 5


# BlitzScale's Figure 21: six instances of two GPUs each on cluster A, two chains of three.


def print_fig21() -> None:
    """Seconds, one line per set-up and efficiency."""
    print("fig21        set-up     efficiency   |M|/B   first    last   last, 64 MB chunks   (s)")
    for row in load_times():
        print(
            f"             {row.set_up:10s} {row.efficiency:10s} {row.closed_s:7.3f} {row.first_s:7.3f} "
            f"{row.last_s:7.3f} {row.last_small_s:12.3f}",
            flush=True,
        )


# Parameters leave a GPU whose way out (or in) carries KV.


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
            data.carry_out(
                now_ns,
                Send(
                    transfer=sent,
                    what="kv",
                    requests=(),
                    source=0,
                    target=1,
                    size_bytes=size_bytes,
                    reason="a batch",
                ),
            )
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


def plane(
    topology: Topology, gpus_of: Sequence[tuple[int, ...]], model: str = "llama3_8b", bundled: bool = True
) -> DataPlane:
    """A data plane for replicas of a model on these GPUs; no start-up, a loader without cost."""
    shapes, start_up = {model: load_llm(model)}, load_start_up("none")
    models = [model] * len(gpus_of)
    setup = DataPlaneSetup(
        topology=topology,
        shapes=shapes,
        model_of=models,
        gpus_of=gpus_of,
        loader="direct",
        start_up=start_up,
        bundled=bundled,
    )
    return DataPlane(setup)


def load(source: Endpoint, target: Endpoint, id: int = 0, every_layer: bool = False) -> Load:
    """A load of Llama3-8B."""
    return Load(
        load=id,
        model="llama3_8b",
        sources=(source,),
        targets=(target,),
        shards=(),
        every_layer=every_layer,
        cold=False,
        reason="benchmark",
    )


def chain(*stops: Endpoint) -> tuple[Load, ...]:
    """A load from each stop to the next."""
    return tuple(load(source, target, id=id) for id, (source, target) in enumerate(pairwise(stops)))


def sharded_load(
    model: str, sources: Sequence[int], targets: Sequence[int], gpus_of: Sequence[tuple[int, ...]]
) -> Load:
    """One load from as many instances to as many: each gets an equal part of every rank."""
    ranks, part = len(gpus_of[0]), 1 / len(gpus_of[0]) / len(targets)
    shards = tuple(
        Shard(gpus_of[source][rank], gpus_of[target][rank], part, math.inf)
        for rank in range(ranks)
        for source, target in zip(sources, targets, strict=True)
    )
    stops = [tuple(("replica", number) for number in side) for side in (sources, targets)]
    return Load(
        load=0,
        model=model,
        sources=stops[0],
        targets=stops[1],
        shards=shards,
        every_layer=False,
        cold=False,
        reason="benchmark",
    )


@dataclass(frozen=True)
class LoadRounds:
    """Rounds of loads that begin at once, on a cluster whose replica r is GPU r, or has ``gpus`` of them."""

    cluster: str
    rounds: int
    at_once: tuple[Load, ...]
    gpus: int = 1
    bundled: bool = True


def lone(*loads: Load, bundled: bool = True, gpus: int = 1) -> LoadRounds:
    """One load (or chain of them) at a time."""
    return LoadRounds("blitz_a", 200, loads, gpus, bundled)


def sharded_24b(bundled: bool) -> LoadRounds:
    """Four instances of two GPUs to four of the next host: an eighth over each NIC, then all-gather."""
    gpus_of = [(2 * number, 2 * number + 1) for number in range(8)]
    wanted = sharded_load("mistral_24b", range(4), range(4, 8), gpus_of)
    return lone(wanted, bundled=bundled, gpus=2)


def many(cluster: str, source: Callable[[int], Endpoint]) -> LoadRounds:
    """1,024 replicas at once, replica r from ``source(r)``."""
    loads = tuple(load(source(replica), ("replica", replica), id=replica) for replica in range(1_024))
    return LoadRounds(cluster, 1, loads)


LOADS: dict[str, Callable[[], LoadRounds]] = {
    "host": lambda: lone(load(("host", 0), ("replica", 0))),
    "ssd": lambda: lone(load(("ssd", 0), ("replica", 0))),
    "ssd_layers": lambda: lone(load(("ssd", 0), ("replica", 0), every_layer=True)),
    "tp8": lambda: lone(load(("host", 0), ("replica", 0)), gpus=8),
    "chain": lambda: lone(*chain(*(("replica", number) for number in (0, 8, 16, 24)))),
    "sharded": lambda: sharded_24b(True),
    "sharded_apart": lambda: sharded_24b(False),
    "host_1024": lambda: many("blitz_a_128x8", lambda replica: ("host", replica // 8)),
    "shared_1024": lambda: many("blitz_a_shared_pcie_128x8", lambda replica: ("host", replica // 8)),
    "ssd_1024": lambda: many("blitz_a_128x8", lambda replica: ("ssd", replica // 8)),
    "ssd_shared_1024": lambda: many("blitz_a_shared_pcie_128x8", lambda replica: ("ssd", replica // 8)),
    "rdma_1024": lambda: many("blitz_a_128x8", lambda replica: ("host", (replica // 8 + 1) % 128)),
}


def measure(loads: LoadRounds) -> tuple[float, int]:
    """(CPU seconds of one load, flows of one load); a chain counts as one."""
    topology = build(load_cluster(loads.cluster))
    firsts = range(0, len(topology.gpus), loads.gpus)
    gpus_of = [tuple(range(first, first + loads.gpus)) for first in firsts]
    data = plane(topology, gpus_of, loads.at_once[0].model, loads.bundled)
    now_ns = 0
    started = process_time()
    for _ in range(loads.rounds):
        for action in loads.at_once:
            data.carry_out(now_ns, action)
        while (next_ns := data.next_ns()) is not None:
            now_ns = next_ns
            data.collect(now_ns)
    cpu_s = process_time() - started
    count = loads.rounds * (1 if loads.rounds > 1 else len(loads.at_once))
    flows = data.fabric.start(FlowSpec((), 0), data.fabric.now_s)  # numbers count up from 0
    return cpu_s / count, flows // count


def print_loads(name: str) -> None:
    """Raw per load and per flow; the best of several runs."""
    flows = 0

    def once() -> float:
        nonlocal flows
        cpu_s, flows = measure(LOADS[name]())
        return cpu_s

    runs = measured(once, REPEATS)
    print(
        f"{name:14s} {runs.text('load', 0)}   {runs.best / flows:6.1f} raw per flow   "
        f"{flows:4d} flows per load",
        flush=True,
    )


def print_topology() -> None:
    """Building 4,096 GPUs: file read, checked, every link and seat written out."""
    for cluster in ("blitz_a_512x8", "dgx_h100_512x8"):
        topology = build(load_cluster(cluster))

        def once(name: str = cluster) -> float:
            started = process_time()
            build(load_cluster(name))
            return process_time() - started

        runs = measured(once, REPEATS)
        print(
            f"{'topology_4096':14s} {cluster:15s} {len(topology.gpus)} GPUs, {len(topology.links)} links: "
            f"{runs.text('cluster', 0)}   budget 2 s",
            flush=True,
        )


TABLES: dict[str, Callable[[], None]] = {
    "fig21": print_fig21,
    "interference": print_interference,
    "topology_4096": print_topology,
}


def main(names: list[str]) -> None:
    """Print the tables and scenarios of these names, or all."""
    among(names, [*TABLES, *LOADS], "scenario")
    for name in names or [*TABLES, *LOADS]:
        if name in TABLES:
            TABLES[name]()
        else:
            print_loads(name)


if __name__ == "__main__":
    command("benchmarks.data_plane", __doc__, main)
