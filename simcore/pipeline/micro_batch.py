"""A micro-batch of a pipelined replica: the requests that decode in it, and the run it was asked for."""

from collections.abc import Sequence

from serving.vocabulary.actions import Chunk, Run
from serving.vocabulary.recorder import Recorder
from simcore.pipeline.lane import Gaps, Lane
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.resident_requests import ResidentRequests


class MicroBatch(ResidentRequests):
    """``lane``: its steps as the stages see them. ``chunks``: prompts of the step in progress.

    A step of prompts alone (``Run.decode`` False) leaves out those who decode.
    """

    __slots__ = ("_began_fixed", "_decode_first", "_rows", "chunks", "lane")

    def __init__(
        self, id: int, index: int, rows: StageCosts, lives: dict[int, Lifetime], recorder: Recorder
    ) -> None:
        super().__init__(id, lives, recorder, rows)
        self._rows = rows
        self._began_fixed = 0
        self._decode_first = True
        self.lane = Lane(index, rows.stages)
        self.chunks: Sequence[Chunk] = ()

    def begin(self, run: Run, boundary_fixed: int) -> None:
        """Its next step, and those after it, are known."""
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
        else:
            if spread:
                context += self._rows.shift(decoding, spread)
            lane.set_decodes(self._rows, decoding, context, generated, self._output_token)

    def allow(self, steps: int) -> None:
        """So many steps may end from now on, fewer where a request ends before or a prompt is computed."""
        if self.chunks:
            self.lane.left = 1
            return
        missing = self._ends[0][0] - self._steps_done
        self.lane.left = missing if missing < steps else steps

    def book(self, finished: list[int]) -> int:
        """The steps of its lane have ended, the prompts of the last one too; returns how many those are."""
        lane = self.lane
        steps, decoding = lane.steps, self._decoding
        if not steps:
            return 0
        chunks, end_fixed = self.chunks, lane.last
        if decoding and (self._decode_first or not chunks):
            if self._delayed_groups:
                self._end_wait(lane.gaps, decoding)
            else:
                for first, slope, count in lane.gaps:
                    self._gaps(first, slope, count, decoding)
            self._steps_done += steps
            self._context += steps * decoding
        if chunks:
            self.chunks = ()
            lives = self._lives
            for request, start, tokens in chunks:
                life = lives[request]
                if start + tokens == life.request.prompt_tokens + life.generated:
                    self._sample(life, end_fixed, finished, False)
            if not self._decode_first:
                joined = self._decoding - decoding
                self._delayed.residents_skipped(self._began_fixed, end_fixed, decoding, joined)
        if self._ends and self._ends[0][0] <= self._steps_done:
            self._finish_decodes(finished, end_fixed >> 24)
        finished.sort()
        return steps

    def _end_wait(self, gaps: Sequence[Gaps], decoding: int) -> None:
        """The first of these steps ends the wait of those whom steps of prompts have left out."""
        token_fixed = self.lane.last
        for first, slope, count in gaps:
            token_fixed -= first * count + slope * (count * (count - 1) >> 1)
        for first, slope, count in gaps:
            if self._delayed_groups:
                self._delayed.end_run(token_fixed, first, slope, count, decoding)
            else:
                self._gaps(first, slope, count, decoding)

    def halt(self, boundary_fixed: int) -> tuple[int, ...]:
        """It goes on later, perhaps elsewhere: those that decode, who take their tokens with them."""
        found = tuple(sorted([request for _, request in self._ends]))
        for request in found:
            self._take_out(request, boundary_fixed, 0)
        return found

    def go_on(self, requests: Sequence[int], boundary_fixed: int) -> None:
        """Those that decoded before it halted, and are still there; until their next token they wait."""
        self._take_in([one for one in requests if one in self._lives], boundary_fixed)

    def holds(self, request: int) -> bool:
        """Whether it decodes here."""
        return any(request == own for _, own in self._ends)

    def take_out(self, request: int, boundary_fixed: int) -> None:
        """It is preempted at this boundary."""
        self._take_out(request, boundary_fixed, 1)

    def clear(self) -> None:
        """All is lost."""
        for _, request in self._ends:
            self._lives[request].end = -1
        self.chunks = ()
