"""One replica in virtual time: its resident requests and the run in progress.

A step counter makes a run O(1): a resident request ends when the counter reaches its ``end``, and n of them
advance k steps by adding k to the counter and n * k to their total context. Time is fixed point throughout,
so back-to-back runs carry their fractions of a nanosecond along.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from serving.actions import Run
from serving.events import Ran
from serving.recorder import Recorder
from serving.units import FRACTION_BITS
from simcore.layer_pass import layer_pass_fixed
from simcore.lifetime import Lifetime
from simcore.peaks import NOBODY, Peaks
from simcore.segment import steps_to_reach
from simcore.stalls import Stalls
from simcore.step_times import StepTimes, later_piece


class Machine:
    """Executes runs for one replica. Times given to it never go back."""

    __slots__ = (
        "_busy_since_ns", "_context", "_decoding", "_due_fixed", "_ends", "_first", "_gaps", "_head",
        "_layers", "_left", "_lives", "_peaks", "_pieces", "_recorder", "_rows", "_slope", "_stalled",
        "_stalls", "_start_fixed", "_steps", "_steps_done", "busy_ns", "due_ns", "id", "run",
    )  # fmt: skip

    def __init__(
        self, id: int, rows: StepTimes, lives: dict[int, Lifetime], recorder: Recorder, layers: int = 0
    ) -> None:
        """``layers``: how many the model has; without them it runs no part of them."""
        self.id = id
        self._rows = rows
        self._layers = layers
        self._pieces = rows.decode
        self._lives = lives
        self._recorder = recorder
        self._gaps = recorder.gaps
        # The resident requests: how many, the sum of their contexts (each counts the token its next step
        # feeds), and (step counter, request) of their ends, some of which preemption has made void.
        self._decoding = 0
        self._context = 0
        self._ends: list[tuple[int, int]] = []
        self._steps_done = 0
        # The run in progress, from start to due: a first step with chunks (0 without), then steps of cost
        # first + i * slope. It goes on from there while steps are ``left``.
        self.run: Run | None = None
        self._head = self._first = self._slope = self._steps = 0
        self._start_fixed = self._due_fixed = 0
        self._left = 0
        self.due_ns = -1
        self.busy_ns = 0
        self._busy_since_ns = -1  # -1 while idle
        self._stalls = Stalls(recorder.gaps)
        self._stalled = self._stalls.groups  # one look less on the hot path
        self._peaks = Peaks() if rows.skewed else None

    def start(self, now_ns: int, run: Run) -> int:
        """Begin a run; returns when it is due."""
        assert self.run is None, "one pass at a time"
        if self._busy_since_ns < 0:
            self._busy_since_ns = now_ns
            self._start_fixed = now_ns << FRACTION_BITS
            if self._decoding and not self._stalled:  # residents who were kept waiting for something
                self._stalled.append([self._due_fixed, self._decoding])
        self.run = run
        if run.layers is not None:
            self._left = self._first = self._slope = self._steps = 0
            self._head = layer_pass_fixed(self._rows, run, self._layers)
            self._fix_due()
        elif run.chunks:
            self._left = run.max_steps - 1
            self._plan_chunks(run)
        else:
            self._left = run.max_steps
            self._plan_decodes()
        return self.due_ns

    def interrupt(self, now_ns: int, grace_steps: int) -> bool:
        """End the run at the first boundary not before now, or ``grace_steps`` later; True if due earlier.

        A step that did not begin before now is the first step of grace.
        """
        if self.run is None:
            return False
        steps = grace_steps
        if steps and self._start_fixed >> FRACTION_BITS >= now_ns:
            steps -= 1
        if self._steps:
            elapsed = (now_ns << FRACTION_BITS) - self._start_fixed - self._head
            if elapsed > 0 or not self._head:
                steps += steps_to_reach(self._first, self._slope, elapsed)
        if steps < self._left:
            self._left = steps
        if steps >= self._steps:
            return False
        self._steps = steps
        self._fix_due()
        return True

    @property
    def first_step_ns(self) -> int:
        """How long the first step of the run just started takes."""
        return (self._head or self._first) >> FRACTION_BITS

    def postpone(self, delay_ns: int) -> None:
        """The run just started begins so much later: its layers were not there yet."""
        self._start_fixed += delay_ns << FRACTION_BITS
        self._fix_due()

    def complete(self) -> Ran:
        """The run is due: account its steps and tell what happened. ``run`` is None unless it goes on."""
        run, steps, head = self.run, self._steps, self._head
        assert run is not None
        finished: list[int] = []
        last_step_fixed = self._start_fixed
        if head:
            self._first_step(run, finished)
        if steps:
            last_step_fixed = self._due_fixed - self._first - self._slope * (steps - 1)
            decoding = self._decoding
            if self._stalled:
                self._stalls.end_run(self._start_fixed + head, self._first, self._slope, steps, decoding)
            else:
                self._gaps(self._first, self._slope, steps, decoding)
            self._steps_done += steps
            self._context += steps * decoding
            self._left -= steps
        self._start_fixed = self._due_fixed
        ends = self._ends
        if ends and ends[0][0] <= self._steps_done:
            self._finish_decodes(finished)
            finished.sort()
        if head:
            steps += 1
        goes_on = self._left and self._decoding and not (finished and run.until_finish)
        if not goes_on:
            self.run = None
            return Ran(self.id, run.epoch, steps, tuple(finished), False, last_step_fixed >> FRACTION_BITS)
        self._plan_decodes()
        return Ran(self.id, run.epoch, steps, tuple(finished), True, -1)  # nothing is chosen at its end

    def idle(self) -> None:
        """No run followed the last one: the next one starts on a whole nanosecond."""
        self.busy_ns += self.due_ns - self._busy_since_ns
        self._busy_since_ns = -1

    def preempt(self, request: int) -> None:
        """Take a request out at a step boundary; its generated tokens are kept."""
        life = self._lives[request]
        life.preemptions += 1
        if life.end < 0:
            return
        life.generated = life.output_tokens - (life.end - self._steps_done)
        stalled = self._stalled
        life.last_token_fixed = (
            self._stalls.leave(request, life.last_token_fixed) if stalled else self._due_fixed
        )
        life.end = -1
        if self._peaks and self._peaks.owner == request:
            self._peaks.owner = NOBODY
        self._decoding -= 1
        self._context -= life.request.prompt_tokens + life.generated

    def adopt(self, requests: Iterable[int]) -> None:
        """Requests that got their tokens elsewhere decode here from the next run on; their KV is here."""
        assert self.run is None, "a request joins between two runs"
        lives, join = self._lives, self._stalls.join
        for request in requests:
            life = lives[request]
            join(request, life.last_token_fixed, self._due_fixed, self._decoding)
            self._join(life)

    def _join(self, life: Lifetime) -> None:
        """It decodes from the next step on."""
        life.end = end = self._steps_done + life.output_tokens - life.generated
        heappush(self._ends, (end, life.request.id))
        if self._peaks:
            self._peaks.join(life, not self._decoding)
        self._decoding += 1
        self._context += life.request.prompt_tokens + life.generated

    def _largest(self) -> int:
        """The largest context of the residents, 0 without any."""
        peaks = self._peaks
        assert peaks is not None
        if peaks.owner != NOBODY:
            return self._steps_done - peaks.offset
        return peaks.largest(self._steps_done, self._ends, self._lives)

    def _fix_due(self) -> None:
        steps = self._steps
        cost = steps * self._first + self._slope * (steps * (steps - 1) >> 1)
        self._due_fixed = due_fixed = self._start_fixed + self._head + cost
        self.due_ns = due_fixed >> FRACTION_BITS

    def _plan_decodes(self) -> None:
        """Decode until the next request finishes, or the steps allowed are done."""
        assert self._decoding, "a decode run without resident requests"
        steps = self._next_end() - self._steps_done
        self._head = 0
        largest = self._largest() if self._peaks else 0
        self._plan_steps(self._decoding, self._context, largest, steps if steps < self._left else self._left)
        self._fix_due()

    def _plan_chunks(self, run: Run) -> None:
        """The first step, and what the decode steps after it will cost until a request finishes."""
        decoding, context = self._decoding, self._context
        residents = decoding if run.decode else 0
        largest = self._largest() if self._peaks else 0
        spread = residents * largest - context if largest and residents else 0
        self._head = self._rows.mixed(residents, context, run.chunks, spread)
        self._first = self._slope = self._steps = 0
        steps = self._left
        if steps:
            context += residents
            largest += 1 if residents else 0
            if decoding:
                missing = self._next_end() - self._steps_done - (1 if residents else 0)
                if missing < steps:
                    steps = missing
            for request, _, _ in run.chunks:
                life = self._lives[request]
                generated = life.generated + 1
                own = life.request.prompt_tokens + generated
                context += own
                if own > largest:
                    largest = own
                missing = life.output_tokens - generated
                if missing < steps:
                    steps = missing
            if steps:
                self._plan_steps(decoding + len(run.chunks), context, largest, steps)
                self._fix_due()
                return
        self._due_fixed = due_fixed = self._start_fixed + self._head
        self.due_ns = due_fixed >> FRACTION_BITS

    def _plan_steps(self, decoding: int, context: int, largest: int, steps: int) -> None:
        """Decode steps of ``decoding`` requests with total ``context``, while one straight piece holds."""
        pieces = self._pieces(decoding)
        if self._peaks:
            spread = decoding * largest - context
            if spread:
                context += self._rows.shift(decoding, spread)
        limit, intercept, slope = pieces[0]
        if context > limit:
            limit, intercept, slope = later_piece(pieces, self.id, decoding, context)
        if context + (steps - 1) * decoding > limit:
            steps = (limit - context) // decoding + 1
        self._first = intercept + slope * context
        self._slope = slope * decoding
        self._steps = steps

    def _next_end(self) -> int:
        """The step counter at which the next resident request has all its tokens."""
        ends, lives = self._ends, self._lives
        while True:
            end, request = ends[0]
            life = lives.get(request)
            if life is not None and life.end == end:
                return end
            heappop(ends)

    def _first_step(self, run: Run, finished: list[int]) -> None:
        """The step with chunks has ended: residents got a token, or were kept waiting."""
        residents = self._decoding
        end_fixed = self._start_fixed + self._head
        if residents and run.decode:
            if self._stalled:
                self._stalls.end(end_fixed)
            else:
                self._gaps(self._head, 0, 1, residents)
            self._steps_done += 1
            self._context += residents
        if run.layers is None or run.layers[1] == self._layers:
            for request, start, tokens in run.chunks:
                life = self._lives[request]
                if start + tokens == life.request.prompt_tokens + life.generated:
                    self._sample(life, end_fixed, finished, run.hand_over)
        if not run.decode and (residents or not run.hand_over):
            self._stalls.passed_over(self._start_fixed, end_fixed, residents, self._decoding - residents)

    def _sample(self, life: Lifetime, token_fixed: int, finished: list[int], hand_over: bool) -> None:
        """A prompt is computed: its request gets a token and decodes from the next step on, here or not."""
        if life.generated:
            self._gaps(token_fixed - life.last_token_fixed, 0, 1, 1)
        else:
            life.first_token_ns = token_fixed >> FRACTION_BITS
        life.generated += 1
        life.last_token_fixed = token_fixed
        if life.generated == life.output_tokens:
            self._finish(life, token_fixed >> FRACTION_BITS)
            finished.append(life.request.id)
        elif not hand_over:
            self._join(life)

    def _finish_decodes(self, finished: list[int]) -> None:
        ends, lives, steps_done, peaks = self._ends, self._lives, self._steps_done, self._peaks
        while ends and ends[0][0] <= steps_done:
            end, request = heappop(ends)
            life = lives.get(request)
            if life is not None and life.end == end:
                self._decoding -= 1
                self._context -= life.request.prompt_tokens + life.output_tokens
                self._finish(life, self.due_ns)
                if peaks and peaks.owner == request:
                    peaks.owner = NOBODY
                finished.append(request)

    def _finish(self, life: Lifetime, now_ns: int) -> None:
        request = life.request
        del self._lives[request.id]
        self._recorder.finished(
            request, life.output_tokens, life.first_token_ns, now_ns, self.id, life.preemptions
        )
