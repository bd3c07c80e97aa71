"""A reference pipeline for tests: stages with a queue each, one step of one micro-batch at a time.

Scheduled as by vLLM 0.19's ``EngineCore.step_with_batch_queue``, from scratch at every call; time goes
from one end of a stage's work to the next. It shares no code with the product.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tests.worlds.naive_engine import (
    FRACTION_BITS,
    Case,
    Outcome,
    _allocate,
    _cost,
    _outcome,
    _release_blocks,
    _Replica,
    _Request,
    _take_own,
)
from tests.worlds.toy_rows import ToyRows


@dataclass(frozen=True)
class ToyStages:
    """Costs of every stage; their knots are alike. Activations take ``per_hop`` and ``per_token``."""

    rows: tuple[ToyRows, ...]
    per_hop: int
    per_token: int
    output_token: int = 0

    @property
    def stages(self) -> int:
        return len(self.rows)

    def decode(self, n: int) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        pieces = zip(*[one.decode(n) for one in self.rows], strict=True)
        return tuple(
            (own[0][0], tuple(cost for _, cost, _ in own), tuple(slope for _, _, slope in own))
            for own in pieces
        )

    def mixed(
        self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0
    ) -> tuple[int, ...]:
        return tuple(one.mixed(n, context, chunks, spread) for one in self.rows)

    def hops(self, tokens: int) -> tuple[int, ...]:
        return (0, *[self.per_hop + self.per_token * tokens] * (self.stages - 1))

    @property
    def skewed(self) -> bool:
        return self.rows[0].skewed

    def shift(self, n: int, spread: int) -> int:
        return self.rows[0].shift(n, spread)


@dataclass(eq=False)
class _Step:
    """A micro-batch's way through the stages: requests, up to where each is computed, and what it costs."""

    number: int
    parts: list[tuple[_Request, int]]
    costs: list[int]
    hop: int


@dataclass(eq=False)
class NaivePipeline:
    """A replica; ``come``: steps whose activations are at a stage, which takes them in order."""

    replica: _Replica
    come: list[dict[int, _Step]]
    following: list[int]
    busy: list[bool]
    in_flight: int = 0
    queue: list[_Step | None] = field(default_factory=list)  # the newest first; None: an empty schedule
    launched: int = 0
    flying: dict[int, int] = field(default_factory=dict)  # request -> steps it is in
    work: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)  # begin and end of computing, at any stage
    ends: list[int] = field(default_factory=list)  # of steps


def run_naive_pipeline(case: Case, stages: ToyStages) -> tuple[tuple[Outcome, ...], list[NaivePipeline]]:
    """Run ``case`` to the end; one outcome per request, in order."""
    requests = [_Request(i, prompt, min(out, cap)) for i, (_, prompt, out, cap) in enumerate(case.requests)]
    count = stages.stages
    pipelines = [
        NaivePipeline(
            _Replica(i, list(range(case.total_blocks))),
            [{} for _ in range(count)],
            [0] * count,
            [False] * count,
        )
        for i in range(case.replicas)
    ]
    events: list[tuple[int, int, int, int, str, _Step]] = []  # time, replica, serial, stage, what, step
    world = _World(case, stages, pipelines, events)
    arrived = 0
    while arrived < len(requests) or events:
        if arrived < len(requests) and (
            not events or case.requests[arrived][0] <= events[0][0] >> FRACTION_BITS
        ):
            world.arrive(requests[arrived])
            arrived += 1
            continue
        at, replica, _, stage, what, step = heappop(events)
        world.happen(at, pipelines[replica], stage, what, step)
    return tuple(_outcome(request) for request in requests), pipelines


@dataclass
class _World:
    case: Case
    stages: ToyStages
    pipelines: list[NaivePipeline]
    events: list[tuple[int, int, int, int, str, _Step]]
    serial: int = 0

    def at(self, time: int, pipeline: NaivePipeline, stage: int, what: str, step: _Step) -> None:
        self.serial += 1
        heappush(self.events, (time, pipeline.replica.id, self.serial, stage, what, step))

    def arrive(self, request: _Request) -> None:
        case, replicas = self.case, [one.replica for one in self.pipelines]
        now_ns, prompt, _, max_new_tokens = case.requests[request.id]
        room = case.total_blocks - case.watermark_blocks - case.sequence_blocks
        if case.blocks(prompt + max_new_tokens) > room:
            return
        if case.dispatch == "round_robin":
            replica = replicas[sum(r.accepted for r in replicas) % case.replicas]
        else:
            replica = min(replicas, key=lambda r: (r.accepted - r.finished, r.id))
        request.replica = replica.id
        replica.accepted += 1
        replica.waiting.append(request)
        pipeline = self.pipelines[replica.id]
        if not pipeline.in_flight:
            self.schedule(pipeline, now_ns << FRACTION_BITS)

    def happen(self, at: int, pipeline: NaivePipeline, stage: int, what: str, step: _Step) -> None:
        if what == "comes":
            pipeline.come[stage][step.number] = step
        else:
            pipeline.busy[stage] = False
            if stage + 1 < self.stages.stages:
                self.at(at + step.hop, pipeline, stage + 1, "comes", step)
        following = pipeline.come[stage].get(pipeline.following[stage])
        if following is not None and not pipeline.busy[stage]:
            pipeline.busy[stage] = True
            pipeline.following[stage] += 1
            self.at(at + following.costs[stage], pipeline, stage, "ends", following)
            pipeline.spans.append((at, at + following.costs[stage]))
        if what == "ends" and stage + 1 == self.stages.stages:
            self.answered(at, pipeline, step)
            self.schedule(pipeline, at)

    def answered(self, at: int, pipeline: NaivePipeline, step: _Step) -> None:
        """The scheduler is told what the step made."""
        replica = pipeline.replica
        pipeline.in_flight -= 1
        pipeline.ends.append(at)
        assert pipeline.queue.pop() is step
        for request, end in step.parts:
            pipeline.flying[request.id] -= 1
            if end < request.known:
                continue
            request.generated += 1
            request.decoding = True
            request.token_ns.append(at >> FRACTION_BITS)
            request.token_fixed.append(at)
            if request.generated == request.output:
                replica.finished += 1
                replica.running.remove(request)
                _release_blocks(replica, request)

    def schedule(self, pipeline: NaivePipeline, at: int) -> None:
        """Until the queue of batches is full, or nothing more is to be scheduled (step_with_batch_queue)."""
        while True:
            parts = self.one_batch(pipeline)
            if not parts:
                pipeline.queue.insert(0, None)
                if not pipeline.in_flight:
                    pipeline.queue.clear()
                    break
                if pipeline.queue[-1] is not None:
                    break  # it waits for the oldest
                pipeline.queue.pop()
                continue
            decodes = [request for request, _ in parts if request.decoding]
            chunks = tuple(
                (request.id, request.computed, tokens) for request, tokens in parts if not request.decoding
            )
            costs = [_cost(_Stage(rows, self.stages), decodes, chunks) for rows in self.stages.rows]
            hop = self.stages.hops(sum(tokens for _, tokens in parts))[-1]
            for request, tokens in parts:
                request.computed += tokens
                pipeline.flying[request.id] = pipeline.flying.get(request.id, 0) + 1
            ends = [(request, request.computed) for request, _ in parts]
            step = _Step(pipeline.launched, ends, costs, hop)
            pipeline.launched += 1
            pipeline.work += sum(costs)
            pipeline.in_flight += 1
            pipeline.queue.insert(0, step)
            self.at(at, pipeline, 0, "comes", step)
            if len(pipeline.queue) < self.stages.stages and pipeline.queue[-1] is not None:
                continue
            if pipeline.queue[-1] is not None:
                break
            pipeline.queue.pop()
        left = pipeline.replica.running or pipeline.replica.waiting
        assert pipeline.in_flight or not left, "requests are left lying"

    def one_batch(self, pipeline: NaivePipeline) -> list[tuple[_Request, int]]:
        """Requests that are in no step: those who run in order, then the queue."""
        case, replica = self.case, pipeline.replica
        budget, parts, preempted = case.max_num_batched_tokens, list[tuple[_Request, int]](), False
        # Prompts under way come behind those who decode in the order of running anyway.
        mine = [one for one in replica.running if one.decoding and not pipeline.flying.get(one.id)]
        free = [one for one in replica.running if not one.decoding and one.computed < one.known]
        for request in [*mine, *free]:
            if request not in replica.running or budget == 0:
                continue
            tokens = min(request.known - request.computed, budget)
            while case.blocks(request.computed + tokens) - len(request.held) > len(replica.free):
                preempted = True
                if not request.decoding:
                    if not pipeline.flying.get(request.id):
                        self.preempt(replica, request)
                    break
                idle = [one for one in replica.running if not pipeline.flying.get(one.id)]
                victim = [one for one in idle if all(one is not chosen for chosen, _ in parts)][-1]
                self.preempt(replica, victim)
                if victim is request:
                    break
            else:
                _allocate(case, replica, request, tokens)
                parts.append((request, tokens))
                budget -= tokens
        while not preempted and replica.waiting and budget and len(replica.running) < case.max_num_seqs:
            request = replica.waiting[0]
            tokens = min(request.known, budget)
            needed = request.known if case.reserve_full_prompt else tokens
            if case.blocks(needed) + case.sequence_blocks > len(replica.free):
                break
            replica.running.append(replica.waiting.pop(0))
            _take_own(case, replica, request)
            _allocate(case, replica, request, tokens)
            parts.append((request, tokens))
            budget -= tokens
        return parts

    def preempt(self, replica: _Replica, victim: _Request) -> None:
        replica.running.remove(victim)
        _release_blocks(replica, victim)
        victim.computed = 0
        victim.decoding = False
        victim.preemptions += 1
        replica.waiting.insert(0, victim)


@dataclass(frozen=True)
class _Stage:
    """A stage's rows, with what all stages count as context."""

    rows: ToyRows
    stages: ToyStages
    output_token: int = 0

    def decode(self, n: int) -> tuple[tuple[int, int, int], ...]:
        return self.rows.decode(n)

    def mixed(self, n: int, context: int, chunks: Sequence[tuple[int, int, int]], spread: int = 0) -> int:
        return self.rows.mixed(n, context, chunks, spread)

    def shift(self, n: int, spread: int) -> int:
        return self.stages.shift(n, spread)
