"""The driver's record of each request: facts that the controller must not know, and data for metrics."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from realexec.wire.messages import Hold, StepsDone
from realexec.world.report import Generation
from serving.vocabulary.measured_requests import MeasuredRequests
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS


@dataclass(slots=True, kw_only=True)
class TrackedRequest:
    """A request between arrival and end. Times are run-relative ns."""

    request: Request
    prompt: tuple[int, ...]
    output_tokens: int
    exact_tokens: int
    tokens: list[int] = field(default_factory=list)
    preemptions: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0

    def recompute(self) -> None:
        """Note that its KV is lost: tokens after those it has already are no longer promised to be exact."""
        if self.tokens:
            self.exact_tokens = min(self.exact_tokens, len(self.tokens))


class Tracker:
    """Turns workers' reports into recorder calls and generations."""

    def __init__(self, recorder: Recorder, replicas: int) -> None:
        self._recorder = recorder
        self._open: dict[int, TrackedRequest] = {}
        self._busy_ns = dict.fromkeys(range(replicas), 0)
        self.generations: dict[int, Generation] = {}
        self.arrived = self.refused = self.failed = self.preemptions = 0

    def measures(self) -> MeasuredRequests:
        """Keep from now on what scalers ask about requests."""
        measured = MeasuredRequests(self._recorder, self._first_tokens)
        self._recorder = measured
        return measured

    def _first_tokens(self) -> Iterator[tuple[Request, int]]:
        return ((held.request, held.first_token_ns) for held in self._open.values() if held.tokens)

    @property
    def unfinished(self) -> int:
        """Requests that arrived and have not ended."""
        return len(self._open)

    @property
    def ended(self) -> int:
        """Requests that finished, were refused or failed."""
        return len(self.generations) + self.refused + self.failed

    def arrive(self, request: Request, prompt: tuple[int, ...], output_tokens: int) -> None:
        """Add an arrived request. ``output_tokens``: its true length, already cut to the client's limit."""
        self._open[request.id] = TrackedRequest(
            request=request, prompt=prompt, output_tokens=output_tokens, exact_tokens=output_tokens
        )
        self.arrived += 1

    def hold(self, request: int) -> Hold:
        """Make the message that gives a worker the request in its present state."""
        held = self._open[request]
        missing = held.output_tokens - len(held.tokens)
        return Hold(request, held.prompt, tuple(held.tokens), missing)

    def is_open(self, request: int) -> bool:
        """Whether it has arrived and has not ended."""
        return request in self._open

    def generated(self, request: int) -> tuple[int, ...]:
        """Its tokens so far."""
        return tuple(self._open[request].tokens)

    def assign(self, request: int) -> None:
        """Note that it will be computed from its beginning."""
        self._open[request].recompute()

    def preempt(self, request: int) -> None:
        """Note that the request loses its KV."""
        held = self._open[request]
        held.preemptions += 1
        held.recompute()
        self.preemptions += 1

    def refuse(self, request: int, now_ns: int, reason: str) -> None:
        """Record that the controller rejected it."""
        self._recorder.refused(self._open.pop(request).request, now_ns, reason)
        self.refused += 1

    def fail(self, request: int, now_ns: int, reason: str) -> None:
        """Record that the controller gave it up."""
        held = self._open.pop(request)
        self._recorder.failed(held.request, now_ns, reason)
        self.failed += 1

    def ran(self, replica: int, done: StepsDone, start_ns: int) -> tuple[int, ...]:
        """Account for a run; ``start_ns`` is the machine time of the run's time 0.

        Returns the requests that finished in it. A worker may have computed the last token of a request that
        the controller has given up in the meantime: that request has failed.
        """
        if not done.ends_ns:
            return ()
        self.computed(replica, done.ends_ns[-1] - done.started_ns)
        ends_ns = [end_ns - start_ns for end_ns in done.ends_ns]
        owned = [(self._open[request], row) for request, row in done.tokens.items() if request in self._open]
        self._record_gaps([(held, len(row)) for held, row in owned], ends_ns)
        for held, row in owned:
            if not held.tokens:
                held.first_token_ns = ends_ns[-len(row)]
            held.tokens.extend(row)
            held.last_token_ns = ends_ns[-1]
        finished = tuple([request for request in done.finished if request in self._open])
        for request in finished:
            self._finish(request, replica)
        return finished

    def got(self, request: int, tokens: Sequence[int], now_ns: int) -> None:
        """Add tokens that a stock engine sent; tokens that came together have no gaps between them."""
        held = self._open.get(request)
        if held is None or not tokens:
            return
        if not held.tokens:
            held.first_token_ns = now_ns
        else:
            self._recorder.gaps((now_ns - held.last_token_ns) << FRACTION_BITS, 0, 1, 1)
        if len(tokens) > 1:
            self._recorder.gaps(0, 0, 1, len(tokens) - 1)
        held.tokens.extend(tokens)
        held.last_token_ns = now_ns

    def finish(self, request: int, replica: int) -> None:
        """Record that it has all its tokens, the last one from this replica."""
        if request in self._open:
            self._finish(request, replica)

    def computed(self, replica: int, time_ns: int) -> None:
        """Add time during which the replica's worker was busy."""
        self._busy_ns[replica] = self._busy_ns.get(replica, 0) + time_ns

    def close(self) -> None:
        """Record what is known only at the end of the run: how long each replica was busy."""
        for replica, busy_ns in sorted(self._busy_ns.items()):
            self._recorder.busy(replica, busy_ns)

    def _record_gaps(self, held: list[tuple[TrackedRequest, int]], ends_ns: list[int]) -> None:
        """Record gaps of requests that each got one token in this many of the last steps (second item)."""
        first = Counter(
            ends_ns[-tokens] - request.last_token_ns for request, tokens in held if request.tokens
        )
        for gap_ns, sequences in first.items():
            self._recorder.gaps(gap_ns << FRACTION_BITS, 0, 1, sequences)
        for step, (before_ns, after_ns) in enumerate(pairwise(ends_ns), start=1):
            sequences = sum(tokens > len(ends_ns) - step for _, tokens in held)
            if sequences:
                self._recorder.gaps((after_ns - before_ns) << FRACTION_BITS, 0, 1, sequences)

    def _finish(self, request: int, replica: int) -> None:
        held = self._open.pop(request)
        self.generations[request] = Generation(
            request, held.prompt, tuple(held.tokens), held.exact_tokens, held.request.model
        )
        self._recorder.finished(
            held.request,
            len(held.tokens),
            held.first_token_ns,
            held.last_token_ns,
            replica,
            held.preemptions,
        )
