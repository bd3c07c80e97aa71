"""Figures made of runs that are made up, so that every number is known; and what they keep and show."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.blitzscale import fig15, fig18, set_ups
from experiments.blitzscale.more_set_ups import required_gbps, stop_72b, stopped
from experiments.blitzscale.registry import BLITZSCALE, sweeps_of
from experiments.blitzscale.set_ups import BLITZ, MULTICAST, NETWORK
from experiments.blitzscale.sweeps import all_sweeps
from experiments.blitzscale.v1 import load_times
from experiments.common.compare import order_row, over_time, ratio_row
from experiments.common.drawing import draw
from experiments.common.figure import MISSED, Figure, FigureRow
from experiments.common.outcomes import GPU_TIME, MEAN_TTFT, MISS_RATE, Outcomes, RunOutcome, violations
from experiments.common.saved import as_saved, as_text
from experiments.common.set_up import Case, SetUp
from experiments.common.shown import as_json, print_figure
from experiments.common.sweep import SetUpSweep
from experiments.common.timelines import instances, kv_tokens
from experiments.common.verdict import judged_again, shorter
from hwmodels.topology.cluster_file import parse_cluster

DRAWN = SetUp(
    "drawn",
    ("model=llama3_8b", "cluster=blitz_b", "engine=blitz_native"),
    ("trace=burstgpt_like", "trace.duration_s=60"),
    full=(10, 6),
    prefill=(2, 14),
    decode=(2, 14),
    stand_in="drawn",
)
FAST = Case("fast", DRAWN, ("system=vllm",))
SLOW = Case("slow", DRAWN, ("system=vllm", "engine.max_num_seqs=2"))


# Figures from runs, here made up so that every number is known.


def made_up(case: Case, summary: Mapping[str, Any], ttft_ms: list[float]) -> RunOutcome:
    times_s = np.arange(len(ttft_ms), dtype=np.float64)
    told = f"{case.set_up.name}: rate factor"
    return RunOutcome(
        words=case.words,
        summary=summary,
        arrival_s=times_s,
        ttft_ms=np.array(ttft_ms),
        tpot_ms=np.full(len(ttft_ms), np.nan),
        inputs=told,
    )


def outcomes_of(levels: Mapping[str, Mapping[str, float]]) -> Outcomes:
    """Two seeds of every case there is; levels: label -> number of the summary, ``base`` for all others."""
    cases = dict.fromkeys(one for recipe in BLITZSCALE.values() for one in recipe.cases(1))
    set_up_of = {one.set_up for one in cases}
    assert len({one.name for one in set_up_of}) == len(set_up_of), "a set-up's name is its own"
    found = {}
    for case in cases:
        summary: dict[str, Any] = {"requests": {"arrived": 10, "dropped": 0}}
        for path, value in {**levels["base"], **levels.get(case.label, {})}.items():
            node = summary
            *owners, leaf = path.split(".")
            for owner in owners:
                node = node.setdefault(owner, {})
            node[leaf] = value
        ttft = summary["ttft_ms"]["mean"]
        found[case] = tuple(made_up(case, summary, [ttft] * 10) for _ in range(2))
    return Outcomes(found, {})


BASE = {
    "ttft_ms.mean": 100.0, "ttft_ms.p50": 90.0, "ttft_ms.p95": 180.0, "ttft_ms.p99": 200.0,
    "itl_ms.mean": 10.0, "itl_ms.p50": 9.0, "itl_ms.p95": 18.0, "itl_ms.p99": 20.0,
    "tpot_ms.mean": 10.0, "tpot_ms.p50": 9.0, "tpot_ms.p95": 18.0, "tpot_ms.p99": 20.0,
    "gpu_seconds": 100.0,
    "loads.count": 4.0, "loads.seconds.mean": 1.0, "instances.mean": 8.0, "cache.hits": 7.0,
    "cache.misses": 3.0, "host_cache_bytes.mean": 0.0, "host_cache_bytes.max": 0.0,
    "network.nic.mean_share": 0.02,
    "network.nic.bytes.parameters": 5e9, "loads.seconds.max": 2.0, "decisions.count": 9.0,
    "decisions.cpu_ms_p99": 2.0,
}  # fmt: skip


def rows_of(name: str, outcomes: Outcomes) -> dict[str, FigureRow]:
    return {row.name: row for row in BLITZSCALE[name].make(outcomes).rows}


def test_figures_17_and_18_compare_with_each_system() -> None:
    levels = {
        "base": BASE,
        BLITZ: {"ttft_ms.mean": 52.0, "gpu_seconds": 50.0},
        "distserve_half": {"ttft_ms.mean": 600.0},
        "distserve_full": {"ttft_ms.mean": 15.0},
    }
    outcomes = outcomes_of(levels)
    rows = rows_of("fig17", outcomes)
    prefix = "AzureConv/24B/32 GPUs: "
    first = rows[prefix + "mean TTFT over serverlessllm"]
    assert (first.verdict, first.ours) == ("in band", "0.520 [0.520, 0.520]")
    assert first.ratio == pytest.approx(1.0) and "step times of a roofline" in first.stand_in
    equal = rows[prefix + "mean TBT over serverlessllm"]  # equal is not shorter
    assert equal.verdict == "direction not held" and "no change; " in equal.why
    assert "serverlessllm missed 30% of its look-ups" in equal.why
    assert equal.saved == (("seed", "AzureConv/24B/32 GPUs"),)
    assert equal.why.endswith("saved in sweeps.json: seed > AzureConv/24B/32 GPUs")
    assert rows["BurstGPT/72B/32 GPUs: P99 TTFT over allcache"].verdict == "in band"  # equal is not above
    order = rows["BurstGPT/72B/32 GPUs: order of mean TTFT"]
    assert order.verdict == "not shown" and "no interval shows allcache < serverlessllm" in order.why
    assert f"mean load time {BLITZ} 1.00 s, allcache 1.00 s" in order.why
    same = rows[prefix + "mean TTFT of serverlessllm over allcache"]
    assert (same.verdict, same.paper) == ("in band", "close to AllCache")
    spike = rows["AzureCode/8B/16 GPUs: mean TTFT of serverlessllm over allcache, burst 1"]
    assert (spike.verdict, spike.ratio) == ("out", pytest.approx(0.5))  # 1 time where 2 is a spike
    figure = fig18.fig18(outcomes)
    rows = {row.name: row for row in figure.rows}
    assert rows[prefix + "mean TTFT over distserve_half"].verdict == "out"  # 0.087 against 0.042
    assert rows[prefix + "GPU time over distserve_full"].verdict == "in band"
    beyond = rows[prefix + "requests beyond 5x the mean of distserve_full, serverlessllm"]
    assert beyond.ours == "100.00% [100.00%, 100.00%]" and beyond.verdict == "out"
    own = rows[prefix + f"requests beyond 5x the mean of {BLITZ}, serverlessllm"]
    assert own.ours.startswith("0.00%")  # 100 ms is within 5 x 52
    strict = rows["AzureCode/8B/16 GPUs: requests beyond 450/150 ms, serverlessllm"]
    assert (strict.verdict, strict.paper) == ("not comparable", "no share given") and "0.00%" in strict.why
    mine = rows[prefix + f"requests beyond 5x the mean of distserve_full, {BLITZ}"]
    assert mine.ours == "0.00% [0.00%, 0.00%]" and mine.verdict == "in band"
    less = rows["AzureCode/8B/16 GPUs: GPU time over distserve_full"]
    assert (less.verdict, less.ratio) == ("in band", pytest.approx(0.5))
    assert figure.levels[0]["TTFT mean / P99 (ms)"] == "52.0 / 200"
    assert any("rate factor" in told for told in figure.inputs)
    assert any("KV engine.kv_tokens=256000" in told for told in BLITZSCALE["fig17"].make(outcomes).inputs)


def test_readings_with_fewer_instances_have_no_verdict() -> None:
    outcomes = outcomes_of({"base": BASE, BLITZ: {"tpot_ms.p99": 1.3}})
    rows = rows_of("fig17", outcomes) | rows_of("v1", outcomes)
    read = {name: row for name, row in rows.items() if "instance kept" in name}
    assert len(read) == 2 * (24 + 8)
    assert {(row.verdict, row.kind) for row in read.values()} == {("not comparable", "own_analysis")}
    assert {judged_again(row) for row in read.values()} == {"not comparable"}
    row = read["AzureCode/8B/16 GPUs, no decode instance kept: mean TBT of a request, P99 over serverlessllm"]
    assert (row.paper, row.ours) == ("94.1 % shorter", "0.0650 [0.0650, 0.0650]")
    assert row.why.startswith("another reading, never counted; 0.0650 [0.0650, 0.0650] as judged")
    assert row.ratio == pytest.approx(0.065 / 0.059)
    words = {frozenset(kept.words) ^ frozenset(judged.words) for kept, judged in _kept_and_judged()}
    minimums = {word for changed in words for word in changed}
    assert minimums == {
        f"system.instances.{role}_min={least}" for role in ("prefill", "decode") for least in (0, 2)
    }


def _kept_and_judged() -> list[tuple[Case, Case]]:
    """Every case of a reading beside the case that it is a reading of."""
    known = {
        (case.set_up.name, case.label): case for name in ("fig17", "v1") for case in BLITZSCALE[name].cases(1)
    }
    return [
        (case, known[name.partition(", no ")[0], label])
        for (name, label), case in known.items()
        if "instance kept" in name
    ]


def test_a_burst_is_compared_by_the_requests_that_arrive_in_it() -> None:
    arrival_s = np.array([0.0, 5.0, 44.9, 45.0, 210.0])
    one = RunOutcome(
        words=(),
        summary={},
        arrival_s=arrival_s,
        ttft_ms=np.array([1.0, 10.0, 30.0, 99.0, 7.0]),
        tpot_ms=np.zeros(5),
        inputs="",
    )
    assert one.mean_ttft_ms(5.0, 45.0) == 20.0 and one.mean_ttft_ms(300.0, 340.0) is None


def test_the_ablation_takes_each_step_from_the_one_before() -> None:
    levels = {
        "base": BASE,
        BLITZ: {"ttft_ms.mean": 40.0},
        MULTICAST: {"ttft_ms.mean": 60.0},
        NETWORK: {"ttft_ms.mean": 80.0},
        f"{NETWORK} apart": {"ttft_ms.mean": 120.0},
        "serverlessllm": {"ttft_ms.mean": 100.0},
        "all-SSD": {"ttft_ms.mean": 900.0},
    }
    rows = rows_of("fig20", outcomes_of(levels))
    prefix = "AzureConv/24B/32 GPUs: "
    steps = {name.removeprefix(prefix): row for name, row in rows.items() if name.startswith(prefix)}
    assert steps[f"+ZigZag over {MULTICAST}, mean TTFT"].ours.startswith("0.667")
    assert steps[f"+Multicast over {NETWORK}, mean TTFT"].verdict == "in band"
    without = "+Network apart over "
    assert steps[f"{without}serverlessllm, mean TTFT"].verdict == "out"  # 1.2
    assert steps[f"{without}all-SSD, mean TTFT"].verdict == "in band"
    assert steps["order of mean TTFT, S-LLM as base"].verdict == "in band"
    out = steps["order of mean TTFT, S-LLM as base, +Network apart"]
    assert out.verdict == "out" and "saved in sweeps.json" in out.why


@pytest.mark.parametrize(("counts", "verdict"), [([1, 2, 5], "in band"), ([7], "out")])
def test_live_scaling_must_be_seen_in_the_layers_of_passes(counts: list[int], verdict: str) -> None:
    outcomes = outcomes_of(
        {"base": BASE, BLITZ: {"ttft_ms.mean": 80.0}, f"{BLITZ}, stop": {"ttft_ms.mean": 120.0}}
    )
    for runs in outcomes.runs.values():
        for one in runs:
            assert isinstance(one.summary, dict)
            one.summary["live"] = {"passes": 9, "requests": 4, "layer_counts_seen": counts, "plans_used": 0}
    rows = rows_of("live", outcomes)
    prefix = "AzureCode/8B/16 GPUs: "
    row = rows[prefix + f"layers of a pass, {BLITZ}"]
    assert row.verdict == verdict and "passes of some layers 9.00; requests in them 4.00" in row.why
    assert rows[prefix + f"mean TTFT, {BLITZ} over allcache"].verdict == "in band"
    assert rows[prefix + f"mean TTFT, {BLITZ}, stop over allcache"].verdict == "in band"  # 1.2: only by live
    assert not any("over allcache" in name for name in rows if name.startswith("AzureConv"))


def test_without_counters_live_scaling_is_not_compared_by_them() -> None:
    row = rows_of("live", outcomes_of({"base": BASE}))[f"AzureCode/8B/16 GPUs: layers of a pass, {BLITZ}"]
    assert row.verdict == "not comparable" and "no live.layer_counts_seen" in row.why


def test_fig15_is_exact() -> None:
    figure = fig15.fig15()
    rows = {row.name: row for row in figure.rows}
    assert rows["ZigZag: batches 1 to 7 finish, scheduled"].ours == "7 12 17 21 24 27 29"
    assert rows["ZigZag: batches 1 to 7 finish, simulated"].ours == "7.0 12.0 17.0 21.0 24.0 27.0 29.0"
    assert rows["best effort: batches 1 to 7 finish, scheduled"].ours == "7 13 19 25 31 37 42"
    assert rows["latency of request 3 with ZigZag"].ours == "17"
    assert rows["32 -> 22, of request 6 from its own first layer"].ours == "32 22"
    out = [name for name, row in rows.items() if row.verdict == "out"]
    # No reading gives 32 and 22; and the run does not hold the last batch to its quota to the end.
    assert out == [
        "best effort: batches 1 to 7 finish, simulated",
        "32 -> 22, of request 7 as the text has it",
    ]
    assert rows["Eq. 1 as printed"].ours == "infeasible"
    assert "refuted" in rows["Eq. 1, C3 shifted by a layer"].ours
    assert "19.571, replays 19.571" in rows["Eq. 1 made executable"].why
    saved = figure.sweeps[fig15.KEY]
    assert saved["ilp_free"]["layers_on_target"] == [1, 2, 2, 3, 4, 4, 5]


def test_version_1_cannot_have_read_its_ssd_in_3100_ms() -> None:
    found = load_times()
    assert found["S-LLM", "1.0"] == pytest.approx(13.48e9 / 1.25e9 * 1e3, rel=0.02)  # 10 Gbps each
    assert found["BlitzScale", "1.0"] == pytest.approx(13.48e9 / 12.5e9 * 1e3, rel=0.05)  # one NIC, pipelined
    rows = rows_of("v1", outcomes_of({"base": BASE}))
    assert rows["7B to 16 GPUs, BlitzScale, efficiency 1.0"].verdict == "in band"
    row = rows["7B to 16 GPUs, S-LLM, efficiency 1.0"]
    assert row.verdict == "out" and "36 Gbps" in row.why


def test_a_stop_is_as_long_as_its_links_say() -> None:
    assert required_gbps("qwen2_5_72b", 4, 0.5) == pytest.approx(576, rel=0.02)
    for stop_s in (0.25, 8.0):
        spec = parse_cluster("stop", "stop.yaml", stopped(stop_72b(), stop_s).links)
        assert spec.ssd is not None and spec.ssd.bytes_per_s * stop_s * 4 == pytest.approx(145.4e9, rel=2e-3)
        assert spec.pcie.bytes_per_s >= max(16e9, 3.99 * spec.ssd.bytes_per_s)  # KV is no slower than before


def test_shares_by_stop_are_read_from_requests() -> None:
    cases = BLITZSCALE["fig3"].cases(1)
    found = {}
    for case in cases:
        late = 9 if case.label in ("2 s stop", "4 s stop", "8 s stop") else 1
        ttft_ms = [2000.0] * late + [10.0] * (10 - late)
        found[case] = (made_up(case, {"requests": {"arrived": 10, "dropped": 0}}, ttft_ms),)
    rows = {row.name: row for row in BLITZSCALE["fig3"].make(Outcomes(found, {})).rows}
    assert rows["72B: requests beyond 1250/200 ms, 1.32 s stop"].ours == "10.00%"
    assert rows["72B: requests beyond 1250/200 ms, 2 s stop"].verdict == "in band"
    assert rows["72B: rate per GPU for 500 ms"].verdict == "in band"


def test_fig1_reads_the_rise_and_what_is_held_after_it() -> None:
    (case,) = BLITZSCALE["fig1"].cases(1)
    arrival_s = np.concatenate((np.arange(0, 6, 0.5), 6.05 + 0.1 * np.arange(340)))  # 4, 20 in 2 s
    tokens = np.concatenate((np.zeros(20), np.full(10, 400e3), np.full(11, 1600e3)))
    held = {"kv_tokens": (np.arange(41.0), tokens)}
    empty = np.zeros(len(arrival_s))
    one = RunOutcome(
        words=(),
        summary={},
        arrival_s=arrival_s,
        ttft_ms=empty,
        tpot_ms=empty,
        inputs=f"{case.set_up.name}: rate factor",
        timelines=held,
    )
    rows = {row.name: row for row in BLITZSCALE["fig1"].make(Outcomes({case: (one,)}, {})).rows}
    assert rows["steepest rise of arrivals"].ours == "5.00 times"
    assert rows["most over least KV"].ours == "4.00 times"
    assert rows["least KV held"].ours == "210 GB"  # 512 KiB a token
    assert {row.verdict for row in rows.values()} == {"in band"}


# Timelines.


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 50), st.integers(1, 900), st.integers(2, 90)),
        min_size=1,
        max_size=8,
    )
)
def test_kv_is_held_from_the_first_token_to_the_last(requests: list[tuple[int, int, int, int]]) -> None:
    first, last, prompt, output = (np.array(column) for column in zip(*requests, strict=True))
    columns = {
        "first_token_ns": first * 10**9,
        "finish_ns": (first + last) * 10**9,
        "prompt_tokens": prompt,
        "output_tokens": output,
    }
    at_s = np.arange(0.25, 110.0, 0.5)
    expected = [sum(p + o * (t - f) / d for f, d, p, o in requests if f <= t < f + d) for t in at_s.tolist()]
    assert kv_tokens(columns, at_s).tolist() == pytest.approx(expected, abs=1e-6)


def test_instances_over_time_follow_the_events() -> None:
    events = [
        {"t_s": 2.0, "act": "load", "role": "prefill"},
        {"t_s": 6.0, "act": "released", "role": "prefill"},
    ]
    summary = {
        "duration_s": 10.0,
        "scale_events": events,
        "instances": {"mean_by_role": {"prefill": 1.4, "decode": 1.0}},
    }
    assert instances(summary, np.array([0.0, 1.9, 2.0, 5.9, 6.0, 9.0])).tolist() == [2, 2, 3, 3, 2, 2]
    static = {"duration_s": 10.0, "instances": {"mean": 16.0}}
    assert instances(static, np.array([0.0, 9.0])).tolist() == [16, 16]


# Sweeps and what is kept of them.


def swept(ours_ms: float) -> tuple[SetUpSweep, Outcomes]:
    """Two points of a sweep: the fast system takes ``ours_ms`` of the slow one's 100 ms, or half of it."""
    points = []
    found = {
        case: (made_up(case, {"ttft_ms": {"mean": ms}}, [1.0]),) for case, ms in ((FAST, 90.0), (SLOW, 100.0))
    }
    for value, ms in (("a", ours_ms), ("b", ours_ms / 2)):
        pair = tuple(
            Case(one.label, one.set_up, (*one.words, f"seed={value}"), once=True) for one in (FAST, SLOW)
        )
        found |= {pair[0]: (made_up(pair[0], {"ttft_ms": {"mean": ms}}, [1.0]),)}
        found |= {pair[1]: (made_up(pair[1], {"ttft_ms": {"mean": 100.0}}, [1.0]),)}
        points.append((value, pair))
    sweep = SetUpSweep("seedling", "drawn", "made up", tuple(points))
    return sweep, Outcomes(found, {}, (sweep,))


def test_a_row_that_is_out_says_how_far_its_sweeps_move_it() -> None:
    sweep, outcomes = swept(60.0)
    row = ratio_row(outcomes, "a", shorter(60), MEAN_TTFT, ours=FAST, other=SLOW)
    assert row.verdict == "out"
    assert "by seedling 0.300 (b) to 0.600 (a), 2 of 2 in band" in row.why
    assert row.saved == (("seed", "drawn"), ("seedling", "drawn"))
    data = as_saved(outcomes, [Figure("fig", "Figure", (row,))])
    assert data["seedling"]["drawn"]["points"]["b"]["fast"]["ttft_ms_mean"] == 30.0
    assert data["seed"]["drawn"]["fast"]["ttft_ms_mean"] == [90.0]
    assert json.loads(as_text(data | {"x": {"y": [math.inf]}}))["x"]["y"] == [None]
    assert next(sweep.cases()).once


def test_a_key_that_is_not_kept_is_found_out() -> None:
    _, outcomes = swept(60.0)
    row = FigureRow(
        name="a", paper="b", ours="c", ratio=1.0, verdict="out", why="why", saved=(("seed", "elsewhere"),)
    )
    with pytest.raises(AssertionError, match="elsewhere"):
        as_saved(outcomes, [Figure("fig", "Figure", (row,))])
    with pytest.raises(AssertionError, match="no saved sweep"):
        Figure(
            "fig", "Figure", (FigureRow(name="a", paper="b", ours="c", ratio=1.0, verdict="out", why="why"),)
        )


def test_sweeps_change_what_they_say_and_nothing_else() -> None:
    known = [one for recipe in BLITZSCALE.values() for one in recipe.cases(1)]
    base = {(one.set_up.name, one.label): set(one.all_words()) for one in known}
    for sweep in all_sweeps():
        changed = set()
        for _, cases in sweep.points:
            for case in cases:
                other = base[sweep.subject, case.label] ^ set(case.all_words())
                changed |= {word.partition("=")[0] for word in other}
                assert (
                    case.once or not other or sweep.seeded
                )  # else only the set-up's own point has all seeds
        assert changed <= {
            "window": {"trace.window_start_s"},
            "mean load": set(),
            "rate rule": set(),
            "scale-down time-out": {"system.scaler.scale_down_ms"},
            "decode instances": {
                "system.instances.prefill_min", "system.instances.decode_min", "cluster", "estimates",
            },
            "KV memory": {"engine.kv_tokens"},
            "life of a copy": {"system.cache.ttl_s"},
            "height of a burst": {"trace.factor"},
            "thresholds": {"system.scaler.memory", "system.scaler.prefill"},
            "average provisioning": {"cluster", "system"},
        }[sweep.kind]  # fmt: skip


def test_only_sweeps_of_what_is_compared_are_run() -> None:
    assert sweeps_of(BLITZSCALE["fig21"].cases(1)) == ()
    assert sweeps_of(BLITZSCALE["fig23"].cases(1)) == ()  # one system: nothing is compared
    kinds = {sweep.kind for sweep in sweeps_of(BLITZSCALE["fig18"].cases(1))}
    assert {"window", "mean load", "scale-down time-out"} <= kinds


def test_every_row_that_is_out_finds_its_sweep() -> None:
    outcomes = outcomes_of({"base": BASE, BLITZ: {"ttft_ms.mean": 500.0}})
    figures = [recipe.make(outcomes) for recipe in BLITZSCALE.values()]
    data = as_saved(outcomes, figures)
    out = [row for figure in figures for row in figure.rows if row.verdict in MISSED]
    assert len(out) > 50
    assert all(subject in data[kind] for row in out for kind, subject in row.saved)
    assert all("saved in sweeps.json: " in row.why for row in out)


def test_violations_count_late_and_lost_requests() -> None:
    one = made_up(FAST, {"requests": {"arrived": 12, "dropped": 1}}, [10.0] * 6 + [99.0] * 3)
    assert violations(one, 50.0, 50.0) == pytest.approx((3 + 2) / 11)  # two of eleven have no answer


def test_cache_network_and_control_figures() -> None:
    copy = 16_060_522_496  # of Llama3-8B
    levels = {
        "base": BASE,
        BLITZ: {"host_cache_bytes.max": copy, "network.nic.mean_share": 0.04},
        "serverlessllm": {"host_cache_bytes.mean": 1.5 * copy},
        "allcache": {"host_cache_bytes.mean": 2 * copy},
        "4 cached, 300 s, 0.25 C": {"cache.misses": 1.0},
        "naive": {"loads.seconds.mean": 1.4, "itl_ms.p99": 18.0},
        "naive, RDMA alone": {"loads.seconds.max": 1.2},
    }
    outcomes = outcomes_of(levels)
    copies = rows_of("fig19", outcomes)
    prefix = "AzureCode/8B/16 GPUs: "
    assert {copies[name].verdict for name in copies if name.startswith(prefix)} == {"in band", "out"}
    assert copies[prefix + f"most copies, {BLITZ}"].verdict == "in band"
    assert copies[prefix + "mean copies, allcache"].verdict == "in band"
    assert copies[prefix + "mean copies, serverlessllm 300 s"].verdict == "out"  # it has none here
    extra = rows_of("fig22", outcomes)[prefix + "extra mean use of the network"]
    assert (extra.verdict, extra.ours) == ("out", "2.00 points [2.00 points, 2.00 points]")
    assert "4.00% against 2.00%" in extra.why
    decided = rows_of("fig23", outcomes)[prefix + "P99 of a decision over a load"]
    assert (decided.verdict, decided.ratio) == ("in band", pytest.approx(0.2))  # 2 ms of 1 s, of 1 %
    misses = rows_of("fig4", outcomes)
    assert misses["host-cache miss rate, 2 cached, 300 s, 0.5 C"].verdict == "in band"
    assert misses["misses by memory"].verdict == "in band"
    assert misses["misses by load"].verdict == "not shown"  # equal is no order
    choice = rows_of("fig8", outcomes)
    run = "AzureConv/7B/16 GPUs: naive over pruned, "
    assert choice[run + "mean load time"].verdict == "in band"
    assert choice[run + "P99 TBT"].verdict == "out"
    network = "AzureConv/7B/16 GPUs: naive, RDMA alone over pruned, RDMA alone, longest load"
    assert (choice[network].verdict, choice[network].ours) == ("out", "0.600 [0.600, 0.600]")


def test_without_runs_every_figure_says_what_is_missing(tmp_path: Path) -> None:
    for name, recipe in BLITZSCALE.items():
        outcomes = Outcomes({}, dict.fromkeys(recipe.cases(1), "this version has no system=nobody"))
        figure = recipe.make(outcomes)
        missing = [row for row in figure.rows if row.why.startswith("this version has no")]
        assert bool(missing) == bool(recipe.cases(1))
        assert all((row.verdict, row.ratio) == ("not comparable", None) for row in missing)
        if name in ("fig15", "fig20", "fig24"):  # exact, with panels, without
            draw(figure, tmp_path / f"{name}.png")
            assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_runs_are_drawn_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    outcomes = outcomes_of({"base": BASE, BLITZ: {"ttft_ms.mean": 52.0}})
    for name, recipe in BLITZSCALE.items():
        figure = recipe.make(outcomes)
        lacks = ("live.layer_counts_seen", "timeline of KV", "no request there")  # not in made-up runs
        assert figure.name == name
        assert all(row.ours or any(word in row.why for word in lacks) for row in figure.rows)
        if name in ("fig8", "fig18", "fig19", "live"):  # lines, timelines, names below places
            draw(figure, tmp_path / f"{name}.png")
        assert len(json.loads(as_json(figure, "", None, []))["rows"]) == len(figure.rows)
        print_figure(figure)
    text = capsys.readouterr().out
    assert "serverlessllm 300 s" in text and "52.0 / 200" in text
    workload = BLITZSCALE["fig17"].make(outcomes).panels[0]
    assert {line.label: line.y for line in workload.lines}[BLITZ] == [52.0, 52.0]  # 10 s in bins of 5


def test_time_without_arrivals_is_not_drawn_over() -> None:
    late = RunOutcome(
        words=(),
        summary={},
        arrival_s=np.array([1.0, 11.0]),
        ttft_ms=np.array([4.0, 6.0]),
        tpot_ms=np.zeros(2),
        inputs="",
    )
    x, y = over_time(Outcomes({FAST: (late,)}, {}), FAST)
    assert x == [2.5, 7.5, 12.5] and (y[0], y[2]) == (4.0, 6.0) and math.isnan(y[1])


@pytest.mark.parametrize(("ours", "verdict"), [([60.0, 61.0], "in band"), ([40.0, 140.0], "not shown")])
def test_an_interval_on_both_sides_of_equal_shows_no_direction(ours: list[float], verdict: str) -> None:
    found = {
        case: tuple(made_up(case, {"ttft_ms": {"mean": ms}}, [1.0]) for ms in levels)
        for case, levels in ((FAST, ours), (SLOW, [100.0, 100.0]))
    }
    row = ratio_row(Outcomes(found, {}), "a", shorter(30), MEAN_TTFT, ours=FAST, other=SLOW)
    assert row.verdict == verdict and ("no direction is shown" in row.why) == (verdict == "not shown")


def test_an_order_needs_the_number_of_every_system() -> None:
    outcomes = outcomes_of({"base": BASE, BLITZ: {"gpu_seconds": 1.0}})
    cases = [set_ups.case_of(set_ups.AZURE_CODE_8B, name) for name in (BLITZ, "allcache")]
    assert order_row(outcomes, "a", GPU_TIME, cases).verdict == "in band"
    assert order_row(outcomes, "a", GPU_TIME, cases[::-1]).verdict == "out"
    bare = Outcomes({cases[0]: (made_up(cases[0], {}, [1.0]),)}, {})
    unknown = order_row(bare, "a", MISS_RATE, cases[:1])
    assert unknown.verdict == "not comparable" and "has no cache.hits" in unknown.why
