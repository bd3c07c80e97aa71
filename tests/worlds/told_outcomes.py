"""What a recorder was told of requests, against what an independent engine says became of them."""

from collections.abc import Iterable

from tests.worlds.naive_engine import Outcome
from tests.worlds.world import Collected


def assert_told(recorder: Collected, outcomes: Iterable[Outcome]) -> None:
    """Everything a request can show, and every inter-token gap as a multiset."""
    gaps = []
    for outcome in outcomes:
        if outcome.rejected:
            assert outcome.request in recorder.refusals
            assert outcome.request not in recorder.done
            continue
        assert recorder.done[outcome.request] == (
            outcome.replica,
            outcome.output_tokens,
            outcome.token_ns[0],
            outcome.token_ns[-1],
            outcome.preemptions,
        )
        gaps.extend(later - earlier for earlier, later in zip(outcome.token_fixed, outcome.token_fixed[1:]))
    assert sorted(recorder.all_gaps) == sorted(gaps)
