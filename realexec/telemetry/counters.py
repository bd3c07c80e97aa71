"""Counters of a run for Prometheus, updated when the journal is written and when requests end.

The driver's thread updates them; the thread that answers a scrape reads them under the same lock.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from serving.vocabulary.actions import Action, Assign, Fail, Migrate, Preempt, Reject
from serving.vocabulary.driver import JournalSink
from serving.vocabulary.events import Arrived, Event, Lost, Observed, Ran, Streamed
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS, NS_PER_S

# Bucket limits of vLLM's own histograms (vllm/v1/metrics/loggers.py, 0.19), in seconds.
TTFT_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
E2E_S: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip


@dataclass(slots=True)
class Histogram:
    """``counts``: one per bucket; the last bucket has no limit."""

    limits: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count this value ``times`` times."""
        if not self.counts:
            self.counts = [0] * (len(self.limits) + 1)
        self.counts[bisect_left(self.limits, value)] += times
        self.total += value * times


@dataclass(slots=True, kw_only=True)
class OfReplica:
    """Counts of one replica since the run began. ``observed``: the last report of a stock engine."""

    assigned: int = 0
    finished: int = 0
    tokens: int = 0
    preempted: int = 0
    lost: bool = False
    observed: Observed | None = None


class Counters:
    """A JournalSink, and with `recorder` a Recorder, that forward every call and count."""

    def __init__(self, recorder: Recorder, journal: JournalSink | None) -> None:
        self._recorder, self._journal = recorder, journal
        self.lock = Lock()
        self.of: dict[int, OfReplica] = {}
        self.model = ""
        self.arrived = self.finished = self.rejected = self.failed = self.moved = self.events = 0
        self.prompt_tokens = self.generated_tokens = 0
        self.reasons: Counter[str] = Counter()
        self.now_ns = 0
        self.ttft, self.itl, self.e2e = Histogram(TTFT_S), Histogram(ITL_S), Histogram(E2E_S)

    def replica(self, number: int) -> OfReplica:
        """Return the counts of a replica; creates them at first use."""
        return self.of.setdefault(number, OfReplica())

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """Forward and count one event and the controller's actions."""
        if self._journal is not None:
            self._journal.write(now_ns, event, actions, counts)
        with self.lock:
            self.now_ns, self.events = now_ns, self.events + 1
            self._event(event)
            for action in actions:
                self._action(action)

    def _event(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self.arrived += 1
            self.model = event.request.model
        elif isinstance(event, Ran | Streamed):
            counts = self.replica(event.replica)
            counts.finished += len(event.finished)
            if isinstance(event, Streamed):
                counts.tokens += sum(tokens for _, tokens in event.tokens)
        elif isinstance(event, Observed):
            self.replica(event.replica).observed = event
        elif isinstance(event, Lost):
            self.replica(event.replica).lost = True

    def _action(self, action: Action) -> None:
        if isinstance(action, Assign):
            self.replica(action.replica).assigned += 1
        elif isinstance(action, Preempt):
            self.replica(action.replica).preempted += 1
        elif isinstance(action, Reject | Fail):
            self.rejected += isinstance(action, Reject)
            self.failed += isinstance(action, Fail)
            self.reasons["rejected" if isinstance(action, Reject) else "failed"] += 1
        elif isinstance(action, Migrate):
            self.moved += action.phase == "committed"

    # As a Recorder.

    def finished_request(self, request: Request, tokens: int, first_ns: int, last_ns: int) -> None:
        """Count a finished request and its latencies."""
        self.finished += 1
        self.prompt_tokens += request.prompt_tokens
        self.generated_tokens += tokens
        self.ttft.add((first_ns - request.arrival_ns) / NS_PER_S)
        self.e2e.add((last_ns - request.arrival_ns) / NS_PER_S)

    def recorder(self) -> Recorder:
        """Return the recorder that the driver uses."""
        return _Counting(self, self._recorder)

    def gaps_of(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        """Count gaps between tokens; see ``Recorder``."""
        for step in range(steps):
            gap_ns = (first_fixed + slope_fixed * step) >> FRACTION_BITS
            self.itl.add(gap_ns / NS_PER_S, sequences)


class _Counting:
    """A Recorder that forwards every call and counts."""

    def __init__(self, counters: Counters, inner: Recorder) -> None:
        self._counters, self._inner = counters, inner

    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        """See ``Recorder``."""
        self._inner.finished(request, output_tokens, first_token_ns, finish_ns, replica, preemptions)
        with self._counters.lock:
            self._counters.finished_request(request, output_tokens, first_token_ns, finish_ns)

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        """See ``Recorder``."""
        self._inner.refused(request, now_ns, reason)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        """See ``Recorder``."""
        self._inner.failed(request, now_ns, reason)

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        """See ``Recorder``."""
        self._inner.gaps(first_fixed, slope_fixed, steps, sequences)
        with self._counters.lock:
            self._counters.gaps_of(first_fixed, slope_fixed, steps, sequences)

    def busy(self, replica: int, busy_ns: int) -> None:
        """See ``Recorder``."""
        self._inner.busy(replica, busy_ns)
