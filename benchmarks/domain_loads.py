"""Loads within an NVLink domain over several hosts, beside their closed forms (see
docs/explanation/DATA_PLANE.md).

python -m benchmarks.domain_loads               Llama-3-70B on eight GPUs of two hosts of a GB200 NVL72

Virtual times, the same on every machine, with the cluster file's efficiencies and latencies. B is what the
links of all ranks reach together, M the parameters, u the largest chunk of them.
"""

import math
from dataclasses import dataclass
from typing import Final

from benchmarks.command import command, no_words
from benchmarks.data_plane import plane
from hwmodels.catalogue import load_llm
from hwmodels.models.load_units import cut_into_chunks, model_units
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import Topology, build
from serving.vocabulary.actions import Action, Endpoint, Load, Shard
from serving.vocabulary.events import Loaded

CLUSTER: Final = "gb200_nvl72"
MODEL: Final = "llama3_70b"
TP: Final = 8


@dataclass(frozen=True, slots=True)
class DomainLoad:
    """One way to load. ``simulated_s``: until the last instance has everything; ``closed_s``: the formula."""

    what: str
    formula: str
    closed_s: float
    simulated_s: float


def domain_loads(topology: Topology, model: str = MODEL, tp: int = TP) -> list[DomainLoad]:
    """Return the loads of instances of ``tp`` GPUs, which fill hosts of one domain."""
    units = model_units(load_llm(model))
    size = sum(unit.size_bytes for unit in units)
    chunks = [chunk.size_bytes for chunk in cut_into_chunks(units)]
    nvlink, nic, ssd, pcie, switch = (
        _rate(topology, kind) for kind in ("nvlink", "nic", "ssd", "pcie", "pcie_switch")
    )
    spec = topology.spec
    hosts, sharing = tp // spec.gpus_per_host, spec.pcie_shared_by
    ways_down = min(tp * pcie, tp // sharing * switch)
    nvlinks, ssds = tp * nvlink, hosts * ssd
    own = min(spec.gpus_per_host * pcie, spec.gpus_per_host // sharing * switch)
    chains = [
        DomainLoad(
            f"chain of {count} instances to instances",
            "M/B + (n-1) u/B, B = NVLink",
            size / nvlinks + (count - 1) * max(chunks) / nvlinks,
            _last_s(topology, model, tp, _chain(model, count)),
        )
        for count in (1, 2, 4, 8)
    ]
    broadcast = DomainLoad(
        "one instance to four at once, the switch copies",
        "M/B, B = NVLink",
        size / nvlinks,
        _last_s(topology, model, tp, [_broadcast(model, tp, 4)]),
    )
    stored = DomainLoad(
        "SSDs of both hosts to an instance",
        "M/B + u/B', B = SSDs, B' = C2C",
        size / ssds + chunks[-1] / ways_down,
        _last_s(topology, model, tp, [_load(model, ("ssd", 0), ("replica", 0))]),
    )
    half = spec.gpus_per_host
    alone = DomainLoad(
        f"one host's memory to an instance of {half} there",
        "M/B, B = C2C",
        size / own,
        _last_s(topology, model, half, [_load(model, ("host", 0), ("replica", 0))]),
    )
    beyond = DomainLoad(
        "one host's memory to an instance on it and the next",
        "M/B, B = NICs of the next host's ranks",
        size / tp / nic,
        _last_s(topology, model, tp, [_load(model, ("host", 0), ("replica", 0))]),
    )
    return [*chains, broadcast, stored, alone, beyond]


def _rate(topology: Topology, kind: str) -> float:
    """The rate that one link of this kind reaches."""
    return next(link.rate_bytes_per_s for link in topology.links if link.kind == kind)


def _load(model: str, source: Endpoint, target: Endpoint, number: int = 0) -> Load:
    return Load(
        load=number,
        model=model,
        sources=(source,),
        targets=(target,),
        shards=(),
        every_layer=False,
        cold=False,
        reason="benchmark",
    )


def _chain(model: str, count: int) -> list[Load]:
    stops: list[Endpoint] = [("replica", number) for number in range(count + 1)]
    return [_load(model, stops[at], stops[at + 1], at) for at in range(count)]


def _broadcast(model: str, tp: int, targets: int) -> Load:
    """Replica 0 sends each rank once; every target is named as the end of an equal part of it."""
    shards = tuple(
        Shard(rank, tp * target + rank, 1 / tp / targets, math.inf)
        for rank in range(tp)
        for target in range(1, targets + 1)
    )
    ends: tuple[Endpoint, ...] = tuple([("replica", target) for target in range(1, targets + 1)])
    return Load(
        load=0,
        model=model,
        sources=(("replica", 0),),
        targets=ends,
        shards=shards,
        every_layer=False,
        cold=False,
        reason="benchmark",
    )


def _last_s(topology: Topology, model: str, tp: int, loads: list[Load]) -> float:
    """Return when the last target of these loads, which begin at 0, has everything."""
    gpus_of = [tuple(range(first, first + tp)) for first in range(0, len(topology.gpus), tp)]
    data = plane(topology, gpus_of, model)
    actions: list[Action] = list(loads)
    for action in actions:
        data.carry_out(0, action)
    last_ns = 0
    while (next_ns := data.next_ns()) is not None:
        if any(isinstance(fact, Loaded) and fact.fully_loaded for fact in data.collect(next_ns)):
            last_ns = next_ns
    return last_ns / 1e9


def main(names: list[str]) -> None:
    """Print the table."""
    no_words(names)
    print(f"{CLUSTER}, {MODEL}, instances of {TP} GPUs on two hosts            closed s  simulated s   ratio")
    for row in domain_loads(build(load_cluster(CLUSTER))):
        ratio = row.simulated_s / row.closed_s
        print(f"{row.what:52s} {row.closed_s:10.5f} {row.simulated_s:12.5f} {ratio:7.4f}   {row.formula}")


if __name__ == "__main__":
    command("benchmarks.domain_loads", __doc__, main)
