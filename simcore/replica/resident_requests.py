"""The requests that decode on one replica: their number, their context, and when each has all tokens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from serving.vocabulary.actions import Chunk
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import FRACTION_BITS
from simcore.replica.lifetime import Lifetime
from simcore.replica.step_times import ResidentTimes

# Requests that have waited for their next token since before the present pass, and since when.
# If a pass leaves the resident requests out (prefill-first batching, some layers of prompts), their next
# inter-token gap is longer: it begins at their last token. Requests that got their first token from such a
# pass wait from then on.


class DelayedTokens:
    """Groups of [time of last token in fixed point, requests], the longest waiting first.

    Empty if all resident requests got a token in the last step.
    """

    __slots__ = ("_gaps", "_own", "groups")

    def __init__(self, gaps: Callable[[int, int, int, int], None]) -> None:
        self._gaps = gaps
        self.groups: list[list[int]] = []
        self._own: dict[int, int] = {}  # joined requests without a token here yet: time of their last token

    def residents_skipped(self, start_fixed: int, end_fixed: int, residents: int, joined: int) -> None:
        """Note a pass that left ``residents`` out, and gave ``joined`` others a token at its end."""
        if residents and not self.groups:
            self.groups.append([start_fixed, residents])
        if joined and self.groups:
            self.groups.append([end_fixed, joined])

    def join(self, request: int, last_token_fixed: int, boundary_fixed: int, residents: int) -> None:
        """Add a request that decoded elsewhere; ``residents`` got a token at the last boundary, or wait."""
        if not self.groups:
            self.groups.append([boundary_fixed, residents])
        self._own[request] = last_token_fixed

    def waits(self, token_fixed: int) -> list[tuple[int, int]]:
        """Give every request a token now; returns (gap, requests)."""
        gaps = [(token_fixed - last, 1) for last in self._own.values()]
        gaps += [(token_fixed - last, requests) for last, requests in self.groups if requests]
        self._own.clear()
        self.groups.clear()
        return gaps

    def end(self, token_fixed: int) -> None:
        """Give every request a token now."""
        for gap, requests in self.waits(token_fixed):
            self._gaps(gap, 0, 1, requests)

    def end_run(self, start_fixed: int, first: int, slope: int, steps: int, residents: int) -> None:
        """Handle decode steps of cost ``first + i * slope``: the first one ends the wait."""
        self.end(start_fixed + first)
        if steps > 1:
            self._gaps(first + slope, slope, steps - 1, residents)

    def leave(self, request: int, last_token_fixed: int) -> int:
        """Take a waiting request out; returns when its last token appeared.

        ``last_token_fixed`` is the time of the token from its prompt, so an upper bound gives its group: a
        request that has decoded since is in the first group.
        """
        last = self._own.pop(request, None)
        if last is None:
            last = max(last_token_fixed, self.groups[0][0])
            group = next(group for group in self.groups if group[0] == last)
            group[1] -= 1
        if not self._own and not any(requests for _, requests in self.groups):
            self.groups.clear()  # nobody is left: whoever decodes here next has not waited
        return last


# The largest context among the resident requests of one machine, and their prompts.
# All contexts grow by one per step, so their order is fixed: a request with context c at step counter s is
# stored as s - c, the largest context having the smallest value. When its owner leaves, the other requests
# are scanned once.

NO_REQUEST: Final = -1


class LargestContext:
    """``offset``: step counter minus the largest context; valid while there is an ``owner``.

    ``prompt_tokens``: number of prompt tokens of all resident requests; the other tokens are generated.
    """

    __slots__ = ("offset", "owner", "prompt_tokens")

    def __init__(self) -> None:
        self.owner = NO_REQUEST
        self.offset = 0
        self.prompt_tokens = 0

    def join(self, life: Lifetime, alone: bool) -> None:
        """A request decodes from the next step on, ``alone`` if no other does; its ``end`` is known."""
        self.prompt_tokens += life.request.prompt_tokens
        offset = life.end - life.request.prompt_tokens - life.output_tokens
        if alone or (self.owner != NO_REQUEST and offset < self.offset):
            self.owner, self.offset = life.request.id, offset

    def leave(self, life: Lifetime) -> None:
        """The request stops decoding."""
        self.prompt_tokens -= life.request.prompt_tokens
        if self.owner == life.request.id:
            self.owner = NO_REQUEST

    def largest(self, steps_done: int, ends: Iterable[tuple[int, int]], lives: Mapping[int, Lifetime]) -> int:
        """The largest context, including the token that the next step feeds; 0 if no request decodes.

        ``ends``: (step counter of the end, request) of the resident requests.
        """
        if self.owner == NO_REQUEST:
            offset = steps_done
            for end, request in ends:
                life = lives[request]
                own = end - life.request.prompt_tokens - life.output_tokens
                if own < offset:
                    self.owner, offset = request, own
            self.offset = offset
            if self.owner == NO_REQUEST:
                return 0
        return steps_done - self.offset


class ResidentRequests:
    """The request state of a machine. The machine inherits it, which saves every event a look-up.

    Some step times (``rows``) depend on the largest context, or on the tokens that residents have generated.
    """

    __slots__ = (
        "_context", "_decoding", "_delayed", "_delayed_groups", "_ends", "_gaps", "_largest_context",
        "_lives", "_output_token", "_recorder", "_steps_done", "id", "preemption_losses",
    )  # fmt: skip

    def __init__(self, id: int, lives: dict[int, Lifetime], recorder: Recorder, rows: ResidentTimes) -> None:
        self.id = id
        self._lives = lives
        self._recorder = recorder
        self._gaps = recorder.gaps
        # Their number, the sum of their contexts (each counts the token its next step feeds), when they end.
        self._decoding = self._context = 0
        self._ends: list[tuple[int, int]] = []  # a heap of (step counter, request)
        self._steps_done = 0
        self.preemption_losses: list[tuple[int, int]] = []  # (request, fixed): until it was computed again
        self._delayed = DelayedTokens(recorder.gaps)
        self._delayed_groups = self._delayed.groups  # saves an attribute look-up on the hot path
        self._output_token = rows.output_token
        self._largest_context = LargestContext() if rows.skewed or rows.output_token else None

    @property
    def decoding(self) -> int:
        """Number of requests that decode here."""
        return self._decoding

    def _take_in(self, requests: Iterable[int], boundary_fixed: int) -> None:
        lives, join = self._lives, self._delayed.join
        for request in requests:
            life = lives[request]
            join(request, life.last_token_fixed, boundary_fixed, self._decoding)
            self._join(life)

    def _join(self, life: Lifetime) -> None:
        """The request decodes from the next step on."""
        request = life.request
        life.end = end = self._steps_done + life.output_tokens - life.generated
        heappush(self._ends, (end, request.id))
        if self._largest_context:
            self._largest_context.join(life, not self._decoding)
        self._decoding += 1
        self._context += request.prompt_tokens + life.generated

    def _take_out(self, request: int, boundary_fixed: int, preemptions: int) -> None:
        """The request leaves the batch at this boundary; its generated tokens are kept."""
        life = self._lives[request]
        life.preemptions += preemptions
        if preemptions and life.preempted_fixed < 0:
            life.preempted_fixed = boundary_fixed
        if life.end < 0:
            return
        life.generated = life.output_tokens - (life.end - self._steps_done)
        delayed = self._delayed_groups
        life.last_token_fixed = (
            self._delayed.leave(request, life.last_token_fixed) if delayed else boundary_fixed
        )
        self._leave(life)

    def _leave(self, life: Lifetime) -> None:
        """A request with tokens to come stops decoding. Rare, so the heap may be rebuilt."""
        request = life.request
        self._ends.remove((life.end, request.id))
        heapify(self._ends)
        life.end = -1
        if self._largest_context:
            self._largest_context.leave(life)
        self._decoding -= 1
        self._context -= request.prompt_tokens + life.generated

    def _generated_cost(self, context: int, chunks: Sequence[Chunk] = ()) -> int:
        """What the generated tokens of residents, and of requests of ``chunks``, add to a step."""
        assert self._largest_context is not None
        prompts = self._largest_context.prompt_tokens
        for request, _, _ in chunks:
            prompts += self._lives[request].request.prompt_tokens
        return self._output_token * (context - prompts)

    def _largest(self) -> int:
        """The largest context of the resident requests, 0 without any."""
        largest_context = self._largest_context
        assert largest_context is not None
        if largest_context.owner != NO_REQUEST:
            return self._steps_done - largest_context.offset
        return largest_context.largest(self._steps_done, self._ends, self._lives)

    def _sample(self, life: Lifetime, token_fixed: int, finished: list[int], hand_over: bool) -> None:
        """A prompt is computed: its request gets a token and decodes here next, unless it is handed over."""
        if life.generated:
            self._gaps(token_fixed - life.last_token_fixed, 0, 1, 1)
        else:
            life.first_token_ns = token_fixed >> FRACTION_BITS
        if life.preempted_fixed >= 0:
            self.preemption_losses.append((life.request.id, token_fixed - life.preempted_fixed))
            life.preempted_fixed = -1
        life.generated += 1
        life.last_token_fixed = token_fixed
        if life.generated == life.output_tokens:
            self._finish(life, token_fixed >> FRACTION_BITS)
            finished.append(life.request.id)
        elif not hand_over:
            self._join(life)

    def _finish_decodes(self, finished: list[int], now_ns: int) -> None:
        """Requests with all tokens leave."""
        ends, lives, done, largest_context = self._ends, self._lives, self._steps_done, self._largest_context
        while ends and ends[0][0] <= done:
            request = heappop(ends)[1]
            life = lives[request]
            self._decoding -= 1
            self._context -= life.request.prompt_tokens + life.output_tokens
            self._finish(life, now_ns)
            if largest_context:
                largest_context.leave(life)
            finished.append(request)

    def _finish(self, life: Lifetime, now_ns: int) -> None:
        request = life.request
        del self._lives[request.id]
        self._recorder.finished(
            request, life.output_tokens, life.first_token_ns, now_ns, self.id, life.preemptions
        )
