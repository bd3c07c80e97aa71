"""How fast a plan over 1,024 GPUs is made, in ms and raw SimPy timeouts (see benchmarks/README.md).

python -m benchmarks.planner            all cases
python -m benchmarks.planner hosts      one of them

The aim is at most 10 ms, the best of several.
"""

import sys
from collections.abc import Callable
from time import process_time

from benchmarks.raw import raw_timeout_s
from policies.multicast import MulticastPlanner
from serving.planning import Planner, Port, ScaleUp, Source, Target

REPEATS = 9
GPUS = 1024
AIM_MS = 10.0
NIC_BYTES_PER_S = 12_500_000_000


def hosts() -> tuple[Planner, ScaleUp]:
    """8 GPUs of one host hold the model; 127 hosts of 8 load it as groups, 16 hosts to a leaf."""
    return MulticastPlanner(), scale_up(8, 1, domain_gpus=8, leaf_gpus=128)


def one_chain() -> tuple[Planner, ScaleUp]:
    """One GPU holds it; every other GPU is a group of its own: a chain of 1,023."""
    return MulticastPlanner("depth"), scale_up(1, 1, domain_gpus=1, leaf_gpus=32)


def half() -> tuple[Planner, ScaleUp]:
    """512 GPUs to 512, each a group of its own, sources and targets mixed in every leaf."""
    return MulticastPlanner(), scale_up(512, 1, domain_gpus=1, leaf_gpus=32, stride=3)


def tp_4() -> tuple[Planner, ScaleUp]:
    """16 instances of 4 GPUs to 240, two to a host, each alone."""
    return MulticastPlanner(grouping="instance"), scale_up(16, 4, domain_gpus=8, leaf_gpus=64, stride=5)


CASES: dict[str, Callable[[], tuple[Planner, ScaleUp]]] = {
    "hosts": hosts,
    "one_chain": one_chain,
    "half": half,
    "tp_4": tp_4,
}


def scale_up(holders: int, size: int, domain_gpus: int, leaf_gpus: int, stride: int = 1) -> ScaleUp:
    """Instances of ``size`` GPUs all over the cluster; ``holders`` of them, ``stride`` apart, are sources."""
    ports = [Port(gpu, gpu // domain_gpus, gpu // leaf_gpus, gpu, NIC_BYTES_PER_S) for gpu in range(GPUS)]
    instances = [tuple(ports[first : first + size]) for first in range(0, GPUS, size)]
    held = {position * stride % len(instances) for position in range(holders)}
    sources = [Source(("replica", one), instances[one]) for one in sorted(held)]
    targets = [Target(one, found) for one, found in enumerate(instances) if one not in held]
    return ScaleUp(tuple(sources), tuple(targets), len(targets), size)


def measure(name: str) -> tuple[float, int]:
    """(CPU seconds of one plan, the best of several; its edges)."""
    planner, wanted = CASES[name]()
    times = []
    for _ in range(REPEATS):
        started = process_time()
        plan = planner.plan(wanted)
        times.append(process_time() - started)
    assert len(plan.replicas) == wanted.instances
    return min(times), len(plan.edges)


def main(names: list[str]) -> None:
    """Print one line per case."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"benchmarks.planner: there is no case {unknown[0]!r}: write {', '.join(CASES)}")
    raw_s = raw_timeout_s()
    for name in names or CASES:
        plan_s, edges = measure(name)
        print(
            f"{name:10s} {plan_s * 1e3:6.2f} ms (aim {AIM_MS:.0f})   {plan_s / raw_s:8,.0f} raw   "
            f"{edges:5d} edges   raw {raw_s * 1e6:.3f} us",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
