"""A data plane on links without latency: how it is set up, and what it reports."""

from collections.abc import Sequence
from dataclasses import replace

from hwmodels.catalogue import load_llm
from hwmodels.loading.startup import StartUp, load_start_up
from hwmodels.models.load_units import model_units
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.spec import at_efficiency
from hwmodels.topology.topology import Topology, build
from serving.vocabulary.actions import Action, Endpoint, Load
from serving.vocabulary.events import Event, Loaded
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup

GBPS = 1e9 / 8
SHAPE = load_llm("llama3_8b")
UNITS = model_units(SHAPE)
MODEL_BYTES = sum(unit.size_bytes for unit in UNITS)
NONE = load_start_up("none")


def ideal(name: str) -> Topology:
    """A shipped cluster whose links reach their datasheet rates at once and without latency."""
    topology = build(at_efficiency(1.0, load_cluster(name)))
    return replace(topology, link_latency_s=(0.0,) * len(topology.links))


def plane(
    cluster: str = "blitz_b",
    gpus_of: Sequence[tuple[int, ...]] = ((0,), (1,), (8,), (9,)),
    start_up: StartUp = NONE,
    **more: int | bool,
) -> DataPlane:
    models = [SHAPE.name] * len(gpus_of)
    setup = DataPlaneSetup(
        topology=ideal(cluster),
        shapes={SHAPE.name: SHAPE},
        model_of=models,
        gpus_of=gpus_of,
        loader="direct",
        start_up=start_up,
        **more,
    )
    return DataPlane(setup)


def load(
    source: Endpoint, target: Endpoint, id: int = 0, every_layer: bool = False, cold: bool = False
) -> Load:
    return Load(id, SHAPE.name, (source,), (target,), (), every_layer, cold, "test")


def told(data: DataPlane, *actions: tuple[float, Action]) -> list[tuple[float, Event]]:
    """Every fact with its time in seconds; actions are carried out at their times."""
    facts: list[tuple[float, Event]] = []
    waiting = sorted(((round(at_s * 1e9), n, action) for n, (at_s, action) in enumerate(actions)))
    while True:
        due_ns = data.next_ns()
        if waiting and (due_ns is None or waiting[0][0] < due_ns):
            at_ns, _, action = waiting.pop(0)
            data.carry_out(at_ns, action)
        elif due_ns is None:
            return facts
        else:
            facts += [(due_ns / 1e9, fact) for fact in data.collect(due_ns)]


def whole(facts: list[tuple[float, Event]], load: int = 0) -> dict[int, float]:
    """target -> when everything was there."""
    return {
        f.target: at_s for at_s, f in facts if isinstance(f, Loaded) and f.fully_loaded and f.load == load
    }
