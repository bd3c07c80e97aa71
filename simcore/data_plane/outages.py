"""Lost parts of the cluster: loads over them end, transfers are rerouted or end, new ones are refused."""

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
    """``given_up``: loads that ended early, or never began, because of a loss. True if anything is lost.

    ``topology``: without the lost links. ``loads``: in progress, kept up to date by its owner; ``end_early``
    ends one; ``tell`` takes events to report.
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

    # Losses.

    def lose_replica(self, now_ns: int, replica: int, cause: str) -> None:
        """A replica is lost with its GPUs: loads and transfers from or to it end."""
        self._places.lose(replica)
        self._tell(self._transfers.lose(self._now_s(now_ns), replica, cause))
        self.lose_stop(now_ns, ("replica", replica), cause)

    def lose_stop(self, now_ns: int, endpoint: Endpoint, cause: str) -> None:
        """End all loads from or to this lost endpoint."""
        self._causes[endpoint] = cause
        runs = self._loads.items()
        self._give_up(now_ns, [number for number, run in runs if run.has_open(endpoint)], cause)

    def lose_links(self, now_ns: int, topology: Topology, lost: frozenset[int], cause: str) -> None:
        """End loads that cross these links, reroute transfers; ``topology`` is without the links."""
        self.topology = topology
        self._causes["link", min(lost)] = cause
        self._give_up(now_ns, [number for number, run in self._loads.items() if run.links & lost], cause)
        self._tell(self._transfers.reroute(self._now_s(now_ns), topology, lost, cause))

    def _give_up(self, now_ns: int, loads: Iterable[int], cause: str) -> None:
        for number in loads:
            run = self._loads.get(number)
            if run is not None:  # it may have ended together with another one
                self.given_up += 1
                self._end_early(self._now_s(now_ns), run, cause)

    def _now_s(self, now_ns: int) -> float:
        return max(now_ns / NS_PER_S, self._fabric.now_s)

    # New loads.

    def way(
        self, load: Load, gpus_of: Mapping[int, tuple[int, ...]], loader: Loader | None, bundled: bool
    ) -> LoadRoute | None:
        """The route of a load; None, with a report, if a loss leaves no path."""
        try:
            return load_route(self.topology, load, gpus_of, loader, bundled)
        except HardwareError as error:
            if not self._causes:
                raise
            self._refuse(load, str(error))
            return None

    def refuses(self, load: Load, part: Part) -> bool:
        """Whether a load cannot begin, as an endpoint is lost or got nothing; if so, this is reported."""
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
