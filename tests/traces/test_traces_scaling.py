"""A scaled rate keeps the pattern in time, a thinned one gives what it must, compression is labelled."""

import os

import numpy as np
import pytest

from tests.worlds.refusals import refuses
from traces.capacity import prompt_load
from traces.columns import Names, PrefixBlocks
from traces.counts import arrival_counts, count_statistics, expected_under_thinning
from traces.description import describe
from traces.errors import TraceError
from traces.load import load
from traces.repeating import repeated
from traces.scaling import compress_time, scale_rate
from traces.synthetic.azure_like import azure_conv_like
from traces.workload import INT64_MAX, Workload

FACTORS = (2, 2.5, 4.7, 10)
SHARES = (0.1, 0.5, 0.8)


def source(name: str) -> Workload:
    if name == "azure_conv_like":
        return azure_conv_like(3, requests=6000)
    if not os.environ.get("SERVETWIN_TRACES"):
        pytest.skip("the Azure traces are not here: set SERVETWIN_TRACES")
    return load(name)


@pytest.mark.parametrize("name", ["azure_code", "azure_conv", "azure_conv_like"])
@pytest.mark.parametrize("factor", FACTORS)
def test_a_higher_rate_keeps_the_pattern_in_time(name: str, factor: float) -> None:
    trace = source(name)
    more = scale_rate(trace, factor, seed=7)
    assert len(more) == pytest.approx(factor * len(trace), abs=1)
    assert more.arrival_ns[0] == trace.arrival_ns[0] and more.arrival_ns[-1] == trace.arrival_ns[-1]
    before = count_statistics(arrival_counts(trace)).named()
    after = count_statistics(arrival_counts(more)).named()
    for statistic, value in before.items():
        if name == "azure_conv_like" and "lag" in statistic:
            assert after[statistic] == pytest.approx(value, abs=0.02)  # about zero: it has no pattern
        else:
            assert after[statistic] == pytest.approx(value, rel=0.05), statistic


@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
@pytest.mark.parametrize("share", SHARES)
def test_a_lower_rate_is_within_what_thinning_gives(name: str, share: float) -> None:
    trace = source(name)
    expected = expected_under_thinning(arrival_counts(trace), share)
    inside = [
        count_statistics(arrival_counts(scale_rate(trace, share, seed))).named()[statistic] in about
        for seed in range(10)
        for statistic, about in expected.items()
    ]
    assert sum(inside) >= 34  # of 40, each with probability 0.95


def test_copies_are_spread_evenly_over_the_rows() -> None:
    trace = azure_conv_like(1, requests=1000)
    more = scale_rate(trace, 2.3, seed=4)
    assert len(more) == pytest.approx(2300, abs=1)
    for half in (slice(0, 500), slice(500, 1000)):
        until_ns = trace.arrival_ns[half][-1]
        share = (more.arrival_ns <= until_ns).sum() / (trace.arrival_ns <= until_ns).sum()
        assert share == pytest.approx(2.3, rel=0.01)


def test_no_copy_is_later_than_the_next_arrival_or_a_second() -> None:
    trace = azure_conv_like(2, requests=500, rate_per_s=0.2)
    more = scale_rate(trace, 3, seed=1)
    before = np.searchsorted(trace.arrival_ns, more.arrival_ns, side="right") - 1
    late_ns = more.arrival_ns - trace.arrival_ns[before]
    assert late_ns.max() < 1_000_000_000
    assert (np.bincount(before, minlength=500) == 3).all()


def test_compressed_time_is_labelled_and_changes_nothing_else() -> None:
    trace = azure_conv_like(1, requests=50)
    fast = compress_time(trace, 4)
    assert fast.arrival_ns.tolist() == np.rint(trace.arrival_ns / 4).astype(int).tolist()
    assert fast.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert "time compressed 4x" in fast.labels[-1]
    assert compress_time(trace, 1) is trace
    for bad in (0, -1, float("inf")):
        refuses(TraceError, r"trace\.time_compression", compress_time, trace, bad)
    refuses(TraceError, "31 years", compress_time, trace, 1e-15)


def tagged(rows: int, **columns: object) -> Workload:
    """A workload whose size columns all name their row, so that a copy's say where they are from."""
    row = np.arange(rows)
    return Workload(
        arrival_ns=row * 1_000_000,
        prompt_tokens=row + 1,
        output_tokens=row + 2,
        name="tagged",
        source="by hand",
        max_new_tokens=row + 3,
        images=row,
        source_duration_ns=row - 1,
        priority=row,
        **columns,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("factor", [1.0001, 1.5, 2, 2.9999999, 7.3])
@pytest.mark.parametrize("models", [None, 3])
def test_every_column_of_a_copy_is_its_parents_or_its_donors(factor: float, models: int | None) -> None:
    rows = 2000
    model = None if models is None else Names.of(f"m{row % models}" for row in range(rows))
    session = Names.of(None if row % 5 == 0 else f"s{row % 7}" for row in range(rows))
    trace = tagged(rows, model=model, session=session)
    more = scale_rate(trace, factor, seed=2)
    assert len(more) == pytest.approx(factor * rows, abs=1)
    assert more.images is not None and more.priority is not None and more.session is not None
    donor, parent = more.images, more.priority
    for column, offset in (("prompt_tokens", 1), ("output_tokens", 2), ("max_new_tokens", 3)):
        assert (getattr(more, column) - offset == donor).all()
    assert (more.source_duration_ns == donor - 1).all()
    late_ns = more.arrival_ns - trace.arrival_ns[parent]
    assert late_ns.min() == 0 and late_ns.max() < 1_000_000
    for row, (kin, own) in enumerate(zip(parent.tolist(), more.session.tolist(), strict=True)):
        assert (own is None) == (session[kin] is None) and (own or "s").partition("#")[0] in (
            session[kin],
            "s",
        )
        if model is not None and more.model is not None:
            assert more.model[row] == model[kin] == model[int(donor[row])]


@pytest.mark.parametrize("models", [None, 3])
def test_no_two_copies_of_one_number_are_of_one_row(models: int | None) -> None:
    model = None if models is None else Names.of(f"m{row % models}" for row in range(500))
    more = scale_rate(tagged(500, model=model), 4, seed=1)
    assert more.images is not None
    assert (np.bincount(more.images, minlength=500) == 4).all()


@pytest.mark.parametrize("factor", [1.5, 2, 5])
def test_copies_do_not_make_prompts_alike_that_were_not(factor: float) -> None:
    unlike = PrefixBlocks.of(([2 * row, 2 * row + 1] for row in range(1000)), 512)
    sharing = describe(scale_rate(tagged(1000, prefix=unlike), factor, seed=3)).sharing
    assert sharing is not None and sharing.repeated == 0


def test_whole_copies_share_as_much_as_the_source() -> None:
    prefix = PrefixBlocks.of(([0, row % 50, 1000 + row] for row in range(1000)), 512)
    trace = tagged(1000, prefix=prefix)
    before, after = describe(trace).sharing, describe(scale_rate(trace, 3, seed=3)).sharing
    assert before is not None and after is not None and after.repeated == pytest.approx(before.repeated)


@pytest.mark.parametrize("largest", [2**61, 2**62, INT64_MAX])
def test_block_ids_of_any_size_stay_apart(largest: int) -> None:
    prefix = PrefixBlocks.of([[largest], [largest], [3]], 512)
    more = scale_rate(tagged(3, prefix=prefix), 9, seed=0)
    assert more.prefix is not None
    assert sorted(np.unique(more.prefix.ids, return_counts=True)[1].tolist()) == [1] * 9 + [2] * 9


def test_a_replicated_trace_can_be_replicated_again() -> None:
    trace = tagged(6, session=Names.of(["a", "a#1", "a#", None, "a##1", "b"]))
    twice = scale_rate(scale_rate(trace, 3, seed=1), 2, seed=1)
    assert twice.session is not None
    assert set(twice.session.counts().values()) == {1} and len(twice.session.counts()) == 5 * 3 * 2


def test_a_trace_of_one_instant_cannot_be_repeated() -> None:
    trace = Workload(
        arrival_ns=np.array([5, 5]),
        prompt_tokens=np.array([100, 100]),
        output_tokens=np.array([3, 3]),
        name="one",
        source="test",
    )
    refuses(TraceError, r"trace\.repeat=3 .* leave it out", repeated, trace, 3, "own")


def test_the_busiest_seconds_of_a_short_trace_are_no_less_than_its_mean() -> None:
    trace = Workload(
        arrival_ns=np.array([0, 1_500_000_000]),
        prompt_tokens=np.array([100, 100]),
        output_tokens=np.array([1, 1]),
        name="short",
        source="test",
    )
    load = prompt_load(trace)
    assert load.peak_tokens_per_s == load.mean_tokens_per_s == pytest.approx(200 / 1.5)
