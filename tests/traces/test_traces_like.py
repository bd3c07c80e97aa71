"""Named synthetic workloads: what they stand in for, recipes that reproduce them, and refusals."""

import hashlib
import inspect
import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthesis_fidelity import TargetRow, measured, targets
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.load import load
from traces.synthetic.azure_code_like import CODE_RATE_PER_S
from traces.synthetic.azure_like import azure_conv_like
from traces.synthetic.drawn import with_arrivals, with_lengths
from traces.synthetic.length_tables import CODE_REQUESTS
from traces.synthetic.maf_like import (
    HOURLY_SHARE,
    MINUTELY_SHARE,
    maf_like,
    maf_rates_per_s,
    minute_factors,
    popular_invocations,
)
from traces.synthetic.many_models import model_names, superposed, with_models, zipf_mix, zipf_shares
from traces.synthetic.registry import SYNTHETIC
from traces.workload import COLUMNS, Workload

NAMES = list(SYNTHETIC)
COLUMNS_DRAWN = ("arrival_ns", "prompt_tokens", "output_tokens")


def rows_of(workload: Workload) -> list[list[Any] | None]:
    columns = (getattr(workload, column) for column in COLUMNS)
    return [None if column is None else column.tolist() for column in columns]


def from_recipe(source: str) -> Workload:
    """The workload that a source text describes, every word of it handed over as the command line would."""
    word, name, *pairs = source.split(" ")
    assert word == "synthetic"
    kinds = {key: type(p.default) for key, p in inspect.signature(SYNTHETIC[name]).parameters.items()}
    kinds |= {"requests": int, "duration_s": float}  # None where a trace decides
    options: dict[str, Any] = {}
    for pair in pairs:
        key, value = pair.split("=")
        kind = int if key == "seed" else kinds[key]
        options[key] = kind(value)
    return SYNTHETIC[name](**options)


def rate_of(name: str) -> str:
    """The parameter that sets the rate: the mean, or where bursts stand on it the base."""
    return "base_rate_per_s" if name in ("onsets", "burstgpt_like") else "rate_per_s"


@pytest.mark.parametrize("name", NAMES)
def test_the_source_gives_the_same_rows_again(name: str) -> None:
    workload = SYNTHETIC[name](seed=11, requests=200, **{rate_of(name): 1 / 3})
    again = from_recipe(workload.source)
    if name == "azure_conv_like":  # its rate is printed with 12 digits
        assert again.prompt_tokens.tolist() == workload.prompt_tokens.tolist()
    else:
        assert rows_of(again) == rows_of(workload)
    assert again.source == workload.source


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_a_plain_value_with_a_default(name: str) -> None:
    parameters = inspect.signature(SYNTHETIC[name]).parameters
    assert list(parameters)[:1] == ["seed"] and {"requests", rate_of(name)} <= set(parameters)
    for key, parameter in parameters.items():
        if (name, key) != ("azure_conv_like", "seed"):
            ends = parameter.default is None and key in ("requests", "duration_s", "rates")
            assert ends or type(parameter.default) in (int, float, str)


def test_every_trace_says_in_its_first_line_what_it_is() -> None:
    first = [(draw.__doc__ or "").partition("\n")[0] for draw in SYNTHETIC.values()]
    assert all(line.endswith(".") for line in first) and len(set(first)) == len(first)


@pytest.mark.parametrize("name", NAMES)
def test_a_drawn_workload_says_what_it_is(name: str) -> None:
    workload = SYNTHETIC[name](seed=3, requests=150)
    assert workload.name == name and len(workload) == workload.rows_read == 150 and workload.dropped == {}
    assert workload.labels[0].startswith("synthetic")
    assert (np.diff(workload.arrival_ns) >= 0).all() and workload.arrival_ns[0] >= 0


@pytest.mark.parametrize("name", NAMES)
def test_fewer_requests_are_a_prefix_and_seeds_differ(name: str) -> None:
    long, short = (SYNTHETIC[name](seed=4, requests=count) for count in (900, 60))
    other = SYNTHETIC[name](seed=5, requests=60)
    for column in COLUMNS_DRAWN:
        assert getattr(long, column)[:60].tolist() == getattr(short, column).tolist()
    assert short.arrival_ns.tolist() != other.arrival_ns.tolist()
    if short.model is not None:
        assert long.model is not None and long.model.tolist()[:60] == short.model.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_one_request_is_enough(name: str) -> None:
    assert len(SYNTHETIC[name](seed=0, requests=1)) == 1


BAD_VALUES: tuple[Any, ...] = (-1, math.nan, math.inf, True, "", "x", None, [], 1e300, 10**30)


@pytest.mark.parametrize("name", NAMES)
def test_any_bad_value_is_refused_in_one_sentence_or_taken(name: str) -> None:
    """Whatever is written for a parameter: rows come back or a TraceError naming something, nothing else."""
    for key in inspect.signature(SYNTHETIC[name]).parameters:
        for value in BAD_VALUES:
            try:
                workload = SYNTHETIC[name](**{"seed": 0, "requests": 20, key: value})
            except TraceError as error:
                assert "\n" not in str(error) and ": " in str(error)
            else:
                assert len(workload) >= 1


@settings(max_examples=30)
@given(st.data())
def test_any_numbers_are_refused_or_taken(data: Any) -> None:
    name = data.draw(st.sampled_from(NAMES))
    options: dict[str, Any] = {
        "seed": data.draw(st.integers(0, 99)),
        "requests": data.draw(st.integers(1, 200)),
    }
    for key, parameter in inspect.signature(SYNTHETIC[name]).parameters.items():
        if key in options or isinstance(parameter.default, str):
            continue
        if key == "rates":
            options[key] = data.draw(st.sampled_from([None, "[5@9s]", "[0.1@60s,40..0@2-3min]"]))
            continue
        wide = st.one_of(st.floats(1e-9, 1e9), st.floats(0.01, 100), st.integers(0, 50))
        options[key] = (
            data.draw(wide) if isinstance(parameter.default, float) else data.draw(st.integers(0, 60))
        )
    try:
        workload = SYNTHETIC[name](**options)
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert (np.diff(workload.arrival_ns) >= 0).all()


def test_the_conversation_stand_in_keeps_its_bytes() -> None:
    """Committed results were drawn with these."""
    workload = azure_conv_like(0)
    drawn = b"".join(getattr(workload, column).tobytes() for column in COLUMNS_DRAWN)
    assert hashlib.sha256(drawn).hexdigest() == (
        "2bf6854dbc447760ace2b26528b191e0445cb3cce554a7d6835104075add5d3a"
    )


@pytest.fixture(scope="module")
def fidelity() -> list[TargetRow]:
    """Ten seeds of every trace with targets but the Azure Functions' long one, which is tested below."""
    return measured([target for target in targets() if target.trace != "maf_like"])


def test_the_mean_of_ten_seeds_is_what_was_published(fidelity: list[TargetRow]) -> None:
    promised = [row for row in fidelity if row.target.off_most is not None]
    bad = [
        (row.target.trace, row.target.number, row.off)
        for row in promised
        if abs(row.off) > row.target.off_most
    ]
    assert len(promised) > 80 and bad == []


def test_every_seed_of_the_code_stand_in_is_near(fidelity: list[TargetRow]) -> None:
    """For each of ten seeds: gaps within 3 %, the peak within 10 %, seconds with any request within 5 %."""
    for row in fidelity:
        if row.target.trace == "azure_code_like" and row.target.off_most is not None:
            assert abs(row.worst_off) <= row.target.off_most, row.target.number


def test_the_code_stand_in_begins_episodes_abruptly() -> None:
    """After each silence of more than 10 s there are requests at once, as there are 45 silences per round."""
    for seed in range(3):
        arrivals_s = SYNTHETIC["azure_code_like"](seed=seed).arrival_ns / 1e9
        starts = np.flatnonzero(np.diff(arrivals_s) > 10) + 1
        assert len(starts) == 45
        within = np.searchsorted(arrivals_s, arrivals_s[starts] + 5.0) - starts
        assert np.median(within) >= 15


def test_the_code_stand_in_goes_on_with_another_round() -> None:
    workload = SYNTHETIC["azure_code_like"](seed=1, requests=3 * CODE_REQUESTS)
    gaps_s = np.diff(workload.arrival_ns) / 1e9
    assert (gaps_s > 10).sum() == 3 * 45 + 2, "one more silence joins two rounds"
    assert gaps_s.mean() == pytest.approx(1 / CODE_RATE_PER_S, rel=0.03)


def test_another_rate_stretches_the_code_stand_in() -> None:
    slow, fast = (SYNTHETIC["azure_code_like"](seed=1, requests=500, rate_per_s=rate) for rate in (1.0, 4.0))
    np.testing.assert_allclose(slow.arrival_ns, 4 * fast.arrival_ns, atol=4000)


@pytest.mark.skipif("SERVETWIN_TRACES" not in os.environ, reason="needs AzureLLMInferenceTrace_code.csv")
def test_the_code_targets_are_the_files_own_numbers() -> None:
    workload = load("azure_code")
    for target in targets():
        if target.trace == "azure_code_like":
            assert target.measure(workload) == pytest.approx(target.published, rel=0.005), target.number


def test_published_shares_of_functions() -> None:
    for functions in (100, 1000, 5000):
        rates = maf_rates_per_s(functions)
        assert (np.diff(rates) <= 0).all()
        assert (rates <= 1 / 3600).mean() == pytest.approx(HOURLY_SHARE, abs=0.01)
        assert (rates <= 1 / 60).mean() == pytest.approx(MINUTELY_SHARE, abs=0.01)
        assert popular_invocations(rates) == pytest.approx(0.996, abs=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_functions_are_called_as_published(seed: int) -> None:
    """Counted over six hours around the mean of the day: shares within 5 %, one function of 100 being 2 %."""
    workload = maf_like(seed=seed, requests=1_000_000, functions=100, start_s=10_800, duration_s=21_600)
    assert workload.model is not None and set(workload.prompt_tokens.tolist()) == {1}
    called = np.bincount(workload.model.codes, minlength=100)
    assert (called / 21_600 <= 1 / 60).mean() == pytest.approx(MINUTELY_SHARE, rel=0.05)
    assert popular_invocations(called.astype(float)) == pytest.approx(0.996, rel=0.05)


def test_minutes_have_heavy_tails_where_asked() -> None:
    """Counts per minute over five hours around noon: their CV, their memory, the largest one."""
    options = {"requests": 400_000, "rate_per_s": 10.0, "start_s": 34_200.0, "duration_s": 18_000.0}
    counts = {
        cv: np.bincount(maf_like(seed=3, minute_cv=cv, **options).arrival_ns // 60_000_000_000, minlength=300)
        for cv in (0.0, 1.5)
    }
    assert counts[0.0].std() / counts[0.0].mean() < 0.3
    assert counts[1.5].std() / counts[1.5].mean() == pytest.approx(1.5, rel=0.35)
    logs = np.log(minute_factors(3, 1.5, 0.7))
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(0.7, abs=0.05)
    assert counts[1.5].max() > 6 * counts[1.5].mean() > 2.5 * counts[0.0].max()


def test_without_minutes_of_their_own_the_draw_is_as_it_was() -> None:
    plain, same = (
        maf_like(seed=2, requests=500, rate_per_s=10.0),
        maf_like(seed=2, requests=500, rate_per_s=10.0, minute_memory=0.9),
    )
    assert rows_of(plain) == rows_of(same) and plain.source == same.source


@pytest.mark.parametrize(("start_s", "per_s"), [(0.0, 5.0), (21_600.0, 10.0), (43_200.0, 15.0)])
def test_functions_follow_the_day(start_s: float, per_s: float) -> None:
    """At a mean of 10 per second: half of it at midnight, one and a half times as much at noon."""
    quarter = maf_like(
        seed=1,
        requests=50_000,
        rate_per_s=10.0,
        functions=50,
        least_gap_cv=1.0,
        most_gap_cv=1.0,
        start_s=start_s,
        duration_s=900.0,
    )
    assert len(quarter) / 900 == pytest.approx(per_s, rel=0.1)


def test_zipf_shares() -> None:
    shares = zipf_shares(4, 1.0)
    assert shares.tolist() == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert zipf_shares(3, 0).tolist() == pytest.approx([1 / 3] * 3)


def test_models_are_drawn_by_popularity() -> None:
    whole = SYNTHETIC["poisson"](seed=1, requests=40_000)
    marked = with_models(whole, ["a", "b", "c", "d"], 1.0, seed=2)
    assert marked.model is not None
    found = [marked.model.counts()[name] / 40_000 for name in "abcd"]
    assert found == pytest.approx(zipf_shares(4, 1.0).tolist(), abs=0.01)
    assert marked.labels == (*whole.labels, "4 models drawn, Zipf 1")
    assert marked.arrival_ns.tolist() == whole.arrival_ns.tolist()


def test_a_mix_sums_to_its_rate_and_each_model_is_bursty() -> None:
    mix = zipf_mix(seed=3, requests=80_000, rate_per_s=5.0, models="4", exponent=0.9, gap_cv=3.0)
    assert len(mix) / (mix.arrival_ns[-1] / 1e9) == pytest.approx(5.0, rel=0.05)
    assert mix.model is not None
    for rank, share in enumerate(zipf_shares(4, 0.9)):
        own_s = mix.arrival_ns[mix.model.codes == rank] / 1e9
        assert len(own_s) / len(mix) == pytest.approx(share, rel=0.1)
        gaps = np.diff(own_s)
        assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.15)


def test_one_process_alone_is_not_changed_by_how_many_are_asked_for() -> None:
    shares = zipf_shares(6, 1.2)
    few, many = (superposed(1, "x", shares, [2.0] * 6, count) for count in (50, 4000))
    for short, long in zip(few, many):
        assert long[:50].tolist() == short.tolist()


def test_model_names() -> None:
    assert model_names("2") == ("model_0", "model_1") and model_names(12)[11] == "model_11"
    assert model_names("a + b") == ("a", "b") and model_names("x") == ("x",)
    for bad in ("", "a++b", "a+a", "0", "a b", "999999999", True, None):
        with pytest.raises(TraceError, match="models"):
            model_names(bad)  # type: ignore[arg-type]


def test_given_names_are_in_the_recipe() -> None:
    mix = zipf_mix(seed=0, requests=30, models="llama + qwen")
    assert mix.model is not None and mix.model.words == ("llama", "qwen")
    assert rows_of(from_recipe(mix.source)) == rows_of(mix)


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_bad_names_are_refused(names: list[str]) -> None:
    with pytest.raises(TraceError):
        with_models(SYNTHETIC["poisson"](requests=3), names)


def recorded() -> Workload:
    """A trace with every column."""
    return Workload(
        arrival_ns=np.array([0, 5, 9]),
        prompt_tokens=np.array([600, 700, 800]),
        output_tokens=np.array([3, 4, 5]),
        name="recorded",
        source="test",
        max_new_tokens=np.array([9, 9, 9]),
        model=Names.of(["a", "b", "a"]),
        session=Names.of(["s", None, "s"]),
        prefix=PrefixBlocks.of([[0, 1], [2, 3], [0, 1]], 512),
        images=np.array([0, 1, 0]),
        source_duration_ns=np.array([-1, 7, 8]),
        labels=("was there",),
    )


def test_new_lengths_take_what_spoke_of_the_old_ones() -> None:
    drawn = with_lengths(recorded(), "512x128", 1)
    assert drawn.prompt_tokens.tolist() == [512] * 3 and drawn.output_tokens.tolist() == [128] * 3
    assert (drawn.max_new_tokens, drawn.prefix, drawn.images, drawn.source_duration_ns) == (None,) * 4
    assert drawn.model is not None and drawn.session is not None and drawn.arrival_ns.tolist() == [0, 5, 9]
    assert drawn.labels == ("was there", "lengths drawn from 512x128")


def test_new_arrivals_keep_the_requests() -> None:
    drawn = with_arrivals(recorded(), 1, "gamma", rate_per_s=2.0, gap_cv=3.0)
    assert drawn.prompt_tokens.tolist() == [600, 700, 800] and drawn.source_duration_ns is None
    assert drawn.prefix is not None and (np.diff(drawn.arrival_ns) >= 0).all()
    assert drawn.labels == ("was there", "arrivals drawn: gamma rate_per_s=2 gap_cv=3")


@pytest.mark.parametrize(
    ("process", "options", "part"),
    [
        ("uniform", {}, "arrivals='uniform' is unknown: write one of poisson"),
        ("poisson", {"gap_cv": 2.0}, "arrivals=poisson has no parameter gap_cv: write only rate_per_s"),
        ("poisson", {"rate_per_s": -1}, "rate_per_s=-1"),
    ],
)
def test_bad_arrivals_are_refused(process: str, options: dict[str, Any], part: str) -> None:
    with pytest.raises(TraceError) as caught:
        with_arrivals(recorded(), 0, process, **options)
    assert part in str(caught.value)


STATED_DURATIONS: list[tuple[str, dict[str, Any], float, tuple[int, int]]] = [
    # 12.5 x 2,100 less what the third trough, without its peak, lacks: 12.5 x 900 x 0.92 / 2 pi x sin 120 deg
    (
        "diurnal", {"rate_per_s": 12.5, "peak_to_mean": 1.92, "period_s": 900.0, "peak_at_s": 450.0},
        2100.0, (24_200, 25_400),
    ),
    ("on_off", {"rate_per_s": 20.0, "spells": "fixed"}, 2100.0, (42_000 - 900, 42_800 + 900)),
    ("onsets", {"base_rate_per_s": 20.0}, 1000.0, (31_700, 33_100)),  # 20 x (1,000 + 5 onsets x 4 x 31 s)
    ("burstgpt_like", {"base_rate_per_s": 50.0}, 300.0, (45_200, 46_800)),  # 50 x (300 + 5 x 4 x 31)
    ("maf_like", {"rate_per_s": 30.0, "most_gap_cv": 1.0, "start_s": 43_200.0}, 9_000.0, (390_000, 410_000)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "end_s", "within"), STATED_DURATIONS)
def test_a_stated_duration_has_no_default_count(
    name: str, options: dict[str, Any], end_s: float, within: tuple[int, int]
) -> None:
    stated = {} if name == "burstgpt_like" else {"duration_s": end_s}  # five minutes are its own
    workload = SYNTHETIC[name](seed=2, **options, **stated)
    assert within[0] <= len(workload) <= within[1]
    assert end_s - 30 < workload.arrival_ns[-1] / 1e9 < end_s and "requests=" not in workload.source
    few = SYNTHETIC[name](seed=2, requests=700, **options, **stated)  # both stated: the first end counts
    assert len(few) == 700 and (few.arrival_ns == workload.arrival_ns[:700]).all()
    many = SYNTHETIC[name](seed=2, requests=500_000, duration_s=end_s, **options)
    assert (many.arrival_ns == workload.arrival_ns).all()
    assert (many.prompt_tokens == workload.prompt_tokens).all()


def test_a_stated_count_has_no_default_duration() -> None:
    workload = SYNTHETIC["burstgpt_like"](seed=1, requests=5000)
    assert len(workload) == 5000 and workload.arrival_ns[-1] > 1000e9


@pytest.mark.parametrize("options", [{"rate_per_s": 1e6}, {"rate_per_s": 300.0, "duration_s": 80_000.0}])
def test_a_duration_with_absurdly_many_requests_is_refused_before_they_are_drawn(
    options: dict[str, Any],
) -> None:
    with pytest.raises(TraceError, match=r"duration_s=.*or state trace\.requests"):
        SYNTHETIC["diurnal"](**({"duration_s": 1e6, "period_s": 900.0} | options))


def test_a_duration_in_a_slow_trace_whose_first_burst_is_fast_is_drawn_whole() -> None:
    workload = SYNTHETIC["on_off"](rate_per_s=1.0, on_s=1.0, off_s=1e4, duration_s=20.0, gap_cv=0.5)
    assert len(workload) > 100 and workload.arrival_ns[-1] < 20e9


def test_a_duration_ends_the_trace() -> None:
    workload = SYNTHETIC["diurnal"](seed=1, requests=5000, rate_per_s=2.0, duration_s=100.0)
    assert len(workload) < 400 and workload.arrival_ns[-1] < 100e9
    with pytest.raises(TraceError, match="ends before the first arrival"):
        SYNTHETIC["diurnal"](seed=1, requests=5000, rate_per_s=0.001, duration_s=0.001)
