"""Passes of a worker that has one stage of a model: what it reads for them, and what it leaves to be read."""

import time
from collections.abc import Callable
from functools import partial

import torch

from realexec.memory_of_slot import SlotMemory
from realexec.messages import FromWorker, RunStage, StageDone
from realexec.tensor_memory import Region
from realexec.transports.base import Segment

GONE = "its requests are not here any more"


class StageWork:
    """In the order in which their inputs are here. Only the compute thread calls it, but for what it is told
    ``later``, between two passes."""

    def __init__(
        self,
        memory: SlotMemory,
        send: Callable[[FromWorker], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._memory, self._send, self._later = memory, send, later
        self._left: dict[int, Region] = {}  # what came out of the last pass of each batch, for the next stage

    def begin(self, run: RunStage) -> None:
        """At once where nothing is to be read, else when it has been."""
        if run.source < 0:
            self._end(run, self._pass(run), 0)
            return
        offset, size_bytes = run.place
        rows = sum(tokens for _, _, tokens in run.chunks) + len(run.decode)
        region, tensor = self._memory.rows(rows)
        segments = [Segment(offset, region.offset, size_bytes)]
        came = partial(self._came, run, region, tensor, size_bytes)
        self._memory.mover.bring(run.source, segments, lambda *told: self._later(lambda: came(*told)))

    def _came(
        self,
        run: RunStage,
        region: Region,
        tensor: torch.Tensor,
        size_bytes: int,
        cause: str,
        lost_peer: int | None,
        read_cpu_ns: int,
    ) -> None:
        done = StageDone(run.number, 0, 0, {}, (), (), 0, cause or GONE, lost_peer)
        if not cause and self._holds(run):
            began_ns = time.thread_time_ns()
            self._memory.from_peer(region)
            self._take(run, tensor)
            taken_ns = time.thread_time_ns() - began_ns
            done = self._pass(run)
            done = done._replace(cpu_ns=done.cpu_ns + taken_ns)
        self._memory.give(region)
        self._end(run, done._replace(read_cpu_ns=read_cpu_ns), 0 if done.cause else size_bytes)

    def _holds(self, run: RunStage) -> bool:
        """Whether all its requests are here: they failed meanwhile where another stage is lost."""
        engine = self._memory.engine
        return all(engine.holds(one[0]) for one in (*run.chunks, *run.decode))

    def _take(self, run: RunStage, tensor: torch.Tensor) -> None:
        """What the stage before computed, row by row."""
        engine, at = self._memory.engine, 0
        counts = [(request, tokens) for request, _, tokens in run.chunks]
        for request, tokens in [*counts, *[(request, 1) for request, _ in run.decode]]:
            held = engine.held(request)
            held.hidden, held.depth = tensor[at : at + tokens].clone(), run.layers[0]
            at += tokens

    def _pass(self, run: RunStage) -> StageDone:
        if not self._holds(run):
            return StageDone(run.number, 0, 0, {}, (), (), 0, GONE)
        engine, last = self._memory.engine, run.layers[1] == self._memory.model_layers
        if not last:  # who sampled them knows them
            engine.told(dict(run.decode))
        started_ns, began_ns = time.monotonic_ns(), time.thread_time_ns()
        decode = [request for request, _ in run.decode]
        sampled, finished = engine.run_layers(run.chunks, run.layers, decode, hand_over=False)
        place = () if last else self._leave(run, [*[one[0] for one in run.chunks], *decode])
        tokens = {request: (token,) for request, token in sampled.items()}
        cpu_ns = time.thread_time_ns() - began_ns
        ended_ns = time.monotonic_ns()
        return StageDone(run.number, started_ns, ended_ns, tokens, finished, place, 0, "", cpu_ns=cpu_ns)

    def _leave(self, run: RunStage, requests: list[int]) -> tuple[int, ...]:
        """Where the next stage reads it. What the batch left in its last round has been read."""
        before = self._left.pop(run.batch, None)
        if before is not None:
            self._memory.give(before)
        hidden = torch.cat([self._memory.engine.hidden_of(self._memory.engine.held(one)) for one in requests])
        region, tensor = self._memory.rows(hidden.shape[0])
        tensor.copy_(hidden)
        self._left[run.batch] = region
        self._memory.for_peer(region)
        return region.offset, tensor.numel() * tensor.dtype.itemsize

    def _end(self, run: RunStage, done: StageDone, read_bytes: int) -> None:
        self._send(done._replace(read_bytes=read_bytes))
