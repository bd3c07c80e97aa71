"""Runs rounds on a worker that has one stage of a model. A round is one pass of each stage over a batch.

The driver sends `RunRounds` once to every worker on the path of a batch. In each pass a worker reads its
input rows from the worker of the previous stage and computes its layers. Then it sends `Passed` to the worker
of the next stage, with the place of its output rows in memory. The worker of the last stage sends the sampled
tokens to the worker of the first stage, which begins the next round with them. It sends a report to the
driver when a request has finished, when all rounds of `RunRounds` have run, or after `StopRounds`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from realexec.memory.tensor_memory import Region
from realexec.transports.base import Segment
from realexec.wire.messages import Alive, FromWorker, Passed, RoundsDone, RunRounds
from realexec.wire.stage_costs import StageCosts
from realexec.worker.mover import ReadResult
from realexec.worker.slot_memory import SlotMemory
from realexec.worker.stage_peers import StageChannels

# Rows of hidden states: their region of the worker's memory, and the tensor that is computed with.
Rows = tuple[Region, torch.Tensor]
GONE: Final = "its requests are no longer on this worker"
# A worker sends `Alive` at the end of a pass if it sent none for this long. The driver's timeout for reports
# is much longer, so a worker that computes without a report is not taken for dead.
ALIVE_NS: Final = 1_000_000_000
_COSTS: Final = len(StageCosts._fields)


@dataclass(slots=True, kw_only=True)
class _Rounds:
    """The rounds of one `RunRounds`, which is ``what``. ``stage``: number of this worker's stage, from 0.

    Only the worker of the last stage collects what its report contains: ``ends_ns``, the end of each round;
    ``tokens``, the sampled tokens of each request; ``costs``, the sums over the rounds, with four numbers for
    each stage. ``told``: whether this worker has sent the report, or has reported that it cannot go on.
    """

    what: RunRounds
    stage: int
    ends_ns: list[int] = field(default_factory=list)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    costs: list[int] = field(default_factory=list)
    told: bool = False

    @property
    def is_last(self) -> bool:
        """Whether this worker has the last stage, which samples the tokens."""
        return self.stage == len(self.what.path) - 1

    def add(self, ended_ns: int, sampled: Mapping[int, int], costs: Sequence[int]) -> None:
        """Add a round that has ended on this worker to the report."""
        self.ends_ns.append(ended_ns)
        for request, token in sampled.items():
            self.tokens.setdefault(request, []).append(token)
        self.costs = [*map(sum, zip(self.costs, costs, strict=True))] if self.costs else list(costs)

    def report(self, finished: tuple[int, ...]) -> RoundsDone:
        """Make the report of these rounds for the driver."""
        self.told = True
        tokens = {request: tuple(row) for request, row in self.tokens.items()}
        costs = [StageCosts(*self.costs[at : at + _COSTS]) for at in range(0, len(self.costs), _COSTS)]
        return RoundsDone(self.what.number, tuple(self.ends_ns), tokens, finished, tuple(costs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """The input of a pass. ``message``: from the worker of the previous stage. ``decode``: (request, newest
    token) of each request that decodes. ``region``, ``tensor``: where the input rows are copied to."""

    message: Passed
    decode: tuple[tuple[int, int], ...]
    region: Region
    tensor: torch.Tensor


class StageWork:
    """Runs passes in the order in which their inputs arrive. Only the compute thread calls its methods.

    ``send`` sends a message to the driver. ``later`` queues a call that the compute thread makes between two
    passes; a data thread uses it to return the rows that it has read.
    """

    def __init__(
        self,
        memory: SlotMemory,
        stage_peers: StageChannels,
        send: Callable[[FromWorker], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._memory, self._stage_peers, self._send, self._later = memory, stage_peers, send, later
        self._slot = memory.peers.slot
        # Batch -> its newest rounds. Batch -> a message of the previous stage that arrived before the
        # driver's message about the same rounds.
        self._rounds: dict[int, _Rounds] = {}
        self._early: dict[int, Passed] = {}
        self._cut = False  # whether to report the next round that ends on this worker
        self._said_ns = time.monotonic_ns()
        # Batch -> the output rows of its last pass, which the next stage reads. Batch -> room for its input.
        self._left: dict[int, Rows] = {}
        self._near: dict[int, Rows] = {}

    def begin(self, message: RunRounds) -> None:
        """Begin rounds of a batch. The first stage runs its pass at once; another stage runs it when the
        message of the previous stage is here."""
        stage = [slot for slot, _, _ in message.path].index(self._slot)
        rounds = self._rounds[message.batch] = _Rounds(what=message, stage=stage)
        early = self._early.pop(message.batch, None)
        if stage == 0:
            self._run_pass(rounds, message.decode, before=())
        elif early is not None and early.number == message.number:
            self.passed(early)

    def stop(self) -> None:
        """Report to the driver when the next round ends, if this worker has the last stage of any rounds."""
        self._cut = any(rounds.is_last and not rounds.told for rounds in self._rounds.values())

    def passed(self, message: Passed) -> None:
        """Run this stage's pass. If the driver's message about the rounds is not here yet, keep the message
        until it is."""
        rounds = self._rounds.get(message.batch)
        if rounds is None or rounds.what.number < message.number:
            self._early[message.batch] = message
        elif rounds.what.number == message.number and not rounds.told:
            decode = tuple(zip(message.decode[::2], message.decode[1::2], strict=True))
            if rounds.stage == 0:
                self._run_pass(rounds, decode, before=())
            else:
                self._read_input(rounds, decode, message)

    def _read_input(self, rounds: _Rounds, decode: tuple[tuple[int, int], ...], message: Passed) -> None:
        """Read the input rows, then compute. The compute thread reads few bytes itself; a data thread reads
        more, and the pass runs afterwards."""
        source = rounds.what.path[rounds.stage - 1][0]
        mover, (offset, size_bytes) = self._memory.mover, message.place
        rows = sum(tokens for _, _, tokens in rounds.what.chunks) + len(decode)
        short = mover.is_short_read(source, size_bytes)
        region, tensor = (
            self._batch_rows(self._near, message.batch, rows) if short else self._memory.rows(rows)
        )
        inputs = _Input(message=message, decode=decode, region=region, tensor=tensor)
        segments = [Segment(offset, region.offset, size_bytes)]
        if short:
            self._run_input(rounds, inputs, mover.read_now(source, segments))
        else:
            mover.read(
                source, segments, lambda read: self._later(lambda: self._run_later(rounds, inputs, read))
            )

    def _run_later(self, rounds: _Rounds, inputs: _Input, read: ReadResult) -> None:
        """Run a pass whose input a data thread has read; then free the region of the input."""
        self._run_input(rounds, inputs, read)
        self._memory.give(inputs.region)

    def _batch_rows(self, rows_by_batch: dict[int, Rows], batch: int, rows: int) -> Rows:
        """Return memory for ``rows`` rows of a batch: the same as in its last pass if that had as many rows,
        otherwise new memory."""
        before = rows_by_batch.get(batch)
        if before is None or before[1].shape[0] != rows:
            if before is not None:
                self._memory.give(rows_by_batch.pop(batch)[0])
            rows_by_batch[batch] = self._memory.rows(rows)
        return rows_by_batch[batch]

    def _run_input(self, rounds: _Rounds, inputs: _Input, read: ReadResult) -> None:
        """Run a pass on rows that have been read. If the read failed, or a request is no longer on this
        worker, report that to the driver instead."""
        if read.cause or not self._has_requests(rounds.what.chunks, inputs.decode):
            self._report_failure(rounds, read.cause or GONE, read.lost_peer)
            return
        began_ns = time.thread_time_ns()
        self._memory.from_peer(inputs.region)
        self._assign_input_rows(rounds, inputs.decode, inputs.tensor)
        self._run_pass(
            rounds,
            inputs.decode,
            before=inputs.message.costs,
            read_bytes=inputs.message.place[1],
            taken_ns=time.thread_time_ns() - began_ns,
            read_cpu_ns=read.cpu_ns,
        )

    def _has_requests(self, chunks: Sequence[Any], decode: Sequence[tuple[int, int]]) -> bool:
        """Whether all requests of a pass are on this worker. The driver may have removed some because the
        worker of another stage was lost."""
        engine = self._memory.engine
        return all(engine.holds(part[0]) for part in (*chunks, *decode))

    def _assign_input_rows(
        self, rounds: _Rounds, decode: Sequence[tuple[int, int]], tensor: torch.Tensor
    ) -> None:
        """Make the rows that were read the input of each request's next layer."""
        engine, at, first = self._memory.engine, 0, rounds.what.path[rounds.stage][1]
        counts = [(request, tokens) for request, _, tokens in rounds.what.chunks]
        for request, tokens in [*counts, *[(request, 1) for request, _ in decode]]:
            held = engine.held(request)
            held.hidden, held.depth = tensor[at : at + tokens].clone(), first
            at += tokens

    def _run_pass(
        self,
        rounds: _Rounds,
        decode: tuple[tuple[int, int], ...],
        *,
        before: tuple[int, ...],
        read_bytes: int = 0,
        taken_ns: int = 0,
        read_cpu_ns: int = 0,
    ) -> None:
        """Compute a pass, and send a message to the worker of the next stage; after the last stage, end the
        round.

        ``before``: costs of the earlier stages in this round. The others are costs of the input of this pass:
        ``read_bytes``; ``taken_ns``, CPU time for giving rows to requests; ``read_cpu_ns``, of the read.
        """
        chunks, batch = rounds.what.chunks, rounds.what.batch
        if not self._has_requests(chunks, decode):
            self._report_failure(rounds, GONE)
            return
        engine, (_, *layers) = self._memory.engine, rounds.what.path[rounds.stage]
        if not rounds.is_last:  # the engine of the last stage has sampled these tokens and has them
            engine.told(dict(decode))
        started_ns, began_ns = time.monotonic_ns(), time.thread_time_ns()
        requests = [request for request, _ in decode]
        sampled, finished = engine.run_layers(chunks, (layers[0], layers[1]), requests, hand_over=False)
        self._memory.wait()
        place = (
            () if rounds.is_last else self._write_rows(batch, [*[chunk[0] for chunk in chunks], *requests])
        )
        ended_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns() - began_ns + taken_ns
        costs = (*before, ended_ns - started_ns, read_bytes, cpu_ns, read_cpu_ns)
        if rounds.is_last:
            rounds.add(ended_ns, sampled, costs)
            self._end_round(rounds, decode, sampled, finished)
        else:
            flat = tuple([number for pair in decode for number in pair])
            self._send_to_stage(
                rounds, rounds.stage + 1, Passed(rounds.what.number, batch, place, flat, costs)
            )
        if ended_ns - self._said_ns > ALIVE_NS:
            self._said_ns = ended_ns
            self._send(Alive())

    def _end_round(
        self,
        rounds: _Rounds,
        decode: Sequence[tuple[int, int]],
        sampled: Mapping[int, int],
        finished: tuple[int, ...],
    ) -> None:
        """End a round on the last stage: send the report to the driver, or the newest tokens to the first
        stage, which begins the next round."""
        if finished or self._cut or len(rounds.ends_ns) == rounds.what.rounds:
            self._cut = False
            self._send(rounds.report(finished))
            return
        newest = tuple([number for request, _ in decode for number in (request, sampled[request])])
        self._send_to_stage(rounds, 0, Passed(rounds.what.number, rounds.what.batch, (), newest, ()))

    def _send_to_stage(self, rounds: _Rounds, stage: int, message: Passed) -> None:
        """Send a message to the worker of a stage, which may be this worker."""
        slot = rounds.what.path[stage][0]
        if slot == self._slot:
            self._later(lambda: self.passed(message))
        elif cause := self._stage_peers.tell(slot, message):
            self._report_failure(rounds, cause, slot)

    def _report_failure(self, rounds: _Rounds, cause: str, lost_peer: int | None = None) -> None:
        """Report to the driver why the rounds cannot go on. ``lost_peer``: slot of a lost worker, if any."""
        rounds.told = True
        self._send(
            RoundsDone(
                number=rounds.what.number,
                ends_ns=(),
                tokens={},
                finished=(),
                costs=(),
                cause=cause,
                lost_peer=lost_peer,
            )
        )

    def _write_rows(self, batch: int, requests: list[int]) -> tuple[int, ...]:
        """Write the output rows where the next stage reads them; return their offset and size in bytes.

        They may overwrite the rows of the batch's last pass, which the next stage has read: this pass began
        after it.
        """
        hidden = torch.cat(
            [self._memory.engine.hidden_of(self._memory.engine.held(request)) for request in requests]
        )
        region, tensor = self._batch_rows(self._left, batch, hidden.shape[0])
        tensor.copy_(hidden)
        self._memory.for_peer(region)
        return region.offset, tensor.numel() * tensor.dtype.itemsize
