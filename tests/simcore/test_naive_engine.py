"""The reference engine against cases worked out by hand, and against what must hold for any case.

Unless a test says otherwise costs are whole ns:
    decode step of n sequences, total context T:   10 + 2n + T
    step with c chunk tokens:                      20 + 3c, plus 10 + 2n + T when n > 0 decodes ride along
where the context of a decode is computed + 1. "c=4, k=5" in a comment is computed and known after a step.
"""

import dataclasses
from itertools import pairwise
from random import Random

import pytest
from hypothesis import Phase, find, given, settings

from tests.worlds.naive_engine import Case, LoggedStep, Outcome, run_naive, run_naive_logged
from tests.worlds.strategies import IDLE_GAP_NS, NS, cases
from tests.worlds.toy_rows import UNBOUNDED_CONTEXT, ToyRows

ROWS = ToyRows(intercept=10 * NS, per_sequence=2 * NS, slope=NS, mixed_intercept=20 * NS, per_token=3 * NS)
BASE = Case(
    batcher="chunked",
    replicas=1,
    block_tokens=4,
    total_blocks=100,
    watermark_blocks=0,
    max_num_seqs=4,
    max_num_batched_tokens=8,
    dispatch="round_robin",
    requests=(),
    rows=ROWS,
)


def token_ns(case: Case) -> list[tuple[int, ...]]:
    return [outcome.token_ns for outcome in run_naive(case)]


FRACTIONS = ToyRows(
    intercept=NS * 21 // 2,  # 10.5 ns
    per_sequence=0,
    slope=NS // 4,  # 0.25 ns
    mixed_intercept=NS * 83 // 4,  # 20.75 ns
    per_token=NS,
    per_pair=NS // 2,
)


def test_single_request_carries_the_sub_ns_remainder() -> None:
    # Prompt of 3: 3 tokens, 1 + 2 + 3 = 6 pairs: 20.75 + 3 + 3 = 26.75 -> 126.75. c=3, k=4
    # Decode at T=4: 10.5 + 1.00 = 11.50 -> 138.25
    # Decode at T=5: 10.5 + 1.25 = 11.75 -> 150.00 (without the carry: 126 + 11 + 11 = 148)
    case = dataclasses.replace(BASE, rows=FRACTIONS, requests=((100, 3, 3, 8),))
    assert run_naive(case) == (
        Outcome(
            request=0,
            rejected=False,
            replica=0,
            output_tokens=3,
            token_ns=(126, 138, 150),
            token_fixed=(126 * NS + NS * 3 // 4, 138 * NS + NS // 4, 150 * NS),
            preemptions=0,
        ),
    )


@pytest.mark.parametrize(
    ("arrival_ns", "token_ns", "fraction"),
    [
        # The first request ends at 138.25. At 138 the newcomer is handled before that completion, so its
        # step follows back-to-back: 138.25 + 26.75 = 165.
        (138, 165, 0),
        # At 139 the replica is idle and starts from a whole ns: 139 + 26.75 = 165.75.
        (139, 165, NS * 3 // 4),
    ],
)
def test_arrival_in_the_ns_of_a_finish_continues_without_idling(
    arrival_ns: int, token_ns: int, fraction: int
) -> None:
    case = dataclasses.replace(BASE, rows=FRACTIONS, requests=((100, 3, 2, 2), (arrival_ns, 3, 1, 1)))
    assert run_naive(case)[1].token_fixed == (token_ns * NS + fraction,)


def test_max_new_tokens_caps_the_output() -> None:
    # Prompt of 1: 20 + 3 = 23; decode T=2: 10 + 2 + 2 = 14 -> 37; then the cap of 2 is reached, not 9.
    assert token_ns(dataclasses.replace(BASE, requests=((0, 1, 9, 2),))) == [(23, 37)]


def test_two_batched() -> None:
    # 0: the first arrival starts the step at once, alone: 20 + 12 = 32.                 r0 c=4, k=5
    # 32: r0 decodes at T=5 (10 + 2 + 5 = 17) beside r1's prompt of 2 (26): 43 -> 75.    r0 c=5, r1 c=2, k=3
    # 75: both decode, T = 6 + 3 = 9: 10 + 4 + 9 = 23 -> 98.  r0 has its 3 tokens.       r1 c=3, k=4
    # 98: r1 at T=4: 10 + 2 + 4 = 16 -> 114.
    case = dataclasses.replace(BASE, requests=((0, 4, 3, 3), (0, 2, 3, 3)))
    outcomes, log = run_naive_logged(case)
    assert [outcome.token_ns for outcome in outcomes] == [(32, 75, 98), (75, 98, 114)]
    assert log == [
        LoggedStep(0, 0, 32, (), ((0, 0, 4),), ()),
        LoggedStep(0, 32, 75, (0,), ((1, 0, 2),), ()),
        LoggedStep(0, 75, 98, (0, 1), (), ()),
        LoggedStep(0, 98, 114, (1,), (), ()),
    ]


def test_arrival_at_the_instant_of_a_finish_still_counts_the_finishing_request() -> None:
    # Replica 0: r0's prompt of 5: 35. Replica 1: r1's prompt of 1: 23, its only token.
    # r2 at 23, before that completion: 1 and 1 outstanding -> replica 0 (afterwards replica 1 would win).
    # r3 at 24: 2 and 0 -> replica 1, idle: 24 + 23 = 47.
    # Replica 0 at 35: r0 T=6 (18), r2's prompt of 2 (26): 44 -> 79.
    requests = ((0, 5, 2, 2), (0, 1, 1, 1), (23, 2, 1, 1), (24, 1, 1, 1))
    outcomes = run_naive(
        dataclasses.replace(BASE, replicas=2, dispatch="least_outstanding", requests=requests)
    )
    assert [outcome.replica for outcome in outcomes] == [0, 1, 0, 1]
    assert [outcome.token_ns for outcome in outcomes] == [(35, 79), (23,), (79,), (47,)]


def test_round_robin_turns_over_accepted_requests_only() -> None:
    # 5 blocks of 4: a prompt of 20 with 1 more token needs 6 and is rejected.
    requests = ((0, 1, 1, 1), (0, 20, 1, 1), (0, 1, 1, 1), (0, 20, 1, 1), (0, 1, 1, 1))
    outcomes = run_naive(dataclasses.replace(BASE, replicas=2, total_blocks=5, requests=requests))
    assert [outcome.replica for outcome in outcomes] == [0, None, 1, None, 0]


def test_a_knot_in_the_row_belongs_to_the_lower_piece() -> None:
    # Above T=5 a decode step costs 30 + 2n + 3T.
    # Prompt of 3: 29. T=4: 16 -> 45. T=5: 17 -> 62. T=6: 30 + 2 + 18 = 50 -> 112.
    rows = dataclasses.replace(ROWS, knot_context=5, knot_intercept=30 * NS, knot_slope=3 * NS)
    assert rows.decode(1) == ((5, 12 * NS, NS), (UNBOUNDED_CONTEXT, 32 * NS, 3 * NS))
    assert token_ns(dataclasses.replace(BASE, rows=rows, requests=((0, 3, 4, 4),))) == [(29, 45, 62, 112)]


def test_toy_mixed_counts_attention_from_the_chunk_start() -> None:
    # Chunks [2, 5) and [0, 2): 5 tokens; pairs 3 + 4 + 5 and 1 + 2 make 15. Decodes: 10 + 2*2 + 7 = 21.
    rows = dataclasses.replace(ROWS, per_pair=7)
    assert rows.mixed(2, 7, ((0, 2, 3), (1, 0, 2))) == (20 + 15 + 21) * NS + 15 * 7


def test_a_replica_that_can_never_run_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="nothing can ever run"):
        run_naive(dataclasses.replace(BASE, max_num_seqs=0, requests=((0, 1, 1, 1),)))


@settings(max_examples=50)
@given(cases())
def test_any_case_conserves_requests_tokens_and_time(case: Case) -> None:
    outcomes, log = run_naive_logged(case)
    for outcome, (arrival_ns, prompt, output, cap) in zip(outcomes, case.requests, strict=True):
        need = -(-(prompt + cap) // case.block_tokens)
        assert outcome.rejected == (need > case.total_blocks - case.watermark_blocks)
        assert len(outcome.token_ns) == outcome.output_tokens == (0 if outcome.rejected else min(output, cap))
        assert outcome.token_ns == tuple(fixed // NS for fixed in outcome.token_fixed)
        assert all(a < b for a, b in pairwise((arrival_ns * NS, *outcome.token_fixed)))
        # Under asynchronous scheduling a victim may have finished in the step that ran when it was chosen.
        lost = sum(step.preempted.count(outcome.request) for step in log) - outcome.preemptions
        assert lost == 0 or (case.asynchronous and lost == 1)
    for replica in range(case.replicas):
        steps = [step for step in log if step.replica == replica]
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(steps))
    for step in log:
        scheduled = [*step.decodes, *(request for request, _, _ in step.chunks)]
        assert 0 < len(set(scheduled)) == len(scheduled) <= case.max_num_seqs
        # Where it wants a spare block the last one gives way to itself, and is chosen again at once.
        again = case.decode_spare_block and not step.decodes
        assert case.asynchronous or again or not set(scheduled) & set(step.preempted)
        assert all(tokens > 0 for _, _, tokens in step.chunks)
        if case.batcher == "chunked":
            total = len(step.decodes) + sum(tokens for _, _, tokens in step.chunks)
            assert total <= case.max_num_batched_tokens


def _on_boundary(case: Case) -> bool:
    ends = {step.end_ns for step in run_naive_logged(case)[1]}
    return any(arrival_ns in ends for arrival_ns, *_ in case.requests)


def _resumed_with_cache(case: Case) -> bool:
    """Some request that had been preempted did not begin at position 0 again."""
    preempted: set[int] = set()
    for step in run_naive_logged(case)[1]:
        if any(start and request in preempted for request, start, _ in step.chunks):
            return True
        preempted |= set(step.preempted)
        preempted -= {request for request, _, _ in step.chunks}
    return False


REGIMES = {
    "resumed with cached blocks": lambda c: c.prefix_caching and _resumed_with_cache(c),
    "asynchronous preemption": lambda c: c.asynchronous and any(o.preemptions for o in run_naive(c)),
    "a victim that had finished": lambda c: (
        sum(len(s.preempted) for s in run_naive_logged(c)[1]) > sum(o.preemptions for o in run_naive(c))
    ),
    "chunked preemption": lambda c: c.batcher == "chunked" and any(o.preemptions for o in run_naive(c)),
    "prefill-first preemption": lambda c: (
        c.batcher == "prefill_first" and any(o.preemptions for o in run_naive(c))
    ),
    "two preempted in one step": lambda c: any(len(s.preempted) > 1 for s in run_naive_logged(c)[1]),
    "rejected beside accepted": lambda c: {o.rejected for o in run_naive(c)} == {True, False},
    "arrival on a step boundary": _on_boundary,
    "step within one ns": lambda c: any(s.start_ns == s.end_ns for s in run_naive_logged(c)[1]),
    "long idle gap": lambda c: any(b[0] - a[0] >= IDLE_GAP_NS for a, b in pairwise(c.requests)),
    "prompt beyond the budget": lambda c: any(
        not o.rejected and r[1] > c.max_num_batched_tokens for o, r in zip(run_naive(c), c.requests)
    ),
    "chunk of one token that is no decode": lambda c: any(
        start > 0 and tokens == 1 for s in run_naive_logged(c)[1] for _, start, tokens in s.chunks
    ),
}


@pytest.mark.parametrize("regime", REGIMES)
def test_strategy_reaches(regime: str) -> None:
    search = settings(max_examples=1000, phases=[Phase.generate])
    assert find(cases(), REGIMES[regime], settings=search, random=Random(1))
