"""A micro-batch of a pipelined replica: the requests that decode in it, and the run it was asked for."""

from collections.abc import Sequence

from serving.vocabulary.actions import Chunk, Run
from serving.vocabulary.recorder import Recorder
from simcore.pipeline.lane import Lane
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.resident_requests import ResidentRequests


class MicroBatch(ResidentRequests):
    """``lane``: its steps as the stages see them. ``chunks``: prompts of the step in progress."""

    __slots__ = ("_rows", "chunks", "lane")

    def __init__(
        self, id: int, index: int, rows: StageCosts, lives: dict[int, Lifetime], recorder: Recorder
    ) -> None:
        super().__init__(id, lives, recorder, rows)
        assert not rows.output_token, "generated tokens take no time of their own in stages"
        self._rows = rows
        self.lane = Lane(index, rows.stages)
        self.chunks: Sequence[Chunk] = ()

    def begin(self, run: Run, boundary_fixed: int) -> None:
        """Its next step, and those after it, are known."""
        lane, decoding, context = self.lane, self._decoding, self._context
        lane.last = boundary_fixed
        self.chunks = run.chunks
        largest = self._largest() if self._largest_context else 0
        spread = decoding * largest - context if largest else 0
        if run.chunks:
            tokens = decoding + sum([chunk[2] for chunk in run.chunks])
            costs = self._rows.mixed(decoding, context, run.chunks, spread)
            lane.set_step(costs, self._rows.hops(tokens))
        else:
            if spread:
                context += self._rows.shift(decoding, spread)
            lane.set_decodes(self._rows, decoding, context)

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
        if decoding:
            for first, slope, count in lane.gaps:
                self._gaps(first, slope, count, decoding)
            self._steps_done += steps
            self._context += steps * decoding
        chunks, end_fixed = self.chunks, lane.last
        if chunks:
            self.chunks = ()
            lives = self._lives
            for request, start, tokens in chunks:
                life = lives[request]
                if start + tokens == life.request.prompt_tokens + life.generated:
                    self._sample(life, end_fixed, finished, False)
        if self._ends and self._ends[0][0] <= self._steps_done:
            self._finish_decodes(finished, end_fixed >> 24)
        finished.sort()
        return steps

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
