"""A reference for tests: a pipeline of stages that virtual engines share, as vLLM 0.6 has them.

Every virtual engine is a naive replica with a part of the blocks; steps pass the stages in the order in which
they are begun. It shares no code with the product.
"""

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from tests.worlds.naive_engine import (
    FRACTION_BITS,
    Case,
    Outcome,
    _cost,
    _outcome,
    _release_blocks,
    _Replica,
    _Request,
    _schedule_prefill_first,
)
from tests.worlds.naive_pipeline import ToyStages, _Stage

Parts = list[tuple[_Request, int]]


@dataclass(eq=False)
class _Instance:
    """``free``: when each stage is; ``steps``: of the virtual engines, None where one is idle."""

    id: int
    engines: list[_Replica]
    free: list[int]
    steps: list[Parts | None]
    coming: list[_Request] = field(default_factory=list)
    accepted: int = 0
    finished: int = 0
    work: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)  # begin and end of computing, at any stage
    step_ends: list[int] = field(default_factory=list)


@dataclass
class _World:
    case: Case  # of one virtual engine
    whole: Case
    stages: ToyStages
    instances: list[_Instance]
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # when, instance, virtual engine

    def arrive(self, request: _Request) -> None:
        now_ns, prompt, _, most = self.whole.requests[request.id]
        case = self.case
        if case.blocks(prompt + most) > case.total_blocks - case.watermark_blocks:
            return
        if case.dispatch == "round_robin":
            one = self.instances[sum(one.accepted for one in self.instances) % len(self.instances)]
        else:
            one = min(self.instances, key=lambda one: (one.accepted - one.finished, one.id))
        request.replica = one.id
        one.accepted += 1
        one.coming.append(request)
        if not any(one.steps):
            self.hand_out(one)
            self.begin_idle(one, now_ns << FRACTION_BITS)

    def hand_out(self, one: _Instance) -> None:
        for request in one.coming:
            least = min(
                one.engines, key=lambda engine: (len(engine.running) + len(engine.waiting), engine.id)
            )
            least.waiting.append(request)
        one.coming = []

    def begin_idle(self, one: _Instance, at: int) -> None:
        for engine in one.engines:
            if one.steps[engine.id] is None and (engine.waiting or engine.running):
                self.begin(one, engine, at)

    def begin(self, one: _Instance, engine: _Replica, at: int) -> None:
        preempted: list[int] = []
        step = _schedule_prefill_first(self.case, engine, preempted)
        if not step and preempted:
            step = _schedule_prefill_first(self.case, engine, preempted)
        assert step, "work is left lying"
        decodes = [request for request, _ in step if request.decoding]
        chunks = tuple(
            (request.id, request.computed, tokens) for request, tokens in step if not request.decoding
        )
        hops = self.stages.hops(sum(tokens for _, tokens in step))
        generated = sum(request.computed + 1 - request.prompt for request in decodes)
        for stage, rows in enumerate(self.stages.rows):
            cost = _cost(_Stage(rows, self.stages), decodes, chunks)
            if stage + 1 == self.stages.stages:
                cost += self.stages.output_token * generated
            at = max(at + hops[stage], one.free[stage]) + cost
            one.free[stage] = at
            one.work += cost
            one.spans.append((at - cost, at))
        one.step_ends.append(at)
        one.steps[engine.id] = step
        heappush(self.ends, (at, one.id, engine.id))

    def end(self, at: int, one: _Instance, engine: _Replica) -> None:
        step = one.steps[engine.id]
        assert step is not None
        for request, tokens in step:
            request.computed += tokens
            request.generated += 1
            request.decoding = True
            request.token_ns.append(at >> FRACTION_BITS)
            request.token_fixed.append(at)
            if request.generated == request.output:
                one.finished += 1
                engine.running.remove(request)
                _release_blocks(engine, request)
        one.steps[engine.id] = None
        self.hand_out(one)
        if engine.running or engine.waiting:
            self.begin(one, engine, at)
        self.begin_idle(one, at)


def run_naive_virtual(case: Case, stages: ToyStages) -> tuple[tuple[Outcome, ...], list[_Instance]]:
    """Run ``case`` to the end; one outcome per request, in order."""
    count = stages.stages
    part = replace(
        case, total_blocks=case.total_blocks // count, watermark_blocks=case.watermark_blocks // count
    )
    requests = [_Request(i, prompt, min(out, cap)) for i, (_, prompt, out, cap) in enumerate(case.requests)]
    instances = [
        _Instance(
            number,
            [_Replica(i, list(range(part.total_blocks))) for i in range(count)],
            [0] * count,
            [None] * count,
        )
        for number in range(case.replicas)
    ]
    world, arrived = _World(part, case, stages, instances), 0
    while arrived < len(requests) or world.ends:
        if arrived < len(requests) and (
            not world.ends or case.requests[arrived][0] <= world.ends[0][0] >> FRACTION_BITS
        ):
            world.arrive(requests[arrived])
            arrived += 1
            continue
        at, number, engine = heappop(world.ends)
        world.end(at, instances[number], instances[number].engines[engine])
    return tuple(_outcome(request) for request in requests), instances
