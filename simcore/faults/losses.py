"""Carries out faults in the simulated world, and reports the losses to the controller.

If no link connects a host to the others any more, neither they nor clients can reach it. Such a host is
reported like one without power. So all remaining hosts can reach each other.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from hwmodels.topology.cables import Cable, cables_of
from hwmodels.topology.damage import cut_off, damaged
from hwmodels.topology.topology import Topology
from serving.vocabulary.events import (
    Event,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    SchedulerBack,
    SchedulerLost,
)
from simcore.data_plane.data_plane import DataPlane
from simcore.faults.plan import Fault, FaultPlan, Loss

_NO_CLUSTER = "the hosts of this cluster are not known"


class Losses:
    """All losses so far. ``records``: the result of each fault.

    ``cut``: stops a replica's machine; ``tell``: hands an event to the controller and carries its actions
    out.
    """

    __slots__ = (
        "_cables", "_cut", "_data_plane", "_faults", "_groups", "_hosts", "_links", "_next", "_notice_ns",
        "_noticed", "_replicas", "_scheduler_back_ns", "_ssds", "_tell", "_topology", "records",
    )  # fmt: skip

    def __init__(
        self,
        plan: FaultPlan,
        data_plane: DataPlane | None,
        cut: Callable[[int, int], None],
        tell: Callable[[int, Event], None],
    ) -> None:
        self._faults: Iterator[Fault] = iter(plan.faults)
        self._next: Fault | None = next(self._faults, None)
        self._notice_ns = plan.notice_ns
        self._noticed = deque[Fault]()  # faults taken from the plan whose notice time has passed
        self._data_plane, self._cut, self._tell = data_plane, cut, tell
        self._topology: Topology | None = plan.topology
        self._replicas: dict[int, tuple[int, ...]] = dict(enumerate(plan.gpus_of))  # without a data plane
        self._groups = {rank: ranks for ranks in plan.groups for rank in ranks}
        self._cables: tuple[Cable, ...] = () if plan.topology is None else cables_of(plan.topology)
        hosts = () if plan.topology is None else plan.topology.hosts
        self._hosts, self._ssds, self._links = set(hosts), set(hosts), set(range(len(self._cables)))
        if plan.topology is not None and plan.topology.spec.ssd is None:
            self._ssds.clear()
        self._scheduler_back_ns: int | None = None  # while the global scheduler is lost
        self.records: list[Loss] = []

    @property
    def next_ns(self) -> int | None:
        """Time of the next fault, or of the global scheduler's return. None: never.

        With notices, the next fault is the next one whose notice was given.
        """
        times_ns = [fault.at_ns for fault in list(self._noticed)[:1]]
        if not times_ns and self._next is not None and not self._notice_ns:
            times_ns = [self._next.at_ns]
        if self._scheduler_back_ns is not None:
            times_ns.append(self._scheduler_back_ns)
        return min(times_ns, default=None)

    @property
    def next_notice_ns(self) -> int | None:
        """Time of the next notice; None if there is none."""
        if self._next is None or not self._notice_ns:
            return None
        return max(0, self._next.at_ns - self._notice_ns)

    @property
    def happened(self) -> bool:
        """Whether anything is lost for good."""
        return any(not loss.nothing and loss.what != "scheduler" for loss in self.records)

    @property
    def scheduler_lost(self) -> bool:
        """Whether the global scheduler is lost and will be back."""
        return self._scheduler_back_ns is not None

    def due(self, now_ns: int) -> None:
        """Carry out the faults that are due, after the global scheduler's return if that is due."""
        if self._scheduler_back_ns is not None and self._scheduler_back_ns <= now_ns:
            self._return_scheduler(now_ns)
        while not self._notice_ns and self._next is not None and self._next.at_ns <= now_ns:
            fault, self._next = self._next, next(self._faults, None)
            self.records.append(self._carry_out(now_ns, fault))
        while self._noticed and self._noticed[0].at_ns <= now_ns:
            self.records.append(self._carry_out(now_ns, self._noticed.popleft()))

    def notices_of(self, now_ns: int) -> None:
        """Send the notices that are due."""
        while (next_ns := self.next_notice_ns) is not None and next_ns <= now_ns:
            assert self._next is not None
            fault, self._next = self._next, next(self._faults, None)
            self._noticed.append(self._notice(now_ns, fault))

    def _notice(self, now_ns: int, fault: Fault) -> Fault:
        """Notify the controller which replica or host will be lost; links and SSDs fail without notice."""
        there = self._candidates(fault) if fault.what in ("replica", "host") else []
        if not there:
            return fault
        if fault.number is None:
            fault = replace(fault, number=there[int(fault.share * len(there))])
        number, at_ns = fault.number, fault.at_ns
        if number not in there:
            return fault
        assert number is not None
        cause = f"{fault.what} {number} is wanted back"
        gone = self._groups.get(number, (number,)) if fault.what == "replica" else self._on_host(number)
        for lost_replica in gone:
            self._tell(now_ns, LossNotice("replica", lost_replica, at_ns, cause))
        if fault.what == "host":
            self._tell(now_ns, LossNotice("host", number, at_ns, cause))
        return fault

    def _carry_out(self, now_ns: int, fault: Fault) -> Loss:
        if fault.what == "scheduler":
            return self._lose_scheduler(now_ns, fault)
        there = self._candidates(fault)
        number = fault.number
        if number is None:
            if not there:
                return Loss(now_ns, fault.what, "", nothing=f"no {fault.what} is left")
            number = there[int(fault.share * len(there))]
        which = self._cables[number].name if fault.what == "link" else str(number)
        if number not in there:
            nothing = f"{fault.what} {which} does not exist now or was lost before"
            return Loss(now_ns, fault.what, which, nothing=nothing)
        if fault.what == "replica":
            gone = self._lose_replica(now_ns, number, f"replica {number} failed")
        elif fault.what == "host":
            gone = self._lose_host(now_ns, number, f"host {number} failed")
        elif fault.what == "ssd":
            gone = self._lose_ssd(now_ns, number)
        else:
            gone = self._lose_cable(now_ns, number)
        return Loss(now_ns, fault.what, which, tuple(gone))

    def _candidates(self, fault: Fault) -> list[int]:
        """The numbers of the resources that a fault can still hit."""
        if fault.what == "replica":
            return sorted(self._placed())
        return sorted({"host": self._hosts, "ssd": self._ssds, "link": self._links}[fault.what])

    def _lose_scheduler(self, now_ns: int, fault: Fault) -> Loss:
        if self._scheduler_back_ns is not None:
            return Loss(now_ns, "scheduler", "", nothing="the global scheduler was lost already")
        self._scheduler_back_ns = now_ns + fault.duration_ns
        self._tell(now_ns, SchedulerLost("the global scheduler failed"))
        return Loss(now_ns, "scheduler", "")

    def _return_scheduler(self, now_ns: int) -> None:
        """The global scheduler works again; this is noted in the record of its loss."""
        self._scheduler_back_ns = None
        places = [place for place, loss in enumerate(self.records) if loss.what == "scheduler"]
        place = next(place for place in reversed(places) if not self.records[place].nothing)
        self.records[place] = replace(self.records[place], back_ns=now_ns)
        self._tell(now_ns, SchedulerBack())

    def _placed(self) -> dict[int, tuple[int, ...]]:
        """The existing replicas, with their GPUs."""
        return self._replicas if self._data_plane is None else self._data_plane.placement.placed

    def _lose_replica(self, now_ns: int, replica: int, cause: str) -> list[int]:
        """Lose a replica and all ranks of its data-parallel group, which would wait for it for ever."""
        lost = self._groups.get(replica, (replica,))
        if len(lost) > 1:
            cause = f"{cause}, and the other ranks of its data-parallel group with it"
        for lost_replica in lost:
            if self._data_plane is None:
                del self._replicas[lost_replica]
            else:
                self._data_plane.outages.lose_replica(now_ns, lost_replica, cause)
            self._cut(now_ns, lost_replica)
        for lost_replica in lost:
            self._tell(now_ns, Lost(lost_replica, cause))
        return list(lost)

    def _lose_host(self, now_ns: int, host: int, cause: str) -> list[int]:
        """Lose the host's replicas one after the other, then its memory, its SSD and its free GPUs."""
        assert self._topology is not None, _NO_CLUSTER
        lost_replicas: list[int] = []
        while replicas := self._on_host(host):
            lost_replicas += self._lose_replica(now_ns, replicas[0], cause)
        self._hosts.discard(host)
        self._ssds.discard(host)
        if self._data_plane is not None:
            for kind in ("host", "ssd"):
                self._data_plane.outages.lose_stop(now_ns, (kind, host), cause)
        self._tell(now_ns, LostHost(host, cause))
        return lost_replicas

    def _on_host(self, host: int) -> list[int]:
        """The replicas with GPUs on the host, by number."""
        assert self._topology is not None, _NO_CLUSTER
        own = set(self._topology.gpus_of(host))
        return [number for number, gpus in sorted(self._placed().items()) if own & set(gpus)]

    def _lose_ssd(self, now_ns: int, host: int) -> list[int]:
        cause = f"the SSD of host {host} failed"
        self._ssds.discard(host)
        if self._data_plane is not None:
            self._data_plane.outages.lose_stop(now_ns, ("ssd", host), cause)
        self._tell(now_ns, LostSsd(host, cause))
        return []

    def _lose_cable(self, now_ns: int, number: int) -> list[int]:
        """Lose a cable: hosts with another path use it; the others are reported as lost hosts."""
        assert self._topology is not None, _NO_CLUSTER
        cable, cause = self._cables[number], f"cable {self._cables[number].name} failed"
        self._links.discard(number)
        self._topology = damaged(self._topology, cable.links)
        if self._data_plane is not None:
            self._data_plane.outages.lose_links(now_ns, self._topology, frozenset(cable.links), cause)
        self._tell(now_ns, LostLink(cable.name, cable.nic, cause))
        lost_replicas: list[int] = []
        for host in cut_off(self._topology, self._hosts):
            lost_replicas += self._lose_host(now_ns, host, f"host {host} is cut off: {cause}")
        return lost_replicas
