"""What is lost in a drawn world, and when: every kind of loss that docs/how-to/FAULTS.md lists."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hwmodels.topology.cables import cables_of
from hwmodels.topology.topology import Topology
from hwmodels.topology.topology import build as topology_of
from servetwin.assemble.data_plane import spec_of
from servetwin.run.prepared import Prepared
from servetwin.run.simulate import execute
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event
from serving.vocabulary.units import NS_PER_S

FAULTS = ("replica", "host", "link", "ssd", "mixed", "replica notice", "host notice", "drawn")
_MIXED = ("replica", "replica", "host", "link", "link", "ssd")
_AT_AN_EVENT = 0.12  # share of worlds whose losses come at the very nanosecond of some event


class _Times:
    """A journal of nothing but the times."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], told: Sequence[int] = ()) -> None:
        self.times_ns.append(now_ns)


def with_losses(seed: int, prepared: Prepared, what: str = "mixed") -> tuple[list[str], Prepared]:
    """Losses of this kind from the first request to a while after the last: their words, and the world."""
    random = Random(f"losses of {seed}")
    last_s = int(prepared.workload.arrival_ns[-1]) / NS_PER_S
    spec = spec_of(prepared.config)
    topology = None if spec is None else topology_of(spec)
    if what == "drawn":
        return _lost(prepared, "drawn", **_rates(random, max(last_s, 0.5), topology))
    kind, _, notice = what.partition(" ")
    when = _moments(random, prepared, last_s)
    events = []
    for _ in range(random.choice([1, 1, 2, 3] if kind == "replica" else [1, 2, 3, 5])):
        at_s, each = when(), random.choice(_MIXED) if kind == "mixed" else kind
        events.append(f"{at_s:.9f}:{_target(random, prepared, topology, each)}")
    keys: dict[str, Any] = {"events": "+".join(events)}
    if notice:
        keys["notice_s"] = random.choice([0.05, 0.5, 3.0])
    return _lost(prepared, "listed", **keys)


def _lost(prepared: Prepared, name: str, **keys: Any) -> tuple[list[str], Prepared]:
    """The same world with these faults: composing it anew takes longer than a run."""
    words = [f"faults={name}", *[f"faults.{key}={value}" for key, value in keys.items()]]
    faults = replace(prepared.config.faults, name=name, **keys)
    return words, replace(prepared, config=replace(prepared.config, faults=faults))


def _moments(random: Random, prepared: Prepared, last_s: float) -> Callable[[], float]:
    if random.random() >= _AT_AN_EVENT:
        return lambda: random.uniform(0, last_s * 1.3 + 0.2)
    times = _Times()
    execute(prepared, times)
    return lambda: random.choice(times.times_ns) / NS_PER_S


def _target(random: Random, prepared: Prepared, topology: Topology | None, what: str) -> str:
    """``WHAT:WHICH``; where the cluster has no such thing, something that it has."""
    config = prepared.config
    if topology is None:
        what = "replica"
    elif what == "ssd" and topology.spec.ssd is None:
        what = "host"
    if what == "replica" or topology is None:
        most = len(prepared.replicas)
        if config.system.elastic and topology is not None:
            most += len(topology.gpus) // config.model.tp
        return f"replica:{random.randrange(most)}"
    if what == "link":
        return f"link:{random.choice([cable.name for cable in cables_of(topology)])}"
    return f"{what}:{random.randrange(len(topology.hosts))}"


def _rates(random: Random, last_s: float, topology: Topology | None) -> dict[str, float]:
    """About three losses from drawn streams before the last request comes."""
    kinds: Any = ["replica"] if topology is None else ["replica", "link", "host"]
    if topology is not None and topology.spec.ssd is not None:
        kinds.append("ssd")
    hour = 3600 / last_s
    return {f"{kind}_per_hour": round(hour * random.choice([0.3, 1, 2]), 1) for kind in kinds}
