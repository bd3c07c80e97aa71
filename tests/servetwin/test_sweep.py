"""``servetwin sweep``: the same tables from every launcher, resumed without repeating, refusals told."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from servetwin.cli import main as cli
from servetwin.sweeps import launch
from servetwin.sweeps.axes import SweepAxis
from servetwin.sweeps.outcome import PointOutcome, outcome_of
from servetwin.sweeps.points import points_of
from servetwin.sweeps.same_by_seed import same_by_seed
from servetwin.sweeps.search import best
from servetwin.sweeps.sweep_words import file_words
from servetwin.sweeps.table import SweepRuns
from serving.vocabulary.errors import UserError
from tests.worlds.user_policies import here

__all__ = ["here"]

TINY = (
    "trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=10", "cluster=a100_x2",
)  # fmt: skip
AXES = ("system/dispatch=least_outstanding,round_robin", "seed=0,1,2")


def swept(out: Path, *words: str) -> None:
    assert cli.run(["sweep", *TINY, *words, f"out={out}"]) == 0


def test_a_row_of_the_table_is_what_the_single_run_says(tmp_path: Path) -> None:
    swept(tmp_path / "s", *AXES, "processes=1")
    table = pd.read_parquet(tmp_path / "s" / "sweep.parquet")
    assert list(table["seed"]) == [0, 1, 2, 0, 1, 2]
    assert list(table["system/dispatch"]) == ["least_outstanding"] * 3 + ["round_robin"] * 3
    words = (*TINY, "uncertainty=off", "seed=1", "system/dispatch=round_robin")
    alone = outcome_of(words)
    assert table["ttft_ms.p99"][4] == alone.numbers["ttft_ms.p99"]
    means = pd.read_csv(tmp_path / "s" / "means.csv")
    row = means[(means["metric"] == "ttft_ms.mean") & (means["system/dispatch"] == "round_robin")].iloc[0]
    assert row["mean"] == pytest.approx(table["ttft_ms.mean"][3:].mean())
    assert row["low"] < row["mean"] < row["high"]


def test_processes_change_no_byte_of_the_table(tmp_path: Path) -> None:
    for processes in (1, 2):
        swept(tmp_path / str(processes), *AXES, f"processes={processes}")
    for name in ("sweep.parquet", "means.csv"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_jobs_of_a_cluster_give_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    swept(tmp_path / "here", *AXES, "processes=1")
    swept(tmp_path / "jobs", *AXES, "launcher=slurm", "slurm.cluster=local", "slurm.jobs=2")
    same = [(tmp_path / name / "sweep.parquet").read_bytes() for name in ("here", "jobs")]
    assert same[0] == same[1]


def test_a_sweep_that_was_killed_repeats_no_finished_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(tmp_path / "whole", *AXES, "processes=1")
    ran: list[tuple[str, ...]] = []

    def counted(words: tuple[str, ...], folder: str = "") -> PointOutcome:
        ran.append(words)
        if len(ran) == 4:
            raise KeyboardInterrupt
        return outcome_of(words, folder)

    monkeypatch.setattr(launch, "outcome_of", counted)
    assert cli.run(["sweep", *TINY, *AXES, "processes=1", f"out={tmp_path / 's'}"]) == 130
    file = tmp_path / "s" / "points.jsonl"
    assert len(file.read_text().splitlines()) == 3
    with file.open("a") as cut:
        cut.write('{"id": "half a li')
    swept(tmp_path / "s", *AXES, "processes=1")
    assert len(ran) == 4 + 3, "three points were kept, the fourth was not finished"
    assert (tmp_path / "s" / "sweep.parquet").read_bytes() == (
        tmp_path / "whole" / "sweep.parquet"
    ).read_bytes()


def test_more_seeds_only_run_the_new_ones(tmp_path: Path) -> None:
    swept(tmp_path / "s", "seed=0,1", "processes=1")
    swept(tmp_path / "s", "seed=0,1,2", "processes=1")
    lines = [json.loads(line) for line in (tmp_path / "s" / "points.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert len({line["id"] for line in lines}) == 3


def test_a_refused_point_is_told_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(tmp_path / "s", "model=llama3_8b,llama3_70b", "processes=1")
    table = pd.read_parquet(tmp_path / "s" / "sweep.parquet")
    assert list(table["refused"] != "") == [False, True]
    assert "1 point was refused, first model=llama3_70b" in capsys.readouterr().out
    assert "1 point was refused" in (tmp_path / "s" / "report.html").read_text()


def test_a_sweep_of_refused_points_ends_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["seed=0,1", "cluster=a100_x2", "model.tp=3", "processes=1", f"out={tmp_path / 's'}"]
    assert cli.run(["sweep", *words]) == 2
    assert "every point of the sweep was refused" in capsys.readouterr().err


def test_the_seed_with_a_difference_that_may_be_none_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(tmp_path / "s", *AXES, "processes=1", "metrics=slo.attainment,ttft_ms.p99,tpot_ms.mean")
    shown = capsys.readouterr().out
    assert "SLO attainment is the share of requests with TTFT at most 450 ms (slo.ttft_ms)" in shown
    assert "against system/dispatch=least_outstanding, the same seeds:" in shown
    assert "TPOT mean, mean over seeds (95 % interval)" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("out=OUT", "processes=0"), "processes=0 is out of range"),
        ((), "out= has no default"),
        (("out=OUT", "launcher=cloud"), "launcher=cloud is wrong"),
        (("out=OUT", "journal=true"), "is of single runs"),
        (("out=OUT", "search.minimize=ttft_ms.p99"), "nothing to choose"),
        (("out=OUT", "seed=interval(0,3)"), "a search has one goal"),
        (("out=OUT", "seed=0,1", "search.trials=3"), "write search.minimize=ttft_ms.p99"),
        (("out=OUT", "sweep=nothing"), "neither a file nor one of first"),
        (("out=OUT", "cluster=h100x8"), "write cluster=h100_x8 if that is meant"),
        (("out=OUT", "gpu=h100,a100"), "write cluster=GPU_xN"),
        (("out=OUT", "seed=0-7"), 'write "seed=range(0,8)" there for 0-7'),
        (("out=OUT", "seed=range(0-7)"), "write seed=range(0,8)"),
        (("out=OUT", "seed=[0,1]"), "write seed=0,1 there"),
        (("out=OUT", "metric=ttft_ms.p99"), "write metrics=ttft_ms.p99"),
        (("out=OUT", "max_num_seqs=1,2"), "write engine.max_num_seqs=VALUE"),
        (("cluster=a100x4",), "write cluster=a100_x4 if that is meant"),
        (("model.tp=3",), "model.tp=3 does not divide the 2 GPUs of cluster=a100_x2"),
    ],
)
def test_wrong_words_are_refused(
    tmp_path: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [word.partition("=")[0] for word in words]
    usual = [word for word in TINY if word.partition("=")[0] not in keys]
    given = [word.replace("OUT", str(tmp_path / "s")) for word in words]
    assert cli.run(["sweep", *usual, *given]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "s").exists() or "search" in said or "choose" in said


def test_a_folder_that_is_taken_hides_no_other_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert cli.run(["sweep", *TINY, "seed=0,1", "model.tp=3", f"out={tmp_path}"]) == 2
    told = capsys.readouterr().err
    assert "model.tp=3 does not divide" in told and "not a sweep's" in told


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert cli.run(["sweep", *TINY, "seed=0,1", f"out={tmp_path}"]) == 2
    assert "not a sweep's" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_lists_a_sweep_in_the_form_of_hydra(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for head in ("hydra:\n  sweeper:\n    params:\n", "sweeper:\n    params:\n", "params:\n"):
        file.write_text(f"{head}      seed: 0,1\n      trace.requests: 40\n      cluster: [a100_x2]\n")
        assert file_words(str(file)) == {"seed": "0,1", "trace.requests": "40", "cluster": "[a100_x2]"}
    file.write_text("seed: {a: 1}\n")
    with pytest.raises(UserError, match="has no keys with values"):
        file_words(str(file))


def test_the_sweep_that_is_shipped_is_one() -> None:
    assert set(file_words("first")) == {
        "system/dispatch", "trace.rate_per_s", "seed", "trace", "trace.requests", "cluster",
    }  # fmt: skip


def test_a_search_finds_the_better_of_what_it_tried_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = (
        "engine.max_num_seqs=interval(1,64)",
        "search.minimize=ttft_ms.mean",
        "search.trials=6",
        "seed=0",
    )
    swept(tmp_path / "s", *words)
    first = (tmp_path / "s" / "sweep.parquet").read_bytes()
    table = pd.read_parquet(tmp_path / "s" / "sweep.parquet")
    assert len(table) == 6
    assert table["engine.max_num_seqs"].between(1, 64).all()
    assert table["ttft_ms.mean"].min() < table["ttft_ms.mean"].max()
    lines = len((tmp_path / "s" / "points.jsonl").read_text().splitlines())
    swept(tmp_path / "s", *words)
    assert len((tmp_path / "s" / "points.jsonl").read_text().splitlines()) == lines
    assert (tmp_path / "s" / "sweep.parquet").read_bytes() == first


def test_the_best_of_a_search_is_that_of_its_goal() -> None:
    from servetwin.sweeps.points import Point

    points = tuple(Point(place, (), (("a", str(place)),)) for place in range(3))
    outcomes = (PointOutcome({"x": 2.0}), PointOutcome({"x": 1.0}), PointOutcome({}, "refused"))
    sweep = SweepRuns((), points, outcomes)
    assert best(sweep, {"search.minimize": "x"}) == (points[1], "x", 1.0)
    assert best(sweep, {"search.maximize": "x"}) == (points[0], "x", 2.0)


def test_every_runs_results_are_kept_when_asked_for(tmp_path: Path) -> None:
    swept(tmp_path / "s", "seed=0,1", "folders=true", "processes=1")
    kept = sorted((tmp_path / "s" / "runs").iterdir())
    assert len(kept) == 2
    assert all((one / "summary.json").is_file() for one in kept)


POLICY = """
class Mine:
    def dispatch(self, request, fleet):
        return fleet.replica_at(PLACE), "mine"
"""


def test_another_policy_under_the_same_name_is_run_anew(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", *TINY, "seed=0,1", "system/dispatch=my_mine:Mine", "processes=1", "out=s"]
    tables = []
    for place in ("0", "0", "request.id % 2"):
        (here / "my_mine.py").write_text(POLICY.replace("PLACE", place))
        sys.modules.pop("my_mine", None)
        assert cli.run(words) == 0
        tables.append(pd.read_parquet(here / "s" / "sweep.parquet")["ttft_ms.mean"].tolist())
    assert tables[0] == tables[1] != tables[2]
    assert len((here / "s" / "points.jsonl").read_text().splitlines()) == 4


@pytest.fixture
def recorded(tmp_path: Path) -> list[str]:
    """Words of a recorded trace."""
    rows = "\n".join(f"{second / 20},100,10" for second in range(20))
    (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    words = ["trace=file", f"trace.path={tmp_path / 't.csv'}", "cluster=a100_x2", "processes=1"]
    return [*words, f"out={tmp_path / 's'}"]


def test_seeds_that_change_nothing_run_once_and_give_no_interval(
    tmp_path: Path, recorded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", *recorded, "seed=0,1,2", "engine.max_num_seqs=1,8"]
    assert cli.run(words) == 0
    told = capsys.readouterr()
    assert told.err.startswith(
        "every seed gives the same run, for the seed draws nothing there: 2 of 6 points"
    )
    assert "every seed gave the same run" in told.out
    assert "±" not in told.out
    assert len((tmp_path / "s" / "points.jsonl").read_text().splitlines()) == 2
    means = pd.read_csv(tmp_path / "s" / "means.csv")
    assert set(means["seeds"]) == {1}
    assert means["low"].isna().all()
    assert list(pd.read_parquet(tmp_path / "s" / "sweep.parquet")["seed"]) == [0, 0, 1, 1, 2, 2]
    assert cli.run(words) == 0
    assert not capsys.readouterr().err, "nothing is left to run"


def test_beside_settings_that_draw_the_others_have_no_interval(
    tmp_path: Path, recorded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["system/dispatch=round_robin,power_of_two", "seed=0,1,2"]
    assert cli.run(["sweep", *recorded, *words]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("every seed gives the same run in part of it")
    assert "in 1 setting, first system/dispatch=round_robin" in told.out
    means = pd.read_csv(tmp_path / "s" / "means.csv").query("metric == 'ttft_ms.mean'")
    assert dict(zip(means["system/dispatch"], means["seeds"], strict=True)) == {
        "round_robin": 1,
        "power_of_two": 3,
    }


@pytest.mark.parametrize(
    ("word", "first_draws"),
    [
        ("trace.rate_scale=2", True),
        ("trace.resample=block", True),
        ("trace.high_priority_share=0.5", True),
        ("faults=drawn", True),
        ("trace.tokens_scale=2", False),
    ],
)
def test_what_draws_on_a_recorded_trace_is_run_with_every_seed(
    word: str, first_draws: bool, recorded: list[str]
) -> None:
    words = [*recorded[:3], word, *(["faults.replica_per_hour=1"] if word == "faults=drawn" else [])]
    points = points_of(words, [SweepAxis("seed", ("0", "1"))])
    assert same_by_seed(points) == ({} if first_draws else {1: 0})


@pytest.mark.parametrize(("gap_s", "is_told"), [(0.2, True), (0.05, False)])
def test_stages_that_drawing_again_shuffles_are_told(
    gap_s: float, is_told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a sweep and by a single run: half of the requests come at 20 per second, half at 5 (or at 20)."""
    times = [place * 0.05 for place in range(100)]
    times += [times[-1] + (place + 1) * gap_s for place in range(100)]
    rows = "\n".join(f"{at:.2f},100,10" for at in times)
    (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    words = ["trace=file", f"trace.path={tmp_path / 't.csv'}", "trace.resample=block", "cluster=a100_x1"]
    assert cli.run(["sweep", *words, "seed=0,1", "processes=1", f"out={tmp_path / 's'}"]) == 0
    swept = " ".join(capsys.readouterr().out.split())
    assert cli.run(["simulate", *words, "uncertainty=off", f"out={tmp_path / 'one'}"]) == 0
    alone = " ".join(capsys.readouterr().out.split())
    sentence = "drawing again shuffles such stages: for an answer about this trace leave trace.resample out"
    assert (sentence in swept, sentence in alone) == (is_told, is_told)


def test_arrivals_that_a_reader_draws_are_run_with_every_seed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("prompt_tokens,output_tokens\n" + "100,10\n" * 20)
    words = ["trace=file", f"trace.path={tmp_path / 't.csv'}", "trace.rate_per_s=5", "cluster=a100_x2"]
    assert same_by_seed(points_of(words, [SweepAxis("seed", ("0", "1"))])) == {}


def test_a_number_that_no_run_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *TINY, "seed=0", "metrics=[ttft_ms.p98]", "processes=1", f"out={tmp_path / 's'}"]
    assert cli.run(words) == 2
    assert "runs have no number ttft_ms.p98" in capsys.readouterr().err
