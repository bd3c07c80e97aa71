"""``servetwin plan`` against runs of every size, and what it refuses."""

import json
from pathlib import Path

import pytest

import servetwin as st
from servetwin.cli import main as cli
from servetwin.planning.answer import plan
from servetwin.planning.layout import layout_of
from servetwin.planning.plan_words import plan_words
from servetwin.planning.prices import prices_in
from servetwin.sweeps.outcome import outcome_of
from serving.vocabulary.errors import UserError

TRACE = ("trace=azure_conv_like", "trace.requests=200", "trace.rate_per_s=40")
ONE = ("gpu=a100", "model.tp=1", "slo.ttft_p99_ms=800", "processes=1", "headroom=false")


def test_the_answer_is_that_of_trying_every_size() -> None:
    found = plan(plan_words([*TRACE, *ONE, "max_gpus=12"]))
    every = {
        gpus: outcome_of((*TRACE, f"cluster=a100_x{gpus}", "uncertainty=off")).numbers["ttft_ms.p99"]
        for gpus in range(1, 13)
    }
    least = min(gpus for gpus, p99 in every.items() if p99 <= 800)
    assert every[1] > 800 > every[12], "else nothing is searched"
    assert found.ends.mid == least
    assert found.ranked[0].search.outcome is not None
    assert found.ranked[0].search.outcome.numbers["ttft_ms.p99"] == every[least]
    assert len(found.ranked[0].search.tried) < 12


def test_the_ends_enclose_the_answer() -> None:
    """On the datasheet's step times, 40 % off: where the ends are near, chance decides as much as they do."""
    found = plan(plan_words([*TRACE, *ONE, "max_gpus=24", "engine.step_time=roofline"]))
    assert found.ends.low <= found.ends.mid <= found.ends.high
    assert found.ends.flips


def test_layouts_are_ranked_and_what_does_not_run_is_told() -> None:
    words = [*TRACE, "model=llama3_70b", "gpu=h100", "slo.tpot_p99_ms=80", "slo.ttft_p99_ms=900"]
    found = plan(plan_words([*words, "processes=1", "headroom=false", "max_gpus=64"]))
    gpus = [one.search.gpus for one in found.ranked]
    assert gpus == sorted(gpus, key=lambda many: many or 0)
    why = {one.search.layout.tp: one.search.refused for one in found.unable}
    assert "does not fit into 1 x h100" in why[1]


def test_the_cheapest_is_by_money_and_not_by_gpus() -> None:
    words = [*TRACE, "gpu=a100,h100", "model.tp=1", "slo.ttft_p99_ms=800", "find=cheapest", "processes=1"]
    dear = plan(plan_words([*words, "price.a100=1", "price.h100=100", "headroom=false"]))
    cheap = plan(plan_words([*words, "price.a100=100", "price.h100=1", "headroom=false"]))
    assert dear.ranked[0].search.layout.hardware == "a100"
    assert cheap.ranked[0].search.layout.hardware == "h100"
    best = cheap.ranked[0]
    assert best.cost == pytest.approx(best.search.gpus)


def test_the_highest_rate_just_meets_the_objective() -> None:
    found = plan(plan_words([*TRACE, *ONE, "find=rate", "gpus=4"]))
    factor = found.ends.mid
    words = (*TRACE, "cluster=a100_x4", "uncertainty=off")
    at = outcome_of((*words, f"trace.rate_scale={factor:.6g}")).numbers["ttft_ms.p99"]
    assert at <= 800
    assert found.rate_per_s == pytest.approx(40, rel=0.2)
    assert found.ends.high <= factor <= found.ends.low


def test_headroom_and_the_busiest_stretch_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TRACE, *ONE[:-1], "window_s=1", "max_gpus=12"]
    assert cli.run(["plan", *words]) == 0
    shown = capsys.readouterr().out
    assert "head-room: the rate may grow" in shown
    assert "busiest 1 s:" in shown


def test_many_layouts_are_halved_and_the_best_stays() -> None:
    layouts = "engine.max_num_seqs=1,2,4,8,64,128"
    words = [*TRACE, *ONE, layouts, "max_gpus=32"]
    halved, whole = plan(plan_words(words)), plan(plan_words([*words, "halving=false"]))
    assert halved.ends.mid == whole.ends.mid
    assert any("dropped after the first 25 requests" in one.dropped for one in halved.unable)


def test_split_shares_become_instances_by_role() -> None:
    layout = layout_of(hardware="blitz_a", tp=1, pp=1, words=("system=distserve_full",), split=0.25)
    assert layout.words_of(16) == (
        "cluster=blitz_a_2x8", "model.tp=1", "system.instances.prefill=4", "system.instances.decode=12",
        "system=distserve_full",
    )  # fmt: skip
    assert layout.sizes(24) == [8, 16, 24]


def test_the_folder_holds_the_answer_and_a_page(tmp_path: Path) -> None:
    assert cli.run(["plan", *TRACE, *ONE, "max_gpus=12", f"out={tmp_path / 'p'}"]) == 0
    data = json.loads((tmp_path / "p" / "plan.json").read_text())
    page = (tmp_path / "p" / "report.html").read_text()
    assert data["answer"] == data["ranked"][0]["gpus"]
    assert f"{data['answer']} GPUs (a100, tp 1)" in page
    assert "<svg" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_what_nothing_meets_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", *TRACE, "gpu=a100", "model.tp=1", "slo.ttft_p99_ms=0.1", "max_gpus=2"]) == 1
    assert "No layout meets TTFT P99 at most 0.100 ms with up to 2 GPUs." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpu=a100",), "a plan needs an objective"),
        (("slo.ttft_p99_ms=-1",), "is out of range"),
        (("slo.attainment=1.5",), "is out of range"),
        (("slo.ttft_p99_ms=500", "find=cheapest"), "needs prices"),
        (("slo.ttft_p99_ms=500", "find=rate"), "write gpus=8"),
        (("slo.ttft_p99_ms=500", "cluster=a100_x8"), "write gpu=a100\n"),
        (("slo.ttft_p99_ms=500", "cluster=blitz_a_2x8"), "write gpu=blitz_a\n"),
        (("slo.ttft_p99_ms=500", "cluster=blitz_a_2x4"), "write gpu=blitz_a_1x4\n"),
        (("slo.ttft_p99_ms=500", "gpu=a100", "split=0.5"), "write system=distserve_full"),
        (("slo.ttft_p99_ms=500", "gpu=h100", "system=distserve_full"), "such as gpu=blitz_a or"),
        (("slo.ttft_p99_ms=500", "gpu=abacus"), "gpu=abacus is unknown"),
        (("slo.ttft_p99_ms=500", "trace.utilization=0.5"), "follows the cluster"),
        (("slo.ttft_p99_ms=500", "max_gpus=0"), "max_gpus=0 is out of range"),
        (("slo.ttft_p99_ms=500", "price.h100=free"), "price.h100=free is wrong"),
        (("slo.ttft_p99_ms=500", "split=2"), "split a share"),
        (("slo.ttft_p99_ms=500", "seed=0,1"), "a plan runs one seed"),
        (
            ("slo.ttft_p98_ms=500",),
            "slo.ttft_p98_ms is no objective of a plan: write slo.METRIC_STATISTIC_ms=500 with",
        ),
        (("slo.ttft_p99=500",), "write slo.ttft_p99_ms=500 if that is meant"),
        (("slo.p99_ttft_ms=500",), "write slo.ttft_p99_ms=500 if that is meant"),
        (("ttft_p99_ms=500",), "write slo.ttft_p99_ms=500 if that is meant"),
        (("slo.ttft_ms=500",), "add slo.attainment=0.99"),
        (("slo.ttft_p99_ms=500", "gpu=H100-PCIe"), "write gpu=h100 if that is meant"),
        (("slo.ttft_p99_ms=500", "gpu=h100_x8"), "write gpu=h100 if that is meant"),
        (("slo.ttft_p99_ms=500", "cluster=h100x8"), "write gpu=h100\n"),
        (("slo.ttft_p99_ms=500", "seed=0-7"), "seed wants an integer"),
        (("slo.ttft_p99_ms=500", "max_gpu=4"), "write max_gpus=VALUE"),
        (("slo.ttft_p99_ms=500", "model=nothing"), "unknown option model=nothing"),
    ],
)
def test_wrong_words_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", *TRACE, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_trace_that_is_not_here_is_told_as_the_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SERVETWIN_TRACES", raising=False)
    monkeypatch.delenv("SERVETWIN_PROFILES", raising=False)
    monkeypatch.chdir(tmp_path)
    assert cli.run(["plan", "trace=azure_conv", "gpu=a100", "slo.ttft_p99_ms=500"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("servetwin: Azure") and "servetwin traces fetch azure_conv" in said


def test_prices_have_a_source_and_a_date(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("h100: {per_gpu_hour: 2.5, source: my contract, date: 2026-11-01}\n")
    assert str(prices_in(file)["h100"]) == "2.5 per GPU-hour (my contract, 2026-11-01)"
    file.write_text("h100: {per_gpu_hour: 2.5}\n")
    with pytest.raises(UserError, match="lacks per_gpu_hour, source or date"):
        prices_in(file)


def test_a_split_is_of_systems_with_roles_alone() -> None:
    words = ("gpu=blitz_a", "model.tp=1,2", "system=vllm_full,distserve_full", "split=0.25,0.5")
    layouts = plan_words([*TRACE, *words, "slo.ttft_p99_ms=800"]).layouts
    shares = [(one.tp, one.words[0].removeprefix("system="), one.split) for one in layouts]
    assert shares == [
        (tp, *rest) for tp in (1, 2)
        for rest in (("vllm_full", 0.0), ("distserve_full", 0.25), ("distserve_full", 0.5))
    ]  # fmt: skip
    fixed = plan_words(
        [*TRACE, *words[:2], "system=vllm_full,blitzscale", "split=0.5", "slo.ttft_p99_ms=800"]
    )
    assert [one.split for one in fixed.layouts] == [0.0, 0.5, 0.0, 0.5]


def test_one_host_that_holds_one_instance_is_no_size_of_a_system_with_two_roles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "gpu=dgx_h100", "model=llama3_70b", "model.tp=8", "system=distserve_full", "trace=azure_conv_like",
        "trace.requests=40", "trace.rate_per_s=10", "slo.ttft_p99_ms=800", "headroom=false", "max_gpus=32",
        "window_s=1", "processes=1",
    ]  # fmt: skip
    found = plan(plan_words(words))
    assert found.ends.mid == 16
    assert found.busiest is not None
    assert min(found.ranked[0].search.tried) == 16, "8 GPUs are no size"
    rate = plan(plan_words([*words[:-3], "find=rate", "gpus=16", "processes=1"]))
    assert rate.rate_per_s == pytest.approx(10, rel=0.5)


@pytest.mark.parametrize("find", [(), ("find=rate", "gpus=4")])
def test_if_no_layout_runs_each_says_why(find: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpu=rtx4090,a10", "model=llama2_70b", "model.tp=1,4", "trace=poisson", "trace.requests=20")
    assert cli.run(["plan", *words, "trace.rate_per_s=1", "slo.ttft_p99_ms=900", *find]) == 2
    *reasons, sentence = capsys.readouterr().err.strip().splitlines()
    shown = [line for line in reasons if " of weights) does not fit into " in line]
    layouts = ["rtx4090, tp 1", "rtx4090, tp 4", "a10, tp 1", "a10, tp 4"]
    assert [line.strip().partition(":")[0] for line in shown] == layouts
    assert sentence.startswith("servetwin: no layout runs, for the reasons above: write another gpu=")


def test_one_reason_of_all_layouts_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpu=a10", "model=deepseek_v2_lite", "model.tp=2,4", "engine.step_time=aiconfigurator",
             "trace=poisson", "trace.requests=20")  # fmt: skip
    assert cli.run(["plan", *words, "trace.rate_per_s=1", "slo.ttft_p99_ms=900"]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no layout runs (a10, tp 2; a10, tp 4): aiconfigurator-core has no tables for a10" in told
    with pytest.raises(UserError, match=r"a10, tp 2: .*; a10, tp 4: "):
        st.plan(*words, "trace.rate_per_s=1", "slo.ttft_p99_ms=900")


def test_layouts_that_do_not_run_are_listed_beside_the_highest_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("gpu=rtx4090", "model=llama2_70b", "trace=poisson", "trace.requests=10", "find=rate", "gpus=8")
    assert cli.run(["plan", *words, "trace.rate_per_s=0.1", "slo.ttft_p99_ms=9000"]) == 0
    told = capsys.readouterr().out
    assert "rtx4090, tp 1: llama2_70b (138.0 GB of weights) does not fit into 1 x rtx4090" in told
