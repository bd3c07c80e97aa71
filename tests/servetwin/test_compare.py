"""servetwin compare: known errors from files of every format, regimes, parts of the error, refusals."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.profiles.profile import Stamp
from hwmodels.profiles.profile_file import save_profile
from servetwin.cli import main as cli
from servetwin.compare.comparison import NO_SERIES, REGIMES, regimes_of
from servetwin.compare.formats import read_measured
from servetwin.compare.measured import MeasuredRun
from servetwin.compare.own_result import SIMULATED_TOO, columns_of
from servetwin.results.series_sink import NO_ENGINE
from servetwin.results.series_table import ENGINE, TIME, WAITING_GAUGE
from tests.worlds.damage import damaged, edit, line_edit
from tests.worlds.measured_files import (
    ERROR,
    FASTER,
    WRITERS,
    Row,
    as_csv,
    as_lines,
    as_vllm_bench,
    bench_run,
    rows_of,
)
from tests.worlds.toy_profile import toy_profile

REQUESTS = 40
WITH_GAPS = (
    "jsonl", "llmservingsim_csv", "aiperf", "vllm_bench", "sglang", "inference_perf", "genai_perf",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("runs") / "run", "series.period_s=0.5")


def simulated(folder: Path, *words: str) -> Path:
    given = {"trace.requests": str(REQUESTS), "trace.rate_per_s": "8"} | dict(
        word.split("=") for word in words
    )
    more = [f"{key}={value}" for key, value in given.items()]
    assert cli.run(["simulate", "trace=azure_conv_like", "cluster=a100_x1", f"out={folder}", *more]) == 0
    return folder


def compared(capsys: pytest.CaptureFixture[str], *words: Any) -> Row:
    capsys.readouterr()
    assert cli.run(["compare", *map(str, words), "json=true"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def refused(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    capsys.readouterr()
    assert cli.run(["compare", *map(str, words)]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("servetwin: ") and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("format", WRITERS)
def test_every_format_gives_the_error_that_is_in_it(
    format: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write, by = WRITERS[format]
    found = compared(capsys, run, write(tmp_path / "measured", rows_of(run)))
    assert (found["measured"]["format"], found["measured"]["requests"]) == (format, REQUESTS)
    assert found["matched"] == {"requests": REQUESTS, "by": by}
    for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
        entry = found["errors"]["all"][metric]
        assert entry["error"] == pytest.approx(
            dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), ERROR), rel=1e-4
        )
        assert entry["per_request"] == pytest.approx(ERROR, rel=1e-4)
    gaps = "itl_ms" in found["errors"]["all"]
    assert gaps == (format in WITH_GAPS)
    if gaps:
        assert found["errors"]["all"]["itl_ms"]["error"]["mean"] == pytest.approx(ERROR, rel=1e-4)


def test_parts_add_up_to_the_end_to_end_error(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only decoding differs, by 10 ms per request; then only the queue does."""
    rows = rows_of(run)
    columns = columns_of(run / "requests.parquet")
    for row in rows:
        at = row["request"]
        row["queue_ms"] = (columns["scheduled_ns"][at] - columns["arrival_ns"][at]) / 1e6
        row["ttft_ms"], row["e2e_ms"] = columns["ttft_ms"][at], columns["e2e_ms"][at] - 10
    parts = compared(capsys, run, as_csv(tmp_path / "a.csv", rows))["decomposition"]["all"]
    assert [part["part"] for part in parts] == ["queueing", "prefill", "decode"]
    assert [part["difference_ms"] for part in parts] == pytest.approx([0, 0, 10], abs=1e-6)
    assert [part["share_of_error"] for part in parts] == pytest.approx([0, 0, 1], abs=1e-6)
    for row in rows:
        row |= {"queue_ms": row["queue_ms"] + 5, "ttft_ms": row["ttft_ms"] + 5, "e2e_ms": row["e2e_ms"] + 15}
    parts = compared(capsys, run, as_csv(tmp_path / "b.csv", rows))["decomposition"]["all"]
    assert [part["difference_ms"] for part in parts] == pytest.approx([-5, 0, 0], abs=1e-6)


def test_without_a_measured_queue_its_part_is_not_told_apart(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = compared(capsys, run, as_vllm_bench(tmp_path / "a.json", rows_of(run)))["decomposition"]["all"]
    assert [part["part"] for part in parts] == ["queueing and prefill", "decode"]


def test_another_result_folder_can_be_the_measured_one(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, run, run, "format=servetwin")
    assert found["measured"]["format"] == "servetwin" and found["matched"]["by"] == "request number"
    assert SIMULATED_TOO in found["remarks"]
    assert {error for metric in found["errors"]["all"].values() for error in metric["error"].values()} == {
        0.0
    }
    bare = simulated(tmp_path / "bare")
    found = compared(capsys, bare, run, "format=servetwin")
    assert NO_SERIES in found["remarks"] and list(found["errors"]) == ["all"] and found["regimes"] is None
    assert len(found["decomposition"]["all"]) == 2


def test_a_range_is_told_of_numbers_that_all_requests_have(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times of 0 are unknown: neither means nor verdicts are made with them."""
    bench = bench_run(rows_of(run))
    bench["latencies"] = [row["e2e_ms"] / 1e3 for row in rows_of(run)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(bench))
    whole = compared(capsys, run, path)
    assert {name.partition(".")[0] for name in whole["range"]} == {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}
    bench["ttfts"][3] = 0.0
    path.write_text(json.dumps(bench))
    found = compared(capsys, run, path)
    assert found["errors"]["all"]["ttft_ms"]["count"] == REQUESTS - 1
    assert found["errors"]["all"]["ttft_ms"]["per_request"] == pytest.approx(ERROR)
    assert found["errors"]["all"]["e2e_ms"] == whole["errors"]["all"]["e2e_ms"]
    assert {name.partition(".")[0] for name in found["range"]} == {"itl_ms", "e2e_ms"}
    assert any(remark.startswith("ttft_ms, tpot_ms: ") for remark in found["remarks"])
    assert f"TTFT of 1 of {REQUESTS} requests is unknown and left out (1: 0): request 3" in found["remarks"]


def test_failed_requests_keep_their_place_in_the_order(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = bench_run(rows_of(run))
    bench["errors"][7], bench["ttfts"][7], bench["itls"][7], bench["output_lens"][7] = "timed out", 0.0, [], 0
    path = tmp_path / "a.json"
    path.write_text(json.dumps(bench))
    found = compared(capsys, run, path)
    assert found["measured"]["failed"] == 1 and found["matched"]["requests"] == REQUESTS - 1
    assert found["errors"]["all"]["e2e_ms"]["per_request"] == pytest.approx(ERROR)


def test_one_of_several_runs_is_chosen(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As vllm bench --append-result writes them."""
    bench = bench_run(rows_of(run))
    path = as_lines(tmp_path / "a.jsonl", [bench | {"ttfts": [2 * ttft for ttft in bench["ttfts"]]}, bench])
    assert "write run=0 for the first" in refused(capsys, run, path)
    assert "write run= from 0 to 1" in refused(capsys, run, path, "run=2")
    assert compared(capsys, run, path, "run=1")["errors"]["all"]["ttft_ms"]["per_request"] == pytest.approx(
        ERROR
    )
    other = compared(capsys, run, path, "run=0")
    assert other["errors"]["all"]["ttft_ms"]["error"]["mean"] == pytest.approx(0.5 / FASTER - 1)


def test_regimes_follow_how_often_somebody_waits() -> None:
    """Two engines, a second a row: nobody waits for 100 s, then at one of the two, then at both; a third
    engine, which never has a queue, changes nothing."""
    times = np.repeat(np.arange(300.0), 3)
    waiting = np.zeros((300, 3), dtype=np.int64)
    waiting[100:, 0], waiting[200:, 1] = 1, 5
    series = {TIME: times, ENGINE: np.tile([0, 1, 2], 300), WAITING_GAUGE: waiting.ravel()}
    arrivals = np.array([0, 50, 150, 250, 299, 400]) * 10**9
    assert [REGIMES[code] for code in regimes_of(series, arrivals)] == [
        "light", "light", "knee", "overload", "overload", "overload",
    ]  # fmt: skip
    series[WAITING_GAUGE] = np.zeros(900, dtype=np.int64)
    assert not regimes_of(series, arrivals).any()


def test_a_queue_before_all_engines_tells_the_regime() -> None:
    times = np.repeat(np.arange(300.0), 3)
    waiting = np.zeros((300, 3), dtype=np.int64)
    waiting[100:, 0], waiting[5, 1] = 1, 1
    series = {TIME: times, ENGINE: np.tile([NO_ENGINE, 0, 1], 300), WAITING_GAUGE: waiting.ravel()}
    codes = regimes_of(series, np.array([50, 150]) * 10**9)
    assert [REGIMES[code] for code in codes] == ["light", "overload"]


def test_regimes_split_the_requests(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = simulated(tmp_path / "busy", "series.period_s=0.5", "trace.rate_per_s=60", "trace.requests=300")
    found = compared(capsys, busy, busy, "format=servetwin")
    counts = dict(found["requests"])
    assert counts.pop("all") == 300 == sum(counts.values()) and "overload" in counts
    assert found["errors"].keys() == found["requests"].keys() == found["decomposition"].keys()


def test_the_table_says_what_was_matched_and_how(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = as_vllm_bench(tmp_path / "a.json", rows_of(run))
    capsys.readouterr()
    assert cli.run(["compare", str(run), str(path)]) == 0
    shown = capsys.readouterr().out
    assert "matched    40 requests by order of arrival" in shown
    assert "+25.0%" in shown and "queueing and prefill" in shown and "regimes: by how often" in shown
    assert max(map(len, shown.splitlines()[3:])) <= 110


def with_profile(run: Path, target: Path, use: Row) -> Path:
    """The same run, as if a profile had been used."""
    target.mkdir()
    for name in ("requests.parquet", "series.parquet"):
        (target / name).write_bytes((run / name).read_bytes())
    summary = json.loads((run / "summary.json").read_text())
    summary["step_time"]["profile"] = use
    (target / "summary.json").write_text(json.dumps(summary))
    return target


def test_data_that_the_profile_was_fitted_on_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = as_csv(tmp_path / "a.csv", rows_of(run))
    digest = sha256(path.read_bytes()).hexdigest()

    def fitted(name: str, *files: Row) -> Path:
        return with_profile(run, tmp_path / name, {"path": "p.json", "sha256": "0", "files": list(files)})

    said = refused(capsys, fitted("same", {"name": "b.csv", "sha256": digest}), path)
    assert "went into the profile p.json (as b.csv)" in said and "kept aside" in said
    named = {"name": f"{tmp_path.name}/a.csv", "sha256": "1"}
    assert "went into the profile" in refused(capsys, fitted("place", named), path)
    assert (
        compared(capsys, fitted("other", {"name": "a.csv", "sha256": "1"}), path)["matched"]["requests"] == 40
    )
    gone = with_profile(run, tmp_path / "gone", {"path": str(tmp_path / "p.json"), "sha256": "0"})
    assert any("was not checked" in remark for remark in compared(capsys, gone, path)["remarks"])


def test_a_run_on_a_profile_refuses_what_the_profile_was_made_of(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = as_csv(tmp_path / "a.csv", rows_of(run))
    stamp = Stamp(
        gpu="a100_80g",
        llm="llama3_8b",
        tp=1,
        engine="vllm",
        engine_version="0.19.0",
        precision="bf16",
        source="made up",
        licence="CC0",
        files=(),
    )
    made_of = (("requests.csv", sha256(path.read_bytes()).hexdigest()),)
    save_profile(replace(toy_profile(skew=None), stamp=replace(stamp, files=made_of)), tmp_path / "p.json")
    words = ("trace.tokens_scale=0.02", "engine.max_num_batched_tokens=64", "engine.max_num_seqs=8")
    on_it = simulated(
        tmp_path / "on", f"engine.profile={tmp_path / 'p.json'}", "engine.kv_tokens=4096", *words
    )
    assert "(as requests.csv)" in refused(capsys, on_it, path)


@pytest.mark.parametrize("format", WRITERS)
@given(line_edits=st.lists(line_edit, max_size=2), edits=st.lists(edit, max_size=3))
@settings(max_examples=20)
def test_damaged_files_are_compared_or_refused(
    format: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    line_edits: list[tuple[str, int, int]],
    edits: list[tuple[int, int, bytes]],
) -> None:
    with TemporaryDirectory() as folder:
        path = WRITERS[format][0](Path(folder) / "measured", rows_of(run))
        path.write_bytes(damaged(path.read_bytes(), line_edits, edits))
        capsys.readouterr()
        status = cli.run(["compare", str(run), str(path)])
    said = capsys.readouterr()
    assert status in (0, 2), said.err
    assert (not said.err and said.out) if status == 0 else (not said.out and said.err.count("\n") == 1)


def test_reading_says_what_is_known(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("request,ttft_ms,e2e_ms,output_tokens\n1,5,25,5\n0,,,\n")
    measured: MeasuredRun = read_measured(path)
    assert measured.request is not None and measured.request.tolist() == [1, 0]
    assert measured.times["tpot_ms"].tolist()[0] == 5.0 and measured.failed.tolist() == [False, True]
    assert np.isnan(measured.arrival_s).all() and measured.prompt_tokens.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("request,ttft\n0,1\n", "column 'ttft' is unknown: write ttft_ms if that is meant"),
        ("request,ttft_ms\n0,soon\n", "line 2: ttft_ms is 'soon', not a number"),
        ("request,ttft_ms\n0,nan\n", "no request finished both in"),
        ("request,ttft_ms\n0,-3\n", "TTFT of 1 of 1 requests is unknown and left out (1: below 0)"),
        ("request,ttft_ms\n0.5,3\n", "request is '0.5'"),
        ("request,ttft_ms\n0\n", "line 2: there are 1 cells for 2 columns"),
        ("request,request\n0,1\n", "a column comes twice"),
        ("request,ttft_ms\n", "holds no requests"),
        ("", "there is nothing in it"),
        ("request,ttft_ms\n0,1\n0,2\n", "has request 0 twice"),
        ("request,ttft_ms\n40,1\n", "has a request 40 and"),
        ("request,queue_ms\n0,1\n", "write one of ttft_ms, tpot_ms, e2e_ms"),
        ("ttft_ms\n1\n", "has 1 requests without numbers"),
        ("request,prompt_tokens,ttft_ms\n0,900000,1\n", "the prompts of"),
        ('{"request": 0, "ttft": 1}\n', "key 'ttft' is unknown"),
        ('{"request": 0\n', "line 1: it is no JSON"),
        ('{"ttfts": [1], "itls": [[1], [2]]}', "itls has 2 entries and ttfts 1"),
        ('{\n"ttft_ms": {"mean": 3}\n}', "is one document of JSON or YAML and none that is known here"),
        ("[1, 2]", "is one document of JSON or YAML and none that is known here"),
        ('{"request_throughput": 3}', "--save-detailed"),
        ('{"benchmarks": []}', "holds 0 runs"),
        (
            '{"metadata": {}, "metrics": {"time_to_first_token": {"value": 1, "unit": "s"}}}',
            "time_to_first_token is in 's'",
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused(
    text: str, said: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "measured"
    path.write_text(text)
    assert said in refused(capsys, run, path)


def test_words_that_cannot_be_used_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = as_csv(tmp_path / "a.csv", rows_of(run))
    assert "takes at least two places: write servetwin compare DIR DIR" in refused(capsys)
    assert "takes at least two places" in refused(capsys, run, "json=true")
    assert "a.csv has no summary.json of a run: more than two places" in refused(capsys, run, path, path)
    assert "unknown key 'jsn'" in refused(capsys, run, path, "jsn=true")
    assert "format=cvs is wrong" in refused(capsys, run, path, "format=cvs")
    assert "is not a folder" in refused(capsys, tmp_path / "none", path)
    assert "has no summary.json" in refused(capsys, tmp_path, path)
    assert "cannot be read" in refused(capsys, run, tmp_path / "none.csv")
    assert "it has no column request" in refused(capsys, run, run / "series.parquet")
    assert "it is no Parquet file" in refused(capsys, run, path, "format=servetwin")
    assert "holds one run" in refused(capsys, run, path, "run=0")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "is no text" in refused(capsys, run, tmp_path / "binary")
    capsys.readouterr()
    assert cli.run(["compare", "--help"]) == 0 and "servetwin compare DIR MEASURED" in capsys.readouterr().out


def test_the_example_in_the_documentation_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "COMPARE.md").read_text(
        encoding="utf-8"
    )
    path = tmp_path / "example.csv"
    path.write_text(page.split("```csv\n")[1].split("```")[0])
    measured = read_measured(path)
    assert (
        measured.format == "csv" and len(measured) == 3 and measured.failed.tolist() == [False, False, True]
    )


@pytest.mark.parametrize(
    "factor, verdict",
    [
        (1 / FASTER, "and measured lies inside its range"),
        (100.0, "too fast at both"),
        (0.01, "too slow at both"),
    ],
)
def test_a_measured_number_is_inside_or_outside_of_the_range(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: float, verdict: str
) -> None:
    """Times of a hundredth or a hundred times ours are outside, ours inside."""
    rows = rows_of(run)
    for row in rows:
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            row[name] = row[name] and row[name] * factor
    file = as_csv(tmp_path / "measured.csv", rows)
    found = compared(capsys, run, file)["range"]
    assert {"ttft_ms.mean", "tpot_ms.p99", "e2e_ms.p50"} <= found.keys()
    assert all(verdict in entry["verdict"] for entry in found.values())
    assert cli.run(["compare", str(run), str(file)]) == 0
    assert verdict in capsys.readouterr().out


def test_a_run_without_a_range_says_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = simulated(tmp_path / "plain", "uncertainty=off", "series.period_s=0.5")
    file = as_csv(tmp_path / "measured.csv", rows_of(plain))
    assert "range" not in compared(capsys, plain, file)
