"""The story of one instance: its own events line by line, with the runs in between as one line."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from servetwin.story.cluster_state import ClusterState
from servetwin.story.line import (
    Lines,
    StoryLine,
    count,
    layer_range,
    layers_there,
    numbers,
    places,
    seconds,
    share,
    size,
)
from servetwin.story.moments import Moment
from servetwin.story.of_stock import OF_INSTANCE
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
from serving.vocabulary.events import (
    Arrived,
    Closing,
    Disconnected,
    Event,
    Loaded,
    LoadStopped,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    Opened,
    Ran,
    SchedulerBack,
    SchedulerLost,
    Sent,
    Woke,
)

_WHAT: Final = {"kv": "KV"}


@dataclass(slots=True)
class WorkCount:
    """The instance's work since the last line of its story."""

    since_ns: int
    runs: int = 0
    steps: int = 0
    in_runs_ns: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, noun: str, amount: int = 1) -> None:
        """Add to something that is only counted."""
        self.counts[noun] = self.counts.get(noun, 0) + amount


@dataclass(slots=True, kw_only=True)
class InstanceRecord:
    """State of one instance. ``decisions``: (time, what, why) of each decision that only the summary has.

    ``starts``: (load, target) -> the terms of the start, if the summary has them.
    """

    id: int
    decisions: Sequence[tuple[int, str, str]] = ()
    seen: bool = False
    work: WorkCount = field(default_factory=lambda: WorkCount(0))
    loads: dict[int, tuple[int, Load]] = field(default_factory=dict)
    layers: dict[int, int] = field(default_factory=dict)  # complete so far, by load
    transfers: dict[int, Send] = field(default_factory=dict)
    reported: int = 0  # decisions already in the story
    starts: Mapping[tuple[int, int], str] = field(default_factory=dict)


def instance_story(moments: Iterator[Moment], record: InstanceRecord) -> Lines:
    """Yield the instance's lines to the end of the journal; none if the journal does not name it."""
    state, now_ns = ClusterState(), 0
    for now_ns, event, actions in moments:
        state.happens(now_ns, event)
        yield from _note_first_fact(record, now_ns, event)
        yield from EVENTS[type(event)](record, state, now_ns, event)
        yield from _decision_lines(record, now_ns)
        for action in actions:
            state.follows(now_ns, action)
            yield from _note_first_fact(record, now_ns, action)
            yield from ACTIONS[type(action)](record, state, now_ns, action)
    if record.seen:
        yield from _work_lines(record, state, now_ns)
        yield StoryLine(now_ns, "the journal ends")


def _note_first_fact(record: InstanceRecord, now_ns: int, fact: Event | Action) -> Lines:
    """Note the first fact of an instance. Without a placement it exists from the start."""
    if not record.seen and getattr(fact, "replica", None) == record.id:
        record.seen = True
        record.work = WorkCount(now_ns)
        if not isinstance(fact, AllocateGpus):
            yield StoryLine(now_ns, "is named for the first time: it serves from the start of the run")


def _decision_lines(record: InstanceRecord, now_ns: int) -> Lines:
    while record.reported < len(record.decisions) and record.decisions[record.reported][0] <= now_ns:
        at_ns, text, why = record.decisions[record.reported]
        record.reported += 1
        yield StoryLine(at_ns, text, why)


def _work_lines(record: InstanceRecord, state: ClusterState, now_ns: int) -> Lines:
    """Yield one line for the runs since the last line, if there were any."""
    work, record.work = record.work, WorkCount(now_ns)
    instance = state.instance(record.id)
    if instance.run is not None:
        work.in_runs_ns += now_ns - max(instance.run_ns, work.since_ns)
    if not work.runs and not work.counts:
        return
    span_ns = now_ns - work.since_ns
    busy = f"{share(work.in_runs_ns, span_ns)} of {seconds(span_ns)}"
    parts = [
        f"{count(amount, name)}" for name, amount in work.counts.items() if not name.startswith("bytes ")
    ]
    parts += [
        f"{size(amount)} of {name[6:]}" for name, amount in work.counts.items() if name.startswith("bytes ")
    ]
    did = f"{count(work.runs, 'run')} with {count(work.steps, 'step')}, busy {busy}"
    yield StoryLine(now_ns, f"since {seconds(work.since_ns)}: {'; '.join([did, *parts])}")


def _ran(record: InstanceRecord, state: ClusterState, now_ns: int, event: Ran) -> Lines:
    report = state.report
    if event.replica != record.id or report is None:
        return
    if report.run is None:
        yield StoryLine(now_ns, "reports a run of before it was lost, which nobody waits for")
        return
    record.work.steps += event.steps
    prompts = sum(amount for _, _, amount in report.computed) if report.run.layers is None else 0
    for name, amount in (("prompt token", prompts), ("finished request", len(event.finished))):
        if amount:
            record.work.add(name, amount)
    if not event.running:
        record.work.runs += 1
        record.work.in_runs_ns += now_ns - max(report.began_ns, record.work.since_ns)


def _lost(record: InstanceRecord, state: ClusterState, now_ns: int, event: Lost) -> Lines:
    if event.replica == record.id:
        if state.report is not None and state.report.run is not None:
            record.work.in_runs_ns += now_ns - max(state.report.began_ns, record.work.since_ns)
        yield from _work_lines(record, state, now_ns)
        yield StoryLine(now_ns, "is lost with all it held", event.cause)


def _loss_notice(record: InstanceRecord, state: ClusterState, now_ns: int, event: LossNotice) -> Lines:
    if event.what == "replica" and event.number == record.id:
        yield from _work_lines(record, state, now_ns)
        yield StoryLine(now_ns, f"takes nothing new: it is lost at {seconds(event.at_ns)}", event.cause)


def _loaded(record: InstanceRecord, state: ClusterState, now_ns: int, event: Loaded) -> Lines:
    began_ns, load = record.loads.get(event.load, (0, None))
    if load is None or load.targets[event.target] != ("replica", record.id):
        return
    earlier, record.layers[event.load] = record.layers.get(event.load, 0), event.layers
    after = seconds(now_ns - began_ns)
    if event.fully_loaded:
        del record.loads[event.load]
        yield from _work_lines(record, state, now_ns)
        yield StoryLine(
            now_ns, f"is fully loaded: {layers_there(event)}, {after} after load {event.load} began"
        )
    elif not earlier:
        yield StoryLine(now_ns, f"has {layers_there(event)}, {after} after load {event.load} began")


def _load_stopped(record: InstanceRecord, state: ClusterState, now_ns: int, event: LoadStopped) -> Lines:
    _, load = record.loads.get(event.load, (0, None))
    if load is not None and load.targets[event.target] == ("replica", record.id):
        del record.loads[event.load]
        yield StoryLine(now_ns, f"load {event.load} ended early with {layers_there(event)}", event.cause)


def _sent(record: InstanceRecord, state: ClusterState, now_ns: int, event: Sent) -> Lines:
    """Count received and sent transfers."""
    send = record.transfers.pop(event.transfer, None)
    if send is not None:
        way = "received" if send.target == record.id else "sent"
        record.work.add(f"bytes {_WHAT.get(send.what, send.what)} {way}", event.moved_bytes)
        if event.cause:
            yield StoryLine(now_ns, f"transfer {event.transfer} ended early", event.cause)


def _allocate_gpus(record: InstanceRecord, state: ClusterState, now_ns: int, action: AllocateGpus) -> Lines:
    if action.replica == record.id:
        record.work = WorkCount(now_ns)
        gpus = f"{'GPU' if len(action.gpus) == 1 else 'GPUs'} {numbers(action.gpus)}"
        parameters = "its parameters are there already" if action.warm else "its parameters are to come"
        model = action.model if action.layers is None else f"{layer_range(action.layers)} of {action.model}"
        text = f"is placed on {gpus} to serve {model} as {action.role}; {parameters}"
        yield StoryLine(now_ns, text, action.reason)


def _load(record: InstanceRecord, state: ClusterState, now_ns: int, action: Load) -> Lines:
    me = "replica", record.id
    if me in action.targets:
        record.loads[action.load] = now_ns, action
        rest = [endpoint for endpoint in action.targets if endpoint != me]
        beside = f", as do those of {places(rest)}" if rest else ""
        start = record.starts.get((action.load, action.targets.index(me)), "the process starts first")
        cold = f"; {start}" if action.cold else ""
        of = "" if action.layers is None else f" of {layer_range(action.layers)}"
        text = f"load {action.load}: parameters{of} come from {places(action.sources)}{beside}{cold}"
        yield StoryLine(now_ns, text, action.reason)
    elif me in action.sources:
        yield StoryLine(
            now_ns, f"load {action.load}: its parameters go to {places(action.targets)}", action.reason
        )


def _stop_load(record: InstanceRecord, state: ClusterState, now_ns: int, action: StopLoad) -> Lines:
    if action.load in record.loads:
        yield StoryLine(now_ns, f"load {action.load} is to stop", action.reason)


def _switch_role(record: InstanceRecord, state: ClusterState, now_ns: int, action: SwitchRole) -> Lines:
    if action.replica == record.id:
        yield from _work_lines(record, state, now_ns)
        yield StoryLine(now_ns, f"serves as {action.role} from now on", action.reason)


def _release_gpus(record: InstanceRecord, state: ClusterState, now_ns: int, action: ReleaseGpus) -> Lines:
    if action.replica == record.id:
        yield from _work_lines(record, state, now_ns)
        yield StoryLine(now_ns, "is reclaimed: its GPUs are free", action.reason)


def _send(record: InstanceRecord, state: ClusterState, now_ns: int, action: Send) -> Lines:
    if record.id in (action.source, action.target):
        record.transfers[action.transfer] = action
    return iter(())


def _stop_send(record: InstanceRecord, state: ClusterState, now_ns: int, action: StopSend) -> Lines:
    if action.transfer in record.transfers:
        yield StoryLine(now_ns, f"transfer {action.transfer} is to stop", action.reason)


def _counter_of(noun: str) -> "Teller":
    """Return a function that only counts an action."""

    def tell(record: InstanceRecord, state: ClusterState, now_ns: int, action: Any) -> Lines:
        if action.replica == record.id:
            record.work.add(noun)
        return iter(())

    return tell


def _join_batch(record: InstanceRecord, state: ClusterState, now_ns: int, action: JoinBatch) -> Lines:
    if action.replica == record.id:
        record.work.add("received hand-over", len(action.requests))
    return iter(())


def _migrate(record: InstanceRecord, state: ClusterState, now_ns: int, action: Migrate) -> Lines:
    if record.id in (action.source, action.target) and action.phase != "begun":
        way = "migrated-out request" if action.source == record.id else "migrated-in request"
        record.work.add(way if action.phase == "committed" else "aborted migration")
    return iter(())


def _ignore(record: InstanceRecord, state: ClusterState, now_ns: int, fact: Any) -> Lines:
    """Ignore a fact that names no instance, or whose effects have their own facts."""
    return iter(())


Teller = Callable[[InstanceRecord, ClusterState, int, Any], Lines]
EVENTS: Final[Mapping[type, Teller]] = {
    Ran: _ran,
    Lost: _lost,
    LossNotice: _loss_notice,
    Loaded: _loaded,
    LoadStopped: _load_stopped,
    Sent: _sent,
    **dict.fromkeys((LostHost, LostSsd, LostLink, SchedulerLost, SchedulerBack, Closing), _ignore),
    **dict.fromkeys((Arrived, Disconnected, Opened, Woke), _ignore),
    **OF_INSTANCE,
}
ACTIONS: Final[Mapping[type, Teller]] = {
    AllocateGpus: _allocate_gpus,
    Load: _load,
    StopLoad: _stop_load,
    SwitchRole: _switch_role,
    ReleaseGpus: _release_gpus,
    Send: _send,
    StopSend: _stop_send,
    Assign: _counter_of("assigned request"),
    Preempt: _counter_of("preemption"),
    Interrupt: _counter_of("interrupt"),
    JoinBatch: _join_batch,
    Migrate: _migrate,
    Abort: _counter_of("abort"),
    **dict.fromkeys((Detach, Run, Reject, Fail, Wake), _ignore),
}
