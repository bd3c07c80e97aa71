"""servetwin reproduce scale: equal load per GPU, cells that cannot be, times to capacity, ours alone."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.common.runs import planned
from experiments.common.scale_times import times_to_capacity
from experiments.common.set_up import value_of
from experiments.reproduce import _PAPERS
from experiments.scale import cells
from experiments.scale.cells import CLUSTERS, MODELS, SYSTEMS, case_of, cases
from experiments.scale.registry import paper
from servetwin.cli.main import run

SMALL = {8: "blitz_a_1x8", 16: "blitz_a_2x8"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two clusters, two numbers of models, a few requests."""
    for gpus in list(CLUSTERS):
        monkeypatch.delitem(CLUSTERS, gpus)
    for gpus, cluster in SMALL.items():
        monkeypatch.setitem(CLUSTERS, gpus, cluster)
    monkeypatch.setattr(cells, "MODELS", (4, 12))
    monkeypatch.setattr("experiments.scale.figures.MODELS", (4, 12))
    monkeypatch.setattr(cells, "DURATION_S", 20)
    monkeypatch.setattr(cells, "ONE_SEED_FROM", 16)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_cell_has_the_same_load_per_gpu_for_the_same_time() -> None:
    found = cases()
    assert len(found) == len(set(found)) == len(CLUSTERS) * len(MODELS) * len(SYSTEMS)
    for case in found:
        gpus = int(case.set_up.name.partition(" ")[0])
        hosts, of_host = case.set_up.word("cluster").rpartition("_")[2].split("x")
        assert gpus == int(hosts) * int(of_host)
        rate_per_s = float(case.set_up.word("models.rate_per_s"))
        assert rate_per_s / gpus == pytest.approx(cells.PER_GPU_S, rel=1e-5)
        assert case.set_up.word("models.duration_s") == f"{cells.DURATION_S}"
    assert {value_of(case.words, "system") for case in found} == {
        value_of(w, "system") for w in SYSTEMS.values()
    }


def test_a_system_that_gives_every_model_an_instance_is_missing_where_they_do_not_fit() -> None:
    plan = planned(
        [case_of(64, models, system) for models in (10, 100) for system in SYSTEMS], 1, processes=1
    )
    assert {(case.label, case.set_up.word("models.count")) for case in plan.missing} == {
        ("llumnix", "100"),
        ("static", "100"),
    }


def test_the_study_draws_ours_alone_and_names_what_cannot_run(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "scale", "all", "out=made", "runs=kept", "seeds=2", "processes=1"]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "0 rows" in shown and "static is not shown where models outnumber GPUs" in shown
    points = list(csv.DictReader(Path("made/points.csv").read_text(encoding="utf-8").splitlines()))
    y_of = {(p["figure"], p["panel"], p["metric"], p["system"], p["x"]): float(p["y"]) for p in points}
    seeds = {(p["panel"], p["x"]): p["seeds"] for p in points}
    assert seeds == {
        (f"{models} models", f"{gpus}"): f"{2 if gpus == 8 else 1}" for models in (4, 12) for gpus in SMALL
    }
    for system in SYSTEMS:
        assert 0 <= y_of["served", "4 models", "within objectives", system, "8"] <= 1
    # Six of eight GPUs for 12 models at most; a static system keeps all GPUs until the last answer.
    assert ("served", "12 models", "requests", "static", "8") not in y_of
    assert ("served", "12 models", "requests", "static", "16") in y_of
    held, loads_s = "GPU-hours per 1,000 requests", "time to capacity, s"
    assert (
        y_of["served", "4 models", held, "blitzscale", "16"]
        < y_of["served", "4 models", held, "static", "16"]
    )
    # An SSD is slower than other GPUs and the memory of hosts.
    quick, slow = (y_of["served", "4 models", loads_s, one, "16"] for one in ("blitzscale", "serverlessllm"))
    assert quick < slow
    for kind in ("use of PCIe", "use of SSDs"):
        mean, most = (
            y_of[figure, "4 models", kind, "serverlessllm", "16"] for figure in ("links", "busiest")
        )
        assert 0 < mean < most <= 1
    page = Path("made/page.md").read_text(encoding="utf-8")
    assert "![Elastic systems" in page and "| 12 models | 8 | serverlessllm |" in page
    assert run([*words, "overwrite=true"]) == 0  # from the kept runs


def test_it_is_a_paper_without_rows_and_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert "scale" in _PAPERS  # so it is one of servetwin reproduce all
    assert run(["reproduce", "scale", "list", "--json"]) == 0
    assert (
        list(json.loads(capsys.readouterr().out)) == list(paper().recipes) == ["served", "links", "busiest"]
    )
    assert paper().sweeps(cases()) == () and not paper().requests


def event(t_s: float, act: str, replica: int | None = None, model: str = "m") -> dict[str, object]:
    return {"t_s": t_s, "act": act, "replica": replica, "model": model, "role": "both"}


LOADS = [
    event(1.0, "load", 4), event(2.0, "load", 5), event(3.0, "ready", 4), event(3.5, "shortage"),
    event(6.0, "ready", 5), event(7.0, "released", 4), event(9.0, "load", 4), event(9.5, "released", 4),
]  # fmt: skip


def test_capacity_is_there_when_all_that_was_wished_serve() -> None:
    assert times_to_capacity({"scale_events": LOADS, "duration_s": 10.0}) == [5.0, 0.5]


def test_models_wait_apart() -> None:
    other = [event(0.5, "load", 9, "n"), event(8.0, "ready", 9, "n")]
    both = sorted((*LOADS, *other), key=lambda one: float(str(one["t_s"])))
    assert times_to_capacity({"scale_events": both, "duration_s": 10.0}) == [5.0, 7.5, 0.5]


@pytest.mark.parametrize(("mean", "waits"), [(0.1, [2.0]), (1.1, [1.0])])
def test_a_model_without_an_instance_waits_from_its_shortage_on(mean: float, waits: list[float]) -> None:
    """mean: of instances over 10 s; one that loads from 9 s on is 0.1, one from the start on is 1."""
    events = [event(8.0, "shortage"), event(9.0, "load", 1), event(10.0, "ready", 1)]
    summary = {"scale_events": events, "duration_s": 10.0, "instances": {"mean_by_role": {"both": mean}}}
    assert times_to_capacity(summary) == waits


def test_costly_cells_come_first_and_run_once() -> None:
    found = cases()
    sizes = [int(case.set_up.name.partition(" ")[0]) for case in found]
    assert sizes == sorted(sizes, reverse=True)
    assert {case.once for case, gpus in zip(found, sizes, strict=True) if gpus >= 1024} == {True}
    assert replace(found[-1], once=True) != found[-1]
