"""Random leaf-spine networks and flows on them, for the fabric's tests and its benchmark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hwmodels.fabric.flow import KINDS, FlowSpec
from hwmodels.fabric.max_min import fill

GB = 1e9


@dataclass(frozen=True)
class LeafSpine:
    """Directed links by index: out and in of every host, up and down between every leaf and every spine."""

    leaves: int
    spines: int
    hosts_per_leaf: int
    capacities: list[float]

    def path(self, source: int, target: int, spine: int) -> tuple[int, ...]:
        """Links from one host to another; hosts of one leaf do not climb."""
        hosts = self.leaves * self.hosts_per_leaf
        up, down = source // self.hosts_per_leaf, target // self.hosts_per_leaf
        if up == down:
            return (2 * source, 2 * target + 1)
        climb = 2 * hosts + 2 * (up * self.spines + spine)
        fall = 2 * hosts + 2 * (down * self.spines + spine) + 1
        return (2 * source, climb, fall, 2 * target + 1)


def leaf_spine(random: Random, leaves: int = 6, spines: int = 3, hosts_per_leaf: int = 6) -> LeafSpine:
    """Hosts of 50 to 200 Gbps, leaves oversubscribed about four times."""
    hosts = leaves * hosts_per_leaf
    edge = [random.uniform(6, 25) * GB for _ in range(2 * hosts)]
    core = [random.uniform(5, 15) * GB for _ in range(2 * leaves * spines)]
    return LeafSpine(leaves, spines, hosts_per_leaf, edge + core)


def random_flows(random: Random, network: LeafSpine, count: int, priorities: int = 1) -> list[FlowSpec]:
    """Flows between random hosts; a third have a cap, half a weight of their own."""
    hosts = network.leaves * network.hosts_per_leaf
    flows = []
    for _ in range(count):
        source, target = random.sample(range(hosts), 2)
        flows.append(
            FlowSpec(
                network.path(source, target, random.randrange(network.spines)),
                random.uniform(0.01, 4) * GB,
                kind=random.choice(KINDS),
                weight=random.choice((1.0, random.uniform(0.2, 5))),
                cap_bytes_per_s=random.choice((math.inf, math.inf, random.uniform(0.1, 8) * GB)),
                priority=random.randrange(priorities),
            )
        )
    return flows


def max_min_rates(flows: Sequence[FlowSpec], capacities: Sequence[float]) -> list[float]:
    """The rates of flows that have the links for themselves."""
    return fill(flows, capacities, list(capacities))
