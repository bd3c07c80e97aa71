"""Reads a journal and tracks which instance has each request in flight, and what each instance runs.

Memory use depends on the number of instances and of requests in flight, not on the length of the journal.
``EVENTS`` and ``ACTIONS`` give the function that applies each kind of event and action;
``tests/servetwin/test_story.py`` checks that they name every kind of the vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from serving.vocabulary.actions import (
    Abort,
    Action,
    AllocateGpus,
    Assign,
    Chunk,
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
    Dropped,
    Event,
    Loaded,
    LoadStopped,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    Observed,
    Opened,
    Ran,
    SchedulerBack,
    SchedulerLost,
    Sent,
    Streamed,
    Woke,
)
from serving.vocabulary.request import Request

Stage = Literal["waiting", "prompt", "handed over", "joining", "decoding", "ended"]


@dataclass(slots=True, kw_only=True)
class RequestProgress:
    """The progress of one request. ``replica``: the instance that has it; None if no instance has it.

    ``made``: the number of its output tokens, without those of the decode steps in progress. ``begun``: the
    value of ``made`` when the request last began to decode. ``since``: the number of ``steps`` of its
    instance at that time.
    """

    request: Request
    replica: int | None = None
    stage: Stage = "waiting"
    made: int = 0
    begun: int = 0
    since: int = 0

    @property
    def known_tokens(self) -> int:
        """Tokens that must be in the KV cache before the request decodes; constant while it decodes."""
        return self.request.prompt_tokens + self.made


@dataclass(slots=True, kw_only=True)
class InstanceState:
    """One instance. ``epoch``: how often it was lost; a report of an earlier epoch is ignored.

    ``run``: its current run, which began at ``run_ns``. ``chunks``: the prompt chunks of the run's first step
    until a report says that this step has ended. ``steps``: the number of steps in which it decoded.
    ``decoding``: the requests that it decodes. ``joins``: the requests of each ``JoinBatch`` during the run,
    until the next report.
    """

    epoch: int = 0
    run: Run | None = None
    run_ns: int = 0
    chunks: tuple[Chunk, ...] = ()
    steps: int = 0
    decoding: set[int] = field(default_factory=set)
    joins: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a ``Ran`` or a ``Lost`` reports. ``began_ns``: the time at which ``run`` began.

    ``run``: the run that a ``Ran`` reports, None if the report is of an earlier epoch; for a ``Lost``, the
    interrupted run. ``computed``: the prompt chunks of the run's first step. ``completed``: the requests
    whose prompts this step completed. ``joined``: request -> number of steps before it joined the run.
    ``decoding``: the number of requests that decoded, including those that finish with this report.
    """

    run: Run | None
    began_ns: int
    computed: tuple[Chunk, ...] = ()
    completed: tuple[int, ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    decoding: int = 0


@dataclass(slots=True)
class ClusterState:
    """All requests in flight and all instances.

    ``report``: what the last event reports, if it was a ``Ran`` or a ``Lost``; otherwise None.
    """

    requests: dict[int, RequestProgress] = field(default_factory=dict)
    instances: dict[int, InstanceState] = field(default_factory=dict)
    report: StepReport | None = None

    def instance(self, replica: int) -> InstanceState:
        """Return the state of an instance, creating it when the journal first names the instance."""
        return self.instances.setdefault(replica, InstanceState())

    def made(self, progress: RequestProgress) -> int:
        """Return the number of the request's output tokens at the last report."""
        if progress.stage != "decoding" or progress.replica is None:
            return progress.made
        return progress.made + self.instances[progress.replica].steps - progress.since

    def happens(self, now_ns: int, event: Event) -> None:
        """Apply an event, before its actions."""
        self.report = None
        EVENTS[type(event)](self, now_ns, event)

    def follows(self, now_ns: int, action: Action) -> None:
        """Apply one of the event's actions, in their order."""
        ACTIONS[type(action)](self, now_ns, action)


def _arrived(state: ClusterState, now_ns: int, event: Arrived) -> None:
    state.requests[event.request.id] = RequestProgress(request=event.request)


def _ran(state: ClusterState, now_ns: int, event: Ran) -> None:
    instance = state.instance(event.replica)
    run = instance.run if event.epoch >= instance.epoch else None
    if run is None:
        state.report = StepReport(run=None, began_ns=now_ns)
        return
    joined = _apply_joins(state, instance, event)
    steps_left = event.steps - (event.joins[-1] if event.joins else 0)
    computed, completed = tuple[Chunk, ...](), list[int]()
    if steps_left and instance.chunks:
        computed, completed = _apply_first_step(
            state, instance, run, event.finished if event.steps == 1 else ()
        )
        steps_left -= 1
    if run.layers is None:
        instance.steps += steps_left
    decoding = len(instance.decoding)
    for request in event.finished:
        _end_request(state, request, 1)
    if not event.running:
        instance.run = None
    state.report = StepReport(
        run=run,
        began_ns=instance.run_ns,
        computed=computed,
        completed=tuple(completed),
        joined=joined,
        decoding=decoding,
    )


def _apply_joins(state: ClusterState, instance: InstanceState, event: Ran) -> dict[int, int]:
    """Begin to decode the requests that joined during the run; return the steps before each joined."""
    counted_steps, joined = 0, dict[int, int]()
    for steps_before, requests in zip(event.joins, instance.joins):
        instance.steps += steps_before - counted_steps
        counted_steps = steps_before
        for request in requests:
            joined[request] = steps_before
            _decode_received(state, event.replica, request)
    instance.joins.clear()
    return joined


def _apply_first_step(
    state: ClusterState, instance: InstanceState, run: Run, finished: tuple[int, ...]
) -> tuple[tuple[Chunk, ...], list[int]]:
    """Apply the first step of a run; return its prompt chunks and the requests with complete prompts.

    A request whose prompt is complete decodes from the next step on, or is handed over.
    """
    chunks, instance.chunks = instance.chunks, ()
    if run.decode:
        instance.steps += 1
    completed = []
    for request, start, amount in chunks:
        progress = state.requests.get(request)
        if progress is None or run.layers is not None or start + amount != progress.known_tokens:
            continue
        completed.append(request)
        progress.made += 1
        if run.hand_over:
            progress.stage = "handed over"
        elif request not in finished:
            _begin_decoding(state, run.replica, progress)
    return chunks, completed


def _decode_received(state: ClusterState, replica: int, request: int) -> None:
    """Begin to decode a request whose KV the instance has received.

    If its prompt was computed layer by layer, the first output token is counted only now.
    """
    progress = state.requests.get(request)
    if progress is not None:
        progress.made = max(1, progress.made)
        _begin_decoding(state, replica, progress)


def _begin_decoding(state: ClusterState, replica: int, progress: RequestProgress) -> None:
    instance = state.instance(replica)
    progress.replica, progress.stage = replica, "decoding"
    progress.begun, progress.since = progress.made, instance.steps
    instance.decoding.add(progress.request.id)


def _stop_decoding(state: ClusterState, progress: RequestProgress) -> None:
    """Stop a request's decoding on its instance; its tokens still count."""
    progress.made = state.made(progress)
    if progress.replica is not None:
        state.instance(progress.replica).decoding.discard(progress.request.id)


def _end_request(state: ClusterState, request: int, least: int = 0) -> None:
    """End a request with at least ``least`` tokens: computing the prompt also makes an output token."""
    progress = state.requests.pop(request, None)
    if progress is not None:
        _stop_decoding(state, progress)
        progress.made = max(progress.made, least)
        progress.stage = "ended"


def _streamed(state: ClusterState, now_ns: int, event: Streamed) -> None:
    """Add tokens that an engine reports without ``Run`` actions; it decodes each of these requests."""
    state.instance(event.replica)
    for request, tokens in event.tokens:
        progress = state.requests.get(request)
        if progress is not None and tokens:
            progress.made += tokens
            progress.replica, progress.stage = event.replica, "decoding"
    for request in event.finished:
        _end_request(state, request)


def _lost(state: ClusterState, now_ns: int, event: Lost) -> None:
    """Stop decoding on a lost instance. Its requests wait until later actions assign or fail them."""
    instance = state.instance(event.replica)
    for request in sorted(instance.decoding):
        _stop_decoding(state, state.requests[request])
        state.requests[request].stage = "waiting"
    state.report = StepReport(run=instance.run, began_ns=instance.run_ns)
    state.instances[event.replica] = InstanceState(epoch=instance.epoch + 1, steps=instance.steps)


def _assign(state: ClusterState, now_ns: int, action: Assign) -> None:
    progress = state.requests.get(action.request)
    if progress is not None:
        progress.replica, progress.stage = action.replica, "waiting"


def _run(state: ClusterState, now_ns: int, action: Run) -> None:
    instance = state.instance(action.replica)
    instance.run, instance.run_ns, instance.chunks = action, now_ns, action.chunks
    for request, _, _ in action.chunks:
        if request in state.requests:
            state.requests[request].stage = "prompt"


def _preempt(state: ClusterState, now_ns: int, action: Preempt) -> None:
    progress = state.requests.get(action.request)
    if progress is not None:
        _stop_decoding(state, progress)
        progress.stage = "waiting"


def _detach(state: ClusterState, now_ns: int, action: Detach) -> None:
    progress = state.requests.get(action.request)
    if progress is not None:
        _stop_decoding(state, progress)
        progress.stage = "handed over"


def _join_batch(state: ClusterState, now_ns: int, action: JoinBatch) -> None:
    instance = state.instance(action.replica)
    if instance.run is None:
        for request in action.requests:
            _decode_received(state, action.replica, request)
        return
    instance.joins.append(action.requests)
    for request in action.requests:
        if request in state.requests:
            state.requests[request].replica, state.requests[request].stage = action.replica, "joining"


def _ends_without_answer(state: ClusterState, now_ns: int, action: Reject | Fail | Abort) -> None:
    _end_request(state, action.request)


def _allocate_gpus(state: ClusterState, now_ns: int, action: AllocateGpus) -> None:
    state.instance(action.replica)


def _ignore(state: ClusterState, now_ns: int, fact: Any) -> None:
    """Ignore an event or action that changes neither a request's progress nor an instance's run."""


Entry = Callable[[ClusterState, int, Any], None]
EVENTS: Final[Mapping[type, Entry]] = {
    Arrived: _arrived,
    Ran: _ran,
    Streamed: _streamed,
    Dropped: _ignore,
    Observed: _ignore,
    Lost: _lost,
    LossNotice: _ignore,
    LostHost: _ignore,
    LostSsd: _ignore,
    SchedulerLost: _ignore,
    SchedulerBack: _ignore,
    LostLink: _ignore,
    Disconnected: _ignore,
    Closing: _ignore,
    Opened: _ignore,
    Loaded: _ignore,
    LoadStopped: _ignore,
    Sent: _ignore,
    Woke: _ignore,
}
ACTIONS: Final[Mapping[type, Entry]] = {
    Assign: _assign,
    Run: _run,
    Preempt: _preempt,
    Detach: _detach,
    Migrate: _ignore,
    JoinBatch: _join_batch,
    Reject: _ends_without_answer,
    Fail: _ends_without_answer,
    Abort: _ends_without_answer,
    AllocateGpus: _allocate_gpus,
    Interrupt: _ignore,
    SwitchRole: _ignore,
    ReleaseGpus: _ignore,
    Load: _ignore,
    StopLoad: _ignore,
    Send: _ignore,
    StopSend: _ignore,
    Wake: _ignore,
}
