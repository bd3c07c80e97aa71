"""Timers for faults, and for the controller's notices of faults that have one."""

from collections.abc import Callable, Mapping
from typing import Final

from simpy import Environment

from simcore.faults.losses import Losses
from simcore.replica.machine import Machine
from simcore.timers import Timer, others

NOTICE_RANK: Final = 4  # before completions
FAULT_RANK: Final = 1 << 40  # after completions at the same time


class FaultTimers:
    """``losses``: None if there are no faults. ``goes_on``: returns whether requests are left.

    ``await_data``: reschedules the data plane, which may have events to report after a fault. ``run_timers``:
    one timer for each of the ``machines``.
    """

    __slots__ = (
        "_await_data", "_env", "_faults", "_goes_on", "_losses", "_machines", "_notices", "_run_timers",
    )  # fmt: skip

    def __init__(
        self,
        env: Environment,
        losses: Losses | None,
        *,
        goes_on: Callable[[], bool],
        await_data: Callable[[int], None],
        machines: Mapping[int, Machine],
        run_timers: Mapping[int, Timer],
    ) -> None:
        self._machines, self._run_timers = machines, run_timers
        self._env, self._losses, self._goes_on, self._await_data = env, losses, goes_on, await_data
        self._faults = Timer(env, FAULT_RANK, self._fault)
        self._notices = Timer(env, NOTICE_RANK, self._notice)

    def arm(self) -> None:
        """Schedule the next fault and the next notice."""
        if self._losses is None:
            return
        if (notice_ns := self._losses.next_notice_ns) is not None:
            self._notices.at(notice_ns)
        if (due_ns := self._losses.next_ns) is not None:
            self._faults.at(due_ns)

    def are_only(self) -> bool:
        """Whether nothing else is scheduled. While a machine runs, its end is: then one look tells."""
        timers, machines = self._run_timers, self._machines
        if any(machine.run is not None and timers[replica].pending for replica, machine in machines.items()):
            return False
        return others((self._faults, self._notices, *self._idle()), self._env) == 0

    def _idle(self) -> list[Timer]:
        """Of machines that run nothing: their entries are of runs that were cut short."""
        machines = self._machines
        return [timer for replica, timer in self._run_timers.items() if machines[replica].run is None]

    def _notice(self, now_ns: int) -> None:
        assert self._losses is not None
        if self._goes_on():
            self._losses.notices_of(now_ns)
            self.arm()

    def _fault(self, now_ns: int) -> None:
        """Carry out a fault, unless the last request has ended."""
        assert self._losses is not None
        if self._goes_on():
            self._losses.due(now_ns)
            self._await_data(now_ns)
            if others(self._idle(), self._env):  # else no request is served any more, whatever else is lost
                self.arm()
