"""Summarizes a journal in a few numbers and suggests what to ask about, in one pass."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from servetwin.story.cluster_state import ClusterState
from servetwin.story.line import count, seconds
from servetwin.story.moments import Moment
from serving.vocabulary.actions import Action, AllocateGpus, Fail, Preempt, Reject
from serving.vocabulary.events import Arrived, Event, Lost, Ran, Streamed


class Example(NamedTuple):
    """A request or instance to ask about, such as ``request=17``, and why."""

    subject: str
    why: str


@dataclass(slots=True)
class Best:
    """The largest candidate so far; the first of equals."""

    subject: int = -1
    amount: int = -1

    def see(self, subject: int, amount: int) -> None:
        """Compare one more candidate."""
        if amount > self.amount:
            self.subject, self.amount = subject, amount


@dataclass(slots=True, kw_only=True)
class Overview:
    """Counts of a whole journal; while reading, only requests in flight are stored."""

    events: int = 0
    last_ns: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    preemptions: Counter[int] = field(default_factory=Counter)  # of requests in flight
    slowest: Best = field(default_factory=Best)
    slowest_prompt: Best = field(default_factory=Best)
    most_preempted: Best = field(default_factory=Best)
    steps: Counter[int] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)  # the first to be rejected, lost, ...
    instances: int = 0

    def sentence(self, header: dict[str, object]) -> str:
        """Return the journal's run and the counts."""
        parts = ", ".join(
            f"{self.counts[outcome]:,} {outcome}" for outcome in ("finished", "rejected", "failed")
        )
        flying = self.counts["arrived"] - sum(
            self.counts[outcome] for outcome in ("finished", "rejected", "failed")
        )
        parts += f", {flying:,} still in flight" if flying else ""
        return (
            f"A {header.get('source')} run with seed {header.get('seed')}: {self.events:,} events in "
            f"{seconds(self.last_ns)}; {count(self.counts['arrived'], 'request')} ({parts}), "
            f"{count(self.counts['preempted'], 'preemption')}; instances named: {self.instances:,}."
        )

    def examples(self, first_tokens: Iterable[tuple[int, int, int]]) -> Iterator[Example]:
        """Yield remarkable requests and instances. first_tokens: as requests.parquet has them."""
        exact = Best()
        for request, arrival_ns, first_ns in first_tokens:
            exact.see(request, first_ns - arrival_ns)
        if exact.subject >= 0:
            yield Example(f"request={exact.subject}", f"slowest first token, after {seconds(exact.amount)}")
        elif (best := self.slowest_prompt).subject >= 0:
            yield Example(f"request={best.subject}", f"slowest prompt, reported after {seconds(best.amount)}")
        if (best := self.slowest).subject >= 0:
            yield Example(f"request={best.subject}", f"slowest to finish, after {seconds(best.amount)}")
        if (best := self.most_preempted).subject >= 0:
            yield Example(f"request={best.subject}", f"most often preempted, {best.amount} times")
        for outcome in ("rejected", "failed"):
            if outcome in self.first:
                yield Example(f"request={self.first[outcome]}", f"first to be {outcome}")
        if self.steps:
            busiest = max(sorted(self.steps), key=self.steps.__getitem__)
            yield Example(f"instance={busiest}", f"most steps, {self.steps[busiest]:,}")
        for outcome in ("placed", "lost"):
            if outcome in self.first:
                yield Example(f"instance={self.first[outcome]}", f"first to be {outcome}")


def overview_of(moments: Iterable[Moment]) -> Overview:
    """Read the whole journal."""
    state, view = ClusterState(), Overview()
    for now_ns, event, actions in moments:
        view.events, view.last_ns = view.events + 1, now_ns
        _before(view, state, now_ns, event)
        state.happens(now_ns, event)
        if type(event) is Ran:
            _ran(view, state, now_ns, event)
        for action in actions:
            _follows(view, action)
            state.follows(now_ns, action)
    view.instances = len(state.instances)
    return view


def _before(view: Overview, state: ClusterState, now_ns: int, event: Event) -> None:
    """Record facts about requests before the state drops them."""
    if type(event) is Arrived:
        view.counts["arrived"] += 1
    elif type(event) is Lost:
        view.first.setdefault("lost", event.replica)
    elif isinstance(event, Ran | Streamed):
        for request in event.finished:
            if request in state.requests:
                view.counts["finished"] += 1
                view.slowest.see(request, now_ns - state.requests[request].request.arrival_ns)
                view.preemptions.pop(request, None)


def _ran(view: Overview, state: ClusterState, now_ns: int, event: Ran) -> None:
    assert state.report is not None
    view.steps[event.replica] += event.steps
    for request in state.report.completed:
        progress = state.requests.get(request)
        if progress is not None and progress.made == 1:  # its first token, not a recomputed one
            view.slowest_prompt.see(request, now_ns - progress.request.arrival_ns)


def _follows(view: Overview, action: Action) -> None:
    if isinstance(action, Reject | Fail):
        outcome = "rejected" if isinstance(action, Reject) else "failed"
        view.counts[outcome] += 1
        view.first.setdefault(outcome, action.request)
        view.preemptions.pop(action.request, None)
    elif isinstance(action, Preempt):
        view.counts["preempted"] += 1
        view.preemptions[action.request] += 1
        view.most_preempted.see(action.request, view.preemptions[action.request])
    elif isinstance(action, AllocateGpus):
        view.first.setdefault("placed", action.replica)
