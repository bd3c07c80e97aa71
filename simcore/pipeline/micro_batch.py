"""A micro-batch of a pipelined replica: the requests that decode in it, and its requested run."""

from collections.abc import Sequence
from typing import Final

from serving.vocabulary.actions import Chunk, Run
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import FRACTION_BITS
from simcore.pipeline.lane import Gaps, Lane
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.resident_requests import ResidentRequests

FOREVER: Final = 1 << 62  # number of steps


class MicroBatch(ResidentRequests):
    """``lane``: its steps as the stages see them. ``chunks``: prompts of the step in progress.

    A step of prompts alone (``Run.decode`` False) leaves decoding requests out. ``goes_on``: a step with
    prompts is not reported if more steps are allowed and a request decodes after it.
    """

    __slots__ = (
        "_allowed", "_began_fixed", "_decode_first", "_goes_on", "_rows", "_until_end", "chunks", "lane",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        index: int,
        rows: StageCosts,
        *,
        lives: dict[int, Lifetime],
        recorder: Recorder,
        goes_on: bool = False,
    ) -> None:
        super().__init__(id, lives, recorder, rows)
        self._rows = rows
        self._goes_on = goes_on and self._largest_context is None
        self._allowed = 0  # number of steps that may still end
        self._until_end = 1  # with prompts: number of steps until a request ends
        self._began_fixed = 0
        self._decode_first = True
        self.lane = Lane(index, rows.stages)
        self.chunks: Sequence[Chunk] = ()

    def begin(self, run: Run, boundary_fixed: int) -> None:
        """Set its next step, and those after it."""
        lane, decoding, context = self.lane, self._decoding, self._context
        lane.last = self._began_fixed = boundary_fixed
        self.chunks, self._decode_first = run.chunks, run.decode
        if run.chunks and not run.decode:
            decoding = context = 0
        largest = self._largest() if self._largest_context and decoding else 0
        spread = decoding * largest - context if largest else 0
        generated = self._generated_cost(context) if self._output_token and decoding else 0
        if run.chunks:
            tokens = decoding + sum([chunk[2] for chunk in run.chunks])
            costs = self._rows.mixed(decoding, context, run.chunks, spread)
            if generated:
                costs = (*costs[:-1], costs[-1] + generated)
            lane.set_step(costs, self._rows.hops(tokens))
            self._until_end = self._plan_decodes(run.chunks) if self._goes_on and run.decode else 1
        else:
            if spread:
                context += self._rows.shift(decoding, spread)
            lane.set_decodes(self._rows, decoding, context, generated, self._output_token)

    def _plan_decodes(self, chunks: Sequence[Chunk]) -> int:
        """Plan the decodes after a step with prompts; returns the number of steps until a request ends."""
        lives, decoding = self._lives, self._decoding
        context = self._context + decoding
        least = self._ends[0][0] - self._steps_done if decoding else FOREVER
        for request, start, tokens in chunks:
            life = lives[request]
            known = life.request.prompt_tokens + life.generated
            if start + tokens == known:
                decoding += 1
                context += known + 1
                least = min(least, life.output_tokens - life.generated)
        if not decoding:
            return 1
        if least > 1:
            self.lane.then_decodes(self._rows, decoding, context)
        return least

    def allow(self, steps: int) -> None:
        """Allow ``steps`` steps to end from now on, fewer if a request ends earlier."""
        self._allowed = steps
        missing = self._until_end if self.chunks else self._ends[0][0] - self._steps_done
        self.lane.left = missing if missing < steps else steps

    def decode_on(self, boundary_fixed: int) -> bool:
        """After a request has ended, continue the others with the allowed steps; False if there are none."""
        if self._allowed < 1 or not self._decoding or not self._goes_on:
            return False
        self.lane.last = self._began_fixed = boundary_fixed
        self.lane.set_decodes(self._rows, self._decoding, self._context)
        self.allow(self._allowed)
        return True

    def book(self, finished: list[int]) -> int:
        """Book the ended steps of its lane, prompts included; returns the number of steps."""
        lane = self.lane
        told = lane.steps
        if not told:
            return 0
        steps, chunks, gaps = told, self.chunks, lane.gaps()
        self._allowed -= steps
        if chunks:
            wait, slope, count = gaps[0]
            self._book_prompts(chunks, wait, finished)
            steps, gaps = steps - 1, gaps[1:]
            if count > 1:
                gaps.insert(0, (wait + slope, slope, count - 1))
        decoding = self._decoding
        if steps and decoding:
            if self._delayed_groups:
                self._end_wait(gaps, decoding)
            else:
                for first, slope, count in gaps:
                    self._gaps(first, slope, count, decoding)
            self._steps_done += steps
            self._context += steps * decoding
        if self._ends and self._ends[0][0] <= self._steps_done:
            self._finish_decodes(finished, (lane.origin + lane.last) >> FRACTION_BITS)
        finished.sort()
        return told

    def _book_prompts(self, chunks: Sequence[Chunk], wait: int, finished: list[int]) -> None:
        """Book the step with prompts, which ended ``wait`` after its begin."""
        decoding, end_fixed, lives = self._decoding, self._began_fixed + wait, self._lives
        self.chunks = ()
        if decoding and self._decode_first:
            if self._delayed_groups:
                self._delayed.end(end_fixed)
            else:
                self._gaps(wait, 0, 1, decoding)
            self._steps_done += 1
            self._context += decoding
        for request, start, tokens in chunks:
            life = lives.get(request)  # None: its last chunk was in another batch, and it is complete
            if life is not None and start + tokens == life.request.prompt_tokens + life.generated:
                self._sample(life, end_fixed, finished, False)
        if not self._decode_first:
            joined = self._decoding - decoding
            self._delayed.residents_skipped(self._began_fixed, end_fixed, decoding, joined)

    def _end_wait(self, gaps: Sequence[Gaps], decoding: int) -> None:
        """The first of these steps ends the wait of requests that steps of prompts left out."""
        token_fixed = self.lane.origin + self.lane.last
        for first, slope, count in gaps:
            token_fixed -= first * count + slope * (count * (count - 1) >> 1)
        for first, slope, count in gaps:
            if self._delayed_groups:
                self._delayed.end_run(token_fixed, first, slope, count, decoding)
            else:
                self._gaps(first, slope, count, decoding)

    def halt(self, boundary_fixed: int) -> tuple[int, ...]:
        """Take out the decoding requests, with their tokens; the batch continues later, perhaps elsewhere."""
        found = tuple(sorted([request for _, request in self._ends]))
        for request in found:
            self._take_out(request, boundary_fixed, 0)
        return found

    def go_on(self, requests: Sequence[int], boundary_fixed: int) -> None:
        """Take in requests that decoded before the halt and still exist; they wait for their next token."""
        self._take_in([request for request in requests if request in self._lives], boundary_fixed)

    def holds(self, request: int) -> bool:
        """Whether the request decodes here."""
        return any(request == own for _, own in self._ends)

    def take_out(self, request: int, boundary_fixed: int) -> None:
        """Preempt the request at this boundary."""
        self._take_out(request, boundary_fixed, 1)

    def clear(self) -> None:
        """Drop all requests."""
        for _, request in self._ends:
            self._lives[request].end = -1
        self.chunks = ()
