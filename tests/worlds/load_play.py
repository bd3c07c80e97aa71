"""Loads played over a fabric of this file's own."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwmodels.fabric.flow import FlowSpec
from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import ChunkProgress, ChunkSend, Hop, LoadStep
from hwmodels.loading.ranks import Ranks
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import Unit, model_units


@dataclass
class Flow:
    send: ChunkSend
    left: float
    waits_s: float


@dataclass
class Play:
    """A max-min fabric by progressive filling that re-solves everything at every change; no priorities.

    arrivals: (hop, unit) -> seconds.
    """

    capacities: Mapping[int, float]
    now_s: float = 0.0
    flows: list[Flow] = field(default_factory=list)
    arrivals: dict[tuple[int, int], float] = field(default_factory=dict)
    moved_bytes: float = 0.0

    def add(self, sends: Sequence[ChunkSend]) -> None:
        self.flows += [Flow(send, send.flow.size_bytes, send.flow.latency_s) for send in sends]

    def rates(self) -> list[float]:
        specs = [flow.send.flow for flow in self.flows]
        return max_min(specs, [flow.waits_s <= 0 for flow in self.flows], self.capacities)

    def run(self, plan: Chain | Ranks, until_flows: float = math.inf) -> float:
        """Play until nothing is under way (or so many flows ended); seconds."""
        ended = 0
        while self.flows and ended < until_flows:
            rates = self.rates()
            times = [
                flow.waits_s if flow.waits_s > 0 else (flow.left / rate if flow.left else 0.0)
                for flow, rate in zip(self.flows, rates, strict=True)
            ]
            step_s = min(times)
            first = times.index(step_s)
            for flow, rate in zip(self.flows, rates, strict=True):
                if flow.waits_s > 0:
                    flow.waits_s = max(0.0, flow.waits_s - step_s)
                else:
                    flow.left -= rate * step_s if math.isfinite(rate) else 0.0
            self.now_s += step_s
            if self.flows[first].left > 0 and rates[first] == 0:
                continue  # its latency is over
            ended += 1
            self.end(plan, self.flows.pop(first).send)
        return self.now_s

    def end(self, plan: Chain | Ranks, send: ChunkSend) -> None:
        self.moved_bytes += send.flow.size_bytes
        step = told(plan, send)
        self.add(step.sends)
        for arrival in step.arrivals:
            assert (arrival.hop, arrival.unit) not in self.arrivals
            self.arrivals[arrival.hop, arrival.unit] = self.now_s

    def abort(self, aborts: Sequence[ChunkSend]) -> dict[tuple[int, int], float]:
        """(rank, hop) -> bytes that had arrived."""
        keys = {(send.rank, send.hop, send.chunk) for send in aborts}
        ending = [flow for flow in self.flows if (flow.send.rank, flow.send.hop, flow.send.chunk) in keys]
        assert len(ending) == len(keys)
        self.flows = [flow for flow in self.flows if flow not in ending]
        return {
            (flow.send.rank, flow.send.hop): flow.send.flow.size_bytes - max(0.0, flow.left)
            for flow in ending
        }


def told(plan: Chain | Ranks, send: ChunkSend) -> LoadStep:
    if isinstance(plan, Ranks):
        return plan.finished(send.rank, send.hop, send.chunk)
    return plan.finished(send.hop, send.chunk)


def max_min(
    specs: Sequence[FlowSpec], active: Sequence[bool], capacities: Mapping[int, float]
) -> list[float]:
    """Weighted max-min rates by filling all together until a link or a cap stops some."""
    rates = [0.0] * len(specs)
    rising = {index for index, on in enumerate(active) if on}
    free = dict(capacities)
    for index in [
        index for index in rising if not specs[index].links and specs[index].cap_bytes_per_s == math.inf
    ]:
        rates[index] = math.inf
        rising.discard(index)
    while rising:
        steps = {
            link: room / sum(specs[index].weight for index in rising if link in specs[index].links)
            for link, room in free.items()
            if any(link in specs[index].links for index in rising)
        }
        caps = {
            index: (specs[index].cap_bytes_per_s - rates[index]) / specs[index].weight for index in rising
        }
        level = min([*steps.values(), *caps.values()])
        for index in rising:
            rates[index] += level * specs[index].weight
            for link in specs[index].links:
                free[link] -= level * specs[index].weight
        full = {link for link, step in steps.items() if step <= level}
        rising = {
            index for index in rising if caps[index] > level and not full.intersection(specs[index].links)
        }
    return rates


def played(plan: Chain | Ranks, capacities: Mapping[int, float]) -> Play:
    play = Play(capacities)
    play.add(plan.begin())
    play.run(plan)
    assert plan.done
    return play


def broadcast(units: Sequence[Unit], tree: Hop, *, before: Sequence[Hop] = ()) -> Chain:
    """Units over ``tree`` (the source's out-link and each target's in-link), to all targets together.

    ``before``: the route to the broadcasting GPU; the tree follows it.
    """
    return Chain(units, [*before, replace(tree, after=None)])


def tensor_parallel(
    shape: LlmShape, hops: Sequence[Sequence[Hop]], *, progress: Sequence[Sequence[ChunkProgress]] = ()
) -> Ranks:
    """From each rank to the same rank over ``hops[rank]``; ``progress[rank]`` is there already."""
    chains = [
        Chain(
            model_units(shape, len(hops), rank, None),
            own,
            progress=progress[rank] if progress else (),
            rank=rank,
        )
        for rank, own in enumerate(hops)
    ]
    return Ranks(chains)
