"""The engine of a replica with pipeline stages as in vLLM's v0: one virtual engine per stage.

A virtual engine is a scheduler with its own queue, batch and an equal part of the blocks (vLLM 0.6,
engine/llm_engine.py and core/scheduler.py). One step of each may be in flight; they share the stages, and a
virtual engine that ended a step begins its next one after the others. A request goes to the virtual engine
with the fewest requests, the first among equals, when some virtual engine begins a step
(engine/async_llm_engine.py:engine_step), or at once if nothing is in flight. An idle virtual engine then
begins too.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from serving.engine.engine import Engine
from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import EngineState, Progress
from serving.protocols.batch import Batcher, ReplicaView
from serving.vocabulary.actions import Action, Chunk, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

# KV memory of a replica whose virtual engines have a part of it each: the sum of the parts.


class VirtualLedger(KvLedger):
    """A read and release view: requests get their blocks from the ``parts``."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[KvLedger]) -> None:
        first = parts[0]
        super().__init__(
            sum([part.total_blocks for part in parts]),
            first.block_tokens,
            watermark_blocks=sum([part.watermark_blocks for part in parts]),
            sequence_blocks=first.sequence_blocks,
        )
        self._parts = list(parts)

    def _part_of(self, request: int) -> KvLedger | None:
        for part in self._parts:
            if part.held_blocks(request):
                return part
        return None

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds, in any part."""
        return sum([part.free_blocks for part in self._parts])

    def held_blocks(self, request: int) -> int:
        """Blocks the request holds now; 0 if it holds none."""
        part = self._part_of(request)
        return 0 if part is None else part.held_blocks(request)

    def context_tokens(self, request: int) -> int:
        """Context of a decoding request: prompt plus tokens generated so far."""
        part = self._part_of(request)
        assert part is not None, "a request without blocks does not decode"
        return part.context_tokens(request)

    def decodes(self, request: int) -> bool:
        """Whether the request decodes."""
        part = self._part_of(request)
        return part is not None and part.decodes(request)

    def step_blocks(self) -> int:
        """Blocks that the next decode steps of all parts take."""
        return sum([part.step_blocks() for part in self._parts])

    def release(self, request: int) -> None:
        """Free everything that the request holds."""
        for part in self._parts:
            part.release(request)

    def holders(self) -> tuple[int, ...]:
        """Requests that hold blocks, for invariants and views."""
        return tuple([request for part in self._parts for request in part.holders()])


class VirtualEngines(Engine):
    """The engine of one replica, with queue, batch and memory of all its virtual ``engines`` together."""

    __slots__ = ("_chunks_of", "_coming", "_stopping", "engines")

    def __init__(
        self,
        replica: Replica,
        batcher_for: Callable[[Replica], Batcher],
        coalesce: bool = True,
        checks: bool = True,
        loaded: bool = True,
    ) -> None:
        count = replica.kv_pools
        part = replace(
            replica,
            kv_blocks=replica.kv_blocks // count,
            watermark_blocks=replica.watermark_blocks // count,
            kv_pools=1,
        )
        self.engines = [
            Engine(part, batcher_for(part), coalesce=coalesce, checks=checks) for _ in range(count)
        ]
        super().__init__(replica, self.engines[0].batcher, coalesce=coalesce, loaded=loaded)
        self.ledger = VirtualLedger([one.ledger for one in self.engines])
        self.view = ReplicaView(self.running, self.prefilling, self.waiting, self.ledger)
        self._coming: deque[Request] = deque()  # of the requests in ``unseen_arrivals``
        self._stopping = [False] * count  # whose next step is to be reported
        self._chunks_of: list[Sequence[Chunk]] = [()] * count
        for one in self.engines:
            one.halts = True

    def enqueue(self, request: Request, actions: list[Action]) -> None:
        """Queue a request that was assigned to this replica."""
        assert self.state is not EngineState.LOST, "a request was dispatched to a lost replica"
        self.take((request,), actions)

    def take(self, requests: Iterable[Request], actions: list[Action]) -> None:
        """Take requests: they are seen when a step begins, at once if none is in flight."""
        for request in requests:
            self._coming.append(request)
            self.unseen_arrivals.append(Progress(request))
        if self.state is EngineState.IDLE:
            for number in self._hand_out():
                self._choose(number, actions)
            self._fix_state()
        elif self.state is EngineState.RUNNING:
            self.cut_run(actions)

    def ran(self, event: Ran, actions: list[Action]) -> None:
        """Handle the end of a virtual engine's step, and of earlier steps of others."""
        if self.epoch > event.epoch:
            return  # from before the replica was lost
        number = event.micro_batch
        for other, steps in enumerate(event.batch_steps):
            if steps:
                last = other == number
                finished = event.finished if last else ()
                self.engines[other].ran(Ran(self.id, event.epoch, steps, finished, not last), actions)
        engine = self.engines[number]
        for request, _, _ in self._chunks_of[number]:
            if request not in engine.prefilling:
                self.prefilling.pop(request, None)
        for request in event.finished:
            del self.running[request]
        self._chunks_of[number] = ()
        handed_out = self._hand_out() if self.unseen_arrivals else ()
        self._choose(number, actions)
        for other in handed_out:
            self._choose(other, actions)
        self._fix_state()
        if self.state is EngineState.RUNNING and True in self._stopping:
            self.cut_run(actions)

    def lose(self, actions: list[Action], cause: str) -> list[int]:
        """Lose everything this replica held; returns the requests that fail with it."""
        failed = super().lose(actions, cause)
        for number, one in enumerate(self.engines):
            one.lose([], cause)
            self._stopping[number], self._chunks_of[number] = False, ()
        self._coming.clear()
        self.ledger.decoding = 0
        return failed

    def _hand_out(self) -> Sequence[int]:
        """Give arrivals to the virtual engines with the fewest requests; returns idle ones that got some."""
        engines, gone = self.engines, list[Action]()
        loads = [len(own_engine.running) + len(own_engine.waiting) for own_engine in engines]
        began = list[int]()
        for request in self._coming:
            number = loads.index(min(loads))
            loads[number] += 1
            engine = engines[number]
            if engine.state is EngineState.IDLE:
                engine.waiting.append(Progress(request))
                if number not in began:
                    began.append(number)
            else:
                engine.enqueue(request, gone)
                if gone:
                    self._stopping[number] = True
                    gone.clear()
            self.waiting.append(engine.waiting[-1])
        self._coming.clear()
        self.unseen_arrivals.clear()
        return sorted(began)

    def _choose(self, number: int, actions: list[Action]) -> None:
        """Let a virtual engine choose its next step."""
        begun = list[Action]()
        self._stopping[number] = False
        self.engines[number]._start_pass(begun)
        self._translate(number, begun, actions)

    def _translate(self, number: int, begun: Sequence[Action], actions: list[Action]) -> None:
        """Turn a virtual engine's actions into the replica's, and move its requests here as they do there."""
        engine = self.engines[number]
        for action in begun:
            if isinstance(action, Run):
                for request, _, _ in action.chunks:
                    if request not in self.running:
                        progress = engine.running[request]
                        self.waiting.remove(progress)
                        self.running[request] = self.prefilling[request] = progress
                self._chunks_of[number] = action.chunks
                actions.append(
                    Run(
                        self.id,
                        self.epoch,
                        action.chunks,
                        action.decode,
                        action.max_steps,
                        True,
                        action.reason,
                        micro_batch=number,
                    )
                )
            else:
                assert isinstance(action, Preempt)
                progress = self.running.pop(action.request)
                self.prefilling.pop(action.request, None)
                self.waiting.appendleft(progress)
                self.preemptions += 1
                actions.append(action)

    def _fix_state(self) -> None:
        """Set the state: running while a step is in flight."""
        self.ledger.decoding = sum([engine.ledger.decoding for engine in self.engines])
        works = sum([engine.state is not EngineState.IDLE for engine in self.engines])
        self.state = EngineState.RUNNING if works else EngineState.IDLE
