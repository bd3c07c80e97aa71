"""The SimPy driver: it turns arrivals and due runs into events, and carries out the controller's actions.

Same-time order is (time, kind rank, replica id): the opening, arrivals in trace order, what arrived on the
data plane, then completions by replica.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from simpy import Environment, Event

from serving.actions import Action, Assign, Interrupt, Load, Preempt, Reject, Run, Send, StopLoad, StopSend
from serving.controller import Controller
from serving.events import Arrived, Opened
from serving.events import Event as Fact
from serving.recorder import Recorder
from serving.request import Request
from simcore.data_plane import DataPlane
from simcore.lifetime import Lifetime
from simcore.machine import Machine
from simcore.step_times import StepTimes

OPENING_RANK = 0
ARRIVAL_RANK = 1
DATA_RANK = 2
COMPLETION_RANK = 3  # + replica id
_MOVES = (Load, Send, StopLoad, StopSend)


class JournalSink(Protocol):
    """Whoever writes the journal."""

    def write(self, now_ns: int, event: Fact, actions: Sequence[Action]) -> None:
        """One event and what was answered."""


@dataclass(frozen=True, slots=True)
class SimReport:
    """What the event loop itself can tell."""

    events: int


class Simulation:
    """One run in virtual time. Build it, call ``run`` once."""

    def __init__(
        self,
        controller: Controller,
        arrivals: Iterable[tuple[Request, int]],
        rows: Sequence[StepTimes],
        recorder: Recorder,
        journal: JournalSink | None = None,
        data_plane: DataPlane | None = None,
    ) -> None:
        """``arrivals`` yields (request, true output tokens) by arrival time; ``rows`` are per replica.

        With a ``data_plane`` the controller is told that the world has opened, and may load and send.
        """
        self._env = Environment()
        self._schedule: Callable[[Event, int, int], None] = self._env.schedule  # type: ignore[assignment]
        self._decide = controller.handle
        self._recorder = recorder
        self._journal = journal
        self._lives: dict[int, Lifetime] = {}
        self._arrivals = iter(arrivals)
        self._next: tuple[Request, int] | None = None
        self._events = 0
        self._machines = [Machine(id, row, self._lives, recorder) for id, row in enumerate(rows)]
        self._pending: list[list[int]] = [[] for _ in self._machines]  # wake-ups, the next one last
        self._wakeups = [self._wakeup(machine) for machine in self._machines]
        self._data_plane = data_plane
        self._data_pending: list[int] = []  # as of machines
        self._data_due = self._reusable(self._data)
        self._data_callbacks = self._data_due.callbacks
        self._arrival = self._reusable(self._arrive)
        self._arrival_callbacks = self._arrival.callbacks

    def run(self) -> SimReport:
        """Run until every request has ended."""
        if self._data_plane is not None:
            self._schedule(self._reusable(self._open), OPENING_RANK, 0)
        self._await_next_arrival(0)
        self._env.run()
        assert not self._lives, f"the world stopped with {len(self._lives)} requests in flight"
        for machine in self._machines:
            self._recorder.busy(machine.id, machine.busy_ns)
        return SimReport(self._events)

    def _reusable(self, callback: Callable[[Event], None]) -> Event:
        """A SimPy event that is scheduled again and again, with one callback list for ever."""
        event = Event(self._env)
        event._ok = True
        event._value = None
        event.callbacks = [callback]
        return event

    def _wakeup(self, machine: Machine) -> Event:
        handle, wake = self._handle, self._wake
        pending = self._pending[machine.id]

        def due(event: Event) -> None:
            event.callbacks = callbacks
            now_ns = pending.pop()
            if machine.run is None:
                return  # what this was for has been cut
            if machine.due_ns > now_ns:
                wake(machine, now_ns)
                return
            report = machine.complete()
            if report.running:
                wake(machine, now_ns)
            handle(now_ns, report)
            if machine.run is None:
                machine.idle()

        event = self._reusable(due)
        callbacks = event.callbacks
        return event

    def _wake(self, machine: Machine, now_ns: int) -> None:
        """See to it that the machine is woken when it is due, or before.

        A cut leaves a later wake-up behind, which serves the next run: when it comes too early for that, it
        is renewed. So the times pending for a machine are a stack, and there is seldom more than one.
        """
        replica, due_ns = machine.id, machine.due_ns
        pending = self._pending[replica]
        if not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            self._schedule(self._wakeups[replica], COMPLETION_RANK + replica, due_ns - now_ns)

    def _open(self, event: Event) -> None:
        self._handle(0, Opened())

    def _data(self, event: Event) -> None:
        """The data plane asked to be asked now; too early a call finds nothing."""
        event.callbacks = self._data_callbacks
        assert self._data_plane is not None
        now_ns = self._data_pending.pop()
        for fact in self._data_plane.collect(now_ns):
            self._handle(now_ns, fact)
        self._await_data(now_ns)

    def _await_data(self, now_ns: int) -> None:
        """See to it that the data plane is asked when something is due, or before; as ``_wake``."""
        assert self._data_plane is not None
        due_ns, pending = self._data_plane.next_ns(), self._data_pending
        if due_ns is not None and (not pending or pending[-1] > due_ns):
            due_ns = max(due_ns, now_ns)
            pending.append(due_ns)
            self._schedule(self._data_due, DATA_RANK, due_ns - now_ns)

    def _await_next_arrival(self, now_ns: int) -> None:
        self._next = arrival = next(self._arrivals, None)
        if arrival is not None:
            delay = arrival[0].arrival_ns - now_ns
            assert type(delay) is int and delay >= 0, "arrivals must not go back in time"
            self._schedule(self._arrival, ARRIVAL_RANK, delay)

    def _arrive(self, event: Event) -> None:
        event.callbacks = self._arrival_callbacks
        assert self._next is not None
        request, output_tokens = self._next
        cap = request.max_new_tokens
        self._lives[request.id] = Lifetime(request, output_tokens if output_tokens < cap else cap)
        now_ns = request.arrival_ns
        self._handle(now_ns, Arrived(request))
        self._await_next_arrival(now_ns)

    def _handle(self, now_ns: int, event: Fact) -> None:
        self._events += 1
        actions = self._decide(now_ns, event)
        if self._journal is not None:
            self._journal.write(now_ns, event, actions)
        for action in actions:
            if type(action) is Run:
                replica = action.replica
                due_ns = self._machines[replica].start(now_ns, action)
                pending = self._pending[replica]
                if not pending or pending[-1] > due_ns:  # as in _wake, without the call
                    pending.append(due_ns)
                    self._schedule(self._wakeups[replica], COMPLETION_RANK + replica, due_ns - now_ns)
            elif type(action) is Assign:
                pass  # the world has the request already; the queue is the controller's
            elif type(action) is Interrupt:
                machine = self._machines[action.replica]
                if machine.interrupt(now_ns, action.grace_steps):
                    self._wake(machine, now_ns)
            elif type(action) is Preempt:
                self._machines[action.replica].preempt(action.request)
            elif isinstance(action, _MOVES):
                assert self._data_plane is not None, "nothing can be moved in this world"
                self._data_plane.carry_out(now_ns, action)
                self._await_data(now_ns)
            else:
                self._drop(now_ns, action)

    def _drop(self, now_ns: int, action: Action) -> None:
        assert isinstance(action, Reject), "nothing is lost in this world, so nothing fails"
        self._recorder.refused(self._lives.pop(action.request).request, now_ns, action.reason)
