"""Relays of loads: hops without flows of their own, as long as no other flow uses their links."""

from collections.abc import Callable
from math import inf

from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import PARAMETERS
from hwmodels.loading.plan import ChunkSend, Hop
from hwmodels.loading.relay import Relay, RelayState
from simcore.data_plane.loading import LoadRun


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
                    run.relays[relay.before] = relay
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

    def end(self, run: LoadRun, before: int, now_s: float) -> RelayState | None:
        """End the relay behind a hop whose flow goes on, before that is aborted; None if there is none."""
        relay = run.relays.pop(before, None)
        if relay is None:
            return None
        chain, flow = run.chain, run.flows[before]
        arrived_s = self._fabric.passed_s(flow, chain.sizes_bytes(before)[: relay.chunks], now_s)
        state = relay.state(chain.sizes_bytes(relay.hop), arrived_s, now_s)
        state = state._replace(before_wait_s=self._fabric.wait_s(flow))
        self._let_go(run, relay, state)
        return state

    def _let_go(self, run: LoadRun, relay: Relay, state: RelayState) -> None:
        chain = run.chain
        moved_bytes = sum(chain.sizes_bytes(relay.hop)[: state.chunks]) + state.partial_bytes
        links = chain.links_of(relay.hop)
        self._fabric.let_go(links, PARAMETERS, moved_bytes, relay.rate_bytes_per_s)

    def _rate_alone(self, hop: Hop) -> float:
        rates = [self._fabric.capacity(link) for link in hop.links]
        return min(min(rates, default=inf), hop.cap_bytes_per_s)
