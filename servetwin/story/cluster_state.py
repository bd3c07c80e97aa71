"""Tracks where the requests in flight are and what each instance runs, from a journal.

Memory grows with the requests in flight and the instances, not with the journal. One function per kind of
event and of action that changes the state; ``tests/servetwin/test_story.py`` checks the tables against
the vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from serving.vocabulary.actions import (
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
    Sent,
    Streamed,
    Woke,
)
from serving.vocabulary.request import Request

Stage = Literal["waiting", "prompt", "handed over", "joining", "decoding", "ended"]


@dataclass(slots=True, kw_only=True)
class RequestProgress:
    """The progress of one request. ``made``: its tokens, without those of its current decode steps;
    ``begun``: ``made`` when its current or last decode steps began; ``since``: the instance's steps at that
    time. ``replica``: the instance that has the request, None if none has.
    """

    request: Request
    replica: int | None = None
    stage: Stage = "waiting"
    made: int = 0
    begun: int = 0
    since: int = 0

    @property
    def known_tokens(self) -> int:
        """Tokens that must be in the KV cache before the request decodes; constant while it does."""
        return self.request.prompt_tokens + self.made


@dataclass(slots=True, kw_only=True)
class InstanceState:
    """One instance: its current run, the run's prompts not yet reported, the requests that decode here."""

    epoch: int = 0
    run: Run | None = None
    run_ns: int = 0
    chunks: tuple[Chunk, ...] = ()
    steps: int = 0  # with decodes of its requests
    decoding: set[int] = field(default_factory=set)
    joins: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The meaning of a ``Ran``. ``run`` is None for an earlier epoch's; for a ``Lost``: the interrupted run.

    ``computed``: the prompt tokens of its first step; ``completed``: requests whose prompts end there.
    ``joined``: request -> steps before it joined. ``decoding``: requests that decoded at the report.
    """

    run: Run | None
    began_ns: int
    computed: tuple[Chunk, ...] = ()
    completed: tuple[int, ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    decoding: int = 0


@dataclass(slots=True)
class ClusterState:
    """All requests in flight, all instances. ``report``: of the last event, if a ``Ran`` or ``Lost``."""

    requests: dict[int, RequestProgress] = field(default_factory=dict)
    instances: dict[int, InstanceState] = field(default_factory=dict)
    report: StepReport | None = None

    def instance(self, replica: int) -> InstanceState:
        """Return the state of an instance, creating it when the journal first names the instance."""
        return self.instances.setdefault(replica, InstanceState())

    def made(self, progress: RequestProgress) -> int:
        """Return the request's tokens as of the last report."""
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
    joined = _join(state, instance, event)
    left = event.steps - (event.joins[-1] if event.joins else 0)
    computed, completed = tuple[Chunk, ...](), list[int]()
    if left and instance.chunks:
        computed, completed = _first_step(state, instance, run, event.finished if event.steps == 1 else ())
        left -= 1
    if run.layers is None:
        instance.steps += left
    decoding = len(instance.decoding)
    for request in event.finished:
        _end(state, request, 1)
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


def _join(state: ClusterState, instance: InstanceState, event: Ran) -> dict[int, int]:
    """Add requests that joined during the run, each from the step at which it joined."""
    before, joined = 0, dict[int, int]()
    for at, requests in zip(event.joins, instance.joins):
        instance.steps += at - before
        before = at
        for request in requests:
            joined[request] = at
            _decode(state, event.replica, request)
    instance.joins.clear()
    return joined


def _first_step(
    state: ClusterState, instance: InstanceState, run: Run, finished: tuple[int, ...]
) -> tuple[tuple[Chunk, ...], list[int]]:
    """Compute the prompts of a run; a request with a complete prompt decodes from the next step on."""
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
            _begin(state, run.replica, progress)
    return chunks, completed


def _decode(state: ClusterState, replica: int, request: int) -> None:
    """Start decoding with received KV. A prompt that ran layer by layer has not counted its token yet."""
    progress = state.requests.get(request)
    if progress is not None:
        progress.made = max(1, progress.made)
        _begin(state, replica, progress)


def _begin(state: ClusterState, replica: int, progress: RequestProgress) -> None:
    instance = state.instance(replica)
    progress.replica, progress.stage = replica, "decoding"
    progress.begun, progress.since = progress.made, instance.steps
    instance.decoding.add(progress.request.id)


def _stop(state: ClusterState, progress: RequestProgress) -> None:
    """Stop a request's decoding on its instance; its tokens stay."""
    progress.made = state.made(progress)
    if progress.replica is not None:
        state.instance(progress.replica).decoding.discard(progress.request.id)


def _end(state: ClusterState, request: int, least: int = 0) -> None:
    """End a request with at least ``least`` tokens: one that ends with its prompt has the prompt's token."""
    progress = state.requests.pop(request, None)
    if progress is not None:
        _stop(state, progress)
        progress.made = max(progress.made, least)
        progress.stage = "ended"


def _streamed(state: ClusterState, now_ns: int, event: Streamed) -> None:
    """Add the tokens of an engine that runs by itself: each of these requests decodes there."""
    state.instance(event.replica)
    for request, tokens in event.tokens:
        progress = state.requests.get(request)
        if progress is not None and tokens:
            progress.made += tokens
            progress.replica, progress.stage = event.replica, "decoding"
    for request in event.finished:
        _end(state, request)


def _lost(state: ClusterState, now_ns: int, event: Lost) -> None:
    """Stop the lost instance's requests; actions say which of them fail."""
    instance = state.instance(event.replica)
    for request in sorted(instance.decoding):
        _stop(state, state.requests[request])
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
        _stop(state, progress)
        progress.stage = "waiting"


def _detach(state: ClusterState, now_ns: int, action: Detach) -> None:
    progress = state.requests.get(action.request)
    if progress is not None:
        _stop(state, progress)
        progress.stage = "handed over"


def _adopt(state: ClusterState, now_ns: int, action: JoinBatch) -> None:
    instance = state.instance(action.replica)
    if instance.run is None:
        for request in action.requests:
            _decode(state, action.replica, request)
        return
    instance.joins.append(action.requests)
    for request in action.requests:
        if request in state.requests:
            state.requests[request].replica, state.requests[request].stage = action.replica, "joining"


def _over(state: ClusterState, now_ns: int, action: Reject | Fail) -> None:
    _end(state, action.request)


def _named(state: ClusterState, now_ns: int, action: AllocateGpus) -> None:
    state.instance(action.replica)


def _nothing(state: ClusterState, now_ns: int, fact: Any) -> None:
    """Ignore a fact that changes neither a request's place nor an instance's run."""


Entry = Callable[[ClusterState, int, Any], None]
EVENTS: Final[Mapping[type, Entry]] = {
    Arrived: _arrived,
    Ran: _ran,
    Streamed: _streamed,
    Dropped: _nothing,
    Observed: _nothing,
    Lost: _lost,
    LossNotice: _nothing,
    LostHost: _nothing,
    LostSsd: _nothing,
    LostLink: _nothing,
    Closing: _nothing,
    Opened: _nothing,
    Loaded: _nothing,
    LoadStopped: _nothing,
    Sent: _nothing,
    Woke: _nothing,
}
ACTIONS: Final[Mapping[type, Entry]] = {
    Assign: _assign,
    Run: _run,
    Preempt: _preempt,
    Detach: _detach,
    Migrate: _nothing,
    JoinBatch: _adopt,
    Reject: _over,
    Fail: _over,
    AllocateGpus: _named,
    Interrupt: _nothing,
    SwitchRole: _nothing,
    ReleaseGpus: _nothing,
    Load: _nothing,
    StopLoad: _nothing,
    Send: _nothing,
    StopSend: _nothing,
    Wake: _nothing,
}
