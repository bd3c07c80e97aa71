"""Relays of loads: hops without flows of their own, as long as no other flow uses their links."""

from collections.abc import Callable
from math import inf
from operator import attrgetter

from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import PARAMETERS
from hwmodels.loading.plan import ChunkSend, Hop, LoadStep
from hwmodels.loading.relay import Relay, RelayState
from serving.vocabulary.events import Event, Loaded
from simcore.data_plane.loading import LoadRun


def by_begin(facts: list[Event]) -> None:
    """Put the loads' events of one time in the order in which the loads were requested.

    Loads that are alike end together. Where some have relays and others not, their times differ by rounding.
    """
    places = [place for place, fact in enumerate(facts) if type(fact) is Loaded]
    if len(places) > 1:
        loaded = sorted([fact for fact in facts if type(fact) is Loaded], key=attrgetter("load"))
        for place, fact in zip(places, loaded):
            facts[place] = fact


class Relays:
    """Begins and ends relays of loads on one fabric; a load's own are in ``LoadRun.relays``."""

    __slots__ = ("_fabric",)

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def begin(self, run: LoadRun) -> list[ChunkSend]:
        """Begin a load after its start-up; returns the flows to start. ``hold`` comes next."""
        if not run.by_layer and not run.feeders:
            for relay in run.chain.relays(self._rate_alone):
                if self._fabric.can_hold(run.chain.links_of(relay.hop)):
                    run.relays[relay.before], run.relayed = relay, True
        return run.begin()

    def hold(self, run: LoadRun, tell: Callable[[float], None]) -> bool:
        """Hold the links of the load's relays; False if a flow that started since is on one.

        tell: called with the time before another flow uses one of these links; it must ``end`` the relay.
        """
        held = True
        for before, relay in run.relays.items():
            self._fabric.remember(run.flows[before])
            held = self._fabric.hold(run.chain.links_of(relay.hop), tell) and held
        return held

    def arrived(self, run: LoadRun, before: int) -> None:
        """The flow of a hop has ended. If it was that before a relay, all but the last chunk have passed."""
        relay = run.relays.pop(before, None)
        if relay is not None:
            self._let_go(run, relay, RelayState(relay.chunks - 1, 0.0, None))

    def end(self, run: LoadRun, before: int, now_s: float) -> tuple[int, LoadStep]:
        """End the relay behind a hop whose flow goes on, to the end of the chunk that it moves.

        Returns the number of that chunk, and what follows.
        """
        relay, chain, flow = run.relays.pop(before), run.chain, run.flows[before]
        sizes_bytes = chain.sizes_bytes(before)[: relay.chunks]
        arrived_s = self._fabric.passed_s(flow, sizes_bytes, now_s)
        if arrived_s is None or len(arrived_s) == relay.chunks:
            chunk, state = relay.chunks - 1, RelayState(relay.chunks - 1, 0.0, None)
        else:
            chunk, state = len(arrived_s), relay.state(chain.sizes_bytes(relay.hop), arrived_s, now_s)
            self._fabric.shorten(flow, sum(sizes_bytes[: chunk + 1]))
        self._let_go(run, relay, state)
        return chunk, chain.relay_ended(relay, chunk, state)

    def _let_go(self, run: LoadRun, relay: Relay, state: RelayState) -> None:
        chain = run.chain
        moved_bytes = sum(chain.sizes_bytes(relay.hop)[: state.chunks]) + state.partial_bytes
        links = chain.links_of(relay.hop)
        self._fabric.let_go(links, PARAMETERS, moved_bytes, relay.rate_bytes_per_s)

    def _rate_alone(self, hop: Hop) -> float:
        rates = [self._fabric.capacity(link) for link in hop.links]
        return min(min(rates, default=inf), hop.cap_bytes_per_s)
