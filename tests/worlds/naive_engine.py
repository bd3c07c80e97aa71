"""A reference serving engine for tests: one token, one block, one step at a time.

It is the oracle for the coalescing simulator and shares no code with it. It is written to be checked by
reading: every step is scheduled from scratch, every KV block is an object in exactly one list, and time moves
by one step cost. Speed does not matter here.

Step costs and remainders are fixed-point ns with 24 fraction bits; event times are integer ns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

FRACTION_BITS = 24
Chunk = tuple[int, int, int]  # request id, first position computed, tokens


class Rows(Protocol):
    """Where step costs come from."""

    def decode(self, n: int) -> tuple[tuple[int, int, int], ...]:
        """Pieces (limit, intercept, slope) of a decode step of n sequences."""

    def mixed(self, n: int, context: int, chunks: Sequence[Chunk], spread: int = 0) -> int:
        """Cost of a step with chunks."""

    @property
    def output_token(self) -> int:
        """What every token that a decoding request has generated adds to a step."""

    def shift(self, n: int, spread: int) -> int:
        """Tokens a decode step counts on top of the total context."""


@dataclass(frozen=True)
class Case:
    """One experiment. ``requests`` are (arrival_ns, prompt, output, max_new_tokens), by arrival."""

    batcher: str  # 'chunked' (vLLM v1) or 'prefill_first' (vLLM v0)
    replicas: int
    block_tokens: int
    total_blocks: int
    watermark_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    dispatch: str  # 'round_robin' or 'least_outstanding'
    requests: tuple[tuple[int, int, int, int], ...]
    rows: Rows
    reserve_full_prompt: bool = False  # chunked only
    decode_spare_block: bool = False  # prefill_first only
    prefix_caching: bool = False
    asynchronous: bool = False
    swap_blocks: int = 0  # prefill_first only: in host memory, for those who are preempted; a block takes
    swap_block_ns: int = 0
    sequence_blocks: int = 0  # of each request that runs, beside those of its tokens
    priorities: tuple[int, ...] = ()  # of the requests, the larger the more urgent; empty: first come, first

    def __post_init__(self) -> None:
        assert len(self.priorities) in (0, len(self.requests))
        assert self.batcher in ("chunked", "prefill_first"), self.batcher
        assert self.dispatch in ("round_robin", "least_outstanding"), self.dispatch
        assert self.max_num_batched_tokens >= self.max_num_seqs
        arrivals = [request[0] for request in self.requests]
        assert arrivals == sorted(arrivals), "requests must be sorted by arrival"
        assert all(min(request[1:]) >= 1 for request in self.requests), "lengths must be at least 1"

    def blocks(self, tokens: int) -> int:
        """KV blocks that hold ``tokens`` positions."""
        return (tokens + self.block_tokens - 1) // self.block_tokens


@dataclass(frozen=True)
class Outcome:
    """What became of one request; a rejected one has no replica and no tokens."""

    request: int
    rejected: bool
    replica: int | None
    output_tokens: int
    token_ns: tuple[int, ...]
    token_fixed: tuple[int, ...]
    preemptions: int


class LoggedStep(NamedTuple):
    """One step. ``decodes`` are ids in running order, ``preempted`` in the order they were thrown out."""

    replica: int
    start_ns: int
    end_ns: int
    decodes: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    preempted: tuple[int, ...]


@dataclass(eq=False)
class _Request:
    id: int
    prompt: int
    output: int  # already capped by max_new_tokens
    priority: int = 0
    replica: int | None = None
    generated: int = 0
    computed: int = 0
    decoding: bool = False  # has sampled a token since its last admission
    held: list[int] = field(default_factory=list)  # block ids
    own: list[int] = field(default_factory=list)  # those of its windows and states
    on_host: int = 0  # blocks in host memory
    preemptions: int = 0
    known_at_admission: int = 0
    token_ns: list[int] = field(default_factory=list)
    token_fixed: list[int] = field(default_factory=list)

    @property
    def known(self) -> int:
        return self.prompt + self.generated


@dataclass(eq=False)
class _Replica:
    id: int
    free: list[int]  # block ids, handed out from the front
    waiting: list[_Request] = field(default_factory=list)
    running: list[_Request] = field(default_factory=list)
    # Block id -> (request id, number of the block in its sequence), for whole blocks that can be found again.
    contents: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Asynchronous scheduling: came, and finished, too late for the next choice. Those who finished are still
    # in ``running``.
    queue: list[_Request] = field(default_factory=list)
    ended: list[_Request] = field(default_factory=list)
    start_ns: int = 0
    step: list[tuple[_Request, int]] | None = None  # what is computed now; None when idle
    end_ns: int = 0
    remainder: int = 0  # of the step that ends at end_ns
    accepted: int = 0
    finished: int = 0
    copied_blocks: int = 0  # between GPU and host, before the step that begins now


def run_naive(case: Case) -> tuple[Outcome, ...]:
    """Run ``case`` to the end; one outcome per request, in order."""
    return run_naive_logged(case)[0]


def run_naive_logged(case: Case) -> tuple[tuple[Outcome, ...], list[LoggedStep]]:
    """As ``run_naive``, with every step in the order in which they started."""
    urgent = case.priorities or (0,) * len(case.requests)
    requests = [
        _Request(i, prompt, min(out, cap), urgent[i]) for i, (_, prompt, out, cap) in enumerate(case.requests)
    ]
    replicas = [_Replica(i, list(range(case.total_blocks))) for i in range(case.replicas)]
    log: list[LoggedStep] = []
    arrived = 0
    while True:
        # At equal times arrivals come first, in list order, then completions by replica id.
        busy = [(replica.end_ns, replica.id) for replica in replicas if replica.step is not None]
        if arrived < len(requests) and (not busy or case.requests[arrived][0] <= min(busy)[0]):
            _arrive(case, replicas, requests[arrived], log)
            arrived += 1
        elif busy:
            _complete(case, replicas[min(busy)[1]], log)
        else:
            break
    return tuple(_outcome(request) for request in requests), log


def _arrive(case: Case, replicas: list[_Replica], request: _Request, log: list[LoggedStep]) -> None:
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
    if replica.step is not None and case.asynchronous:
        replica.queue.append(request)
        return
    _queue(replica, [request])
    if replica.step is None:
        _start(case, replica, now_ns, 0, log)


def _complete(case: Case, replica: _Replica, log: list[LoggedStep]) -> None:
    assert replica.step is not None
    _let_go(replica)
    for request, tokens in replica.step:
        request.computed += tokens
        assert request.computed <= request.known
        if request.computed == request.known:
            request.generated += 1
            request.decoding = True
            request.token_ns.append(replica.end_ns)
            request.token_fixed.append((replica.end_ns << FRACTION_BITS) + replica.remainder)
            if request.generated == request.output:
                replica.ended.append(request)
                replica.finished += 1
    if not case.asynchronous:
        _let_go(replica)
    while replica.queue and case.requests[replica.queue[0].id][0] <= replica.start_ns:
        _queue(replica, [replica.queue.pop(0)])
    replica.step = None
    _check_blocks(case, replica)
    if replica.running or replica.waiting or replica.queue:
        _start(case, replica, replica.end_ns, replica.remainder, log)


def _queue(replica: _Replica, requests: list[_Request]) -> None:
    replica.waiting = by_priority(replica.waiting + requests)


def by_priority(requests: list[_Request]) -> list[_Request]:
    """Those of higher priority first, else as they are."""
    return sorted(requests, key=lambda one: -one.priority)


def _let_go(replica: _Replica) -> None:
    """Requests that had finished by the boundary before release seat and memory."""
    for request in replica.ended:
        if request in replica.running:
            _release_blocks(replica, request)
            replica.running.remove(request)
    replica.ended = []


def _start(case: Case, replica: _Replica, now_ns: int, remainder: int, log: list[LoggedStep]) -> None:
    preempted: list[int] = []
    schedule = _schedule_chunked if case.batcher == "chunked" else _schedule_prefill_first
    step = schedule(case, replica, preempted)
    if not step and (replica.ended or replica.queue):
        # Nothing could be chosen while the last step ran: what happened in it is known by now.
        _let_go(replica)
        _queue(replica, replica.queue)
        replica.queue = []
        if not replica.running and not replica.waiting:
            return
        again = list[int]()
        step = schedule(case, replica, again)
        preempted += again
    if not step and preempted and case.decode_spare_block:
        # The last one was preempted, though it has memory enough, and is chosen again: nothing ran between.
        again = []
        step = schedule(case, replica, again)
        preempted += again
    if not step:
        raise RuntimeError(f"replica {replica.id} has work at {now_ns} ns and nothing can ever run")
    decodes = [request for request, _ in step if request.decoding]
    assert all(request.known - request.computed == 1 for request in decodes)
    chunks = tuple((request.id, request.computed, tokens) for request, tokens in step if not request.decoding)
    cost = _cost(case.rows, decodes, chunks)
    assert cost >= 1
    cost += replica.copied_blocks * case.swap_block_ns << FRACTION_BITS
    replica.copied_blocks = 0
    replica.step = step
    replica.start_ns = now_ns
    replica.end_ns = now_ns + ((remainder + cost) >> FRACTION_BITS)
    replica.remainder = (remainder + cost) & ((1 << FRACTION_BITS) - 1)
    ids = tuple(request.id for request in decodes)
    log.append(LoggedStep(replica.id, now_ns, replica.end_ns, ids, chunks, tuple(preempted)))


def _cost(rows: Rows, decodes: list[_Request], chunks: tuple[Chunk, ...]) -> int:
    contexts = [request.computed + 1 for request in decodes]
    context = sum(contexts)
    spread = len(decodes) * max(contexts, default=0) - context
    made = rows.output_token * sum(request.computed + 1 - request.prompt for request in decodes)
    if chunks:
        return rows.mixed(len(decodes), context, chunks, spread) + made
    context += rows.shift(len(decodes), spread)
    for limit, intercept, slope in rows.decode(len(decodes)):
        if context <= limit:
            return intercept + slope * context + made
    raise RuntimeError(f"no row holds {len(decodes)} decodes of context {context}")


def _schedule_chunked(case: Case, replica: _Replica, preempted: list[int]) -> list[tuple[_Request, int]]:
    step: list[tuple[_Request, int]] = []
    budget = case.max_num_batched_tokens
    # The last to be admitted may have a part of its prompt left: it comes last, whatever its priority.
    decoding = [one for one in replica.running if one.decoding]
    for request in by_priority(decoding) + [one for one in replica.running if not one.decoding]:
        if request in replica.ended or request not in replica.running:
            continue
        if budget == 0:
            break
        tokens = min(request.known - request.computed, budget)
        _make_room(case, replica, request, tokens, preempted)
        if request not in replica.running:
            continue
        _allocate(case, replica, request, tokens)
        step.append((request, tokens))
        step = [one for one in step if one[0] in replica.running]
        budget = case.max_num_batched_tokens - sum(tokens for _, tokens in step)
    step = [one for one in step if one[0] in replica.running]
    while not preempted and replica.waiting and budget > 0 and len(replica.running) < case.max_num_seqs:
        request = replica.waiting[0]
        found = _find_blocks(case, replica, request)
        cached = len(found) * case.block_tokens
        tokens = min(request.known - cached, budget)
        needed = request.known if case.reserve_full_prompt else cached + tokens
        if case.blocks(needed) + case.sequence_blocks > len(replica.free):
            break
        _admit(case, replica, found)
        _allocate(case, replica, request, tokens)
        step.append((request, tokens))
        budget -= tokens
    return step


def _admit(case: Case, replica: _Replica, found: list[int]) -> None:
    """The head of the queue runs from now on; ``found`` are blocks of its own that are still whole."""
    request = replica.waiting.pop(0)
    replica.running.append(request)
    for block in found:
        replica.free.remove(block)
    request.held = found
    _take_own(case, replica, request)
    request.computed = len(found) * case.block_tokens
    request.known_at_admission = request.known


def _take_own(case: Case, replica: _Replica, request: _Request) -> None:
    for _ in range(case.sequence_blocks):
        block = replica.free.pop(0)
        replica.contents.pop(block, None)
        request.own.append(block)


def _schedule_prefill_first(
    case: Case, replica: _Replica, preempted: list[int]
) -> list[tuple[_Request, int]]:
    step: list[tuple[_Request, int]] = []
    while replica.waiting and len(replica.running) < case.max_num_seqs:
        request = replica.waiting[0]
        if request.on_host:
            break
        chosen = sum(tokens for _, tokens in step)
        found = _find_blocks(case, replica, request)
        tokens = request.known - len(found) * case.block_tokens
        if step and chosen + tokens > case.max_num_batched_tokens:
            break
        wanted = case.blocks(request.known) + case.sequence_blocks
        if len(replica.free) - wanted < case.watermark_blocks:
            break
        _admit(case, replica, found)
        _allocate(case, replica, request, tokens)
        step.append((request, tokens))
    if step:
        return step
    for request in by_priority(replica.running):
        if request in replica.ended:
            continue
        if request not in replica.running:
            break
        _make_room(case, replica, request, 1, preempted)
        if request not in replica.running:
            break
        _allocate(case, replica, request, 1)
        step.append((request, 1))
    while not preempted and replica.waiting and replica.waiting[0].on_host:
        request = replica.waiting[0]
        left = len(replica.free) - request.on_host - 1
        if left < case.watermark_blocks and replica.running:
            break
        replica.running.append(replica.waiting.pop(0))
        replica.copied_blocks += request.on_host
        request.on_host = 0
        _take_own(case, replica, request)
        _allocate(case, replica, request, 1)
        step.append((request, 1))
    return step


def _swap_out(case: Case, replica: _Replica, victim: _Request) -> bool:
    """Its blocks go to host memory, if there is room for them."""
    on_host = sum(one.on_host for one in replica.waiting)
    held = len(victim.held) + len(victim.own)
    if not victim.decoding or on_host + held > case.swap_blocks:
        return False
    victim.on_host = held
    replica.copied_blocks += victim.on_host
    return True


def _make_room(case: Case, replica: _Replica, request: _Request, tokens: int, preempted: list[int]) -> None:
    """Preempt from the tail until ``tokens`` more fit; the request itself may be the one to go.

    Those of lower priority are preempted before all others.
    """
    needed = case.blocks(request.computed + tokens) - len(request.held)
    while max(needed, int(case.decode_spare_block)) > len(replica.free):
        victim = by_priority(replica.running)[-1]
        replica.running.remove(victim)
        if victim in replica.ended:
            # It finished in the step that ran when it was chosen: nothing is lost, but a victim it is.
            _release_blocks(replica, victim)
            preempted.append(victim.id)
            continue
        if case.prefix_caching:
            _label_blocks(case, replica, victim)
        if not _swap_out(case, replica, victim):
            victim.computed = 0
            victim.decoding = False
        _release_blocks(replica, victim)
        victim.preemptions += 1
        replica.waiting = by_priority([victim, *replica.waiting])
        preempted.append(victim.id)
        if victim is request:
            return


def _allocate(case: Case, replica: _Replica, request: _Request, tokens: int) -> None:
    while len(request.held) < case.blocks(request.computed + tokens):
        block = replica.free.pop(0)
        replica.contents.pop(block, None)
        request.held.append(block)


def _release_blocks(replica: _Replica, request: _Request) -> None:
    replica.free.extend([*request.own, *reversed(request.held)])
    request.held, request.own = [], []


def _label_blocks(case: Case, replica: _Replica, request: _Request) -> None:
    """Write on a victim's whole blocks what they hold."""
    stored = request.computed
    if case.asynchronous and request.decoding:
        # The last position was written by the step that still runs when the victim is chosen, unless that
        # step computed a prompt, whose tokens were all known before.
        stored = max(request.known_at_admission, stored - 1)
    for number, block in enumerate(request.held[: stored // case.block_tokens]):
        replica.contents[block] = (request.id, number)


def _find_blocks(case: Case, replica: _Replica, request: _Request) -> list[int]:
    """Free blocks that still hold the beginning of the request, in order; never its last position."""
    places = {content: block for block, content in replica.contents.items()}
    found: list[int] = []
    while (request.id, len(found)) in places and (len(found) + 1) * case.block_tokens < request.known:
        found.append(places[request.id, len(found)])
    return found


def _check_blocks(case: Case, replica: _Replica) -> None:
    """Every block is in exactly one place, and everyone holds exactly what its computed positions need."""
    places = list(replica.free)
    for request in replica.running + replica.waiting + replica.queue:
        places.extend(request.held + request.own)
        wanted = case.blocks(request.computed) + (case.sequence_blocks if request.computed else 0)
        assert len(request.held) + len(request.own) + request.on_host == wanted
    assert sorted(places) == list(range(case.total_blocks)), "a KV block was lost or is held twice"
    assert all(request.computed == 0 or request.on_host for request in replica.waiting)
    assert len(replica.running) <= case.max_num_seqs


def _outcome(request: _Request) -> Outcome:
    rejected = request.replica is None
    assert request.generated == (0 if rejected else request.output)
    return Outcome(
        request=request.id,
        rejected=rejected,
        replica=request.replica,
        output_tokens=request.generated,
        token_ns=tuple(request.token_ns),
        token_fixed=tuple(request.token_fixed),
        preemptions=request.preemptions,
    )
