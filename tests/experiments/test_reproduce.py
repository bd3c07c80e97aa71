"""servetwin reproduce: verdicts, statistics, set-ups, runs, and the figures made of them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.blitzscale import fig08, fig21, fig23, set_ups
from experiments.blitzscale.load_plans import slowdown
from experiments.blitzscale.registry import BLITZSCALE
from experiments.blitzscale.set_ups import BLITZ
from experiments.common.compare import ratio_row
from experiments.common.figure import Figure, FigureRow, Verdict
from experiments.common.outcomes import LOAD_TIME, MEAN_TTFT, MISS_RATE
from experiments.common.paired import difference_of, mean_of, ratio_of, t_95
from experiments.common.rates import NOWHERE, drawn_rate, estimates_of, kv_tokens_per_s, rate_of
from experiments.common.recipe import chosen
from experiments.common.runs import carry_out, command_of, lacking, run_once
from experiments.common.set_up import Case, SetUp
from experiments.common.shown import as_json, print_figure
from experiments.common.sweep import SetUpSweep
from experiments.common.verdict import Claim, about, at_most, in_order, judged, shorter, times, within
from hwmodels.topology.cluster_file import load_cluster
from servetwin.assemble.build import arrivals_of
from servetwin.assemble.expected_outputs import expected_labels
from servetwin.cli.main import run
from servetwin.config.compose.compose import load_config
from servetwin.run.prepared import Simulated
from servetwin.run.simulate import prepare
from serving.kv.handover import HandOverRules, HandOvers
from serving.kv.transfer_ids import TransferIds
from serving.record.journal import event_text, parse_event
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Arrived
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import Request
from traces.capacity import prompt_load
from traces.errors import TraceError
from traces.find import find_trace

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


# Verdicts.


@pytest.mark.parametrize(
    ("claim", "ours", "verdict", "ratio"),
    [
        (shorter(48.1), 0.519, "in band", 1.0),
        (shorter(48.1), 0.519 * 1.3, "in band", 1.3),
        (shorter(48.1), 0.519 * 1.49, "out", 1.49),  # its saving, 0.227 against 0.481
        (shorter(48.1), 0.519 / 1.51, "out", 1 / 1.51),
        (shorter(1.8), 1.01, "direction not held", 1.01 / 0.982),  # near in size, but longer
        (shorter(47, 75), 0.40, "in band", 1.0),
        (shorter(47, 75), 0.60, "in band", 0.60 / 0.53),
        (times(1.5), 0.99, "out", 0.66),
        (times(1.5), 1.7, "in band", 1.7 / 1.5),
        (times(1.5), 2.2, "out", 2.2 / 1.5),  # its increase, 1.2 against 0.5
        (about(1.2, ""), 1.81, "out", 1.81 / 1.2),
        (within(0.2, 0.46, ""), 0.47, "out", 0.47 / 0.46),
        (at_most(0.01, ""), 0.0, "in band", 0.0),
        (at_most(0.01, ""), -0.002, "in band", -0.2),
        (at_most(1, ""), 1.001, "out", 1.001),
    ],
)
def test_verdict_needs_direction_and_size(claim: Claim, ours: float, verdict: str, ratio: float) -> None:
    row = judged("a", claim, ours, "", why="measured")
    assert row.verdict == verdict
    assert row.ratio == pytest.approx(ratio)


def test_a_row_that_is_out_says_why() -> None:
    with pytest.raises(AssertionError, match="no word why"):
        judged("a", about(2.0, ""), 0.5, "0.5", why="")
    with pytest.raises(AssertionError):
        Claim("upside down", 2.0, 1.0)


def test_order_is_judged_by_all_places() -> None:
    found = {"x": [1.0, 1.1], "y": [3.0, 3.3], "z": [2.0, 2.2]}
    assert in_order("a", ("x", "z"), found, unit="s", kind="paper_direction").verdict == "in band"
    row = in_order("a", ("x", "y", "z"), found, unit="s", stand_in="", kind="paper_direction")
    assert (row.verdict, row.ours, row.kind) == ("out", "x < z < y", "paper_direction")
    assert row.why == "x 1.05 s, z 2.10 s, y 3.15 s"


# Statistics.


@pytest.mark.parametrize("degrees", [1, 2, 4, 9, 30])
def test_t_quantiles_leave_two_and_a_half_per_cent_above(degrees: int) -> None:
    scale = math.gamma((degrees + 1) / 2) / math.sqrt(degrees * math.pi) / math.gamma(degrees / 2)
    angles = np.linspace(math.atan(t_95(degrees)), math.pi / 2, 200_001)[:-1]
    x = np.tan(angles)  # substitution: the tail of few degrees is long
    density = scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2) * (1 + x**2)
    assert np.trapezoid(density, angles) == pytest.approx(0.025, abs=2e-5)


def test_paired_ratios_lose_what_a_seed_adds_to_both() -> None:
    found = ratio_of([2.0, 20.0, 200.0], [4.0, 40.0, 400.0])
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    swapped = ratio_of([1.0, 4.0], [2.0, 2.0])
    assert swapped is not None and swapped.value == pytest.approx(1.0)  # half and double cancel
    assert ratio_of([0.0], [1.0]) is None and ratio_of([1.0], [math.nan]) is None
    assert difference_of([3.0, 5.0], [1.0, 3.0]).shown() == "2.00 [2.00, 2.00]"


def test_an_interval_is_students() -> None:
    found = mean_of([1.0, 2.0, 3.0])
    assert found.low == pytest.approx(2 - 4.303 / math.sqrt(3)) and found.value == 2.0
    assert mean_of([7.0]).shown() == "7.00"


@settings(max_examples=30)
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=8), st.floats(0.2, 5))
def test_a_ratio_upside_down_is_one_over_it(values: list[float], factor: float) -> None:
    other = [value * factor for value in reversed(values)]
    there, back = ratio_of(values, other), ratio_of(other, values)
    assert there is not None and back is not None and there.low is not None and back.high is not None
    assert there.value * back.value == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


# Figures that need no runs.


def test_fig21_is_the_closed_form_of_store_and_forward() -> None:
    found = {(one.set_up, one.efficiency): one for one in fig21.load_times()}
    assert len(found) == 9
    for (set_up, _), one in found.items():
        assert one.first_s == pytest.approx(one.closed_s, rel=2e-3)
        # Two further hops, each as long as the largest chunk; smaller chunks are through earlier.
        late = one.last_s - one.first_s
        assert late == pytest.approx(0, abs=1e-9) if set_up == "AllCache" else 0 < late < 0.1 * one.closed_s
        assert one.last_small_s <= one.last_s + 1e-3
    assert found["two NICs", "1.0"].closed_s == pytest.approx(48e9 / (2 * 12.5e9))
    assert found["AllCache", "1.0"].closed_s == pytest.approx(48e9 / (2 * 16e9))


def test_fig21_is_reached_with_four_nics_and_not_with_two() -> None:
    figure = fig21.fig21()
    verdicts = {row.name: row.verdict for row in figure.rows}
    assert {verdicts[name] for name in verdicts if name.startswith("four")} == {"in band"}
    assert {verdicts[name] for name in verdicts if name.startswith("two")} == {"out"}
    assert all("|M|/B" in row.why or "from host memory" in row.why for row in figure.rows)
    assert all(max(line.y) == 6 for line in figure.panels[0].lines)


@settings(max_examples=15)
@given(st.floats(0.0, 0.95))
def test_a_load_beside_kv_slows_as_fair_sharing_says(share: float) -> None:
    assert slowdown(share) == pytest.approx(fig08.shared(share), rel=0.01)
    assert slowdown(share, pruned=True) == pytest.approx(1.0, rel=1e-3)


def test_fig8_places_a_model_by_the_kv_of_its_own_prefill() -> None:
    share = fig08.kv_share(DRAWN)
    tokens_per_s = estimates_of(DRAWN.words).prefill_tokens_per_s
    assert share == pytest.approx(tokens_per_s * 131_072 / 12.5e9)  # 128 KiB a token, 100 Gbps


def test_fig23_plans_serve_everyone() -> None:
    for wanted in (fig23.six(), fig23.many()):
        ms, plan = fig23.planned_ms(wanted)
        assert sorted(plan.replicas) == sorted(target.replica for target in wanted.targets)
        assert ms > 0


# Set-ups and rates.


def test_the_rate_is_half_of_the_full_split_or_the_burst_at_nine_tenths() -> None:
    rate = rate_of(DRAWN, 3)
    words = (*DRAWN.words, *DRAWN.trace, *rate.words, "seed=3", NOWHERE)
    load = prompt_load(prepare(load_config(words, "simulate")).workload)
    each = estimates_of(DRAWN.words).prefill_tokens_per_s
    held = 6 * kv_tokens_per_s(
        prepare(load_config((*DRAWN.words, *DRAWN.trace, "seed=3", NOWHERE), "simulate"))
    )
    shares = (
        load.mean_tokens_per_s / (0.5 * min(10 * each, held)), load.peak_tokens_per_s / (0.9 * 14 * each),
    )  # fmt: skip
    assert max(shares) == pytest.approx(1.0, rel=0.1)  # copies draw their own lengths
    assert "by mean" in rate.rule and "by peak" in rate.rule


def test_a_recorded_window_has_one_factor_for_all_seeds() -> None:
    try:
        find_trace("azure_code")
    except TraceError:
        pytest.skip("the Azure traces are not here: set SERVETWIN_TRACES to their folder")
    assert rate_of(set_ups.AZURE_CODE_8B, 3) is rate_of(set_ups.AZURE_CODE_8B, 0)
    assert drawn_rate(set_ups.AZURE_CODE_8B, 3).words == drawn_rate(set_ups.AZURE_CODE_8B, 0).words
    assert rate_of(DRAWN, 3).words != rate_of(DRAWN, 0).words


def test_a_peak_may_bind() -> None:
    few = SetUp("few", DRAWN.words, DRAWN.trace, full=DRAWN.full, prefill=(1, 2), decode=(1, 2))
    assert rate_of(few, 3).words != rate_of(DRAWN, 3).words


def test_static_systems_have_the_full_split_and_elastic_ones_their_limits() -> None:
    static, elastic = set_ups.case_of(DRAWN, "distserve_full"), set_ups.case_of(DRAWN, BLITZ)
    assert {"system.instances.prefill=10", "system.instances.decode=6"} <= set(static.words)
    assert {"system.instances.prefill_min=2", "system.instances.decode_max=14"} <= set(elastic.words)
    half = set_ups.case_of(set_ups.AZURE_CONV_24B_16, "distserve_half")  # of 5P+3D
    assert {"system.instances.prefill=2", "system.instances.decode=2"} <= set(half.words)


def test_set_ups_fit_their_clusters_and_no_two_systems_are_the_same() -> None:
    for set_up in set_ups.workloads():
        gpus = load_config((*set_up.words, NOWHERE), "simulate").cluster.gpus
        tp = load_config((*set_up.words, NOWHERE), "simulate").model.tp
        assert sum(set_up.full) * tp == gpus
        assert set_up.prefill[1] < gpus // tp and set_up.decode[1] < gpus // tp
        cases = set_ups.all_systems(set_up)
        words = [case.all_words() for case in cases.values()]
        assert len(set(words)) == len(words)
        alone = load_config(cases["serverlessllm logical hosts"].all_words(NOWHERE), "simulate").cluster
        assert (alone.gpus, load_cluster(alone.name).hosts) == (gpus, gpus // tp)


def test_a_word_of_a_case_goes_before_that_of_its_set_up() -> None:
    own = Case("own", DRAWN, ("system=vllm", "cluster=blitz_a", "trace.duration_s=9"))
    words = own.all_words("seed=4", "trace.duration_s=8")
    assert {"cluster=blitz_a", "trace.duration_s=9", "seed=4", "trace=burstgpt_like"} <= set(words)
    assert len({word.partition("=")[0] for word in words}) == len(words)


def test_serverless_readings_differ_in_life_hosts_and_scaler_alone() -> None:
    shipped, text, fetched, logical, plain = (
        set(one.all_words()) for one in set_ups.serverless(set_ups.AZURE_CODE_8B)
    )
    assert text - shipped == {"system.cache.ttl_s=300"} and fetched - shipped == {"system.cache.since=fetch"}
    assert logical - shipped == {"cluster=blitz_b_16x1"}
    assert plain - shipped == {"system/scaler=load_monitor_plain"} and shipped < plain


def test_many_models_have_the_load_they_are_told() -> None:
    (half,), (quarter,) = (rate_of(set_ups.many_models_at(share), 0).words for share in (0.5, 0.25))
    rates = [float(word.removeprefix("models.rate_per_s=")) for word in (half, quarter)]
    assert rates[0] == pytest.approx(2 * rates[1], rel=1e-4)


def test_a_recorded_burstgpt_is_taken_before_the_drawn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVETWIN_TRACES", str(tmp_path))
    assert set_ups.burstgpt()[0] == ("trace=burstgpt_like",)
    (tmp_path / "BurstGPT_1.csv").write_text("Timestamp\n")
    assert set_ups.burstgpt()[0][0] == "trace=burstgpt_1"


def test_what_this_version_lacks_is_named() -> None:
    assert lacking(("system=vllm", "cluster=blitz_a_2x8", "engine.kv_tokens=5", "trace=azure_conv")) == ""
    assert lacking(("system=nobody", "model=llama3_8b")) == "this version has no system=nobody"
    assert lacking(("somewhere/else=zipf",)) == "this version has no somewhere/else=zipf"


# What decode instances keep memory for.


def arrivals(reserve: str) -> tuple[list[tuple[Request, int]], list[str]]:
    words = (
        "trace=azure_conv_like",
        "trace.requests=300",
        "engine.max_new_tokens=400",
        f"engine.reserve={reserve}",
    )
    config = load_config((*DRAWN.words, *words, NOWHERE), "simulate")
    prepared = prepare(config)
    found = config, prepared.workload, prepared.limits
    return list(arrivals_of(*found)), expected_labels(*found)


def test_an_oracle_tells_every_length_and_the_mean_none() -> None:
    told, oracle, mean = arrivals("max_new_tokens"), arrivals("oracle"), arrivals("mean")
    outputs = [min(true, 400) for _, true in told[0]]
    assert any(true > 400 for _, true in told[0])
    assert {(one.max_new_tokens, one.reserved_tokens) for one, _ in told[0]} == {(400, 0)}
    assert [one.max_new_tokens for one, _ in oracle[0]] == outputs
    assert {one.reserved_tokens for one, _ in oracle[0]} == {0}
    average = math.ceil(sum(outputs) / len(outputs))
    assert {(one.max_new_tokens, one.reserved_tokens) for one, _ in mean[0]} == {(400, average)}
    assert (
        told[1] == [] and "true output length" in oracle[1][0] and f" {average} output tokens" in mean[1][0]
    )
    assert [true for _, true in oracle[0]] == [true for _, true in mean[0]] == [true for _, true in told[0]]


@pytest.mark.parametrize(("reserved", "needed"), [(0, 150), (7, 107), (1, 101), (10_000, 1000)])
def test_room_is_kept_for_what_is_reserved(reserved: int, needed: int) -> None:
    hand_overs = HandOvers({}, {}, HandOverRules(KvBytes(1), 1000), TransferIds())
    request = Request(0, 0, 100, 50, "m", reserved_tokens=reserved)
    assert hand_overs.need_tokens(request, 1000) == needed


def test_a_reserve_is_in_the_journal_only_when_there_is_one() -> None:
    for reserved, text in ((0, '["arrived",1,2,3,4,"m",5]'), (6, '["arrived",1,2,3,4,"m",5,6]')):
        event = Arrived(Request(1, 2, 3, 4, "m", 5, reserved))
        assert event_text(event) == text
        assert parse_event(json.loads(text)) == event
    with pytest.raises(ValueError, match="reserve of nothing"):
        parse_event(["arrived", 1, 2, 3, 4, "m", 5, 0])


@pytest.mark.parametrize("reserve", ["oracle", "mean"])
def test_a_reserve_is_a_label_of_the_run_and_replays(reserve: str, tmp_path: Path) -> None:
    out = tmp_path / reserve
    words = [
        "simulate",
        "system=blitz_multicast",
        "cluster=blitz_b",
        "trace=azure_conv_like",
        "trace.requests=80",
    ]
    assert run([*words, f"engine.reserve={reserve}", "journal=true", f"out={out}"]) == 0
    labels = json.loads((out / "summary.json").read_text())["trace"]["labels"]
    assert [label for label in labels if label.startswith(f"reserve={reserve}: ")] == labels[-1:]
    assert run(["replay", str(out)]) == 0


# Runs.


def test_a_seed_gives_every_system_the_same_arrivals() -> None:
    fast, slow, other = run_once(FAST, 0), run_once(SLOW, 0), run_once(FAST, 1)
    assert fast.arrival_s.tolist() == slow.arrival_s.tolist() != other.arrival_s.tolist()
    assert fast.at("ttft_ms.mean") < slow.at("ttft_ms.mean")  # type: ignore[operator]
    assert command_of(fast).startswith("servetwin simulate model=llama3_8b")


def test_an_elastic_system_that_did_not_scale_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.common import runs

    without = Simulated(summary={}, columns={}, wall_s=0.0, cpu_s=0.0, events=0)
    monkeypatch.setattr(runs, "execute", lambda prepared: without)
    with pytest.raises(AssertionError, match="static system"):
        run_once(set_ups.case_of(DRAWN, BLITZ), 0)


def test_processes_change_nothing_and_a_case_runs_once() -> None:
    unknown = Case("unknown", DRAWN, ("system=nobody",))
    told: list[tuple[int, int]] = []
    alone = carry_out(
        [FAST, SLOW, FAST, unknown],
        2,
        processes=1,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert alone.missing == {unknown: "this version has no system=nobody"}
    assert alone.why_not(FAST, unknown) == alone.missing[unknown] and not alone.why_not(FAST, SLOW)
    shared = carry_out([FAST, SLOW], 2)
    for case in (FAST, SLOW):
        for one, other in zip(alone.of(case), shared.of(case), strict=True):
            assert one.ttft_ms.tolist() == other.ttft_ms.tolist()
    row = ratio_row(alone, "slow over fast", times(2.0), MEAN_TTFT, ours=SLOW, other=FAST)
    logs = [
        math.log(one.ttft_ms.mean() / other.ttft_ms.mean())
        for one, other in zip(alone.of(SLOW), alone.of(FAST), strict=True)
    ]
    assert row.ratio == pytest.approx(math.exp(sum(logs) / 2) / 2.0) and row.stand_in == "drawn"
    assert "mean TTFT" in row.why and "GPU time" in row.why
    lacks = ratio_row(alone, "a", times(2.0), MISS_RATE, ours=SLOW, other=FAST)
    assert (lacks.verdict, lacks.ratio) == ("not comparable", None) and "cache.misses" in lacks.why


def test_an_optional_case_tells_its_refusal() -> None:
    wrong = Case("wrong", DRAWN, ("system=vllm", "engine.max_num_seqs=0"), optional=True)
    outcomes = carry_out([wrong], 1, processes=1)
    assert outcomes.missing[wrong].startswith("refused: engine.max_num_seqs=0")
    row = ratio_row(outcomes, "a", times(2.0), MEAN_TTFT, ours=wrong, other=wrong)
    assert (row.verdict, row.why) == ("not comparable", outcomes.missing[wrong])


def test_a_point_of_a_sweep_is_run_once() -> None:
    point = Case("slow", DRAWN, (*SLOW.words, "engine.block_tokens=32"), once=True)
    sweep = SetUpSweep("block", "drawn", "tokens of a block", (("32", (point,)),))
    outcomes = carry_out([SLOW], 2, processes=1, sweeps=(sweep,))
    assert [len(outcomes.of(one)) for one in (SLOW, point)] == [2, 1]
    assert outcomes.sweeps == (sweep,)


def test_a_case_may_have_links_of_its_own() -> None:
    drawn = set_ups.case_of(DRAWN, "serverlessllm", "far", ("system.provision.tiers=[ssd]",))
    found = []
    for gbps in (10, 40):
        links = f"base: blitz_b\nssd: {{gbps: {gbps}, per: gpu, source: test}}\n"
        one = run_once(replace(drawn, links=links), 0)
        found.append(LOAD_TIME.of([one]))
        assert command_of(one, replace(drawn, links=links)).endswith(
            "# over the links of clusters/drawn-far.yaml"
        )
        assert "cluster=blitz_b" in one.words
    assert found[0] and found[1] and found[0][0] > 3 * found[1][0] > 9.0  # 16 GB are 12.8 and 3.2 s


def test_a_refusal_comes_before_the_first_run() -> None:
    wrong = Case("wrong", DRAWN, ("system=vllm", "engine.max_num_seqs=0"))
    with pytest.raises(UserError, match=r"drawn, wrong: engine\.max_num_seqs=0"):
        carry_out(
            [FAST, wrong], 1, processes=1, on_progress=lambda done, total: pytest.fail("a run was made")
        )


# What is written and printed.


def test_json_has_every_row_and_no_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    kept = (("seed", "s"),)
    rows = (
        FigureRow(
            name="a",
            paper="b",
            ours="c",
            ratio=math.inf,
            verdict="out",
            why="12 s",
            saved=kept,
            kind="paper_number",
        ),
        FigureRow(name="d", paper="e", ours="f", ratio=1.0, verdict="in band", stand_in="g", why=""),
    )
    figure = Figure(
        "fig", "Figure", rows, inputs=("made up",), levels=({"set-up": "s", "system": "x", "GPU s": ""},)
    )
    data = json.loads(as_json(figure, "servetwin reproduce", None, ["servetwin simulate"]))
    assert (data["figure"], data["command"], data["commit"]) == ("fig", "servetwin reproduce", None)
    assert data["rows"][0] == {
        "name": "a", "paper": "b", "ours": "c", "ratio": None, "verdict": "out", "stand_in": "",
        "why": "12 s", "saved": [["seed", "s"]], "kind": "paper_number", "judged": None,
    }  # fmt: skip
    none = dict.fromkeys(get_args(Verdict), 0)
    assert data["counts"] == {
        "paper_number": none | {"out": 1}, "paper_direction": none, "own_analysis": none | {"in band": 1},
    }  # fmt: skip
    print_figure(figure)
    text = capsys.readouterr().out
    assert "a: 12 s" in text and "made up" in text and "in band" in text


def test_the_command_writes_json_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "blitzscale", "fig21", f"out={tmp_path / 'out'}"]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "four NICs" in text and "verdict" in text
    numbers = "15 held against a number of the paper: 9 in band, 6 out, 0 not shown, 0 not comparable"
    assert text.startswith(f"15 rows\n  {numbers}\n  0 held against its words")
    assert "6 are out or not shown: 6 of them name a sweep beside their seeds" in text
    page = (tmp_path / "out" / "page.md").read_text()
    assert page.startswith(f"**15 rows**\n\n* **{numbers}**\n")
    assert "(`fig21`) | 9 / 6 / 0 / 0 |  |  | 15 |" in page
    assert page.count("saved in sweeps.json: efficiency") == 6
    assert "\\|M\\|/B is 1.920 s" in page  # a bar would end the cell
    saved = json.loads((tmp_path / "out" / "sweeps.json").read_text())
    assert saved["efficiency"]["Figure 21"]["points"]["two NICs, 1.0"]["closed_s"] == pytest.approx(1.92)
    data = json.loads((tmp_path / "out" / "fig21.json").read_text())
    assert data["command"] == " ".join(["servetwin", *words])
    assert len(data["rows"]) == 15 and data["runs"] == []
    assert (tmp_path / "out" / "fig21.png").read_bytes().startswith(b"\x89PNG")
    assert run(words) == 2
    assert "overwrite=true" in capsys.readouterr().err
    assert run([*words, "overwrite=true"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["blitzscale"], "lacks a figure"),
        (["blitzscale", "fig21"], "out is missing"),
        (["blitzscale", "fig99", "out=x"], "no figure 'fig99'"),
        (["blitzscale", "fig21", "out=x", "seeds=0"], "seeds=0 is out of range"),
        (["blitzscale", "fig21", "out=x", "seeds=many"], "seeds wants an integer"),
        (["blitzscale", "fig21", "out=x", "seed=1"], "write seeds=VALUE"),
        (["blitzscle", "fig21", "out=x"], "servetwin reproduce blitzscale"),
    ],
)
def test_refusals_are_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_list_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(["reproduce"]), run(["reproduce", "--help"]), run(["reproduce", "blitzscale", "list"])) == (
        2, 0, 0,
    )  # fmt: skip
    text = capsys.readouterr().out
    assert all(f"\n{name} " in text for name in BLITZSCALE) and "processes=2" in text
    assert chosen("blitzscale", BLITZSCALE, ["fig8", "all"]) == BLITZSCALE
    assert list(chosen("blitzscale", BLITZSCALE, ["fig8", "fig21", "fig8"])) == ["fig8", "fig21"]
