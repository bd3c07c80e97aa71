"""Requests that are drawn to have a high priority."""

from dataclasses import replace

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import load
from traces.priorities import with_high_priority
from traces.workload import Workload


def drawn(requests: int = 2000, seed: int = 3) -> Workload:
    return load("llumnix_ss", seed=seed, requests=requests)


def test_a_share_of_the_requests_is_urgent_and_nothing_else_changes() -> None:
    plain = drawn()
    found = with_high_priority(plain, 0.1, 3)
    assert found.priority is not None
    assert set(found.priority.tolist()) == {0, 1}
    assert abs(found.priority.mean() - 0.1) < 3 * np.sqrt(0.09 / len(plain))
    assert found.labels[-1].startswith(f"{found.priority.sum()} of 2000 requests drawn")
    assert (found.arrival_ns == plain.arrival_ns).all() and (found.output_tokens == plain.output_tokens).all()


def test_the_seed_decides_and_a_longer_trace_begins_alike() -> None:
    once, again, other = (with_high_priority(drawn(), 0.3, seed).priority for seed in (3, 3, 4))
    longer = with_high_priority(drawn(3000), 0.3, 3).priority
    assert once is not None and again is not None and other is not None and longer is not None
    assert (once == again).all() and (once != other).any() and (longer[:2000] == once).all()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(TraceError, match=r"high_priority_share=.* from 0 to 1"):
        with_high_priority(drawn(10), share, 0)


def test_a_trace_with_priorities_keeps_its_own() -> None:
    own = replace(drawn(10), priority=np.arange(10))
    with pytest.raises(TraceError, match="already has priorities: leave trace"):
        with_high_priority(own, 0.5, 0)
