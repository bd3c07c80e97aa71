"""Loads of parameters to instances and hosts: their begin, progress and end.

The books of copies are informed of each load, and may request another copy in a host's memory.
"""

from collections.abc import Iterable, Mapping

from serving.elastic.placement import Placement
from serving.elastic.setup import ModelLimits
from serving.parameters.cache_answers import CheckedCopies
from serving.parameters.loads import UNDER_WAY, Loads
from serving.parameters.parameter_pool import Reload
from serving.parameters.residency import Residency
from serving.protocols.planning import Edge
from serving.vocabulary.actions import Action, Endpoint, Load, StopLoad
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.layers import Part


class LoadProgress:
    """Begins and tracks loads. ``loads``: those in progress."""

    __slots__ = ("_begun_ns", "_copies", "_limits", "_numbers", "_overlapping", "_placement", "loads")

    def __init__(
        self,
        copies: CheckedCopies,
        placement: Placement,
        limits: Mapping[str, ModelLimits],
        residency: Residency,
    ) -> None:
        self._copies = copies
        self._placement = placement
        self._limits = limits
        self.loads = Loads(residency)
        self._numbers = 0
        self._begun_ns: dict[int, int] = {}  # by load
        self._overlapping: set[int] = set()  # loads that a prefill pass may overlap

    def begin(
        self,
        now_ns: int,
        part: Part,
        edge: Edge,
        *,
        overlap: bool,
        live: bool,
        layers_first: bool,
        reason: str,
        actions: list[Action],
    ) -> None:
        """Begin a load to instances that start. ``live``: one of them works while it loads."""
        load = Load(
            self._numbers,
            part.model,
            sources=edge.sources,
            targets=edge.targets,
            shards=edge.shards,
            every_layer=overlap or live,
            cold=True,
            reason=f"{reason}; {edge.reason}{'; live' if live else ''}",
            layers_first=layers_first,
            layers=part.layers,
        )
        if overlap:
            self._overlapping.add(load.load)
        self._begin(now_ns, load, actions)

    def reload(self, now_ns: int, reloads: Iterable[Reload], actions: list[Action]) -> None:
        """Begin loads of copies into the memory of hosts."""
        for reload in reloads:
            load = Load(
                self._numbers,
                reload.part.model,
                sources=(reload.source,),
                targets=(("host", reload.domain),),
                shards=(),
                every_layer=False,
                cold=False,
                reason=reload.reason,
                layers=reload.part.layers,
            )
            self._begin(now_ns, load, actions)

    def _begin(self, now_ns: int, load: Load, actions: list[Action]) -> None:
        self._begun_ns[load.load] = now_ns
        self._numbers += 1
        self.loads.begin(load)
        self._copies.begin(load, self._hosts(load), now_ns)
        actions.append(load)

    def load_of(self, event: Loaded | LoadStopped) -> Load:
        """The load that an event reports on."""
        return self.loads.in_flight[event.load].load

    def overlaps(self, now_ns: int, load: Load, number: int, layers: int) -> bool:
        """Whether the remaining layers take no longer to load than a prefill pass, at the pace so far.

        Then the pass can run layer by layer behind the load (PipeSwitch). Any earlier, requests would wait
        here while other instances could serve them. A decode instance needs all layers at every step.
        """
        instance = self._placement.instances.live[number]
        if load.load not in self._overlapping or instance.role == "decode" or not layers:
            return False
        count = len(instance.replica.layers)
        took_ns = now_ns - self._begun_ns[load.load]
        return took_ns * (count - layers) <= self._limits[load.model].pass_ns * layers

    def ended(self, now_ns: int, load: Load, fully_loaded: bool, actions: list[Action]) -> bool:
        """Whether all targets of a load have ended; if so, the books of copies are informed."""
        if load.load in self.loads.in_flight:
            return False
        del self._begun_ns[load.load]
        self._overlapping.discard(load.load)
        self.reload(now_ns, self._copies.end(load, self._hosts(load), fully_loaded, now_ns), actions)
        return True

    def stop(self, endpoint: Endpoint, reason: str, actions: list[Action]) -> None:
        """Stop the loads in progress from or to a lost endpoint; the world reports when each has ended."""
        for flight in self.loads.in_flight.values():
            load = flight.load
            missing = [target for target, state in zip(load.targets, flight.states) if state is UNDER_WAY]
            if endpoint in load.sources or endpoint in missing:
                actions.append(StopLoad(load.load, reason))

    def needs(self, number: int) -> bool:
        """Whether an instance sends or receives parameters."""
        return ("replica", number) in self.loads.sending() or self.loads.to(number) is not None

    def _hosts(self, load: Load) -> list[int]:
        """The hosts of a load's targets, each once."""
        host_of = self._placement.host_of
        return sorted({host_of(number) if kind == "replica" else number for kind, number in load.targets})
