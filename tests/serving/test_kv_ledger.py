"""The O(1) ledger against a pool in which every block is an object and every token takes its place alone."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serving.engine.free_queue import SharedPrefix
from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress
from serving.record.cache_checks import broken
from serving.vocabulary.request import Request

HORIZON_STEPS = 200  # beyond what a pool of 24 blocks of 32 tokens lets two requests do in these tests


class Pool:
    """Who holds which block, and how many positions of it are written.

    ``sequence_blocks``: what each request takes when it comes, before any position.
    """

    def __init__(self, blocks: int, block_tokens: int, sequence_blocks: int = 0) -> None:
        self.block_tokens = block_tokens
        self.sequence_blocks = sequence_blocks
        self.free = list(range(blocks))
        self.own: dict[int, list[int]] = {}
        self.held: dict[int, list[int]] = {}
        self.stored: dict[int, int] = {}  # positions written
        self.decoding: set[int] = set()

    def copy(self) -> "Pool":
        twin = Pool(0, self.block_tokens)
        twin.free = list(self.free)
        twin.own = {request: list(blocks) for request, blocks in self.own.items()}
        twin.held = {request: list(blocks) for request, blocks in self.held.items()}
        twin.stored = dict(self.stored)
        twin.decoding = set(self.decoding)
        return twin

    def come(self, request: int) -> None:
        """A request takes the blocks of its windows and states, and none of its tokens yet."""
        self.own[request] = [self.free.pop() for _ in range(self.sequence_blocks)]
        self.held[request] = []
        self.stored[request] = 0

    def lacks_block(self, request: int) -> bool:
        return self.stored[request] == len(self.held[request]) * self.block_tokens

    def write(self, request: int) -> bool:
        """One more position; False when it needs a block and there is none."""
        if self.lacks_block(request):
            if not self.free:
                return False
            self.held[request].append(self.free.pop())
        self.stored[request] += 1
        return True

    def step(self) -> int | None:
        """Every decoding request writes one position; the blocks taken, None when one was missing."""
        before = len(self.free)
        written = [self.write(request) for request in sorted(self.decoding)]
        return before - len(self.free) if all(written) else None

    def blocks_of_steps(self, steps: int) -> int | None:
        twin = self.copy()
        taken = [twin.step() for _ in range(steps)]
        return None if None in taken else sum(filter(None, taken))

    def longest_run(self) -> int:
        """Steps until one lacks a block, up to the horizon."""
        twin = self.copy()
        for steps in range(HORIZON_STEPS):
            if twin.step() is None:
                return steps
        return HORIZON_STEPS

    def release(self, request: int) -> None:
        self.free += self.held.pop(request) + self.own.pop(request)
        del self.stored[request]
        self.decoding.discard(request)


class LedgerAgainstPool(RuleBasedStateMachine):
    """Requests come, compute prompts in chunks, decode in runs and leave, in any order."""

    ledger: KvLedger
    pool: Pool

    @initialize(
        blocks=st.integers(1, 24),
        block_tokens=st.sampled_from((1, 2, 3, 16, 32)),
        sequence_blocks=st.sampled_from((0, 0, 1, 2, 5)),
    )
    def start(self, blocks: int, block_tokens: int, sequence_blocks: int) -> None:
        own = min(sequence_blocks, blocks - 1)
        self.ledger = KvLedger(blocks, block_tokens, sequence_blocks=own)
        self.pool = Pool(blocks, block_tokens, own)
        self.next_request = 0

    def _compute(self, request: int, tokens: int) -> None:
        """A prompt chunk of at most ``tokens``, as far as memory reaches."""
        for _ in range(tokens):
            if not self.pool.write(request):
                break
        self.ledger.reserve(request, self.pool.stored[request])

    @precondition(lambda self: len(self.pool.free) > self.pool.sequence_blocks)
    @rule(tokens=st.integers(1, 70))
    def admit(self, tokens: int) -> None:
        request = self.next_request
        self.next_request += 1
        assert self.ledger.blocks_for(1) == 1 + self.pool.sequence_blocks
        self.pool.come(request)
        self._compute(request, tokens)

    @precondition(lambda self: self._prefilling())
    @rule(data=st.data(), tokens=st.integers(1, 70))
    def compute_more(self, data: st.DataObject, tokens: int) -> None:
        self._compute(data.draw(st.sampled_from(self._prefilling())), tokens)

    @precondition(lambda self: self._prefilling())
    @rule(data=st.data())
    def start_decoding(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self._prefilling()))
        self.pool.decoding.add(request)
        self.ledger.start_decoding(request, self.pool.stored[request] + 1)

    @precondition(lambda self: self.pool.decoding and self.pool.longest_run())
    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        steps = data.draw(st.integers(1, self.pool.longest_run()))
        self.ledger.steps_done += steps
        for _ in range(steps):
            assert self.pool.step() is not None

    @precondition(lambda self: self.pool.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.pool.held)))
        self.pool.release(request)
        self.ledger.release(request)

    def _prefilling(self) -> list[int]:
        return sorted(self.pool.held.keys() - self.pool.decoding)

    @invariant()
    def blocks_are_conserved(self) -> None:
        ledger, pool = self.ledger, self.pool
        assert ledger.free_blocks == len(pool.free) >= 0
        assert sorted(ledger.holders()) == sorted(pool.held)
        assert sum(map(ledger.held_blocks, ledger.holders())) + ledger.free_blocks == ledger.total_blocks

    @invariant()
    def every_request_holds_what_its_positions_need(self) -> None:
        for request, blocks in self.pool.held.items():
            assert self.ledger.held_blocks(request) == len(blocks) + len(self.pool.own[request])

    @invariant()
    def the_next_step_is_known(self) -> None:
        ledger, pool = self.ledger, self.pool
        assert ledger.decoding == len(pool.decoding)
        wanting = {request for request in pool.decoding if pool.lacks_block(request)}
        assert ledger.step_blocks() == len(wanting)
        for request in pool.held:
            assert ledger.takes_block_next_step(request) == (request in wanting)
        for request in pool.decoding:
            assert ledger.context_tokens(request) == pool.stored[request] + 1

    @invariant()
    def the_blocks_of_a_run_are_known(self) -> None:
        """Before it happens: steps are told in one go, where decode tells them to a pool one by one."""
        for steps in {0, 1, 2, self.pool.block_tokens, self.pool.block_tokens + 1, self.pool.longest_run()}:
            expected = self.pool.blocks_of_steps(steps)
            if expected is not None:
                free_blocks = self.ledger.free_blocks
                self.ledger.steps_done += steps
                assert free_blocks - self.ledger.free_blocks == expected
                self.ledger.steps_done -= steps

    @invariant()
    def a_run_is_never_promised_too_many_steps(self) -> None:
        if not self.pool.decoding:
            return
        longest = self.pool.longest_run()
        rounds = len(self.pool.free) // len(self.pool.decoding)
        promised = self.ledger.steps_until_full()
        assert min(promised, HORIZON_STEPS) <= longest
        assert (promised == 0) == (longest == 0)
        # Worth having: exact where no whole round fits, else all the whole rounds.
        assert promised == (rounds * self.pool.block_tokens or longest)


TestLedgerAgainstPool = LedgerAgainstPool.TestCase
TestLedgerAgainstPool.settings = settings(max_examples=30, stateful_step_count=30)


@pytest.mark.parametrize(("blocks", "tokens", "watermark"), [(0, 16, 0), (4, 0, 0), (4, 16, 4), (4, 16, -1)])
def test_a_pool_without_memory_is_refused(blocks: int, tokens: int, watermark: int) -> None:
    with pytest.raises(ValueError, match="no KV memory"):
        KvLedger(blocks, tokens, watermark_blocks=watermark)


@pytest.mark.parametrize("sequence_blocks", [-1, 4])
def test_a_pool_without_memory_for_a_sequence_is_refused(sequence_blocks: int) -> None:
    with pytest.raises(ValueError, match="no memory for a sequence"):
        KvLedger(4, 16, sequence_blocks=sequence_blocks)


def test_a_prompt_chunk_gives_no_block_back() -> None:
    ledger = KvLedger(4, 16)
    ledger.reserve(0, 33)
    with pytest.raises(AssertionError):
        ledger.reserve(0, 32)


def test_what_is_handed_out_beyond_the_pool_shows_as_negative() -> None:
    ledger = KvLedger(2, 16)
    ledger.reserve(0, 16)
    ledger.start_decoding(0, 17)
    ledger.steps_done += 16
    assert ledger.free_blocks == 0
    ledger.steps_done += 1
    assert ledger.free_blocks == -1


def test_releasing_somebody_unknown_frees_nothing() -> None:
    ledger = KvLedger(4, 16)
    ledger.release(3)
    assert (ledger.free_blocks, ledger.held_blocks(3)) == (4, 0)


def waiting(request: int, known_tokens: int, prefix: SharedPrefix = ()) -> Progress:
    return Progress(Request(request, 0, known_tokens, 1, "m", shared_prefix=prefix))


def found(ledger: KvLedger, one: Progress, free_blocks: int | None = None) -> tuple[int, int]:
    """(Tokens found, how many of their blocks are free) by a request that waits alone."""
    stored = ledger.admissions()
    assert stored is not None
    return stored.find(one, ledger.free_blocks if free_blocks is None else free_blocks)


def compute(ledger: KvLedger, request: int, tokens: int, prefix: SharedPrefix = (), start: int = 0) -> None:
    """A request is admitted, and this much of its prompt computed."""
    ledger.admit(waiting(request, tokens, prefix), start, False)
    ledger.reserve(request, tokens)


def caching(blocks: int = 8) -> KvLedger:
    return KvLedger(blocks, 4, prefix_caching=True)


def test_a_lookup_tells_whether_more_may_be_found_after_the_next_step() -> None:
    ledger = caching()
    compute(ledger, 1, 8)
    ledger.start_decoding(1, 9)
    for end_tokens, growing in ((20, True), (8, False)):
        stored = ledger.admissions()
        assert stored is not None
        stored.find(waiting(2, 21, ((1, end_tokens),)), ledger.free_blocks)
        assert stored.growing is growing


def test_memory_that_is_given_up_is_forgotten() -> None:
    ledger = caching()
    compute(ledger, 1, 12)
    ledger.release(1)
    request = Request(2, 0, 12, 1, "m", shared_prefix=((1, 12),))
    assert ledger.cached_prefix_tokens(request) == 8
    ledger.forget_stored()
    assert (ledger.cached_prefix_tokens(request), ledger.free_blocks) == (0, 8)


def test_found_blocks_are_never_those_of_a_sequence() -> None:
    """Of 12 tokens in blocks of 4, a second request finds two blocks, and holds three of its own besides."""
    ledger = KvLedger(20, 4, sequence_blocks=3, prefix_caching=True)
    compute(ledger, 1, 12)
    assert ledger.held_blocks(1) == 6
    ledger.release(1)
    assert ledger.free_blocks == 20
    one = waiting(2, 12, ((1, 12),))
    assert found(ledger, one) == (8, 2)
    compute(ledger, 2, 12, ((1, 12),), 8)
    compute(ledger, 3, 12, ((1, 12),), 8)
    assert (ledger.held_blocks(2), ledger.held_blocks(3), ledger.free_blocks) == (6, 6, 20 - 6 - 6 + 2)
    assert not list(broken(ledger))
    ledger.release(2), ledger.preempt(3, 12)
    assert ledger.free_blocks == 20 and not list(broken(ledger))


@pytest.mark.parametrize("stored", [4, 8, 12])
def test_a_full_memory_with_own_blocks_evicts_what_was_stored(stored: int) -> None:
    """Three requests of 3 + 3 blocks fill 18: nothing of an earlier one is left to be found."""
    ledger = KvLedger(18, 4, sequence_blocks=3, prefix_caching=True)
    compute(ledger, 1, stored)
    ledger.release(1)
    for request in (2, 3, 4):
        compute(ledger, request, 12)
    assert ledger.free_blocks == 0
    assert ledger.cached_prefix_tokens(Request(5, 0, 13, 1, "m", shared_prefix=((1, 12),))) == 0
    assert not list(broken(ledger))
