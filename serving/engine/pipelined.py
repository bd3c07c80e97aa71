"""The engine of a replica with pipeline stages: one queue, one KV memory, several steps in flight.

As in vLLM's engine core (0.19, v1/engine/core.py:step_with_batch_queue): when a micro-batch's step ends, its
next one is chosen among all requests that are in no step, above all its own. While requests wait for the
step's token budget and fewer micro-batches than stages are in flight, further ones are chosen at once; so
chunks of one prompt follow each other through the stages. A request decodes in the micro-batch that computed
the end of its prompt. An arrival is seen when the next step ends, or at once if nothing is in flight.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from serving.engine.admissions import Admissions
from serving.engine.batch_answers import idle_with_work
from serving.engine.engine import Engine
from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import EngineState, Progress
from serving.protocols.batch import Batch, Batcher, ReplicaView, chosen
from serving.vocabulary.actions import Action, Chunk, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.replica import Replica

# KV memory of a replica in pipeline stages: one pool of blocks, a step counter per micro-batch.
# A block is the same share of every stage's memory, so the pool has as many as the stage with the fewest.


class MicroBatchLedger(KvLedger):
    """The ledger of one pool.

    ``clocks``: for each micro-batch, a ledger that counts the steps of its decoding requests. Requests whose
    prompt is not complete are in no clock.
    """

    __slots__ = ("_clock_of", "clocks")

    def __init__(self, replica: Replica, count: int) -> None:
        total, block, own = replica.kv_blocks, replica.block_tokens, replica.sequence_blocks
        super().__init__(total, block, watermark_blocks=replica.watermark_blocks, sequence_blocks=own)
        self.clocks = [KvLedger(total, block, sequence_blocks=own) for _ in range(count)]
        self._clock_of: dict[int, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        free = total = self.total_blocks
        free -= self._reserved
        for clock in self.clocks:
            if clock.decoding:
                free -= total - clock.free_blocks
        return free

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        clock = self._clock_of.get(request)
        return self._held.get(request, 0) if clock is None else self.clocks[clock].held_blocks(request)

    def context_tokens(self, request: int) -> int:
        """Context of a decoding request: prompt plus tokens generated so far."""
        return self.clocks[self._clock_of[request]].context_tokens(request)

    def decodes(self, request: int) -> bool:
        """Whether the request decodes."""
        return request in self._clock_of

    def decode_in(self, batch: int, request: int, context_tokens: int) -> None:
        """Let the request decode in this micro-batch from its next step on."""
        held = self._held.pop(request)
        self._reserved -= held
        clock = self.clocks[batch]
        clock.reserve(request, context_tokens - 1)
        clock.start_decoding(request, context_tokens)
        self._clock_of[request] = batch
        self.decoding += 1

    def preempt(self, request: int, stored_tokens: int) -> None:
        """Release the request's blocks; nothing is stored."""
        self.release(request)

    def release(self, request: int) -> None:
        """Free everything that the request holds."""
        batch = self._clock_of.pop(request, None)
        if batch is None:
            super().release(request)
            return
        self.clocks[batch].release(request)
        self.decoding -= 1

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return (*self._held, *self._clock_of)


class MicroBatchMemory:
    """The memory as shown to the batcher for the next step of one micro-batch (``KvView``).

    ``in_flight``: whether a step of each micro-batch is in progress; it has its blocks already.
    """

    __slots__ = (
        "_batch", "_clock", "_in_flight", "_ledger", "block_tokens", "sequence_blocks", "watermark_blocks",
    )  # fmt: skip

    def __init__(self, ledger: MicroBatchLedger, batch: int, in_flight: list[bool]) -> None:
        self._ledger = ledger
        self._batch = batch
        self._clock = ledger.clocks[batch]
        self._in_flight = in_flight
        self.block_tokens = ledger.block_tokens
        self.sequence_blocks = ledger.sequence_blocks
        self.watermark_blocks = ledger.watermark_blocks

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds and no step in progress takes."""
        free = self._ledger.free_blocks
        for batch, clock in enumerate(self._ledger.clocks):
            if self._in_flight[batch] and clock.decoding:
                free -= clock.step_blocks()
        return free

    @property
    def decoding(self) -> int:
        """Number of requests that decode in this micro-batch."""
        return self._clock.decoding

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        return self._ledger.held_blocks(request)

    def step_blocks(self) -> int:
        """Blocks the next decode step takes."""
        return self._clock.step_blocks()

    def takes_block_next_step(self, request: int) -> bool:
        """Whether a request of this micro-batch needs a new block in the next step."""
        return self._clock.takes_block_next_step(request)

    def steps_until_full(self, spare_blocks: int = 0) -> int:
        """One step if there are blocks for it, else none; the engine computes how many more may run."""
        return int(self._clock.step_blocks() + spare_blocks <= self.free_blocks)

    def decodes(self, request: int) -> bool:
        """Whether the request decodes in this micro-batch."""
        return self._clock.decodes(request)

    def blocks_freed(self, victims: tuple[int, ...]) -> int:
        """Blocks that would be free if the last of these requests left."""
        return self._ledger.held_blocks(victims[-1])

    def admissions(self, chunks: tuple[Chunk, ...] = (), decodes: bool = True) -> Admissions | None:
        """None: nothing is stored for other requests."""
        return None


def rounds_left(ledger: MicroBatchLedger, in_flight: Collection[bool], joining: int) -> int:
    """Number of steps of every micro-batch with sure blocks, including those in progress.

    joining: requests whose prompts are being computed and which decode afterwards.
    """
    free, decoding = ledger.free_blocks, ledger.decoding + joining
    for busy, clock in zip(in_flight, ledger.clocks):
        if busy and clock.decoding:
            free -= clock.step_blocks()
    return 1 + max(0, free) // max(1, decoding) * ledger.block_tokens


_NONE = -1
EMPTY = -1  # in the queue of batches: a schedule without requests
_ROUNDS = 4  # after this many rounds of micro-batches the queue surely repeats itself


def in_steps(chunks_of: list[tuple[Chunk, ...]]) -> set[int]:
    """Requests with a prompt chunk in flight."""
    return {chunk[0] for chunks in chunks_of for chunk in chunks}


def turned(queue: Iterable[int], steps: int, count: int) -> tuple[int, ...]:
    """The queue of batches after this many steps, if each batch begins another step when one ends.

    If the scheduler is called and finds nothing to schedule, its empty answer stays in the queue until what
    is before it has ended.
    """
    order = deque(queue)
    for _ in range(steps):
        order.append(order.popleft())
        if len(order) < count and order[0] != EMPTY:
            order.append(EMPTY)
        while order[0] == EMPTY:
            order.popleft()
            order.append(EMPTY)
    return tuple(order)


class PipelinedEngine(Engine):
    """The engine of one replica in pipeline stages. ``in_flight``: micro-batches with a step in progress.

    ``prefilling`` has every prompt that is not computed. Those in ``_unscheduled`` have a part still to be
    scheduled, after the ``computed`` tokens that are computed or in flight.
    """

    __slots__ = (
        "_batch_tokens",
        "_chunks_of",
        "_count",
        "_goes_on",
        "_memory",
        "_queue",
        "_turned",
        "_unscheduled",
        "_views",
        "in_flight",
    )

    def __init__(
        self,
        replica: Replica,
        batcher: Batcher,
        *,
        stages: int,
        batch_tokens: int,
        coalesce: bool = True,
        loaded: bool = True,
    ) -> None:
        """``batch_tokens``: max_num_batched_tokens of the batcher."""
        super().__init__(replica, batcher, coalesce=coalesce, loaded=loaded)
        self._count, self._batch_tokens = stages, batch_tokens
        # One more than the micro-batches: to ask what a further one would take.
        self._memory = MicroBatchLedger(replica, stages + 1)
        self.ledger = self._memory
        self._unscheduled: dict[int, Progress] = {}
        self._chunks_of: list[tuple[Chunk, ...]] = [()] * (stages + 1)
        self.in_flight = [False] * (stages + 1)
        self._queue: deque[int] = deque()  # micro-batches with a step scheduled and not answered
        self._turned: dict[tuple[int, ...], tuple[int, ...]] = {}  # the queue after this many steps
        self._goes_on = False  # whether a micro-batch continues by itself when a request of it ends
        self._views = [
            ReplicaView(
                self.running,
                self._unscheduled,
                self.waiting,
                MicroBatchMemory(self._memory, batch, self.in_flight),
                newest=partial(self._newest_first, batch),
            )
            for batch in range(stages + 1)
        ]

    def ran(self, event: Ran, actions: list[Action]) -> None:
        """Handle the end of a micro-batch's step, and of earlier steps of others."""
        if self.epoch > event.epoch:
            return  # from before the replica was lost
        batch, finished, memory, chunks_of = event.micro_batch, event.finished, self._memory, self._chunks_of
        assert self.in_flight[batch], "a micro-batch reports a step that was not requested"
        for other, steps in enumerate(event.batch_steps):
            if steps:
                memory.clocks[other].steps_done += steps
                if chunks_of[other]:
                    self._record_prompts(other, steps - 1, finished)
        for request in finished:
            del self.running[request]
            memory.release(request)
        if event.running:
            self._advance_queue(sum(event.batch_steps))
            return
        self.in_flight[batch] = False
        self._advance_queue(sum(event.batch_steps) - 1)
        assert self._queue.popleft() == batch, "micro-batches end in the order in which they began"
        self._choose(batch, actions)

    def _record_prompts(self, batch: int, steps: int, finished: tuple[int, ...]) -> None:
        """Record the step's prompts as computed; this many further decode steps have run since."""
        for request, start, tokens in self._chunks_of[batch]:
            known = self.running[request].known_tokens
            if start + tokens == known:
                del self.prefilling[request]
                if request not in finished:
                    self._memory.decode_in(batch, request, known + 1 + steps)
        self._chunks_of[batch] = ()

    def lose(self, actions: list[Action], cause: str) -> list[int]:
        """Lose everything this replica held; returns the requests that fail with it."""
        failed = super().lose(actions, cause)
        self._unscheduled.clear()
        self._queue.clear()
        for batch in range(self._count):
            self.in_flight[batch] = False
            self._chunks_of[batch] = ()
        return failed

    def _start_pass(self, actions: list[Action]) -> None:
        """Begin: nothing is in flight, and there is something to run."""
        self._choose(_NONE, actions)

    def _choose(self, batch: int, actions: list[Action]) -> None:
        """Choose steps of this micro-batch, and of further ones while there is more to schedule."""
        begun = list[tuple[int, Batch]]()
        if batch == _NONE:
            batch = self._unused_batch()
        queue = self._queue
        while True:
            answer = None if batch == _NONE else self._ask(batch, actions)
            if answer is None:
                queue.append(EMPTY)
            else:
                self._begin(batch, answer)
                queue.append(batch)
                begun.append((batch, answer))
            batch = self._unused_batch() if self.waiting or self._unscheduled else _NONE
            if answer is not None and len(queue) < self._count and queue[0] != EMPTY:
                continue
            if queue[0] != EMPTY or True not in self.in_flight:
                break  # the oldest has not ended
            queue.popleft()
        if True not in self.in_flight:
            queue.clear()
            if self.running or self.waiting:
                idle_with_work(self._asked())
            self.state = EngineState.IDLE
            return
        self.interruptible = not self.waiting
        self.state = EngineState.RUNNING
        steps, presses, waits = 1, self._might_admit(), bool(self.waiting)
        if not begun:  # the other micro-batches keep what they were allowed before
            if presses or (waits and self._goes_on):
                self.cut_run(actions)
            return
        self._goes_on = not (presses or waits)
        if self.coalesce and not presses:
            joining = len(self.prefilling) - len(self._unscheduled)
            steps = rounds_left(self._memory, self.in_flight, joining)
        for micro_batch, answer in begun:
            actions.append(
                Run(
                    self.id,
                    self.epoch,
                    answer.chunks,
                    answer.decode,
                    steps,
                    not self._goes_on,
                    answer.reason,
                    micro_batch=micro_batch,
                )
            )

    def _advance_queue(self, steps: int) -> None:
        """Advance the queue by this many steps; each micro-batch began another one at once."""
        if steps < 1:
            return
        queue, surely = self._queue, _ROUNDS * self._count
        if steps > surely:
            around = len(queue) - queue.count(EMPTY)
            if steps > surely + around:
                steps -= (steps - surely) // around * around
        before = (steps, *queue)
        after = self._turned.get(before)
        if after is None:
            after = self._turned[before] = turned(queue, steps, self._count)
        queue.clear()
        queue.extend(after)

    def _unused_batch(self) -> int:
        """The first micro-batch without requests."""
        clocks = self._memory.clocks
        for batch in range(self._count):
            if not self.in_flight[batch] and not clocks[batch].decoding:
                return batch
        return _NONE

    def _might_admit(self) -> bool:
        """Whether the next step to end, of any micro-batch, might take waiting requests.

        A micro-batch without tokens to decode would take most. A prompt that does not fit into its budget may
        still fit as a smaller chunk into what another micro-batch has left.
        """
        if self._unscheduled:
            return True
        if not self.waiting:
            return False
        answer = chosen(self.batcher, self._views[self._count])
        if answer is not None and answer.chunks:
            return True
        return self.waiting[0].known_tokens + self._memory.decoding > self._batch_tokens

    def _ask(self, batch: int, actions: list[Action]) -> Batch | None:
        """Ask the batcher and preempt its victims."""
        answer = chosen(self.batcher, self._views[batch])
        if answer is None or not answer.preempt:
            return answer
        self._preempt_those(answer.preempt, actions)
        if answer.chunks or self._memory.clocks[batch].decoding:
            return answer
        return None if True in self.in_flight else chosen(self.batcher, self._views[batch])

    def _newest_first(self, batch: int) -> Iterator[int]:
        """Requests that are in no step, the last admitted first: only they may be victims."""
        flying, clock = in_steps(self._chunks_of), self._memory.clocks[batch]
        idle = [
            request
            for request in reversed(tuple(self.running))
            if clock.decodes(request) or (request in self._unscheduled and request not in flying)
        ]
        return iter(idle)

    def _preempt_those(self, victims: tuple[int, ...], actions: list[Action]) -> None:
        """Preempt all victims except prompts with a chunk in flight: these wait for memory."""
        flying = in_steps(self._chunks_of)
        leaving = tuple([request for request in victims if request not in flying])
        for request in leaving:
            self._unscheduled.pop(request, None)
        self._preempt(leaving, actions)

    def _begin(self, batch: int, answer: Batch) -> None:
        """Begin a step of this micro-batch: its chunks have their blocks from now on."""
        begun = len(answer.chunks) - answer.admit
        for request, start, tokens in answer.chunks:
            if begun:
                begun -= 1
                progress = self._unscheduled[request]
            else:
                progress = self.waiting.popleft()
                assert progress.id == request, "the queue is admitted in order"
                self.running[request] = self.prefilling[request] = progress
            assert progress.computed == start, "a chunk starts where the last one ended"
            self._memory.reserve(request, start + tokens)
            progress.computed = start + tokens
            if progress.computed < progress.known_tokens:
                self._unscheduled[request] = progress
            else:
                self._unscheduled.pop(request, None)
        self._chunks_of[batch] = answer.chunks
        self.in_flight[batch] = True
