"""``servetwin compare SWEEP SWEEP ...``: which points are paired, and what is told of the others."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servetwin.cli import main as cli

COMMON = ("trace=azure_conv_like", "trace.requests=40", "cluster=a100_x2", "processes=1")
SEEDS = "seed=0,1,2"


def swept(out: Path, *words: str) -> Path:
    assert cli.run(["sweep", *COMMON, *words, f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(tmp_path_factory.mktemp("sweeps") / "rates", SEEDS, "trace.rate_per_s=10,20")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweeps") / "slow"
    return swept(out, SEEDS, "trace.rate_per_s=20", "engine.max_num_seqs=2")


def told(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    capsys.readouterr()
    assert cli.run(["compare", *map(str, words), "json=true"]) == 0
    return json.loads(capsys.readouterr().out)


def mean_of(folder: Path, **values: float) -> float:
    """Of a sweep's table, by hand."""
    table = pd.read_parquet(folder / "sweep.parquet")
    for key, value in values.items():
        table = table[table[key.replace("__", ".")] == value]
    return float(table["ttft_ms.mean"].mean())


def difference(found: Any, **setting: float) -> Any:
    wanted = {key.replace("__", "."): value for key, value in setting.items()}
    (one,) = [
        one for one in found["differences"] if one["setting"] == wanted and one["metric"] == "ttft_ms.mean"
    ]
    return one


def test_a_rate_that_one_fixes_is_paired_with_the_same_rate_alone(
    rates: Path, slow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = told(capsys, rates, slow)["against_the_first"]
    assert (found["points"], found["left_out"]) == (3, {"first": 3, "this": 0})
    one = difference(found, trace__rate_per_s=20)
    assert one["count"] == 3
    assert one["mean"] == pytest.approx(mean_of(slow) - mean_of(rates, trace__rate_per_s=20))
    (back,) = told(capsys, slow, rates)["against_the_first"]
    assert back["left_out"] == {"first": 0, "this": 3}
    assert difference(back)["mean"] == pytest.approx(-one["mean"])


def test_a_key_that_nobody_wrote_counts_with_its_default(
    rates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seqs = swept(tmp_path / "seqs", SEEDS, "trace.rate_per_s=10,20", "engine.max_num_seqs=2,256")
    (found,) = told(capsys, rates, seqs)["against_the_first"]
    assert found["points"] == 6
    assert {one["mean"] for one in found["differences"]} == {0.0}, "the default is 256"


def test_the_order_of_values_is_no_difference(
    rates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = swept(tmp_path / "other", "seed=2,0,1", "trace.rate_per_s=20,10")
    (found,) = told(capsys, rates, other)["against_the_first"]
    assert found["words"] == {"only_first": [], "only_this": []}
    assert found["left_out"] == {"first": 0, "this": 0}
    assert cli.run(["compare", str(rates), str(other)]) == 0
    assert "6 points paired: every number is the same." in capsys.readouterr().out


def test_three_sweeps_are_on_one_page(
    rates: Path, slow: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    words = ["compare", str(rates), str(rates), str(slow), f"page={page}"]
    assert cli.run(words) == 0
    shown, text = capsys.readouterr().out, page.read_text()
    assert cli.run(words) == 2, "a page is not lost"
    for out in (shown, text):
        assert "6 points paired: every number is the same." in out
        assert "3 points paired: SLO attainment is lower in 1 of 1 setting; " in out
        assert "; TTFT P99 is higher in 1 of 1 setting." in out
        assert "left out, since only one of the two has them: 3 points of" in out
        assert "trace.rate_per_s=20" in out
    assert f"page={page}</pre>" in text


def made(folder: Path, table: pd.DataFrame, *words: str) -> Path:
    """A sweep's folder by hand."""
    folder.mkdir()
    table.to_parquet(folder / "sweep.parquet")
    (folder / "sweep.json").write_text(json.dumps({"words": words}))
    return folder


def test_settings_in_which_nothing_differs_share_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"cluster": ["a", "a", "b", "b", "c", "c"], "seed": [0, 1] * 3, "refused": ""}
    first = pd.DataFrame({**keys, "ttft_ms.mean": [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]})
    other = pd.DataFrame({**keys, "ttft_ms.mean": [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]})
    words = ("cluster=a,b,c", "seed=0,1")
    places = [made(tmp_path / "one", first, *words), made(tmp_path / "other", other, *words)]
    assert cli.run(["compare", *map(str, places)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  cluster")]
    assert lines[0][:3] == ["cluster=c", "TTFT", "mean"]
    assert lines[1] == ["cluster=a;", "cluster=b", "every", "number", "none"]
    assert len(lines) == 2


def swept_by_hand(folder: Path, key: str, values: list[str], milliseconds: list[float]) -> Path:
    """Two loads and two seeds of every value."""
    settings = [(value, rate, seed) for value in values for rate in (10, 20) for seed in (0, 1)]
    columns = dict(zip((key, "trace.rate_per_s", "seed"), zip(*settings, strict=True), strict=True))
    table = pd.DataFrame({**columns, "refused": "", "ttft_ms.mean": milliseconds})
    return made(folder, table, f"{key}={','.join(values)}", "trace.rate_per_s=10,20", "seed=0,1")


def test_sweeps_of_other_systems_are_paired_by_load_and_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they share no value of is what is compared, and names the sides."""
    first = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    two = swept_by_hand(tmp_path / "two", "system/scaler", ["hpa", "kpa"], first)
    one = swept_by_hand(tmp_path / "one", "system/scaler", ["keda"], [11.0, 13.0, 13.0, 15.0])
    data = told(capsys, two, one)
    assert data["first"] == "two (system/scaler=hpa,kpa)"
    (found,) = data["against_the_first"]
    assert found["sweep"] == "one (system/scaler=keda)"
    assert (found["points"], found["left_out"]) == (8, {"first": 0, "this": 0})
    wanted = {"system/scaler": "kpa", "trace.rate_per_s": 20}
    (apart,) = [one for one in found["differences"] if one["setting"] == wanted]
    assert (apart["count"], apart["mean"]) == (2, 6.5)
    assert cli.run(["compare", str(one), str(two)]) == 2
    assert f"name {two} first, or sweep each of its settings" in capsys.readouterr().err


def test_a_parameter_that_the_other_system_does_not_have_is_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of these sweeps only words are told, so each is composed to know its value."""
    rows = {"seed": [0, 1], "refused": "", "ttft_ms.mean": [1.0, 2.0]}
    common = (
        "trace=azure_conv_like",
        "trace.requests=40",
        "trace.rate_per_s=10",
        "cluster=a100_x4",
        "seed=0,1",
    )
    plain = made(tmp_path / "plain", pd.DataFrame(rows), *common)
    table = pd.DataFrame({"system.scaler.target": [60, 60], **rows})
    words = ("system.scaler.target=60", "system/scaler=hpa")
    scaled = made(tmp_path / "scaled", table, *common, *words)
    data = told(capsys, scaled, plain)
    assert data["first"] == "scaled (system.scaler.target=60)"
    assert data["against_the_first"][0]["sweep"] == "plain (system.scaler.target=not there)"


def test_copies_of_one_run_are_no_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a recorded trace every seed gives the same run, so there is nothing to tell chance from."""
    tables = [
        pd.DataFrame({"seed": [0, 1, 2], "refused": "", "ttft_ms.mean": [value] * 3})
        for value in (10.0, 15.0)
    ]
    one, other = (made(tmp_path / name, table, SEEDS) for name, table in zip("ab", tables, strict=True))
    (found,) = told(capsys, one, other)["against_the_first"]
    apart = difference(found)
    assert (apart["count"], apart["mean"], apart["half"]) == (1, 5.0, None)


def test_what_cannot_be_compared_is_told_with_its_key(
    rates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faster = swept(tmp_path / "faster", SEEDS, "trace.rate_per_s=30,40")
    for words, why in (
        ([rates, faster], "trace.rate_per_s is 10,20 and 30,40"),
        ([rates, tmp_path], f"{rates} is a sweep and {tmp_path} is none"),
        ([rates, rates, "run=0"], "run= is for a measured file"),
    ):
        assert cli.run(["compare", *map(str, words)]) == 2
        assert why in capsys.readouterr().err
