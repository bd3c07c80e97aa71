"""Runs rounds on a worker that has one stage of a model: reads its input rows, computes, passes the turn on.

The driver tells every worker on the path of a batch once that rounds begin. A worker whose pass has ended
tells the next one where its output rows lie; the last one tells the first which tokens it sampled. The driver
gets a report when it must decide: a request has ended, the allowed rounds are done, or it sent `StopRounds`.
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

# Where rows lie, and the tensor to compute with.
Rows = tuple[Region, torch.Tensor]
GONE: Final = "its requests are no longer on this worker"
# Workers whose rounds are not reported send `Alive` this often, well within the driver's report timeout.
ALIVE_NS: Final = 1_000_000_000
_COSTS: Final = len(StageCosts._fields)


@dataclass(slots=True, kw_only=True)
class _Rounds:
    """Rounds of one batch. ``stage``: this worker's stage number on the path. Not yet reported by the last
    stage: ``ends_ns``, ``tokens``, ``costs`` (of all stages, one after the other)."""

    what: RunRounds
    stage: int
    ends_ns: list[int] = field(default_factory=list)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    costs: list[int] = field(default_factory=list)
    told: bool = False

    @property
    def is_last(self) -> bool:
        """Whether this worker has the last stage, which samples."""
        return self.stage == len(self.what.path) - 1

    def add(self, ended_ns: int, sampled: Mapping[int, int], costs: Sequence[int]) -> None:
        """Add a round that has ended on this worker."""
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
    """The input of a pass: the message of the stage before, requests that decode with their newest tokens,
    and the place for that stage's output rows."""

    message: Passed
    decode: tuple[tuple[int, int], ...]
    region: Region
    tensor: torch.Tensor


class StageWork:
    """Runs passes in the order in which they can begin. Only the compute thread calls it; reads that have
    ended in another thread return to it by ``later``, between two passes."""

    def __init__(
        self,
        memory: SlotMemory,
        stage_peers: StageChannels,
        send: Callable[[FromWorker], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._memory, self._stage_peers, self._send, self._later = memory, stage_peers, send, later
        self._slot = memory.peers.slot
        # By batch: the newest rounds, and messages of the stage before about rounds not known here yet.
        self._rounds: dict[int, _Rounds] = {}
        self._early: dict[int, Passed] = {}
        self._cut = False  # whether to report the next round that ends on this worker
        self._said_ns = time.monotonic_ns()
        # By batch: the output rows of its last pass, for the next stage, and the rows for its input.
        self._left: dict[int, Rows] = {}
        self._near: dict[int, Rows] = {}

    def begin(self, message: RunRounds) -> None:
        """Begin rounds of a batch. After the first stage, a message of the stage before starts a pass."""
        stage = [slot for slot, _, _ in message.path].index(self._slot)
        rounds = self._rounds[message.batch] = _Rounds(what=message, stage=stage)
        early = self._early.pop(message.batch, None)
        if stage == 0:
            self._pass(rounds, message.decode, before=())
        elif early is not None and early.number == message.number:
            self.passed(early)

    def stop(self) -> None:
        """Report the next round that ends on this worker."""
        self._cut = any(rounds.is_last and not rounds.told for rounds in self._rounds.values())

    def passed(self, message: Passed) -> None:
        """Take this stage's turn. The driver's message about these rounds may still be on its way."""
        rounds = self._rounds.get(message.batch)
        if rounds is None or rounds.what.number < message.number:
            self._early[message.batch] = message
        elif rounds.what.number == message.number and not rounds.told:
            decode = tuple(zip(message.decode[::2], message.decode[1::2], strict=True))
            if rounds.stage == 0:
                self._pass(rounds, decode, before=())
            else:
                self._read_input(rounds, decode, message)

    def _read_input(self, rounds: _Rounds, decode: tuple[tuple[int, int], ...], message: Passed) -> None:
        """Read the input rows and compute: at once if they are few, else after a data thread has read."""
        source = rounds.what.path[rounds.stage - 1][0]
        mover, (offset, size_bytes) = self._memory.mover, message.place
        rows = sum(tokens for _, _, tokens in rounds.what.chunks) + len(decode)
        short = mover.is_short_read(source, size_bytes)
        region, tensor = self._kept(self._near, message.batch, rows) if short else self._memory.rows(rows)
        inputs = _Input(message=message, decode=decode, region=region, tensor=tensor)
        segments = [Segment(offset, region.offset, size_bytes)]
        if short:
            self._run_input(rounds, inputs, mover.read_now(source, segments))
        else:
            mover.read(
                source, segments, lambda read: self._later(lambda: self._run_later(rounds, inputs, read))
            )

    def _run_later(self, rounds: _Rounds, inputs: _Input, read: ReadResult) -> None:
        self._run_input(rounds, inputs, read)
        self._memory.give(inputs.region)

    def _kept(self, rows_by_batch: dict[int, Rows], batch: int, rows: int) -> Rows:
        """Return room for rows of a batch, the same as before if the number of rows is the same."""
        before = rows_by_batch.get(batch)
        if before is None or before[1].shape[0] != rows:
            if before is not None:
                self._memory.give(rows_by_batch.pop(batch)[0])
            rows_by_batch[batch] = self._memory.rows(rows)
        return rows_by_batch[batch]

    def _run_input(self, rounds: _Rounds, inputs: _Input, read: ReadResult) -> None:
        """Compute a pass on rows that have been read, or report that it cannot go on."""
        if read.cause or not self._holds(rounds.what.chunks, inputs.decode):
            self._give_up(rounds, read.cause or GONE, read.lost_peer)
            return
        began_ns = time.thread_time_ns()
        self._memory.from_peer(inputs.region)
        self._take(rounds, inputs.decode, inputs.tensor)
        self._pass(
            rounds,
            inputs.decode,
            before=inputs.message.costs,
            read_bytes=inputs.message.place[1],
            taken_ns=time.thread_time_ns() - began_ns,
            read_cpu_ns=read.cpu_ns,
        )

    def _holds(self, chunks: Sequence[Any], decode: Sequence[tuple[int, int]]) -> bool:
        """Whether all its requests are here: they may have failed because another stage was lost."""
        engine = self._memory.engine
        return all(engine.holds(part[0]) for part in (*chunks, *decode))

    def _take(self, rounds: _Rounds, decode: Sequence[tuple[int, int]], tensor: torch.Tensor) -> None:
        """Give each request its rows of the stage before."""
        engine, at, first = self._memory.engine, 0, rounds.what.path[rounds.stage][1]
        counts = [(request, tokens) for request, _, tokens in rounds.what.chunks]
        for request, tokens in [*counts, *[(request, 1) for request, _ in decode]]:
            held = engine.held(request)
            held.hidden, held.depth = tensor[at : at + tokens].clone(), first
            at += tokens

    def _pass(
        self,
        rounds: _Rounds,
        decode: tuple[tuple[int, int], ...],
        *,
        before: tuple[int, ...],
        read_bytes: int = 0,
        taken_ns: int = 0,
        read_cpu_ns: int = 0,
    ) -> None:
        """Compute the pass, and send the turn to the next stage. ``before``: costs of earlier stages."""
        chunks, batch = rounds.what.chunks, rounds.what.batch
        if not self._holds(chunks, decode):
            self._give_up(rounds, GONE)
            return
        engine, (_, *layers) = self._memory.engine, rounds.what.path[rounds.stage]
        if not rounds.is_last:  # the last stage has sampled these tokens itself
            engine.told(dict(decode))
        started_ns, began_ns = time.monotonic_ns(), time.thread_time_ns()
        requests = [request for request, _ in decode]
        sampled, finished = engine.run_layers(chunks, (layers[0], layers[1]), requests, hand_over=False)
        self._memory.wait()
        place = () if rounds.is_last else self._leave(batch, [*[chunk[0] for chunk in chunks], *requests])
        ended_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns() - began_ns + taken_ns
        costs = (*before, ended_ns - started_ns, read_bytes, cpu_ns, read_cpu_ns)
        if rounds.is_last:
            rounds.add(ended_ns, sampled, costs)
            self._ended(rounds, decode, sampled, finished)
        else:
            flat = tuple([number for pair in decode for number in pair])
            self._tell(rounds, rounds.stage + 1, Passed(rounds.what.number, batch, place, flat, costs))
        if ended_ns - self._said_ns > ALIVE_NS:
            self._said_ns = ended_ns
            self._send(Alive())

    def _ended(
        self,
        rounds: _Rounds,
        decode: Sequence[tuple[int, int]],
        sampled: Mapping[int, int],
        finished: tuple[int, ...],
    ) -> None:
        """End a round on the last stage: report it to the driver, or begin the next one."""
        if finished or self._cut or len(rounds.ends_ns) == rounds.what.rounds:
            self._cut = False
            self._send(rounds.report(finished))
            return
        newest = tuple([number for request, _ in decode for number in (request, sampled[request])])
        self._tell(rounds, 0, Passed(rounds.what.number, rounds.what.batch, (), newest, ()))

    def _tell(self, rounds: _Rounds, stage: int, message: Passed) -> None:
        slot = rounds.what.path[stage][0]
        if slot == self._slot:
            self._later(lambda: self.passed(message))
        elif cause := self._stage_peers.tell(slot, message):
            self._give_up(rounds, cause, slot)

    def _give_up(self, rounds: _Rounds, cause: str, lost_peer: int | None = None) -> None:
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

    def _leave(self, batch: int, requests: list[int]) -> tuple[int, ...]:
        """Leave output rows for the next stage, which has already read those of the batch's last round."""
        hidden = torch.cat(
            [self._memory.engine.hidden_of(self._memory.engine.held(request)) for request in requests]
        )
        region, tensor = self._kept(self._left, batch, hidden.shape[0])
        tensor.copy_(hidden)
        self._memory.for_peer(region)
        return region.offset, tensor.numel() * tensor.dtype.itemsize
