"""servetwin plot: panels have the numbers of the files; figures have the asked width."""

import csv
import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

import servetwin as st
from servetwin.cli import main as cli
from servetwin.plotting.draw import Looks, draw, width_of
from servetwin.plotting.of_runs import instances, latency, named_run, time
from servetwin.plotting.of_tables import of_reproduction, of_sweeps
from serving.vocabulary.errors import UserError

SMALL = ("trace=azure_conv_like", "trace.requests=80", "trace.rate_per_s=20", "uncertainty=off")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("made")
    assert cli.run(["simulate", *SMALL, "cluster=a100_x2", f"out={at / 'even'}"]) == 0
    assert cli.run(["simulate", *SMALL, "system=blitzscale", "cluster=blitz_b", f"out={at / 'scaled'}"]) == 0
    words = (
        "system=vllm,round_robin",
        "trace.rate_per_s=10,40",
        "seed=0,1",
        "cluster=a100_x2",
        "processes=1",
    )
    assert cli.run(["sweep", *SMALL[:2], *words, f"out={at / 'swept'}"]) == 0
    rows = [
        ("figure", "panel", "metric", "system", "x", "y", "low", "high", "seed_0", "seeds", "paper", "ratio"),
        ("fig1", "S-S", "P99", "ours", 2, 20.0, 19, 21, 20, 3, 22.0, 0.9),
        ("fig1", "S-S", "P99", "ours", 1, 10.0, 9, 11, 10, 3, "", ""),
        ("fig2", "", "mean", "theirs", 1, 5.0, 5, 5, 5, 1, "", ""),
    ]
    (at / "figures").mkdir()
    with (at / "figures" / "points.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    (at / "figures" / "runs.csv").write_text("set_up,system,seed,command\na,ours,0,servetwin simulate\n")
    return at


def test_a_distribution_is_that_of_the_requests(made: Path) -> None:
    panels = latency([named_run(made / "even", "even")], ["ttft_ms"])
    (line,) = panels[0].lines
    values = st.read(made / "even").requests["ttft_ms"]
    for value, share in zip(line.x, line.y, strict=True):
        assert share == pytest.approx((values <= value).mean(), abs=1e-9)
    assert [panel.title for panel in latency([named_run(made / "even", "a")], [])] == ["TTFT", "TPOT", "E2E"]


def test_instances_over_time_have_the_mean_of_the_summary(made: Path) -> None:
    run = named_run(made / "scaled", "scaled")
    (panel,) = instances([run], [])
    means = run.summary["instances"]["mean_by_role"]
    assert {line.label for line in panel.lines} == set(means)
    for line in panel.lines:
        area = sum(np.array(line.y[:-1]) * np.diff(line.x))
        assert area / run.summary["duration_s"] == pytest.approx(means[line.label], rel=1e-6)
    with pytest.raises(UserError, match="started and released no instance"):
        instances([named_run(made / "even", "even")], [])
    two = time([run, run], ["ttft_ms"])[0]
    assert len(two.lines) == 4 and two.lines[0].label == "scaled, P50"


def test_a_sweep_has_its_means_and_intervals(made: Path) -> None:
    (panel,) = of_sweeps([made / "swept"], ["ttft_ms.mean"], "", ())
    assert panel.x_label == "requests per second" and [line.label for line in panel.lines] == [
        "vllm",
        "round_robin",
    ]
    means = st.read(made / "swept").means.query("metric == 'ttft_ms.mean' and system == 'vllm'")
    assert list(panel.lines[0].y) == means["mean"].tolist() and list(panel.lines[0].x) == [10, 40]
    assert list(panel.lines[0].low) == means["low"].tolist()
    (other,) = of_sweeps([made / "swept"], ["slo.attainment"], "system", ())
    assert other.ticks == ("vllm", "round_robin") and other.is_share
    assert {line.shape for line in other.lines} == {"points"} and panel.lines[0].shape == "line"
    assert [line.label for line in other.lines] == ["10", "40"] and list(other.lines[0].x) == [0, 1]


def means_of(folder: Path, words: list[str], axes: str, *rows: str) -> Path:
    """A sweep's folder by hand."""
    folder.mkdir()
    lines = [f"{axes},metric,seeds,mean,low,high", *rows]
    (folder / "means.csv").write_text("\n".join(lines) + "\n")
    (folder / "sweep.json").write_text(json.dumps({"words": words}))
    pd.DataFrame({**{key: [] for key in axes.split(",")}, "refused": []}).to_parquet(folder / "sweep.parquet")
    return folder


def test_sweeps_of_several_systems_are_lines_of_one_panel(tmp_path: Path) -> None:
    """Named by the words in which they differ, over the load that both vary; else by their folders."""
    load = "trace.rate_per_s"
    one = means_of(
        tmp_path / "one", ["system=vllm", "cluster=a100_x2", f"{load}=1,2"], load,
        "1,ttft_ms.p99,2,5,4,6", "2,ttft_ms.p99,2,7,6,8",
    )  # fmt: skip
    two = means_of(
        tmp_path / "two",
        ["system=blitzscale", "cluster=a100_x2", f"{load}=1,2", "system/scaler=hpa,kpa", "engine.exact=true"],
        f"system/scaler,{load}",
        "hpa,1,ttft_ms.p99,2,3,2,4", "kpa,1,ttft_ms.p99,2,9,8,10",
    )  # fmt: skip
    (panel,) = of_sweeps([one, two], ["ttft_ms.p99"], "", ())
    assert (panel.x_label, panel.ticks) == ("requests per second", ())
    assert [line.label for line in panel.lines] == [
        "vllm",
        "blitzscale, exact=true, hpa",
        "blitzscale, exact=true, kpa",
    ]
    assert [list(line.y) for line in panel.lines] == [[5, 7], [3], [9]]
    (named,) = of_sweeps([one, two], ["ttft_ms.p99"], "", (), ["a", "b", "c"])
    assert [line.label for line in named.lines] == ["a", "b", "c"]
    again = means_of(tmp_path / "again", ["system=vllm", "cluster=a100_x2"], load, "1,ttft_ms.p99,2,5,4,6")
    (panel,) = of_sweeps([one, again], ["ttft_ms.p99"], "", ())
    assert [line.label for line in panel.lines] == ["one", "again"]
    other = means_of(tmp_path / "other", [], "trace.clients", "1,ttft_ms.p99,2,5,4,6")
    with pytest.raises(UserError, match="vary no key in common: run them over the same loads"):
        of_sweeps([one, other], [], "", ())


def test_choices_are_points_with_error_bars(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No line leads from one system to another, and instances are counted in whole numbers."""
    from servetwin.plotting import draw as drawing

    figures: list[Figure] = []
    monkeypatch.setattr(drawing, "save", lambda figure, path, dpi: figures.append(figure))
    looks = Looks(width=3.33)
    for panels in (
        of_sweeps([made / "swept"], ["ttft_ms.mean"], "system", ()),
        of_sweeps([made / "swept"], ["ttft_ms.mean"], "", ()),
        instances([named_run(made / "scaled", "scaled")], []),
    ):
        draw(panels, looks, tmp_path / "a.pdf")
    choices, loads, counts = (figure.axes[0] for figure in figures)
    assert len(choices.containers) == 2 and not loads.containers
    assert {line.get_linestyle() for line in choices.lines} == {"None"}
    assert len(choices.collections) == 2, "error bars"
    assert all(float(tick).is_integer() for tick in counts.get_yticks())


def test_a_reproduction_has_ours_beside_the_papers_points(made: Path) -> None:
    panels = of_reproduction(made / "figures", [])
    assert [panel.title for panel in panels] == ["fig1 S-S", "fig2"]
    ours, paper = panels[0].lines
    assert (list(ours.x), list(ours.y)) == ([1, 2], [10.0, 20.0])
    assert (paper.label, list(paper.x), list(paper.y)) == ("ours, paper", [2], [22.0])
    assert len(of_reproduction(made / "figures", ["fig2"])) == 1


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_has_the_asked_width(made: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"figure.{suffix}"
    assert cli.run(["plot", str(made / "even"), "width=page", "title=A run", f"out={path}"]) == 0
    data = path.read_bytes()
    if suffix == "svg":
        assert b'width="504pt"' in data and b">TTFT</text>" in data
    elif suffix == "pdf":
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", data)
        assert box and float(box[1]) == 504 and b"/Type3" not in data
    else:
        assert int.from_bytes(data[16:20], "big") == 2100


def test_everything_that_commands_write_is_read(made: Path, tmp_path: Path) -> None:
    asked = ("gpu=a100", "model.tp=1,2", "slo.ttft_p99_ms=800", "max_gpus=4", "processes=1", "headroom=false")
    assert cli.run(["plan", *SMALL[:3], *asked, f"out={tmp_path / 'plan'}"]) == 0
    plan = st.read(tmp_path / "plan")
    assert plan.sentence == json.loads((tmp_path / "plan" / "plan.json").read_text())["sentence"]
    assert plan.answer == plan.table["gpus"][0] and "meet TTFT P99 at most 800 ms" in plan.sentence
    reproduced = st.read(made / "figures")
    assert len(reproduced.points) == 3 and repr(reproduced) == "<Reproduction of 2 figures, 1 runs>"
    with pytest.raises(UserError, match="has no results: give the out= of simulate, sweep, plan"):
        st.read(tmp_path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{at}/even"], "plot takes the folder of a run, a sweep or a reproduction, and out=FILE"),
        (["{at}/even", "out=a.gif"], "out=a.gif is no picture: write a name that ends in .png, .svg, .pdf"),
        (["{at}/even", "out=a.pdf", "width=wide"], "width=wide is no width: write column, page or inches"),
        (
            ["{at}/even", "out=a.pdf", "style=gplot"],
            "style=gplot is none of matplotlib's: write style=ggplot",
        ),
        (["{at}/even", "out=a.pdf", "kind=bars"], "kind"),
        (["{at}/even", "out=a.pdf", "metric=itl_ms"], "metric=itl_ms is no latency of requests"),
        (["{at}/even", "{at}/even", "out=a.pdf", "labels=a"], "labels= has 1 names for 2 runs"),
        (
            ["{at}/swept", "out=a.pdf", "labels=a"],
            "labels= has 1 name for 2 lines: write one for each, in this order: vllm; round_robin",
        ),
        (["{at}/figures", "out=a.pdf", "labels=a,b"], "labels= names runs and lines of sweeps"),
        (["{at}/even", "{at}/swept", "out=a.pdf"], "swept is no run: only runs, or only sweeps"),
        (["{at}/swept", "out=a.pdf", "metric=ttft_ms.p98"], "metric=ttft_ms.p98 is not there: write metric="),
        (["{at}/swept", "out=a.pdf", "x=rate"], "x=rate is not there: write x="),
        (
            ["{at}/swept", "{at}/even", "out=a.pdf"],
            "only runs, or only sweeps, are plotted beside each other",
        ),
        (["{at}/figures", "out=a.pdf", "figure=fig3"], "figure=fig3 is not there"),
        (["{at}", "out=a.pdf"], "has no results"),
        (["{at}/even", "out=/nowhere/a.pdf"], "/nowhere"),
    ],
)
def test_what_cannot_be_plotted_is_refused(
    made: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plot", *(word.format(at=made) for word in words)]) == 2
    assert sentence in capsys.readouterr().err


def test_widths_are_those_of_papers() -> None:
    assert (width_of("column"), width_of("page"), width_of("2.5")) == (3.33, 7.0, 2.5)


def test_drawing_leaves_a_notebook_its_backend_and_figures(made: Path, tmp_path: Path) -> None:
    """Jupyter shows figures only under a backend of its own."""
    before = matplotlib.get_backend()
    matplotlib.use("svg")
    try:
        assert cli.run(["plot", str(made / "even"), f"out={tmp_path / 'a.pdf'}"]) == 0
        assert (matplotlib.get_backend(), pyplot.get_fignums()) == ("svg", [])
    finally:
        matplotlib.use(before)
