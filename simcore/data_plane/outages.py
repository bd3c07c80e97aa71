"""What of the cluster is lost: loads over it end, transfers are routed anew or end, new ones are refused."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from hwmodels.errors import HardwareError
from hwmodels.fabric.fabric import Fabric
from hwmodels.loading.loader import Loader
from hwmodels.topology.topology import Topology
from serving.vocabulary.actions import Endpoint, Load
from serving.vocabulary.events import Event, LoadStopped
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S
from simcore.data_plane.channels import LoadRoute
from simcore.data_plane.load_routes import load_route
from simcore.data_plane.loading import LoadRun
from simcore.data_plane.replica_placement import ReplicaPlacement
from simcore.data_plane.residency import Residency
from simcore.data_plane.transfer_flows import TransferFlows


class Outages:
    """``given_up``: loads that ended early, or never began, because something is lost. True: something is.

    ``topology``: without the links that are lost. ``loads``: under way, kept up to date by its owner;
    ``end_early`` ends one; ``tell`` takes facts to be told.
    """

    __slots__ = (
        "_causes", "_end_early", "_fabric", "_loads", "_places", "_residency", "_tell", "_transfers",
        "given_up", "topology",
    )  # fmt: skip

    def __init__(
        self,
        topology: Topology,
        fabric: Fabric,
        placement: ReplicaPlacement,
        residency: Residency,
        transfers: TransferFlows,
        loads: Mapping[int, LoadRun],
        end_early: Callable[[float, LoadRun, str], None],
        tell: Callable[[Sequence[Event]], None],
    ) -> None:
        self.topology, self._fabric, self._places, self._residency = topology, fabric, placement, residency
        self._transfers, self._loads, self._end_early, self._tell = transfers, loads, end_early, tell
        self._causes: dict[Endpoint, str] = {}
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._causes)

    # What is lost.

    def lose_replica(self, now_ns: int, replica: int, cause: str) -> None:
        """A replica is gone with its GPUs: what is on its way to or from them ends."""
        self._places.lose(replica)
        self._tell(self._transfers.lose(self._now_s(now_ns), replica, cause))
        self.lose_stop(now_ns, ("replica", replica), cause)

    def lose_stop(self, now_ns: int, endpoint: Endpoint, cause: str) -> None:
        """Nothing is loaded from there, or brought there, any more."""
        self._causes[endpoint] = cause
        runs = self._loads.items()
        self._give_up(now_ns, [number for number, run in runs if run.has_open(endpoint)], cause)

    def lose_links(self, now_ns: int, topology: Topology, lost: frozenset[int], cause: str) -> None:
        """Loads that cross these links end, transfers take another way; ``topology`` is without them."""
        self.topology = topology
        self._causes["link", min(lost)] = cause
        self._give_up(now_ns, [number for number, run in self._loads.items() if run.links & lost], cause)
        self._tell(self._transfers.reroute(self._now_s(now_ns), topology, lost, cause))

    def _give_up(self, now_ns: int, loads: Iterable[int], cause: str) -> None:
        for number in loads:
            run = self._loads.get(number)
            if run is not None:  # it may have ended with another one
                self.given_up += 1
                self._end_early(self._now_s(now_ns), run, cause)

    def _now_s(self, now_ns: int) -> float:
        return max(now_ns / NS_PER_S, self._fabric.now_s)

    # What begins.

    def way(
        self, load: Load, gpus_of: Mapping[int, tuple[int, ...]], loader: Loader | None, bundled: bool
    ) -> LoadRoute | None:
        """The way of a load; None where nothing leads since something is lost, which is then told."""
        try:
            return load_route(self.topology, load, gpus_of, loader, bundled)
        except HardwareError as error:
            if not self._causes:
                raise
            self._refuse(load, str(error))
            return None

    def refuses(self, load: Load, part: Part) -> bool:
        """Whether a load cannot begin, for an endpoint is lost or got nothing, which is then told."""
        cause = next(
            (
                self._causes[endpoint]
                for endpoint in (*load.sources, *load.targets)
                if endpoint in self._causes
            ),
            None,
        )
        for endpoint in load.sources if cause is None else ():
            if (
                endpoint[0] == "replica"
                and not self._residency.has(endpoint, part)
                and not self._comes(endpoint, part)
            ):
                cause = f"replica {endpoint[1]}, its source, got no parameters"
        if cause is not None:
            self._refuse(load, cause)
        return cause is not None

    def _comes(self, endpoint: Endpoint, part: Part) -> bool:
        return any(run.has_open(endpoint) and run.part.overlaps(part) for run in self._loads.values())

    def _refuse(self, load: Load, cause: str) -> None:
        self.given_up += 1
        self._tell([LoadStopped(load.load, target, 0, cause) for target in range(len(load.targets))])
