"""Tracks where the requests in flight are and what each instance runs, from a journal.

Memory grows with the requests in flight and the instances, not with the journal. One function per kind of
event and of action that changes the state; ``tests/servetwin/test_story.py`` checks the tables against
the vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from servetwin.story.benches import Bench, Report, RequestSoFar
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


@dataclass(slots=True)
class Books:
    """All requests in flight, all instances. ``report``: of the last event, if a ``Ran`` or ``Lost``."""

    requests: dict[int, RequestSoFar] = field(default_factory=dict)
    benches: dict[int, Bench] = field(default_factory=dict)
    report: Report | None = None

    def bench(self, replica: int) -> Bench:
        """Return the state of an instance, creating it when the journal first names the instance."""
        return self.benches.setdefault(replica, Bench())

    def made(self, progress: RequestSoFar) -> int:
        """Return the request's tokens as of the last report."""
        if progress.stage != "decoding" or progress.replica is None:
            return progress.made
        return progress.made + self.benches[progress.replica].steps - progress.since

    def happens(self, now_ns: int, event: Event) -> None:
        """Apply an event, before its actions."""
        self.report = None
        EVENTS[type(event)](self, now_ns, event)

    def follows(self, now_ns: int, action: Action) -> None:
        """Apply one of the event's actions, in their order."""
        ACTIONS[type(action)](self, now_ns, action)


def _arrived(books: Books, now_ns: int, event: Arrived) -> None:
    books.requests[event.request.id] = RequestSoFar(request=event.request)


def _ran(books: Books, now_ns: int, event: Ran) -> None:
    bench = books.bench(event.replica)
    run = bench.run if event.epoch >= bench.epoch else None
    if run is None:
        books.report = Report(run=None, began_ns=now_ns)
        return
    joined = _join(books, bench, event)
    left = event.steps - (event.joins[-1] if event.joins else 0)
    computed, completed = tuple[Chunk, ...](), list[int]()
    if left and bench.chunks:
        computed, completed = _first_step(books, bench, run, event.finished if event.steps == 1 else ())
        left -= 1
    if run.layers is None:
        bench.steps += left
    decoding = len(bench.decoding)
    for request in event.finished:
        _end(books, request, 1)
    if not event.running:
        bench.run = None
    books.report = Report(
        run=run,
        began_ns=bench.run_ns,
        computed=computed,
        completed=tuple(completed),
        joined=joined,
        decoding=decoding,
    )


def _join(books: Books, bench: Bench, event: Ran) -> dict[int, int]:
    """Add requests that joined during the run, each from the step at which it joined."""
    before, joined = 0, dict[int, int]()
    for at, requests in zip(event.joins, bench.joins):
        bench.steps += at - before
        before = at
        for request in requests:
            joined[request] = at
            _decode(books, event.replica, request)
    bench.joins.clear()
    return joined


def _first_step(
    books: Books, bench: Bench, run: Run, finished: tuple[int, ...]
) -> tuple[tuple[Chunk, ...], list[int]]:
    """Compute the prompts of a run; a request with a complete prompt decodes from the next step on."""
    chunks, bench.chunks = bench.chunks, ()
    if run.decode:
        bench.steps += 1
    completed = []
    for request, start, amount in chunks:
        progress = books.requests.get(request)
        if progress is None or run.layers is not None or start + amount != progress.known_tokens:
            continue
        completed.append(request)
        progress.made += 1
        if run.hand_over:
            progress.stage = "handed over"
        elif request not in finished:
            _begin(books, run.replica, progress)
    return chunks, completed


def _decode(books: Books, replica: int, request: int) -> None:
    """Start decoding with received KV. A prompt that ran layer by layer has not counted its token yet."""
    progress = books.requests.get(request)
    if progress is not None:
        progress.made = max(1, progress.made)
        _begin(books, replica, progress)


def _begin(books: Books, replica: int, progress: RequestSoFar) -> None:
    bench = books.bench(replica)
    progress.replica, progress.stage = replica, "decoding"
    progress.begun, progress.since = progress.made, bench.steps
    bench.decoding.add(progress.request.id)


def _stop(books: Books, progress: RequestSoFar) -> None:
    """Stop a request's decoding on its instance; its tokens stay."""
    progress.made = books.made(progress)
    if progress.replica is not None:
        books.bench(progress.replica).decoding.discard(progress.request.id)


def _end(books: Books, request: int, least: int = 0) -> None:
    """End a request with at least ``least`` tokens: one that ends with its prompt has the prompt's token."""
    progress = books.requests.pop(request, None)
    if progress is not None:
        _stop(books, progress)
        progress.made = max(progress.made, least)
        progress.stage = "ended"


def _streamed(books: Books, now_ns: int, event: Streamed) -> None:
    """Add the tokens of an engine that runs by itself: each of these requests decodes there."""
    books.bench(event.replica)
    for request, tokens in event.tokens:
        progress = books.requests.get(request)
        if progress is not None and tokens:
            progress.made += tokens
            progress.replica, progress.stage = event.replica, "decoding"
    for request in event.finished:
        _end(books, request)


def _lost(books: Books, now_ns: int, event: Lost) -> None:
    """Stop the lost instance's requests; actions say which of them fail."""
    bench = books.bench(event.replica)
    for request in sorted(bench.decoding):
        _stop(books, books.requests[request])
        books.requests[request].stage = "waiting"
    books.report = Report(run=bench.run, began_ns=bench.run_ns)
    books.benches[event.replica] = Bench(epoch=bench.epoch + 1, steps=bench.steps)


def _assign(books: Books, now_ns: int, action: Assign) -> None:
    progress = books.requests.get(action.request)
    if progress is not None:
        progress.replica, progress.stage = action.replica, "waiting"


def _run(books: Books, now_ns: int, action: Run) -> None:
    bench = books.bench(action.replica)
    bench.run, bench.run_ns, bench.chunks = action, now_ns, action.chunks
    for request, _, _ in action.chunks:
        if request in books.requests:
            books.requests[request].stage = "prompt"


def _preempt(books: Books, now_ns: int, action: Preempt) -> None:
    progress = books.requests.get(action.request)
    if progress is not None:
        _stop(books, progress)
        progress.stage = "waiting"


def _detach(books: Books, now_ns: int, action: Detach) -> None:
    progress = books.requests.get(action.request)
    if progress is not None:
        _stop(books, progress)
        progress.stage = "handed over"


def _adopt(books: Books, now_ns: int, action: JoinBatch) -> None:
    bench = books.bench(action.replica)
    if bench.run is None:
        for request in action.requests:
            _decode(books, action.replica, request)
        return
    bench.joins.append(action.requests)
    for request in action.requests:
        if request in books.requests:
            books.requests[request].replica, books.requests[request].stage = action.replica, "joining"


def _over(books: Books, now_ns: int, action: Reject | Fail) -> None:
    _end(books, action.request)


def _named(books: Books, now_ns: int, action: AllocateGpus) -> None:
    books.bench(action.replica)


def _nothing(books: Books, now_ns: int, fact: Any) -> None:
    """Ignore a fact that changes neither a request's place nor an instance's run."""


Entry = Callable[[Books, int, Any], None]
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
