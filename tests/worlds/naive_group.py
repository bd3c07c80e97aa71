"""A reference data-parallel group for tests: one step of all ranks at a time, each scheduled from scratch.

Ranks are replicas of the naive engine; what is written here is the loop of vLLM 0.19's
``DPEngineCoreProc.run_busy_loop``, with time in it. It shares no code with the product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.worlds.naive_engine import (
    FRACTION_BITS,
    Case,
    Outcome,
    _check_blocks,
    _cost,
    _let_go,
    _outcome,
    _Replica,
    _Request,
    _schedule_chunked,
)

STEPS_PER_SYNC = 32


@dataclass(frozen=True)
class ToyExperts:
    """All ranks are padded to the largest if ``padded``; a cost in fixed-point ns."""

    intercept: int
    per_token: int
    padded: bool = False

    def group_cost(self, tokens: Sequence[int]) -> int:
        return self.intercept + self.per_token * (len(tokens) * max(tokens) if self.padded else sum(tokens))


@dataclass
class Group:
    """What the reference counts: steps, dummy steps of all ranks, and the time that others waited."""

    ranks: list[_Replica]
    steps: int = 0
    dummy_steps: int = 0
    waited_fixed: int = 0
    worked_fixed: int = 0
    stepping: bool = False
    end_ns: int = 0
    remainder: int = 0
    wave_steps: int = 0
    idle_steps: int = 0  # in a row, with work in a queue


def run_naive_group(case: Case, experts: ToyExperts) -> tuple[tuple[Outcome, ...], Group]:
    """All replicas of the case as one group; one outcome per request, in order."""
    assert case.batcher == "chunked"
    requests = [_Request(i, prompt, min(out, cap)) for i, (_, prompt, out, cap) in enumerate(case.requests)]
    group = Group([_Replica(i, list(range(case.total_blocks))) for i in range(case.replicas)])
    arrived = 0
    while True:
        now_ns = case.requests[arrived][0] if arrived < len(requests) else None
        if now_ns is not None and not (group.stepping and group.end_ns < now_ns):
            arrived += _arrive(case, group, requests[arrived])
            next_ns = case.requests[arrived][0] if arrived < len(requests) else None
            if not group.stepping and next_ns != now_ns and _has_work(group):
                group.end_ns, group.remainder = now_ns, 0
                _begin(case, group, experts)
        elif group.stepping:
            _end(case, group)
            if group.stepping:
                _begin(case, group, experts)
        else:
            return tuple(_outcome(request) for request in requests), group


def _arrive(case: Case, group: Group, request: _Request) -> int:
    _, prompt, _, max_new_tokens = case.requests[request.id]
    room = case.total_blocks - case.watermark_blocks - case.sequence_blocks
    if case.blocks(prompt + max_new_tokens) <= room:
        if case.dispatch == "round_robin":
            rank = group.ranks[sum(one.accepted for one in group.ranks) % case.replicas]
        else:
            rank = min(group.ranks, key=lambda one: (one.accepted - one.finished, one.id))
        request.replica = rank.id
        rank.accepted += 1
        rank.queue.append(request)
    return 1


def _has_work(group: Group) -> bool:
    return any(rank.running or rank.waiting or rank.queue for rank in group.ranks)


def _begin(case: Case, group: Group, experts: ToyExperts) -> None:
    """Every rank schedules, with what it knows; who finds nothing runs a dummy step."""
    tokens, own = [], []
    for rank in group.ranks:
        if rank.step is None or not case.asynchronous:  # nothing ran that it does not know the end of
            _let_go(rank)
            rank.waiting += rank.queue
            rank.queue = []
        while rank.queue and case.requests[rank.queue[0].id][0] <= rank.start_ns:
            rank.waiting.append(rank.queue.pop(0))
        rank.step = _schedule_chunked(case, rank, []) or None
        if rank.step is None:
            tokens.append(1)
            own.append(_cost_of_dummy(case))
            continue
        rank.start_ns = group.end_ns
        tokens.append(sum(count for _, count in rank.step))
        decodes = [request for request, _ in rank.step if request.decoding]
        chunks = tuple((one.id, one.computed, count) for one, count in rank.step if not one.decoding)
        own.append(_cost(case.rows, decodes, chunks))
    cost = max(own) + experts.group_cost(tokens)
    for rank, alone in zip(group.ranks, own, strict=True):
        if rank.step is None:
            group.dummy_steps += 1
        else:
            group.worked_fixed += cost
            group.waited_fixed += max(own) - alone
    group.steps += 1
    group.wave_steps += 1
    group.stepping = True
    group.end_ns += (group.remainder + cost) >> FRACTION_BITS
    group.remainder = (group.remainder + cost) & ((1 << FRACTION_BITS) - 1)


def _cost_of_dummy(case: Case) -> int:
    """One token with a context of one."""
    _, intercept, slope = case.rows.decode(1)[0]
    return intercept + slope


def _end(case: Case, group: Group) -> None:
    worked = any(rank.step is not None for rank in group.ranks)
    for rank in group.ranks:
        _let_go(rank)
        for request, count in rank.step or ():
            request.computed += count
            if request.computed == request.known:
                request.generated += 1
                request.decoding = True
                request.token_ns.append(group.end_ns)
                request.token_fixed.append((group.end_ns << FRACTION_BITS) + group.remainder)
                if request.generated == request.output:
                    rank.ended.append(request)
                    rank.finished += 1
        if not case.asynchronous:
            _let_go(rank)
        _check_blocks(case, rank)
    group.idle_steps = group.idle_steps + 1 if not worked and _has_work(group) else 0
    if group.idle_steps == STEPS_PER_SYNC:
        raise RuntimeError(f"the ranks have work at {group.end_ns} ns and nothing can ever run")
    # All-reduce of "has unfinished requests". With asynchronous scheduling a step's output comes later.
    knows_of_none = not (worked and case.asynchronous)
    if group.wave_steps % STEPS_PER_SYNC == 0 and knows_of_none and not _has_work(group):
        group.stepping = False
        group.wave_steps = 0
