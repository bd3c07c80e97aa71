"""The workload's invariants and the labelled transformations."""

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from tests.worlds.refusals import refuses
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.scaling import scale_rate, scale_tokens
from traces.synthetic.azure_like import azure_conv_like
from traces.workload import Workload


def small(**changes: Any) -> Workload:
    columns: dict[str, Any] = {
        "arrival_ns": np.array([0, 10, 10, 5_000_000_010]),
        "prompt_tokens": np.array([5, 100, 30, 7]),
        "output_tokens": np.array([1, 20, 300, 4]),
        "max_new_tokens": np.array([2048, 20, 512, 8]),
        "model": Names.of("abab"),
        "priority": np.array([0, 1, 0, 2]),
        "name": "small",
        "source": "by hand",
        "dropped": {"zero output tokens": 2},
        "rows_read": 6,
    }
    return Workload(**(columns | changes))


def test_a_workload_describes_itself() -> None:
    workload = small()
    assert len(workload) == 4
    assert workload.duration_s == 5.00000001
    assert workload.mean_rate_per_s == pytest.approx(3 / 5.00000001)
    assert small(arrival_ns=np.zeros(4, dtype=np.int64)).mean_rate_per_s is None


def test_columns_are_read_only_and_the_callers_stay_writable() -> None:
    mine = np.array([0, 1, 2, 3])
    workload = small(arrival_ns=mine)
    with pytest.raises(ValueError, match="read-only"):
        workload.arrival_ns[0] = 5
    with pytest.raises(FrozenInstanceError):
        workload.name = "other"  # type: ignore[misc]
    mine[0] = 0


def test_blocks_cover_every_row_once() -> None:
    workload = small()
    for size in (1, 3, 4, 100):
        slices = list(workload.blocks(size))
        assert [row for block in slices for row in range(4)[block]] == [0, 1, 2, 3]
        assert max(block.stop - block.start for block in slices) <= size
    refuses(TraceError, "size=0", workload.blocks, 0)


def test_limited_keeps_the_first_rows_and_says_so() -> None:
    workload = small().limited(2)
    assert workload.prompt_tokens.tolist() == [5, 100]
    assert workload.model is not None and workload.model.tolist() == ["a", "b"]
    assert workload.priority is not None and workload.priority.tolist() == [0, 1]
    assert workload.labels == ("first 2 of 4 requests",)
    assert (workload.rows_read, workload.dropped) == (6, {"zero output tokens": 2})
    whole = small()
    assert whole.limited(4) is whole and whole.limited(10**8) is whole
    for bad in (0, -1, 1.5, True):
        with pytest.raises(TraceError, match="limit="):
            whole.limited(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"prompt_tokens": np.array([1, 2, 3])}, "prompt_tokens has 3 rows and arrival_ns 4"),
        ({"priority": np.array([1])}, "priority has 1 rows"),
        ({"model": Names.of("aaaaa")}, "model has 5 rows"),
        ({"model": np.array(["a", "b", "a", "b"])}, "model must be Names"),
        ({"model": Names.of(["a", None, "a", "b"])}, "row 1 has no model"),
        ({"session": Names.of("ab")}, "session has 2 rows"),
        ({"prefix": PrefixBlocks.of([[1]], 512)}, "prefix has 1 rows"),
        ({"images": np.array([0, 1, -1, 0])}, "images is -1 in row 2"),
        ({"arrival_ns": np.array([0, 5, 4, 6])}, "backwards in row 2"),
        ({"arrival_ns": np.array([-1, 5, 5, 6])}, "before 0"),
        ({"arrival_ns": np.array([0.0, 1.0, 2.0, 3.0])}, "must hold integers, not float64"),
        ({"prompt_tokens": np.array([1, 2, 0, 3])}, "prompt_tokens is 0 in row 2"),
        ({"output_tokens": np.array([1, -2, 1, 3])}, "output_tokens is -2 in row 1"),
        ({"max_new_tokens": np.array([0, 2, 1, 3])}, "max_new_tokens is 0 in row 0"),
        ({"output_tokens": np.ones((4, 1), dtype=np.int64)}, "one-dimensional"),
    ],
)
def test_broken_invariants_are_refused(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError) as caught:
        small(**changes)
    assert part in str(caught.value) and "'small'" in str(caught.value)


def workload_without_requests() -> Workload:
    none = np.array([], dtype=np.int64)
    return Workload(arrival_ns=none, prompt_tokens=none, output_tokens=none, name="none", source="by hand")


def test_a_workload_without_requests_is_refused() -> None:
    refuses(TraceError, "no requests", workload_without_requests)


def test_scaled_tokens_are_rounded_and_never_vanish() -> None:
    workload = scale_tokens(small(), 0.1)
    assert workload.prompt_tokens.tolist() == [1, 10, 3, 1]  # 0.5 and 0.7 become 1
    assert workload.output_tokens.tolist() == [1, 2, 30, 1]
    assert workload.max_new_tokens is not None and workload.max_new_tokens.tolist() == [205, 2, 51, 1]
    assert workload.arrival_ns.tolist() == small().arrival_ns.tolist()
    assert workload.labels == ("tokens scaled by 0.1",)
    assert scale_tokens(replace(small(), max_new_tokens=None), 2).prompt_tokens.tolist() == [10, 200, 60, 14]


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf, "2", None, True, 1e9])
def test_bad_token_factors_are_refused(factor: Any) -> None:
    refuses(TraceError, "tokens_scale=", scale_tokens, small(), factor)


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf, "2", None, True, 1e9])
def test_bad_rate_factors_are_refused(factor: Any) -> None:
    refuses(TraceError, "rate_scale=", scale_rate, small(), factor, 0)


def test_factor_one_changes_nothing() -> None:
    workload = small()
    assert scale_tokens(workload, 1) is workload
    assert scale_rate(workload, 1.0, 3) is workload


def test_thinning_keeps_times_and_nests() -> None:
    whole = azure_conv_like(1, 20_000)
    most, some = scale_rate(whole, 0.8, 9), scale_rate(whole, 0.4, 9)
    assert len(some) / len(whole) == pytest.approx(0.4, abs=0.02)
    assert set(some.arrival_ns.tolist()) < set(most.arrival_ns.tolist()) < set(whole.arrival_ns.tolist())
    assert some.labels[-1] == "thinned to 0.4x"
    assert scale_rate(whole, 0.4, 10).arrival_ns.tolist() != some.arrival_ns.tolist()


def test_thinning_to_nothing_is_refused() -> None:
    refuses(TraceError, "leaves none of the 4 requests of small", scale_rate, small(), 1e-9, 0)


@pytest.mark.parametrize("factor", [1.3, 2, 3.5])
def test_replication_keeps_originals_and_the_time_axis(factor: float) -> None:
    whole = azure_conv_like(2, 20_000, 0.7)
    more = scale_rate(whole, factor, 4)
    assert len(more) / len(whole) == pytest.approx(factor, rel=0.02)
    assert more.labels[-1] == f"replicated {factor:g}x with jitter, lengths of copies resampled"
    assert more.arrival_ns[-1] == whole.arrival_ns[-1] and more.arrival_ns[0] == whole.arrival_ns[0]
    before = np.searchsorted(whole.arrival_ns, more.arrival_ns, side="right") - 1
    late_ns = more.arrival_ns - whole.arrival_ns[before]
    assert 0.9e9 < late_ns.max() < 1e9
    copies = np.bincount(before, minlength=len(whole))
    assert copies.min() == math.floor(factor) and copies.max() == math.ceil(factor)
    rows = set(zip(more.arrival_ns.tolist(), more.prompt_tokens.tolist(), more.output_tokens.tolist()))
    assert rows >= set(
        zip(whole.arrival_ns.tolist(), whole.prompt_tokens.tolist(), whole.output_tokens.tolist())
    )
    assert more.prompt_tokens.mean() == pytest.approx(whole.prompt_tokens.mean(), rel=0.03)


def test_replication_with_one_seed_is_one_result() -> None:
    whole = azure_conv_like(2, 300)
    first, second, other = scale_rate(whole, 2.5, 4), scale_rate(whole, 2.5, 4), scale_rate(whole, 2.5, 5)
    assert first.arrival_ns.tolist() == second.arrival_ns.tolist() != other.arrival_ns.tolist()
    assert first.output_tokens.tolist() == second.output_tokens.tolist()


def test_copies_take_lengths_together_from_a_row_of_their_model() -> None:
    more = scale_rate(small(), 200, 1)
    assert more.model is not None and more.max_new_tokens is not None and more.priority is not None
    original = small()
    kinds = {
        (m, p, o, c)
        for m, p, o, c in zip(
            more.model.tolist(),
            more.prompt_tokens.tolist(),
            more.output_tokens.tolist(),
            more.max_new_tokens.tolist(),
        )
    }
    assert kinds == {("a", 5, 1, 2048), ("a", 30, 300, 512), ("b", 100, 20, 20), ("b", 7, 4, 8)}
    assert set(more.prompt_tokens[more.arrival_ns < 10].tolist()) == {5, 30}  # not only the first row's own
    assert more.model.tolist().count("a") == more.model.tolist().count("b") == 400
    assert original.priority is not None
    assert np.bincount(more.priority).tolist() == [400, 200, 200]
