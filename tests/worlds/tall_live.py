"""Live scaling of a model of eight equal layers, and what a run of it shows."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import Topology, build
from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import Ilp
from serving.protocols.live import LivePlan, LivePolicy, LiveScheduler, LiveView
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from tests.worlds.drawn_elastic import SHAPE, Drawn
from tests.worlds.drawn_live import LiveCase, counts_of, simulate
from tests.worlds.elastic_world import MS, Setting
from tests.worlds.strategies import NS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected

LAYERS = 8
PROMPT = 16  # tokens: one prompt is one batch
LAYER_NS = MS
LOAD_LAYERS = 100  # a layer is loaded in about as many layer times
# Layers that take 1 ms whatever the batch; a decode step takes 2 ms.
ROWS = ToyRows(
    intercept=2 * MS * NS, per_sequence=0, slope=0, mixed_intercept=LAYERS * MS * NS, per_token=0,
)  # fmt: skip


@dataclass(frozen=True)
class Tall(Setting):
    """A setting whose model has eight layers."""

    def prototype(self, model: str) -> Replica:
        return replace(super().prototype(model), layers=LayerRange(0, LAYERS))


@cache
def apart() -> Topology:
    """Hosts of one GPU: everything goes over the network."""
    return build(load_cluster("blitz_b_10x1"))


def slow(scheduler: LiveScheduler, embedding: str = "target", **more: Any) -> Callable[[], LivePolicy]:
    return lambda: LiveScaling(scheduler, 0, embedding=embedding, **more)


def tall(prefill: int, live: Callable[[], LivePolicy] | None, load_layers: int = LOAD_LAYERS) -> LiveCase:
    """One decode instance, ``prefill`` and at most one more prefill ones, and no requests yet.

    A layer of the shape is loaded in about ``load_layers`` ms at 86 % of 100 Gbit/s.
    """
    layer_bytes = round(load_layers * MS / 1e9 * 0.86 * 12.5e9)
    width = (layer_bytes // SHAPE.bytes_per_parameter) // (3 * SHAPE.hidden)
    shape = replace(SHAPE, layers=LAYERS, intermediate=width)
    setting = Tall(
        hosts=10,
        gpus_per_host=1,
        start={"prefill": prefill, "decode": 1},
        bounds={"prefill": (prefill, prefill + 1), "decode": (1, 1)},
        provision="multicast",
        kv_blocks=16,
        max_num_batched_tokens=PROMPT,
        prefill_tokens_per_s=PROMPT * 1e9 / (LAYERS * LAYER_NS),
        live=live,
        topology=apart(),
        size_bytes=shape.weight_bytes,
        kv_bytes=KvBytes(shape.kv_bytes_per_token),
    )
    return LiveCase(Drawn(setting, ()), shape)


def asked(case: LiveCase, count: int, output: int, prompt: int = PROMPT, gap_ns: int = 0) -> LiveCase:
    requests = tuple(
        (Request(id, id * gap_ns, prompt, output, "m"), output) for id in range(count)
    )  # output 1: the first token is the last
    return LiveCase(Drawn(case.drawn.setting, requests), case.shape)


@dataclass(frozen=True)
class Seen:
    """A run: times, events and actions as the journal has them, ends of requests, and counts."""

    lines: list[tuple[int, list[Any], list[list[Any]]]]
    ran: Collected
    counts: Any
    checked: Checked

    @classmethod
    def of(cls, case: LiveCase) -> "Seen":
        ran, _, checked = simulate(case, rows=ROWS)
        assert len(ran.done) == len(case.drawn.requests)
        counts = counts_of(checked)
        return cls(
            [tuple(json.loads(text)) for text in checked.lines], ran, counts[0] if counts else None, checked
        )

    def layers_ns(self) -> dict[int, int]:
        """Layers on the new instance -> when it had them; 0: when its load began, all: with the head."""
        loads = [now_ns for now_ns, _, actions in self.lines for one in actions if one[0] == "load"]
        found = {0: loads[0]}
        for now_ns, event, _ in self.lines:
            if event[0] == "loaded":
                found.setdefault(event[3] if event[4] else min(event[3], LAYERS - 1), now_ns)
        return found

    def passes(self) -> list[tuple[int, int, tuple[int, int], list[int]]]:
        """(time, replica, layers, requests) of every pass over some layers."""
        return [
            (now_ns, one[1], tuple(one[-2]), [chunk[0] for chunk in one[3]])
            for now_ns, _, actions in self.lines
            for one in actions
            if one[0] == "run" and isinstance(one[-2], list)
        ]

    def sends(self, what: str) -> list[tuple[int, list[Any]]]:
        """(time, action) of transfers."""
        return [
            (now_ns, one)
            for now_ns, _, actions in self.lines
            for one in actions
            if one[0] == "send" and one[2] == what
        ]


class Spied(Ilp):
    """Keeps what it was shown, and what it answered."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.answers: list[tuple[LiveView, LivePlan]] = []

    def plan(self, view: LiveView) -> LivePlan:
        self.answers.append((view, super().plan(view)))
        return self.answers[-1][1]
