"""servetwin reproduce llumnix: points, verdicts with the figures' own bounds, tiny runs."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.common.outcomes import Outcomes, RunOutcome
from experiments.common.run_store import RunStore
from experiments.common.runs import lacking, run_once
from experiments.llumnix import fig05, fig10, fig11, fig13, fig14, fig15
from experiments.llumnix.fig16 import Central, TwoLevel
from experiments.llumnix.judge import CurvePoint, PointJudge, cases_of
from experiments.llumnix.points import COLUMNS, FILE, VARIABLE, Points, read_points
from experiments.llumnix.registry import FIGURES, recipes
from experiments.llumnix.set_ups import BY_TITLE, PAPER_REQUESTS, WORKLOADS, system
from experiments.llumnix.sweeps import sweeps_of
from servetwin.cli.main import run
from serving.engine.fleet import FleetView
from serving.vocabulary.errors import UserError
from serving.vocabulary.request import Request
from tests.worlds.refusals import refuses

M_M = BY_TITLE["M-M"]


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Writes a file of points and names its folder."""

    def write(*lines: str) -> Path:
        (tmp_path / FILE).write_text("\n".join((",".join(COLUMNS), *lines)) + "\n")
        monkeypatch.setenv(VARIABLE, str(tmp_path))
        return tmp_path

    return write


# Points.


def test_points_are_found_by_all_their_names(figures) -> None:  # type: ignore[no-untyped-def]
    figures("figure11,M-M,request_mean_s,llumnix,7.4,13.73", "figure11,M-M,request_mean_s,llumnix,7.5,14.05")
    points = read_points()
    assert points.at("figure11", "M-M", "request_mean_s", "llumnix", 7.5) == 14.05
    assert points.at("figure11", "M-M", "request_mean_s", "llumnix", 7.6) is None
    assert points.source.startswith("2 points")


def test_without_a_folder_ours_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    points = read_points()
    assert not points.values and "ours stand alone" in points.source


def test_what_is_wrong_with_points_is_named(figures, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    folder = figures("figure11,M-M,request_mean_s,llumnix,7.4,fast")
    refuses(UserError, r"line 2: x and y must be numbers, not 7\.4 and fast", read_points)
    (folder / FILE).write_text("x,y\n1,2\n")
    refuses(UserError, "its first line must be figure,panel", read_points)
    monkeypatch.setenv(VARIABLE, str(folder / "nowhere"))
    refuses(UserError, f"{VARIABLE} names a folder without a readable {FILE}", read_points)


# Verdicts.


def outcome(request_s: float, prefill_s: float) -> RunOutcome:
    summary = {"e2e_ms": {"mean": request_s * 1e3}, "ttft_ms": {"p99": prefill_s * 1e3}}
    return RunOutcome(
        words=(), summary=summary, arrival_s=np.zeros(1), ttft_ms=np.zeros(1), tpot_ms=np.zeros(1), inputs=""
    )


def judge(
    requests: int, *, request_s: float = 15.0, prefill_s: float = 3.0
) -> tuple[PointJudge, CurvePoint, CurvePoint]:
    """Two seeds of both systems at 7.5/s; the baseline's prefill takes 30 s. Points: 14 s, 4 and 32 s."""
    set_up = M_M.at(7.5, requests)
    ours, base = (CurvePoint("M-M", one, 7.5, system(one, set_up, M_M)) for one in ("llumnix", "infaas_pp"))
    found = {ours.case: (outcome(request_s, prefill_s),) * 2, base.case: (outcome(20.0, 30.0),) * 2}
    key = ("figure11", "M-M")
    points = {
        (*key, "request_mean_s", "llumnix", 7.5): 14.0,
        (*key, "prefill_p99_s", "llumnix", 7.5): 4.0,
        (*key, "prefill_p99_s", "infaas_pp", 7.5): 32.0,
    }
    return PointJudge(Outcomes(found, {}, requests=requests), Points("", points)), ours, base


@pytest.mark.parametrize(
    ("request_s", "verdict"), [(17.4, "in band"), (17.6, "out"), (11.3, "in band"), (11.1, "out")]
)
def test_a_size_has_the_bound_of_its_figure(request_s: float, verdict: str) -> None:
    held, ours, _ = judge(PAPER_REQUESTS, request_s=request_s)
    (row,) = held.value("figure11", "request_mean_s", ours, (0.8, 1.25))
    assert row.verdict == verdict and row.ratio == pytest.approx(request_s / 14.0)
    assert row.kind == "paper_number" and row.saved == (("seed", "M-M at 7.5/s"),)


def test_one_seed_may_miss_too() -> None:
    held, ours, _ = judge(PAPER_REQUESTS, request_s=30.0)
    once = {case: runs[:1] for case, runs in held.outcomes.runs.items()}
    (row,) = replace(held, outcomes=Outcomes(once, {})).value("figure11", "request_mean_s", ours, (0.8, 1.25))
    assert (row.verdict, row.ours) == ("out", "30.0 s") and "seed 0 30.0" in row.why


def test_a_ratio_is_held_against_the_ratio_of_the_points() -> None:
    held, ours, base = judge(PAPER_REQUESTS)
    (row,) = held.ratio("figure11", "prefill_p99_s", base, ours, 1.5)
    assert row.verdict == "in band" and row.ratio == pytest.approx(10.0 / 8.0)
    held, ours, base = judge(PAPER_REQUESTS, prefill_s=30.0)
    (row,) = held.ratio("figure11", "prefill_p99_s", base, ours, 1.5)
    assert row.verdict == "out" and row.ratio == pytest.approx(1.0 / 8.0)


def test_without_a_point_there_is_no_row() -> None:
    held, _, base = judge(PAPER_REQUESTS)
    assert held.value("figure11", "request_mean_s", base, (0.8, 1.25)) == []


def test_fewer_requests_than_the_papers_claim_nothing() -> None:
    held, ours, base = judge(PAPER_REQUESTS - 1)
    rows = (
        *held.value("figure11", "request_mean_s", ours, (0.8, 1.25)),
        *held.ratio("figure11", "prefill_p99_s", base, ours, 1.5),
    )
    assert {row.verdict for row in (*rows, held.order("request_mean_s", [ours, base]))} == {"not comparable"}
    assert all("9,999 requests" in row.why for row in rows)


# Set-ups.


def test_every_case_is_one_of_this_version() -> None:
    cases = [one for recipe in recipes(Points("")).values() for one in recipe.cases(50)]
    sweeps = sweeps_of(cases_of(fig11.curves)(50))
    words = {one.all_words() for one in (*cases, *(one for sweep in sweeps for one in sweep.cases()))}
    assert [lacks for one in words if (lacks := lacking(one))] == []


def test_figure_11_has_seven_workloads_at_five_rates_and_round_robin_for_two() -> None:
    curves = fig11.curves(PAPER_REQUESTS)
    assert len({(one.panel, one.x) for one in curves}) == 35
    assert {one.panel for one in curves if one.system == "round_robin"} == {"ShareGPT", "BurstGPT"}
    outs = {one.title: one.migrate_out for one in WORKLOADS}
    assert {title for title, out in outs.items() if out == 10} == {"M-M", "S-L"} and outs["L-L"] == 3


def test_a_sweep_changes_who_migrates_alone() -> None:
    set_up = M_M.at(7.5, 50)
    sweeps = {
        one.kind: one for one in sweeps_of([system(one, set_up, M_M) for one in ("llumnix", "infaas_pp")])
    }
    for _, (ours, base) in sweeps["migrate-out threshold"].points:
        assert any(word.startswith("system.migration.migrate_out") for word in ours.all_words())
        assert not any(word.startswith("system.migration") for word in base.all_words())


# Runs.


def test_a_request_of_figure_10_stops_for_less_than_a_step() -> None:
    """Printed: 13 ms down, 68 ms of blocking copy; one decode step takes 46.8 ms."""
    live, copied = (
        run_once(fig10.migration_case("LLaMA-7B", mode, 256), 0) for mode in ("live", "stop_and_copy")
    )
    down_ms, step_ms = fig10.DOWN.read(live), fig10.STEP.read(live)
    assert down_ms is not None and step_ms is not None and down_ms < step_ms
    assert down_ms == pytest.approx(13.0, abs=7.0)
    assert fig10.DOWN.read(copied) == pytest.approx(68.0, rel=0.25)


def test_a_kept_run_has_its_columns(tmp_path: Path) -> None:
    (case,) = recipes(Points(""))["fig3"].cases(30)
    made = run_once(case, 0)
    store = RunStore(tmp_path)
    store.keep(case, 0, made)
    found = store.load(case, 0)
    assert found is not None and found.columns.keys() == made.columns.keys() == set(case.columns)
    assert all(
        found.columns[name].tolist() == made.columns[name].tolist()
        for name in ("preemptions", "output_tokens")
    )


def test_figures_go_through_the_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv(VARIABLE, raising=False)
    out = tmp_path / "made"
    words = [
        "reproduce",
        "llumnix",
        "fig3",
        "fig4",
        "requests=40",
        "seeds=2",
        "processes=1",
        "sweeps=false",
        f"out={out}",
    ]
    assert run(words) == 0
    assert "1 in band, 1 out, 0 not shown, 5 not comparable" in (out / "page.md").read_text()
    runs = list(csv.DictReader((out / "runs.csv").open()))
    assert [(one["set_up"], one["system"], one["seed"]) for one in runs] == [
        ("M-M at 0.42/s", "round_robin", seed) for seed in ("0", "1")
    ]
    assert all("trace.requests=40" in one["command"] and float(one["e2e_ms_mean"]) > 0 for one in runs)
    rows = json.loads((out / "fig3.json").read_text())["rows"]
    assert {row["verdict"] for row in rows} == {"not comparable"}
    points = list(csv.DictReader((out / "points.csv").open()))
    assert {one["figure"] for one in points} == {"fig3", "fig4"}
    assert "data:image/png;base64," in (out / "page.html").read_text()
    assert "http" not in (out / "page.html").read_text().split("<body>")[1].replace("data:", "")


def test_words_of_llumnix_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"out={tmp_path / 'a'}"
    assert run(["reproduce", "blitzscale", "fig21", "requests=5", out]) == 2
    assert "unknown key 'requests' for servetwin reproduce blitzscale" in capsys.readouterr().err
    assert run(["reproduce", "llumnix", "fig99", out]) == 2
    assert "reproduce llumnix has no figure 'fig99': write fig3" in capsys.readouterr().err


def test_there_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "llumnix", "list"]) == 0
    assert capsys.readouterr().out.startswith("fig3 ")
    assert len(FIGURES) == len({about for about, _, _ in FIGURES.values()})


def test_priorities_are_read_apart() -> None:
    """Two requests of high priority and one of normal; one of them lost a second."""
    columns = {
        "priority": np.array([1.0, 1.0, 0.0]),
        "tpot_ms": np.array([100.0, 200.0, np.nan]),
        "preemption_loss_ms": np.array([0.0, 1000.0, 0.0]),
        "output_tokens": np.array([11.0, 11.0, 1.0]),
    }
    classes = [
        {"priority": 1, "e2e_ms": {"mean": 2500.0, "p99": None}},
        {"priority": 0, "e2e_ms": {"mean": 7000.0, "p99": None}},
    ]
    one = RunOutcome(
        words=(),
        summary={"priorities": classes},
        arrival_s=np.zeros(3),
        ttft_ms=np.zeros(3),
        tpot_ms=np.zeros(3),
        inputs="",
        columns=columns,
    )
    high, normal = fig13.METRICS["high"], fig13.METRICS["normal"]
    assert high["request_mean_s"].read(one) == 2.5 and normal["request_mean_s"].read(one) == 7.0
    assert high["request_p99_s"].read(one) is None
    assert high["decode_execution_s"].read(one) == pytest.approx(1.0)  # 1 s, and 2 s less 1 s
    assert normal["decode_execution_s"].read(one) is None


def test_a_run_of_figure_13_has_both_classes() -> None:
    curves = [one for one in fig13.curves(80) if (one.x, one.system) == (2.0, "llumnix")]
    made = run_once(curves[0].case, 0)
    assert "system=llumnix" in made.words and "trace.priority_ratio=0.1" in made.words
    for one in curves:
        assert all(metric.read(made) is not None for metric in one.metrics.values()), one.panel


def test_figures_14_and_15_differ_from_figure_11_in_scaling_alone() -> None:
    """And a set-up has a system once, or sweeps.json would lose one."""
    figures = (fig11.curves(60), fig13.curves(60), fig14.curves(60), fig15.curves(60))
    cases = list(dict.fromkeys(one.case for curves in figures for one in curves))
    names = [(one.set_up.name, one.label) for one in cases]
    assert len(set(names)) == len(names) == 80 + 8 + 22 + 2 * len(fig15.LOWS)
    words = {
        one.system: one.case.all_words() for one in fig14.curves(60) if (one.panel, one.x) == ("poisson", 2.6)
    }
    ours, base = (set(words[name]) for name in ("llumnix", "infaas_pp"))
    assert ours - base == {"system=llumnix_base_autoscaled", "system.migration.migrate_out_threshold=3"}
    assert base - ours == {"system=infaas_pp_autoscaled"}
    assert all("trace.gap_cv=2" in one.case.set_up.trace for one in fig15.curves(60))


def test_a_run_of_figure_14_has_instances_that_come() -> None:
    one = next(one for one in fig14.curves(60) if (one.panel, one.x) == ("poisson", 3.0))
    made = run_once(one.case, 0)
    assert 1 <= one.metrics["instances_mean"].read(made) <= 16  # type: ignore[operator]
    assert made.at("requests.finished") == 60


def test_memory_that_is_free_in_all_holds_some_heads() -> None:
    """5 blocks free; heads of 1, 3 and 2 blocks, shortest first; a queue's head is who came first."""
    assert [fig05.fitting(free, [16.0, 17.0, 48.0]) for free in (0.0, 1.0, 3.0, 5.0, 6.0)] == [0, 1, 2, 2, 3]
    columns = {
        "replica": np.array([0.0, 0.0, 1.0, 2.0]),
        "arrival_ns": np.array([2e9, 1e9, 1e9, 1e9]),
        "scheduled_ns": np.array([9e9, 9e9, 9e9, 2e9]),
        "prompt_tokens": np.array([10.0, 500.0, 30.0, 40.0]),
    }
    one = RunOutcome(
        words=(),
        summary={},
        arrival_s=np.zeros(4),
        ttft_ms=np.zeros(4),
        tpot_ms=np.zeros(4),
        inputs="",
        columns=columns,
    )
    assert fig05.heads_tokens(one, 3.0) == [30.0, 500.0] and fig05.heads_tokens(one, 0.5) == []


def test_a_run_with_a_series_tells_used_memory() -> None:
    (case,) = recipes(Points(""))["fig5"].cases(40)
    times_s, shares = run_once(case, 0).timelines["kv_shares"]
    assert times_s.tolist() == list(range(len(times_s))) and 0 < shares.max() < fig05.INSTANCES


# The scheduler of Figure 16.


def test_a_centralised_scheduler_sums_up_what_it_was_told() -> None:
    """After as many steps of each instance as tokens were added; 16 tokens a block."""
    central = Central(instances=2, running=4)
    before = [dict(tokens) for tokens in central._tokens]
    central.run(6)
    for replica, tokens in enumerate(central._tokens):
        assert tokens == {request: length + 3 for request, length in before[replica].items()}
        report = central._view.report(replica)
        assert report is not None
        used = report.total_blocks - report.free_blocks
        assert used == sum(-(-length // 16) for length in tokens.values())


@pytest.mark.parametrize("design", [TwoLevel, Central])
def test_both_designs_decide_as_often(design: type[TwoLevel]) -> None:
    scheduler, asked = design(4, 2), list[int]()
    dispatch = scheduler._dispatch.dispatch

    def counted(request: Request, fleet: FleetView) -> tuple[int, str]:
        asked.append(request.id)
        return dispatch(request, fleet)

    scheduler._dispatch.dispatch = counted  # type: ignore[method-assign]
    scheduler.run(64)
    assert len(asked) == 8
