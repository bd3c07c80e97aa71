"""Coalesced = step by step = the naive reference engine, to the nanosecond (DESIGN 7)."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.batching import PrefillFirst
from serving.protocols.batch import Batch, ReplicaView
from tests.worlds.naive_engine import Case, run_naive
from tests.worlds.strategies import cases
from tests.worlds.told_outcomes import assert_told
from tests.worlds.world import Collected, RandomCuts, simulate


def assert_same(case: Case, recorder: Collected) -> None:
    """Everything a request can show, and every inter-token gap as a multiset."""
    assert_told(recorder, run_naive(case))


@given(case=cases())
@settings(max_examples=100)
def test_coalesced_equals_naive(case: Case) -> None:
    assert_same(case, simulate(case)[0])


@given(case=cases())
@settings(max_examples=50)
def test_exact_mode_equals_naive(case: Case) -> None:
    assert_same(case, simulate(case, coalesce=False)[0])


@given(case=cases(), seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_cuts_at_random_boundaries_change_nothing(case: Case, seed: int) -> None:
    random = Random(seed)
    recorder, _, _ = simulate(case, wrap=lambda batcher: RandomCuts(batcher, random))
    assert_same(case, recorder)


class Capricious:
    """Prefill-first, except that some prefill passes let the residents decode along."""

    def __init__(self, case: Case, random: Random) -> None:
        self.inner = PrefillFirst(case.max_num_seqs, case.max_num_batched_tokens)
        self.random = random

    def choose(self, view: ReplicaView) -> Batch | None:
        batch = self.inner.choose(view)
        if batch is None or not batch.chunks or self.random.random() < 0.5:
            return batch
        chunk_blocks = sum(-(-(start + tokens) // view.kv.block_tokens) for _, start, tokens in batch.chunks)
        behind_stored = any(start for _, start, _ in batch.chunks)  # residents might take those blocks first
        if behind_stored or view.kv.step_blocks() + chunk_blocks > view.kv.free_blocks:
            return batch
        return batch._replace(decode=True, max_steps=1, interruptible=False)


@given(case=cases(), seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_gaps_of_a_request_add_up_whatever_the_batcher_mixes(case: Case, seed: int) -> None:
    """One gap fewer than tokens, and together the time from first to last token."""
    random = Random(seed)
    recorder, _, _ = simulate(case, wrap=lambda _: Capricious(case, random))
    done = recorder.done.values()
    assert len(recorder.all_gaps) == sum(output - 1 for _, output, _, _, _ in done)
    spans_ns = sum(finish_ns - first_ns for _, _, first_ns, finish_ns, _ in done)
    # First and last token are cut to whole ns, each request's gaps are not.
    assert abs(sum(recorder.all_gaps) - (spans_ns << 24)) <= len(done) << 24
