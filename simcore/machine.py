"""One replica in virtual time: its resident requests and the run in progress.

The step counter ``steps_done`` makes a run O(1): a decoding request keeps base = context - steps_done and
ends when the counter reaches its ``end``, so n requests of total context sum_base + n * steps_done advance
by one addition.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Protocol

from serving.actions import Chunk, Run
from serving.errors import UserError
from serving.events import Ran
from serving.recorder import Recorder
from simcore.lifetime import Lifetime
from simcore.segment import FRACTION_BITS, FRACTION_MASK, cost_of_steps, steps_to_reach

Pieces = tuple[tuple[int, int, int], ...]


class StepTimes(Protocol):
    """Step times in fixed point (hwmodels.rows.StepRows)."""

    def decode(self, n: int) -> Pieces:
        """(context limit, intercept, slope) pieces of a decode step of ``n`` sequences."""

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk]) -> int:
        """A step with prompt chunks and ``n`` decodes of total ``context``."""


class Machine:
    """Executes runs for one replica. Times given to it never go back."""

    __slots__ = (
        "_base_sum",
        "_cost",
        "_decoding",
        "_ends",
        "_first",
        "_gaps",
        "_head",
        "_left",
        "_lives",
        "_recorder",
        "_remainder",
        "_rows",
        "_slope",
        "_stalled",
        "_start_ns",
        "_steps",
        "_steps_done",
        "_stop",
        "busy_ns",
        "due_ns",
        "id",
        "run",
    )

    def __init__(self, id: int, rows: StepTimes, lives: dict[int, Lifetime], recorder: Recorder) -> None:
        self.id = id
        self.busy_ns = 0
        self.due_ns = -1
        self._rows = rows
        self._lives = lives
        self._recorder = recorder
        self._gaps = recorder.gaps
        self._decoding = 0
        self._base_sum = 0
        self._steps_done = 0
        self._ends: list[tuple[int, int]] = []
        self.run: Run | None = None  # in progress
        self._start_ns = 0
        self._remainder = 0
        # The run in progress: a first step with chunks (0 without), then steps of cost first + i * slope.
        self._head = self._first = self._slope = self._steps = self._cost = 0
        self._left = 0  # steps it may still run after those with chunks
        self._stop = False  # it ends at the boundary it is due at
        # [time of last token in fixed point, requests]: who waits for its next token since before this pass
        self._stalled: list[list[int]] = []

    def start(self, now_ns: int, run: Run) -> int:
        """Begin a run; returns when it is due."""
        assert self.run is None, "one pass at a time"
        self.run = run
        self._stop = run.max_steps == 1
        if run.chunks:
            self._left = run.max_steps - 1
            self._plan_chunks(run)
            self._begin(now_ns)
        else:
            self._left = run.max_steps
            self._go_on(now_ns)
        return self.due_ns

    def interrupt(self, now_ns: int) -> bool:
        """End the run at the first boundary not before now; True when it became due earlier."""
        if self.run is None:
            return False
        self._stop = True
        if not self._steps:
            return False
        elapsed = ((now_ns - self._start_ns) << FRACTION_BITS) - self._remainder - self._head
        steps = 0 if elapsed <= 0 and self._head else steps_to_reach(self._first, self._slope, elapsed)
        if steps >= self._steps:
            return False
        self._steps = steps
        self._cost = self._head + cost_of_steps(self._first, self._slope, steps)
        self.due_ns = self._start_ns + ((self._remainder + self._cost) >> FRACTION_BITS)
        return True

    def complete(self) -> Ran:
        """The run is due: account its steps and tell what happened. ``run`` is None unless it goes on."""
        run, now_ns, steps = self.run, self.due_ns, self._steps
        assert run is not None
        self.busy_ns += now_ns - self._start_ns
        finished: list[int] = []
        head = self._head
        tail_start = (self._start_ns << FRACTION_BITS) + self._remainder + head
        self._remainder = (self._remainder + self._cost) & FRACTION_MASK
        if head:
            self._first_step(run, tail_start, finished)
        if steps:
            if self._stalled:
                self._end_stalls(tail_start)
            else:
                self._gaps(self._first, self._slope, steps, self._decoding)
            self._steps_done += steps
            self._left -= steps
        if self._ends and self._ends[0][0] <= self._steps_done:
            self._finish_decodes(now_ns, finished)
        if len(finished) > 1:
            finished.sort()
        steps = steps + 1 if head else steps
        if self._stop or not self._left or not self._decoding or (finished and run.until_finish):
            self.run = None
            return Ran(self.id, run.epoch, steps, tuple(finished))
        self._go_on(now_ns)
        return Ran(self.id, run.epoch, steps, tuple(finished), True)

    def idle(self) -> None:
        """No run followed the last one: the next one starts on a whole nanosecond."""
        self._remainder = 0

    def preempt(self, request: int) -> None:
        """Take a request out at a step boundary; its generated tokens are kept."""
        life = self._lives[request]
        life.preemptions += 1
        if life.end < 0:
            return
        life.generated = life.output_tokens - (life.end - self._steps_done)
        life.last_token_fixed = self._last_token_of(life)
        life.end = -1
        self._decoding -= 1
        self._base_sum -= life.base

    def _begin(self, now_ns: int) -> None:
        """The steps planned start now."""
        steps = self._steps
        self._start_ns = now_ns
        self._cost = cost = self._head + steps * self._first + self._slope * (steps * (steps - 1) >> 1)
        self.due_ns = now_ns + ((self._remainder + cost) >> FRACTION_BITS)

    def _go_on(self, now_ns: int) -> None:
        """Decode until the next request finishes, or the steps allowed are done."""
        assert self._decoding, "a decode run without resident requests"
        steps = self._next_end() - self._steps_done
        self._head = 0
        self._plan_decode(
            self._decoding,
            self._base_sum + self._decoding * self._steps_done,
            steps if steps < self._left else self._left,
        )
        self._begin(now_ns)

    def _plan_chunks(self, run: Run) -> None:
        """The first step, and what the decode steps after it will cost until one finishes."""
        decoding, steps_done = self._decoding, self._steps_done
        residents = decoding if run.decode else 0
        context = self._base_sum + decoding * steps_done
        self._head = self._rows.mixed(residents, context, run.chunks)
        self._first = self._slope = self._steps = 0
        longest = self._left
        if not longest:
            return
        after = context + residents
        if decoding:
            longest = min(longest, self._next_end() - steps_done - (1 if residents else 0))
        for request, _, _ in run.chunks:
            life = self._lives[request]
            generated = life.generated + 1
            after += life.request.prompt_tokens + generated
            missing = life.output_tokens - generated
            if missing < longest:
                longest = missing
        if longest:
            self._plan_decode(decoding + len(run.chunks), after, longest)

    def _plan_decode(self, decoding: int, context: int, steps: int) -> None:
        """Decode steps of ``decoding`` requests with total ``context``, while one straight piece holds."""
        pieces = self._rows.decode(decoding)
        limit, intercept, slope = pieces[0]
        if context > limit:
            limit, intercept, slope = self._later_piece(pieces, context)
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
            heappop(ends)  # left by preemption

    def _later_piece(self, pieces: Pieces, context: int) -> tuple[int, int, int]:
        for piece in pieces:
            if context <= piece[0]:
                return piece
        raise UserError(
            f"replica {self.id} decodes {self._decoding} sequences with {context} tokens of context, beyond "
            f"the {pieces[-1][0]} its step-time model answers for: write a smaller engine.kv_tokens"
        )

    def _first_step(self, run: Run, end_fixed: int, finished: list[int]) -> None:
        """The step with chunks has ended: residents got a token, or were kept waiting."""
        residents = self._decoding
        if residents and run.decode:
            self._gaps(self._head, 0, 1, residents)
            self._steps_done += 1
        self._sample(run.chunks, end_fixed, finished)
        if not run.decode and (residents or self._stalled):
            if not self._stalled:
                self._stalled.append([end_fixed - self._head, residents])
            joined = self._decoding - residents
            if joined:
                self._stalled.append([end_fixed, joined])

    def _end_stalls(self, start_fixed: int) -> None:
        """The first decode step after prefill passes: gaps reach back to each request's last token."""
        first, slope, steps = self._first, self._slope, self._steps
        for last_token_fixed, requests in self._stalled:
            self._gaps(start_fixed + first - last_token_fixed, 0, 1, requests)
        self._stalled.clear()
        if steps > 1:
            self._gaps(first + slope, slope, steps - 1, self._decoding)

    def _sample(self, chunks: Sequence[Chunk], token_fixed: int, finished: list[int]) -> None:
        """Requests whose prompt is now computed get a token and decode from the next step on."""
        for request, start, tokens in chunks:
            life = self._lives[request]
            known = life.request.prompt_tokens + life.generated
            if start + tokens < known:
                continue
            if life.generated:
                self._gaps(token_fixed - life.last_token_fixed, 0, 1, 1)
            else:
                life.first_token_ns = token_fixed >> FRACTION_BITS
            life.generated += 1
            life.last_token_fixed = token_fixed
            if life.generated == life.output_tokens:
                self._finish(life, token_fixed >> FRACTION_BITS)
                finished.append(request)
                continue
            life.base = known + 1 - self._steps_done
            life.end = self._steps_done + life.output_tokens - life.generated
            heappush(self._ends, (life.end, request))
            self._decoding += 1
            self._base_sum += life.base

    def _finish_decodes(self, now_ns: int, finished: list[int]) -> None:
        ends, lives, steps_done = self._ends, self._lives, self._steps_done
        while ends and ends[0][0] <= steps_done:
            end, request = heappop(ends)
            life = lives.get(request)
            if life is not None and life.end == end:  # else left by preemption
                self._decoding -= 1
                self._base_sum -= life.base
                self._finish(life, now_ns)
                finished.append(request)

    def _finish(self, life: Lifetime, now_ns: int) -> None:
        del self._lives[life.request.id]
        self._recorder.finished(
            life.request, life.output_tokens, life.first_token_ns, now_ns, self.id, life.preemptions
        )

    def _last_token_of(self, life: Lifetime) -> int:
        """When a resident's last token appeared, and one fewer waits since then."""
        if not self._stalled:
            return (self.due_ns << FRACTION_BITS) + self._remainder
        last = max(life.last_token_fixed, self._stalled[0][0])
        group = next(group for group in self._stalled if group[0] == last)
        group[1] -= 1
        return last
