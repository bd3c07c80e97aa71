"""The SimPy driver: it turns arrivals and due runs into events, and carries out the controller's actions.

Same-time order is (time, kind rank, replica id): the opening, arrivals in trace order, events of the data
plane, the load monitor's period, notices of losses, then completions by replica. Loading replicas complete
last: before they begin another pass it is then known which instances are idle and may take over layers.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from simpy import Environment, Event

from serving.elastic.stall_detection import StallDetector
from serving.vocabulary.abort import CLIENT_LEFT
from serving.vocabulary.actions import (
    Abort,
    Action,
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.closed_loop import ClosedLoop, Requests
from serving.vocabulary.driver import Control, JournalSink
from serving.vocabulary.events import Arrived, Closing, Loaded, Opened, Ran, Sent, Woke
from serving.vocabulary.events import Event as Fact
from serving.vocabulary.measured_requests import MeasuredRequests
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from serving.vocabulary.step_counts import register
from simcore.client_timeouts import ARRIVAL_RANK, ClientPlan, ClientTimeouts, TimeoutRecorder
from simcore.data_plane.data_plane import DataPlane
from simcore.faults.fault_timers import FaultTimers
from simcore.faults.losses import Losses
from simcore.faults.plan import FaultPlan
from simcore.loading_replicas import COMPLETION_RANK, ColdReplicas
from simcore.lockstep.groups import GroupPlan, LockstepGroups
from simcore.paces import Paces
from simcore.pipeline.pipelines import PipelinePlan, Pipelines
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.replica.step_times import StepTimes
from simcore.replica.steps_since import StepsSince
from simcore.replica.swaps import join
from simcore.replica.whole_prompts import of_run
from simcore.sim_report import SimReport, losses_by_request_ns
from simcore.stage_passes import StagePasses, StagePlan
from simcore.stopping import RunStopped
from simcore.timers import Timer, run_all

# The timer callback that completes a replica's due run.


def completes(
    machine: Machine, timer: Timer, handle: Callable[[int, Ran], None], complete: Callable[[], Ran]
) -> Callable[[Event], None]:
    """The callback of ``timer``: if the run of ``machine`` is due, ``handle`` receives its report.

    ``complete``: the machine's, or a replacement for it. Half of all events pass here, so the timer's code is
    inlined and needs no call.
    """
    push, pending = timer.push, timer.pending

    def due(event: Event) -> None:
        now_ns = pending.pop()
        if machine.run is None:
            return  # the run of this entry was cut short
        due_ns = machine.due_ns
        if due_ns <= now_ns:
            report = complete()
            if not report.running:
                handle(now_ns, report)
                if machine.run is None:
                    machine.idle()
                return
            due_ns = machine.due_ns
            if not pending or pending[-1] > due_ns:
                pending.append(due_ns)
                push((due_ns, timer.rank, 0, event))
            handle(now_ns, report)
        elif not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            push((due_ns, timer.rank, 0, event))

    return due


# Requests in order of arrival: at given times, or from clients that wait for their answers.

Arrival = tuple[Request, int]


class Arrivals:
    """``closed``: whether the next arrival depends on ended requests. ``lives``: requests in flight."""

    __slots__ = ("_clients", "_lives", "_times", "closed")

    def __init__(self, requests: Requests, lives: Collection[int]) -> None:
        self._clients = requests if isinstance(requests, ClosedLoop) else None
        none: Iterator[Arrival] = iter(())
        self._times = none if isinstance(requests, ClosedLoop) else iter(requests)
        self._lives, self.closed = lives, self._clients is not None

    def take(self, now_ns: int) -> Arrival | None:
        """Take the next arrival; None if there is none or no client is free. The previous one has arrived."""
        if self._clients is None:
            return next(self._times, None)
        self._clients.in_flight(now_ns, len(self._lives))
        return self._clients.take()

    def look(self, now_ns: int, coming: Arrival | None) -> bool:
        """Check after requests ended; returns whether another arrival can be taken.

        ``coming``: the arrival that is pending or being reported; None if there is none. It is to be taken
        again if another client sends earlier.
        """
        if self._clients is None or coming is None:
            return coming is None
        self._clients.in_flight(now_ns, len(self._lives) + (coming[0].id not in self._lives))
        return self._clients.is_sooner(coming)


OPENING_RANK = 0
DATA_RANK = 2
MONITOR_RANK = 3
NOBODY_LEFT = "the remaining cluster can serve no request"
MEASURED_LOOKS = 32  # the CPU time of every 32nd look is measured: reading the clock costs as much as a look
_MOVES = frozenset((Load, StopLoad, StopSend, AllocateGpus, ReleaseGpus))


class Simulation:
    """One run in virtual time. Build it, call ``run`` once."""

    def __init__(
        self,
        controller: Control,
        arrivals: Requests,
        rows: Sequence[StepTimes],
        recorder: Recorder,
        *,
        journal: JournalSink | None = None,
        data_plane: DataPlane | None = None,
        rows_of: Mapping[str, StepTimes] | None = None,
        cpu_ns: Callable[[], int] | None = None,
        faults: FaultPlan | None = None,
        groups: Sequence[GroupPlan] = (),
        stages: StagePlan | None = None,
        pipelines: Sequence[PipelinePlan] = (),
        clients: tuple[ClientPlan, TimeoutRecorder] | None = None,
    ) -> None:
        """``arrivals``: (request, true output tokens) by arrival, or a closed loop; ``rows``: per replica.

        With a ``data_plane`` the controller receives ``Opened`` and may load and send; a controller with
        rounds receives it also without one. ``rows_of``: step times of each model, for replicas placed later.
        ``cpu_ns``: a clock of CPU time to measure decisions (never a part of virtual time). ``faults``: what
        is lost, and when. ``groups``: the groups of data-parallel ranks. ``stages``: the plan of models cut
        into stages. ``pipelines``: the plans of pipelined replicas. ``clients``: they give up after a time;
        this recorder, in place of ``recorder``, learns of it. None: they wait for ever.
        """
        self._env, self._decide = Environment(), controller.handle
        self._lives: dict[int, Lifetime] = {}
        self.clients = None if clients is None else self._clients(*clients, arrivals)
        self._recorder, self._journal = recorder if self.clients is None else self.clients, journal
        measured = None
        if controller.step_counts is not None and controller.step_counts.measures:
            self._recorder = measured = MeasuredRequests(self._recorder, self._first_tokens)
        self._arrivals = Arrivals(arrivals if self.clients is None else (), self._lives)
        self._next: Arrival | None = None
        self._events, self._looks, self._decisions_ns = 0, 0, array("q")
        self._handled_ns = 0  # time of the last event: later entries of the queue may be of runs cut short
        elastic = controller.elastic
        self._has_rounds = elastic is not None and elastic.has_rounds
        self._stall_rule = StallDetector() if elastic is None else elastic.stall_rule()
        self._rows_of, self._cpu_ns = rows_of or {}, cpu_ns or (lambda: 0)
        self._machines: dict[int, Machine] = {}
        self._steps_since = StepsSince(self._machines, measured)
        self._counts = register(controller.step_counts, self._steps_since, journal is not None)
        self._timers: dict[int, Timer] = {}  # of the machines
        self._paces = Paces(self._machines, self._timers)
        self._data_plane = data_plane
        self._stages = None if stages is None else self._stage_passes(stages)
        for replica, own in enumerate(rows):
            self._add(replica, own)
        self._cold = ColdReplicas(self._machines, self._timers, data_plane)
        self.groups = LockstepGroups(groups, self._machines, self._env, self._handle)
        self.pipelines = self._pipelines(pipelines)
        hooked = self.groups if groups else self.pipelines if pipelines else self._cold
        self._looked_at, self._held, self._takes, self._interrupts = (self._stages or hooked).hooks()
        self._collecting = False
        self._data_timer = Timer(self._env, DATA_RANK, self._data)
        self._monitor_timer = Timer(self._env, MONITOR_RANK, self._woke)
        self.losses = None if faults is None else Losses(faults, data_plane, self._cut_off, self._handle)
        self._fault_timers = FaultTimers(
            self._env,
            self.losses,
            goes_on=self._goes_on,
            await_data=self._await_data,
            machines=self._machines,
            run_timers=self._timers,
        )
        self._arrival = Timer(self._env, ARRIVAL_RANK, lambda _: None)
        self._arrival.calls(self._arrive)  # one at a time, so nothing is pending

    def _first_tokens(self) -> Iterator[tuple[Request, int]]:
        return ((life.request, life.first_token_ns) for life in self._lives.values())

    def _pipelines(self, plans: Sequence[PipelinePlan]) -> Pipelines:
        return Pipelines(
            plans,
            machines=self._machines,
            lives=self._lives,
            recorder=self._recorder,
            env=self._env,
            tell=self._handle,
        )

    def _clients(self, plan: ClientPlan, recorder: TimeoutRecorder, requests: Requests) -> ClientTimeouts:
        return ClientTimeouts(
            plan, requests, lives=self._lives, recorder=recorder, env=self._env, tell=self._handle
        )

    def _stage_passes(self, plan: StagePlan) -> StagePasses:
        return StagePasses(
            plan,
            env=self._env,
            machines=self._machines,
            timers=self._timers,
            data_plane=self._data_plane,
            tell=self._handle,
            lives=self._lives,
            recorder=self._recorder,
        )

    def now_ns(self) -> int:
        """The virtual time in ns."""
        return int(self._env.now)

    def preemption_losses_ns(self) -> dict[int, int]:
        """By request, the total time from each of its preemptions until it was computed again."""
        return losses_by_request_ns(self._machines.values())

    def run(self) -> SimReport:
        """Run until every request has ended, or until a recorder raises RunStopped when one ends."""
        try:
            self._run()
        except RunStopped as stopped:
            return SimReport(self._events, self._looks, self._decisions_ns, str(stopped))
        for machine in self._machines.values():
            self._recorder.busy(machine.id, machine.busy_ns)
        return SimReport(self._events, self._looks, self._decisions_ns)

    def _run(self) -> None:
        if self._data_plane is not None or self._has_rounds:
            Timer(self._env, OPENING_RANK, lambda now_ns: self._handle(now_ns, Opened())).at(0)
        self._await_next_arrival(0)
        if self.clients is not None:
            self.clients.look()
        self._fault_timers.arm()
        run_all(self._env)
        while self._lives and self.losses is not None and self.losses.happened:
            self._handle(self._handled_ns, Closing(NOBODY_LEFT))
            run_all(self._env)  # clients whose requests have failed send their next
        if self._lives and self._looks:
            raise StallDetector().error(self._requests())
        assert not self._lives, f"the simulation ended with {len(self._lives)} requests in flight"

    def _add(self, replica: int, rows: StepTimes) -> None:
        """Create a replica's machine and the timer for its due runs. ``rows``: times of the whole model."""
        rows = of_run(rows, self._lives)
        data_plane, count, layers = self._data_plane, 0, None
        if data_plane is not None:  # only the data plane has the layers of replicas
            part = data_plane.placement.part_of[replica]
            count, layers = data_plane.layers_of(part.model), part.layers
        machine = self._machines[replica] = Machine(
            replica, rows, self._lives, self._recorder, model_layers=count, layers=layers
        )
        timer = self._timers[replica] = Timer(self._env, COMPLETION_RANK + replica, lambda _: None)
        completing = self._steps_since.completing(machine) if self._counts is not None else machine.complete
        tell = self._handle if self._stages is None else self._stages.told_by(replica)
        timer.calls(completes(machine, timer, tell, completing))

    def _data(self, now_ns: int) -> None:
        """The data plane requested this call; a call that is too early finds nothing."""
        assert self._data_plane is not None
        self._collecting = True
        for fact in self._data_plane.collect(now_ns):
            if type(fact) is Loaded and fact.fully_loaded:
                self._cold.warm(now_ns, fact)
            if self._stages is not None and type(fact) is Sent:
                self._stages.came(now_ns, fact)
            else:
                self._handle(now_ns, fact)
        self._collecting = False
        self._await_data(now_ns)

    def _goes_on(self) -> bool:
        """Whether the last request has not ended."""
        return self._comes() or bool(self._lives)

    def _comes(self) -> bool:
        """Whether a request may still arrive."""
        return self._next is not None or (self.clients is not None and self.clients.goes_on)

    def _cut_off(self, now_ns: int, replica: int) -> None:
        """Stop a lost replica: end its run and drop the runs that wait on it for parameters."""
        self.groups.lose(now_ns, replica)  # before its machines
        self.pipelines.lose(now_ns, replica)
        self._cold.lose(replica)
        if self._stages is not None:
            self._stages.lose(now_ns, replica)

    def _requests(self) -> list[Request]:
        """The requests in flight."""
        return [life.request for life in self._lives.values()]

    def _useful(self) -> int:
        """Events handled, except those that only reported loads in vain."""
        return self._events - (self._data_plane.outages.given_up if self._data_plane is not None else 0)

    def _await_data(self, now_ns: int) -> None:
        """Schedule a call of the data plane for its next due time, or earlier."""
        if self._data_plane is None:
            return
        due_ns = self._data_plane.next_ns()
        if due_ns is not None:
            self._data_timer.at(due_ns if due_ns > now_ns else now_ns)

    def _woke(self, now_ns: int) -> None:
        """End a period of the load monitor; after the last request there are no more looks."""
        if not self._goes_on():
            return
        idle_links = self._data_plane is None or self._data_plane.next_ns() is None
        awaited = self.losses is not None and self.losses.scheduler_lost
        ends = not self._comes() and idle_links and not awaited
        alone = ends and self._fault_timers.are_only()
        if ends and self._stall_rule.is_stalled(now_ns, self._useful(), alone):
            if self.losses is None or not self.losses.happened:
                raise self._stall_rule.error(self._requests())
            self._handle(now_ns, Closing(NOBODY_LEFT))
            return
        self._looks += 1
        if self._looks % MEASURED_LOOKS != 1:
            self._handle(now_ns, Woke())
            return
        started_ns = self._cpu_ns()
        self._handle(now_ns, Woke())
        self._decisions_ns.append(self._cpu_ns() - started_ns)

    def _await_next_arrival(self, now_ns: int) -> None:
        self._next = arrival = self._arrivals.take(now_ns)
        if arrival is not None:
            at_ns, timer = arrival[0].arrival_ns, self._arrival
            assert type(at_ns) is int and at_ns >= now_ns, "arrivals must not go back in time"
            timer.push((at_ns, ARRIVAL_RANK, 0, timer.event))

    def _arrive(self, event: Event) -> None:
        if self._next is None or self._next[0].arrival_ns > self._env.now:
            return  # in a closed loop it was sent earlier
        request, output_tokens = self._next
        now_ns, cap = request.arrival_ns, request.max_new_tokens
        self._lives[request.id] = Lifetime(request, output_tokens if output_tokens < cap else cap)
        self._handle(now_ns, Arrived(request))
        self._await_next_arrival(now_ns)

    def _handle(self, now_ns: int, event: Fact) -> None:
        self._events, self._handled_ns, moved = self._events + 1, now_ns, False
        if self._paces.under_way and type(event) is Sent:
            self._paces.ended(now_ns, event, event.transfer)
        actions = self._decide(now_ns, event)
        if self._journal is not None:
            if self._counts is None:
                self._journal.write(now_ns, event, actions)
            else:
                self._journal.write(now_ns, event, actions, self._counts.take())
        for action in actions:
            if type(action) is Run:
                replica = action.replica
                if replica in self._looked_at and self._takes(now_ns, action):
                    moved = moved or bool(action.inputs)
                    continue
                due_ns, timer = self._machines[replica].start(now_ns, action), self._timers[replica]
                pending = timer.pending
                if not pending or pending[-1] > due_ns:  # the same as Timer.at
                    pending.append(due_ns)
                    timer.push((due_ns, timer.rank, 0, timer.event))
            elif type(action) is Assign:
                pass  # the world already has the request; the controller keeps the queue
            elif type(action) is Send:
                assert self._data_plane is not None, "this simulation has no data plane"
                self._data_plane.send(now_ns, action)
                moved = True
                if action.slowdown_ppm:
                    self._paces.begun(now_ns, event, action)
            elif type(action) is JoinBatch:
                if join(machine := self._machines[action.replica], now_ns, action):
                    self._timers[action.replica].at(machine.due_ns)
            elif type(action) is Interrupt:
                machine = self._machines[action.replica]
                if action.replica in self._held:
                    self._interrupts(now_ns, action)
                elif machine.interrupt(now_ns + action.later, action.grace_steps):
                    self._timers[action.replica].at(machine.due_ns)
            elif type(action) is Preempt:
                self.pipelines.preempt(now_ns, action)
            elif type(action) in _MOVES:
                self._move(now_ns, event, action)
                moved = True
            else:
                self._carry_out_other(now_ns, action)
        if moved and not self._collecting:  # else ``_await_data`` is called after everything is handled
            self._await_data(now_ns)
        if self._arrivals.closed and self._arrivals.look(now_ns, self._next):
            self._await_next_arrival(now_ns)  # a client whose request has ended sends the next

    def _move(self, now_ns: int, event: Fact, action: Action) -> None:
        data_plane = self._data_plane
        assert data_plane is not None, "this simulation has no data plane"
        data_plane.carry_out(now_ns, action)
        if type(action) is AllocateGpus:
            if action.replica not in self._machines:
                self._add(action.replica, self._rows_of[action.model])
            self._cold.place(action)
        elif type(action) is Load:
            self._cold.load(action)
        elif type(action) is StopSend:
            self._paces.ended(now_ns, event, action.transfer)

    def _carry_out_other(self, now_ns: int, action: Action) -> None:
        if type(action) is Detach:
            self._machines[action.replica].preempt(action.request, 0)
        elif type(action) is Wake:
            self._monitor_timer.at(action.at_ns)
        elif type(action) is Fail:
            life = self._lives.pop(action.request)
            assert life.end < 0, f"request {action.request} fails while it decodes on a replica"
            for machine in self._machines.values():
                machine.forget(action.request)
            self._recorder.failed(life.request, now_ns, action.reason)
        elif type(action) is Abort:
            self._abort(now_ns, action)
        elif type(action) not in (SwitchRole, Migrate):  # roles concern only the controller
            assert isinstance(action, Reject), f"this simulation cannot carry out {action}"
            self._recorder.refused(self._lives.pop(action.request).request, now_ns, action.reason)

    def _abort(self, now_ns: int, action: Abort) -> None:
        """Drop a request whose client left or whose instance may serve no longer, at a boundary."""
        if action.replica >= 0:
            self._machines[action.replica].preempt(action.request, 0)
        life = self._lives.pop(action.request)
        if action.reason == CLIENT_LEFT:
            assert self.clients is not None, f"request {action.request} is aborted, and no client gives up"
            self.clients.aborted(now_ns, action)
        else:
            self._recorder.failed(life.request, now_ns, action.reason)
