"""How fast the fabric is: raw SimPy timeouts per event, and events per CPU-second (see benchmarks/README.md).

python -m benchmarks.fabric            all scenarios
python -m benchmarks.fabric shared_50  one of them

An event is the start or the end of a flow, with all that a driver asks for (specification, next completion,
advance). Whenever flows end as many begin, so that their number stays. In a burst all of them start at one
moment over one link, and end at another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from random import Random
from time import process_time

from benchmarks.command import among, command
from benchmarks.raw import measured
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import FlowSpec
from tests.worlds.fabric_scenarios import GB, LeafSpine, leaf_spine

REPEATS = 5


@dataclass(frozen=True)
class FlowCase:
    """So many flows at a time over a network, until so many have ended; 0: each once, all at one moment."""

    network: LeafSpine
    flows: Iterator[FlowSpec]
    at_a_time: int
    ends: int


def lone() -> FlowCase:
    """An unshared transfer: two hosts of different leaves, four links."""
    network = leaf_spine(Random(0))
    path = network.path(0, 35, 1)
    return FlowCase(network, (FlowSpec(path, GB) for _ in iter(int, 1)), 1, 50_000)


def shared(at_a_time: int) -> FlowCase:
    """Random pairs of 36 hosts behind oversubscribed leaves: one component."""
    random = Random(at_a_time)
    network = leaf_spine(random)
    return FlowCase(
        network, _between(random, network, network.hosts_per_leaf * network.leaves), at_a_time, 2_000
    )


def local_4096() -> FlowCase:
    """4,096 GPUs with a NIC each, 64 leaves of 64; 2,048 flows between GPUs of one group of 8."""
    random = Random(4096)
    network = leaf_spine(random, leaves=64, spines=8, hosts_per_leaf=64)
    return FlowCase(network, _between(random, network, 8), 2_048, 8_000)


def _between(random: Random, network: LeafSpine, near: int) -> Iterator[FlowSpec]:
    """Flows between hosts of one group of ``near``."""
    groups = network.hosts_per_leaf * network.leaves // near
    while True:
        first = near * random.randrange(groups)
        source, target = random.sample(range(first, first + near), 2)
        path = network.path(source, target, random.randrange(network.spines))
        yield FlowSpec(path, random.uniform(0.1, 1) * GB, weight=random.choice((1.0, 2.0)))


def burst(flows: int) -> FlowCase:
    """So many from one host to those of another leaf, all at once: they share its way out."""
    network = leaf_spine(Random(0))
    paths = [network.path(0, 12 + target, target % network.spines) for target in range(12)]
    return FlowCase(network, (FlowSpec(path, GB) for path in cycle(paths)), flows, 0)


SCENARIOS: dict[str, tuple[Callable[[], FlowCase], float | None]] = {
    "lone": (lone, 20),
    "shared_1": (lambda: shared(1), None),
    "shared_50": (lambda: shared(50), None),
    "shared_500": (lambda: shared(500), None),
    "local_4096": (local_4096, None),
    "burst_500": (lambda: burst(500), None),
    "burst_8000": (lambda: burst(8_000), None),
}


def measure(case: FlowCase) -> float:
    """CPU seconds per flow (its start and its end)."""
    if not case.ends:
        return measure_burst(case)
    fabric = Fabric(case.network.capacities)
    for _ in range(case.at_a_time):
        fabric.start(next(case.flows), 0.0)
    ended = 0
    started = process_time()
    while ended < case.ends:
        at_s = fabric.next_completion_s()
        for _ in fabric.advance(at_s):
            ended += 1
            fabric.start(next(case.flows), at_s)
    return (process_time() - started) / ended


def measure_burst(case: FlowCase) -> float:
    """CPU seconds per flow of flows that all start at 0."""
    fabric = Fabric(case.network.capacities)
    flows = list(islice(case.flows, case.at_a_time))
    started, ended = process_time(), 0
    for flow in flows:
        fabric.start(flow, 0.0)
    while ended < len(flows):
        ended += len(fabric.advance(fabric.next_completion_s()))
    return (process_time() - started) / ended


def main(names: list[str]) -> None:
    """Print one line per scenario."""
    among(names, SCENARIOS, "scenario")
    for name in names or SCENARIOS:
        make, budget = SCENARIOS[name]
        case = make()
        runs = measured(partial(measure, case), REPEATS)
        print(
            f"{name:12s} {runs.text('flow')}   {2 / runs.best_cpu_s:9,.0f} flow events per CPU-s   "
            f"budget {budget or '-'}",
            flush=True,
        )


if __name__ == "__main__":
    command("benchmarks.fabric", __doc__, main)
