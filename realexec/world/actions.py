"""Carry out each of the controller's actions: a table of handlers, which send messages to workers."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from realexec.wire.messages import DropKV, Join, PlacePart, RunSteps, StepsDone, StopSteps, TakeOut
from realexec.world.holders import Holders
from realexec.world.loads import LoadBook
from realexec.world.models import Models
from realexec.world.paths import PathRuns
from realexec.world.sends import SendBook
from realexec.world.slots import Slots
from realexec.world.tracking import Tracker
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
from serving.vocabulary.events import Event, Lost, LostHost, Ran
from serving.vocabulary.layers import Part

# Runs in progress: when each was last heard of, and how many joins its worker has not reported yet.


@dataclass(slots=True)
class RunInFlight:
    """heard_ns: when its replica last reported. joins: joins that were sent and not reported yet."""

    heard_ns: int
    joins: int = 0


class Runs:
    """All runs in progress, at most one per replica."""

    def __init__(self) -> None:
        self._in_flight: dict[int, RunInFlight] = {}

    def __len__(self) -> int:
        return len(self._in_flight)

    def begin(self, replica: int, now_ns: int) -> None:
        """Note that a replica has received a run."""
        self._in_flight[replica] = RunInFlight(now_ns)

    def heard(self, replica: int, now_ns: int) -> None:
        """Note a message from the replica."""
        if replica in self._in_flight:
            self._in_flight[replica].heard_ns = now_ns

    def join(self, replica: int) -> None:
        """Note joins that were sent: in the middle of a run, if the driver knows of one in progress."""
        if replica in self._in_flight:
            self._in_flight[replica].joins += 1

    def lose(self, replica: int) -> None:
        """Drop the run of a lost replica; it never ends."""
        self._in_flight.pop(replica, None)

    def ran(self, replica: int, done: StepsDone, now_ns: int) -> Ran:
        """Make the controller's event from a worker's report.

        A run may have ended before its worker read that requests join. They then take part after its last
        step, and the event says so.
        """
        steps, joins = len(done.ends_ns), done.joins
        run = self._in_flight.get(replica)
        if run is not None:
            run.heard_ns = now_ns
            run.joins -= len(joins)
            if not done.running:
                joins += (steps,) * run.joins
                del self._in_flight[replica]
        return Ran(replica, done.epoch, steps, done.finished, done.running, joins=joins)

    def silent(self, now_ns: int, patience_ns: int) -> list[int]:
        """Replicas that have sent nothing for ``patience_ns``; they are not returned again for as long."""
        silent = [one for one, run in self._in_flight.items() if now_ns - run.heard_ns >= patience_ns]
        for replica in silent:
            self._in_flight[replica].heard_ns = now_ns
        return silent


# No client of a real run gives up. Of `Run`, all but passes without KV and micro-batches. Before a run,
# servetwin/config/compose refuses models and `model.pp` that would need them, in a sentence.
CARRIES_OUT: Final[frozenset[type]] = frozenset(get_args(Action)) - {Abort}
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"


@dataclass(slots=True)
class ActionCounts:
    """Counts of what happened. live_layer_counts: layers loaded when a pass over some of them began."""

    live_passes: int = 0
    live_layer_counts: set[int] = field(default_factory=set)
    migrations: int = 0
    handoffs: int = 0
    handed: set[int] = field(default_factory=set)  # requests whose KV has come and that have not joined yet


class World:
    """Carries out actions and collects the facts that follow from them at once.

    ``facts``: events for the controller, before any report of a worker. ``wake_ns``: when `Woke` is due.
    ``warm``: replicas that have all parameters from the start.
    """

    def __init__(
        self,
        slots: Slots,
        tracker: Tracker,
        models: Models,
        warm: Sequence[int] = (),
    ) -> None:
        self.slots, self.tracker = slots, tracker
        self.facts: deque[Event] = deque()
        self.wake_ns: int | None = None
        self.runs = Runs()
        self.holders = Holders(slots, tracker)
        self.paths = PathRuns(slots, self.holders, tracker)
        self.loads = LoadBook(slots, models, self.facts.append)
        self.sends = SendBook(slots, self.holders, self.facts.append)
        self.counts = ActionCounts()
        self._models = models
        for replica in warm:
            self.loads.fill(replica)
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            Assign: self._assign,
            Reject: self._reject,
            Run: self._run,
            Interrupt: self._interrupt,
            Preempt: self._preempt,
            Detach: self._detach,
            Migrate: self._migrate,
            Fail: self._fail,
            AllocateGpus: self._allocate,
            SwitchRole: self._nothing,
            ReleaseGpus: self._nothing,
            Load: self._load,
            StopLoad: self._stop_load,
            Send: self._send,
            StopSend: self._stop_send,
            JoinBatch: self._join,
            Wake: self._wake,
        }

    @property
    def is_busy(self) -> bool:
        """Whether facts are queued, or something is in progress whose end a worker will report."""
        under_way = len(self.runs) + len(self.paths) + len(self.loads) + len(self.sends)
        return bool(self.facts) or under_way > 0

    def carry_out(self, action: Action, now_ns: int) -> None:
        """Begin the action."""
        self._handlers[type(action)](action, now_ns)

    def lose(self, slot: int, cause: str, has_hosts: bool) -> None:
        """Handle a lost worker: its GPU, its host's memory and all in progress there are lost too."""
        self.slots.dead.add(slot)
        replica = self.slots.replica_at(slot)
        if replica is not None:
            self.runs.lose(replica)
            self.paths.lose(replica)
            self.facts.append(Lost(replica, cause))
        if has_hosts:
            self.facts.append(LostHost(slot, cause))
        self.holders.lose(slot)
        self.sends.lose(slot, cause)
        gone = [("host", slot), ("ssd", slot)]
        for endpoint in [*gone, *([("replica", replica)] if replica is not None else [])]:
            self.loads.lose(endpoint, cause)

    def finished(self, requests: Sequence[int], replica: int) -> None:
        """Note that requests have all their tokens; the replica's worker has dropped them by itself."""
        for request in requests:
            self.holders.end(request, self.slots.of(replica))

    # Requests.

    def _assign(self, action: Assign, now_ns: int) -> None:
        """Recompute a request that has tokens; a live pair's batch keeps its layers on the other worker."""
        slot = self.slots.of(action.replica)
        if self.tracker.generated(action.request):
            self.tracker.assign(action.request)
            self.holders.move(action.request, slot)
        else:
            self.holders.hold(action.request, slot)

    def _reject(self, action: Reject, now_ns: int) -> None:
        self.tracker.refuse(action.request, now_ns, action.reason)

    def _fail(self, action: Fail, now_ns: int) -> None:
        self.tracker.fail(action.request, now_ns, action.reason)
        self.holders.end(action.request)

    def _preempt(self, action: Preempt, now_ns: int) -> None:
        self.tracker.preempt(action.request)
        self.slots.tell(action.replica, DropKV(action.request))

    def _detach(self, action: Detach, now_ns: int) -> None:
        self.slots.tell(action.replica, TakeOut(action.request))

    def _join(self, action: JoinBatch, now_ns: int) -> None:
        slot = self.slots.of(action.replica)
        for request in action.requests:
            self.holders.hold(request, slot)
            self.holders.keep_only(request, slot)
        generated = tuple([self.tracker.generated(request) for request in action.requests])
        self.slots.send(slot, Join(action.requests, generated))
        self.runs.join(action.replica)
        handed = self.counts.handed.intersection(action.requests)
        self.counts.handoffs += len(handed)
        self.counts.handed -= handed

    def _migrate(self, action: Migrate, now_ns: int) -> None:
        if action.phase == COMMITTED:
            self.counts.migrations += 1
            self.counts.handed.discard(action.request)
        elif action.phase == ABORTED and self.tracker.is_open(action.request):
            self.holders.drop(action.request, self.slots.of(action.target))
            self.counts.handed.discard(action.request)

    # Steps.

    def _run(self, action: Run, now_ns: int) -> None:
        if action.path:
            self.paths.begin(action, now_ns)
            return
        if action.inputs or action.micro_batch >= 0:
            raise RuntimeError(
                "real workers cannot run passes without KV or micro-batches, "
                f"and the controller requests {action!r}"
            )
        slot = self.slots.of(action.replica)
        for request, _, _ in action.chunks:
            self.holders.hold(request, slot)
        if action.layers is not None and not self.loads.is_full(action.replica):
            self.counts.live_passes += 1
            self.counts.live_layer_counts.add(self.loads.layers_there(action.replica))
        self.runs.begin(action.replica, now_ns)
        self.slots.send(
            slot,
            RunSteps(
                epoch=action.epoch,
                chunks=action.chunks,
                decode=action.decode,
                max_steps=action.max_steps,
                until_finish=action.until_finish,
                hand_over=action.hand_over,
                layers=action.layers,
            ),
        )

    def _interrupt(self, action: Interrupt, now_ns: int) -> None:
        if self.paths.has(action.replica):
            self.paths.interrupt()
        else:
            self.slots.tell(action.replica, StopSteps(action.grace_steps))

    # Parameters.

    def _allocate(self, action: AllocateGpus, now_ns: int) -> None:
        before, slot = self.slots.replica_at(action.gpus[0]), self.slots.allocate(action)
        layers = action.layers or (0, self._models.layers_of(action.model))
        self.slots.part_of[action.replica] = Part(action.model, *layers)
        if before is not None and before != action.replica:
            self.loads.clear(("replica", before))
        if action.warm:
            self.loads.fill(action.replica)
        else:
            self.loads.clear(("replica", action.replica))
            self.slots.send(slot, PlacePart(self._models.number(action.model), layers))

    def _load(self, action: Load, now_ns: int) -> None:
        self.loads.begin(action)

    def _stop_load(self, action: StopLoad, now_ns: int) -> None:
        self.loads.stop(action.load, action.reason)

    # State.

    def _send(self, action: Send, now_ns: int) -> None:
        if action.what == "kv":
            self.counts.handed.update(action.requests)
        self.sends.begin(action)

    def _stop_send(self, action: StopSend, now_ns: int) -> None:
        self.sends.stop(action.transfer, action.reason)

    # The rest.

    def _wake(self, action: Wake, now_ns: int) -> None:
        self.wake_ns = action.at_ns

    def _nothing(self, action: Action, now_ns: int) -> None:
        """Do nothing: the action changes only the controller's own state."""
