"""Passes of a worker that has one stage of a model: what it reads for them, and what it leaves to be read."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from realexec.memory_of_slot import SlotMemory
from realexec.messages import FromWorker, RunStage, StageDone
from realexec.tensor_memory import Region
from realexec.transports.base import Segment

# Where rows lie, and as they are computed with.
Rows = tuple[Region, torch.Tensor]
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
        # Of each batch: what came out of its last pass, for the next stage, and where what goes in is read.
        self._left: dict[int, Rows] = {}
        self._near: dict[int, Rows] = {}

    def begin(self, run: RunStage) -> None:
        """At once where nothing is to be read, or little, else when it has been."""
        if run.source < 0:
            self._send(self._pass(run))
            return
        mover, (offset, size_bytes) = self._memory.mover, run.place
        rows = sum(tokens for _, _, tokens in run.chunks) + len(run.decode)
        if mover.is_at_hand(run.source, size_bytes):
            region, tensor = self._kept(self._near, run.batch, rows)
            told = mover.bring_now(run.source, [Segment(offset, region.offset, size_bytes)])
            self._came(run, region, tensor, size_bytes, *told)
        else:
            region, tensor = self._memory.rows(rows)
            came = partial(self._came_later, run, region, tensor, size_bytes)
            segments = [Segment(offset, region.offset, size_bytes)]
            mover.bring(run.source, segments, lambda *told: self._later(lambda: came(*told)))

    def _came_later(self, run: RunStage, region: Region, *came: Any) -> None:
        self._came(run, region, *came)
        self._memory.give(region)

    def _kept(self, kept: dict[int, Rows], batch: int, rows: int) -> Rows:
        """Room for rows of a batch, the same as before while they are as many."""
        before = kept.get(batch)
        if before is None or before[1].shape[0] != rows:
            if before is not None:
                self._memory.give(kept.pop(batch)[0])
            kept[batch] = self._memory.rows(rows)
        return kept[batch]

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
        if cause or not self._holds(run):
            why = cause or GONE, lost_peer
            self._send(StageDone(run.number, 0, 0, {}, (), (), 0, *why, read_cpu_ns=read_cpu_ns))
            return
        began_ns = time.thread_time_ns()
        self._memory.from_peer(region)
        self._take(run, tensor)
        taken_ns = time.thread_time_ns() - began_ns
        self._send(self._pass(run, size_bytes, taken_ns, read_cpu_ns))

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

    def _pass(self, run: RunStage, read_bytes: int = 0, taken_ns: int = 0, read_cpu_ns: int = 0) -> StageDone:
        if not self._holds(run):
            return StageDone(run.number, 0, 0, {}, (), (), 0, GONE)
        engine, last = self._memory.engine, run.layers[1] == self._memory.model_layers
        if not last:  # who sampled them knows them
            engine.told(dict(run.decode))
        started_ns, began_ns = time.monotonic_ns(), time.thread_time_ns()
        decode = [request for request, _ in run.decode]
        sampled, finished = engine.run_layers(run.chunks, run.layers, decode, hand_over=False)
        self._memory.wait()
        place = () if last else self._leave(run, [*[one[0] for one in run.chunks], *decode])
        tokens = {request: (token,) for request, token in sampled.items()}
        costs = time.thread_time_ns() - began_ns + taken_ns, read_cpu_ns
        times = started_ns, time.monotonic_ns()
        return StageDone(run.number, *times, tokens, finished, place, read_bytes, "", None, *costs)

    def _leave(self, run: RunStage, requests: list[int]) -> tuple[int, ...]:
        """Where the next stage reads it. What the batch left in its last round has been read."""
        hidden = torch.cat([self._memory.engine.hidden_of(self._memory.engine.held(one)) for one in requests])
        region, tensor = self._kept(self._left, run.batch, hidden.shape[0])
        tensor.copy_(hidden)
        self._memory.for_peer(region)
        return region.offset, tensor.numel() * tensor.dtype.itemsize
