"""Files of other tools are read, or refused by their name with what works instead."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.cli import main as cli
from servetwin.cli.export import FORMS
from servetwin.compare.formats import FORMATS, PER_REQUEST, STRICT, read_measured
from servetwin.compare.recognised import REFUSED
from servetwin.compare.statistics_file import ALONE, BY_STATISTICS
from servetwin.report.number_text import NOTHING
from serving.vocabulary.errors import UserError
from tests.worlds.damage import damaged, edit, line_edit
from tests.worlds.measured_files import (
    ERROR,
    WRITERS,
    Row,
    as_aiperf,
    as_genai_bench,
    as_genai_perf,
    as_guidellm,
    as_guidellm_yaml,
    as_inference_perf,
    as_llmperf,
    as_vllm_bench,
    bench_run,
    rows_of,
)
from tests.worlds.refusals import refuses

COUNT = 12
INSIDE = ("benchmarks", "experiments", "requests", "successful", "info", "individual_request_metrics")
IGNORED = "keys that are not known here are ignored: new_key"


def rows() -> list[Row]:
    """Requests of all kinds of lengths: 300 ms to the first token, 30 ms for each other one."""
    return [
        {
            "request": at, "arrival_s": 1000.0 + at / 4, "prompt_tokens": 500 + 7 * at, "ttft_ms": 300.0 + at,
            "output_tokens": 21 + at, "tpot_ms": 30.0, "e2e_ms": 300.0 + at + 30.0 * (20 + at),
            "queue_ms": 10.0, "gaps_ms": [30.0] * (20 + at),
        }
        for at in range(COUNT)
    ]  # fmt: skip


def loaded(path: Path) -> Any:
    """One document, or a list of lines."""
    text = path.read_text()
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def objects(value: Any) -> Iterator[Row]:
    """Every object in the document that describes a request or a report of them."""
    if isinstance(value, list):
        for item in value[:2]:
            yield from objects(item)
    elif isinstance(value, dict):
        yield value
        for key in (
            "benchmarks",
            "experiments",
            "requests",
            "successful",
            "info",
            "individual_request_metrics",
        ):
            yield from objects(value.get(key))


def rewritten(path: Path, value: Any) -> Path:
    lines = isinstance(value, list) and "\n{" in path.read_text()
    path.write_text("".join(json.dumps(row) + "\n" for row in value) if lines else json.dumps(value))
    return path


@pytest.mark.parametrize("format", [name for name in WRITERS if name not in STRICT])
def test_an_unknown_key_of_another_tool_is_ignored_and_named(format: str, tmp_path: Path) -> None:
    path = WRITERS[format][0](tmp_path / "file", rows())
    before = read_measured(path)
    if path.read_text()[0] not in "{[":
        lines = path.read_text().splitlines()
        path.write_text("\n".join([f"{lines[0]},new_key", *(f"{line},soon" for line in lines[1:])]))
    else:
        value = loaded(path)
        for found in objects(value):
            found["new_key"] = [1, 2, 3]
        rewritten(path, value)
    after = read_measured(path)
    assert after.format == format and IGNORED in after.remarks
    assert [remark for remark in after.remarks if remark != IGNORED] == list(before.remarks)
    for name, values in before.times.items():
        assert np.array_equal(values, after.times[name], equal_nan=True)


@pytest.mark.parametrize("format", STRICT)
def test_an_unknown_key_of_ours_is_a_slip(format: str, tmp_path: Path) -> None:
    path = WRITERS[format][0](tmp_path / "file", rows())
    path.write_text(path.read_text().replace("queue_ms", "queue", 1))
    refuses(UserError, "'queue' is unknown: write queue_ms", read_measured, path)


@pytest.mark.parametrize("format", ["jsonl", "aiperf", "llmservingsim", "vllm_bench", "sglang"])
def test_lines_are_also_read_as_one_list(format: str, tmp_path: Path) -> None:
    path = WRITERS[format][0](tmp_path / "file", rows())
    before, whole = read_measured(path), loaded(path)
    path.write_text(json.dumps(whole if isinstance(whole, list) else [whole], indent=1))
    after = read_measured(path)
    assert after.format == format
    for name, values in before.times.items():
        assert np.array_equal(values, after.times[name], equal_nan=True)


def test_many_unknown_keys_are_counted(tmp_path: Path) -> None:
    path = as_vllm_bench(tmp_path / "file", rows())
    rewritten(path, loaded(path) | {f"list_{at}": [] for at in range(10)})
    (remark,) = read_measured(path).remarks
    assert remark.endswith("list_7 and 2 more")


def test_guidellm_as_yaml_is_the_same_as_its_json(tmp_path: Path) -> None:
    one = read_measured(as_guidellm(tmp_path / "a.json", rows()))
    other = read_measured(as_guidellm_yaml(tmp_path / "a.yaml", rows()))
    assert other.format == "guidellm" and not other.remarks
    for name, values in one.times.items():
        assert np.array_equal(values, other.times[name], equal_nan=True)
    assert np.array_equal(one.arrival_s, other.arrival_s)


def test_a_larger_yaml_than_people_write_is_read(tmp_path: Path) -> None:
    """Users' own YAML files end at 100,000 values, which GuideLLM writes for some thousand requests."""
    path = tmp_path / "a.yaml"
    as_guidellm(path, rows() * 1200)
    path.write_text(yaml.dump(loaded(path), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    assert len(read_measured(path)) == COUNT * 1200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Metric,avg,min,max\nTime to First Token (ms),100,50,400\n\nMetric,Value\n", "profile_export.jsonl"),
        ("version: '0.1'\nmetrics:\n  latency: {}\n", "report of llm-d"),
        ("version: '0.2'\nresults: {}\n", "report of llm-d"),
        ('{"version": "0.1", "metrics": {"latency": {}}}', "per_request_lifecycle_metrics.json"),
        ('{"metadata": {"aggregation_type": "confidence"}, "metrics": {}}', "over several runs of AIPerf"),
        ('{"version": "1", "name": "x", "results_ttft_s_mean": 1}', "_individual_responses.json"),
        ('{"avg_latency": 1, "latencies": [1], "percentiles": {}}', "--save-detailed"),
        ('{"elapsed_time": 1, "requests_per_second": 2}', "--save-detailed"),
        ('{"request_throughput": 3, "mean_ttft_ms": 1}', "vllm bench serve without single requests"),
        ('{"total_output_tokens_retokenized": 3, "request_rate": Infinity}', "--output-details"),
        ('{"metadata": {}, "responses": [], "status": 200}', "profile_export.jsonl beside it"),
        ("====== Serving Benchmark Result ======\nSuccessful requests: 3\n", "--save-detailed"),
        ("      NVIDIA AIPerf | LLM Metrics\n", "profile_export.jsonl of AIPerf"),
        ("<!DOCTYPE html>\n<html></html>\n", "it is a web page"),
        ('{"metadata": 5, "metrics": {}}', "metadata is no object"),
        ("max_num_seqs,run_number,mean_ttft_ms\n8,0,3\n", "has the columns max_num_seqs, run_number"),
        ("Type,Name,Request Count\nGET,/,3\n", "has the columns Type, Name, Request Count and is in no"),
        ('{"http_reqs": 3, "vus": 1}', "has the keys http_reqs, vus and is in no format"),
        ('{\n"http_reqs": 3\n}', "its keys are http_reqs"),
        ("name: x\nother: 3\n", "its keys are name, other"),
        ("name: [x\n", "looks like YAML and is none"),
        ('{"experiments": 3}', "experiments is no list"),
        ('{"benchmarks": 3}', "benchmarks is no list"),
        ('[{"end_to_end_latency_s": 3}, 4]', "request 1: a request is no object"),
        ('{"time_to_first_token": {"unit": "s", "avg": 1}}', "time_to_first_token is in 's'"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_called_what_it_is(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Path
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert cli.run(["compare", str(run), str(path)]) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and not shown.out


def test_a_folder_of_another_tool_has_its_file_named(tmp_path: Path) -> None:
    for name in ("summary_lifecycle_metrics.json", "per_request_lifecycle_metrics.json"):
        (tmp_path / name).write_text("[]")
        refuses(UserError, f"give its file {tmp_path / name}", read_measured, tmp_path)
    (tmp_path / "requests.parquet").write_text("")
    refuses(UserError, "it is no Parquet file", read_measured, tmp_path)


def test_every_refused_kind_says_what_works() -> None:
    assert not set(REFUSED) & set(FORMATS)
    for what, remedy in REFUSED.values():
        assert what.startswith("it ") and remedy.startswith(("give ", "run "))


@pytest.mark.parametrize(
    ("write", "key", "place"),
    [
        (as_llmperf, "ttft_s", "request 3"),
        (as_aiperf, "time_to_first_token", "line 5"),  # behind a line of warm-up
        (as_guidellm, "time_to_first_token_ms", "successful[3]"),
    ],
)
@pytest.mark.parametrize(("wrong", "why"), [(-5, "below 0"), (0, "0"), ("soon", "no number")])
def test_one_bad_time_names_its_request(
    write: Callable[[Path, list[Row]], Path], key: str, place: str, wrong: Any, why: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "file", rows())
    whole = loaded(path)
    if write is as_aiperf:
        whole[4]["metrics"][key]["value"] = wrong
    else:
        requests = whole if write is as_llmperf else whole["benchmarks"][0]["requests"]["successful"]
        requests[3][key] = wrong
    found = read_measured(rewritten(path, whole))
    assert np.isnan(found.times["ttft_ms"]).sum() == 1 and not np.isnan(found.times["e2e_ms"]).any()
    expected = f"TTFT of 1 of {COUNT} requests is unknown and left out (1: {why}): {place}"
    assert expected in found.remarks


@pytest.mark.parametrize("wrong", [-3, 1.5, "many", True, [3]])
def test_one_bad_count_names_its_request_and_is_unknown(wrong: Any, tmp_path: Path) -> None:
    path = as_inference_perf(tmp_path / "file", rows())
    whole = loaded(path)
    whole[2]["info"]["output_tokens"] = wrong
    found = read_measured(rewritten(path, whole))
    assert found.output_tokens.tolist().count(-1) == 1
    assert f"unknown, since it is no count: output_tokens '{wrong}' of request 2" in found.remarks
    assert np.isnan(found.times["tpot_ms"]).sum() == 1, "it is not told by other counts"


def test_newer_inference_perf_has_its_counts_elsewhere(tmp_path: Path) -> None:
    path = as_inference_perf(tmp_path / "file", rows())
    before, whole = read_measured(path), loaded(path)
    for row in whole:
        info = row["info"]
        row["info"] = {
            "request_metrics": {"text": {"input_tokens": info["input_tokens"]}},
            "response_metrics": {name: info[name] for name in ("output_tokens", "output_token_times")},
        }
    after = read_measured(rewritten(path, whole))
    assert after.prompt_tokens.tolist() == before.prompt_tokens.tolist()
    assert after.output_tokens.tolist() == before.output_tokens.tolist()
    assert np.array_equal(after.times["tpot_ms"], before.times["tpot_ms"]) and not after.remarks


def test_times_of_all_events_are_no_token_gaps(tmp_path: Path) -> None:
    """Older inference-perf notes two events per token; TPOT is that of the tokens all the same."""
    path = as_inference_perf(tmp_path / "file", rows())
    whole = loaded(path)
    for row in whole:
        row["info"]["output_token_times"] = [at for at in row["info"]["output_token_times"] for _ in range(2)]
    found = read_measured(rewritten(path, whole))
    assert not len(found.gaps_ms) and not found.remarks
    assert found.times["tpot_ms"] == pytest.approx([30.0] * COUNT)


def test_failed_requests_of_lists_are_failed(tmp_path: Path) -> None:
    path = as_inference_perf(tmp_path / "a", rows())
    whole = loaded(path)
    whole[1] |= {"error": {"error_type": "TimeoutError"}, "info": None}
    assert np.flatnonzero(read_measured(rewritten(path, whole)).failed).tolist() == [1]
    path = as_llmperf(tmp_path / "b", rows())
    whole = loaded(path)
    whole[1] |= {"error_code": 500, "ttft_s": 0, "end_to_end_latency_s": 0}
    assert np.flatnonzero(read_measured(rewritten(path, whole)).failed).tolist() == [1]


def test_genai_bench_states_its_unit(tmp_path: Path) -> None:
    seconds, ms = (read_measured(as_genai_bench(tmp_path / unit, rows(), unit)) for unit in ("s", "ms"))
    for name, values in seconds.times.items():
        assert values == pytest.approx(ms.times[name], nan_ok=True)
    other = as_genai_bench(tmp_path / "us", rows(), "us")
    refuses(UserError, "_time_unit is not s or ms", read_measured, other)


def test_genai_perf_without_counts_has_no_tpot(tmp_path: Path) -> None:
    path = as_genai_perf(tmp_path / "file", rows())
    whole = loaded(path)
    for row in whole["experiments"][0]["requests"]:
        row["response_outputs"] = []
    found = read_measured(rewritten(path, whole))
    assert set(found.output_tokens) == {-1} and np.isnan(found.times["tpot_ms"]).all()
    assert found.times["ttft_ms"] == pytest.approx([1.0] * COUNT), "an event of unknown text may be a token"
    whole["experiments"] *= 2
    refuses(UserError, "holds 2 runs: write run=0", read_measured, rewritten(path, whole))


def test_chunks_of_several_tokens_leave_tpot_to_the_ends(tmp_path: Path) -> None:
    """Speculative decoding."""
    path = as_vllm_bench(tmp_path / "file", rows())
    chunks = [[gap / 1e3 for gap in _in_threes(row["gaps_ms"])] for row in rows()]
    found = read_measured(rewritten(path, bench_run(rows()) | {"itls": chunks}))
    assert found.times["tpot_ms"] == pytest.approx([30.0] * COUNT)
    (remark,) = found.remarks
    assert remark.startswith("ITL is unknown") and "between their chunks is" in remark
    assert remark.endswith("their TPOT is (E2E - TTFT) / (output tokens - 1)")


def _in_threes(gaps: list[float]) -> list[float]:
    return [sum(gaps[at : at + 3]) for at in range(0, len(gaps), 3)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("runs") / "run")


def simulated(out: Path, *words: str) -> Path:
    common = ("trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=10", "cluster=a100_x1")
    assert cli.run(["simulate", *common, "uncertainty=off", *words, f"out={out}"]) == 0
    return out


def compared(capsys: pytest.CaptureFixture[str], *words: Any) -> Row:
    capsys.readouterr()
    assert cli.run(["compare", *map(str, words), "json=true"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def partly_rejected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose KV holds no long prompt, the first one of them."""
    out = simulated(tmp_path_factory.mktemp("runs") / "partly", "engine.kv_tokens=2000")
    counts = json.loads((out / "summary.json").read_text())["requests"]
    assert counts["rejected"] and counts["finished"]
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", ["run", "partly_rejected"])
def test_every_export_is_compared_as_equal(
    form: str, which: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = request.getfixturevalue(which)
    counts = json.loads((folder / "summary.json").read_text())["requests"]
    path = tmp_path / "exported"
    assert cli.run(["export", str(folder), f"to={form}", f"out={path}"]) == 0
    found = compared(capsys, folder, path)
    assert set(found["errors"]["all"]) == {"ttft_ms", "tpot_ms", "e2e_ms"}
    for entry in found["errors"]["all"].values():
        assert entry["error"] == pytest.approx(dict.fromkeys(entry["error"], 0.0), abs=1e-9)
        assert entry["per_request"] in (None, pytest.approx(0.0, abs=1e-9))
    failed = counts["arrived"] - counts["finished"]
    assert found["measured"]["failed"] == failed
    if found["matched"]["by"] == BY_STATISTICS:
        assert found["remarks"] == [ALONE] and found["measured"]["requests"] == counts["finished"]
    else:
        assert found["matched"]["requests"] == counts["finished"]
        assert found["measured"]["requests"] == counts["arrived"]


@pytest.mark.parametrize("form", FORMS)
@given(line_edits=st.lists(line_edit, max_size=2), edits=st.lists(edit, max_size=3))
@settings(max_examples=20)
def test_damaged_exports_are_compared_or_refused(
    form: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    line_edits: list[tuple[str, int, int]],
    edits: list[tuple[int, int, bytes]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "exported"
        assert cli.run(["export", str(run), f"to={form}", f"out={path}"]) == 0
        path.write_bytes(damaged(path.read_bytes(), line_edits, edits))
        capsys.readouterr()
        status = cli.run(["compare", str(run), str(path)])
    said = capsys.readouterr()
    assert status in (0, 2), said.err
    assert (not said.err and said.out) if status == 0 else (not said.out and said.err.count("\n") == 1)


def test_statistics_of_another_workload_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    assert cli.run(["export", str(run), "to=aiperf", f"out={path}"]) == 0
    whole = loaded(path)
    whole["input_sequence_length"]["avg"] *= 2
    assert cli.run(["compare", str(run), str(rewritten(path, whole))]) == 2
    assert "simulate the same workload" in capsys.readouterr().err
    del whole["input_sequence_length"], whole["request_latency"], whole["inter_token_latency"]
    whole["request_count"]["avg"] = 39
    whole["time_to_first_token"]["p90"] = -1
    del whole["time_to_first_token"]["p95"]
    found = compared(capsys, run, rewritten(path, whole))
    assert "39 requests finished in the file and 40 in the simulation" in found["remarks"]
    error = found["errors"]["all"]["ttft_ms"]["error"]
    assert (error["p90"], error["p95"]) == (None, None) and error["p99"] == pytest.approx(0, abs=1e-9)
    del whole["request_count"]
    assert cli.run(["compare", str(run), str(rewritten(path, whole))]) == 0
    shown = capsys.readouterr().out
    assert f"{NOTHING} requests, 0 failed" in shown and "compared   statistics of all requests" in shown
    del whole["time_to_first_token"]
    assert cli.run(["compare", str(run), str(rewritten(path, whole)), "format=aiperf_statistics"]) == 2
    assert "has no statistic of ttft_ms" in capsys.readouterr().err


def test_two_clients_need_single_requests(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    assert cli.run(["export", str(run), "to=inference_perf", f"out={path}"]) == 0
    assert cli.run(["compare", str(path), str(path), "against", str(path), str(path)]) == 2
    assert "has statistics and no single requests" in capsys.readouterr().err
    assert cli.run(["compare", str(run), str(path), "run=0"]) == 2
    assert "holds one run" in capsys.readouterr().err


def test_a_file_in_another_order_without_arrivals_is_matched_by_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulated(tmp_path / "run", "series.period_s=1")
    path = as_llmperf(tmp_path / "file", rows_of(run))
    found = compared(capsys, run, path)
    assert found["errors"]["all"]["e2e_ms"]["per_request"] == pytest.approx(ERROR)
    assert "another order" in found["matched"]["by"]
    in_order = [row | {"e2e_ms": 0.0, "arrival_s": row["request"]} for row in rows_of(run)]
    as_llmperf(path, in_order)
    assert compared(capsys, run, path)["matched"]["by"] == "order in the file"


def test_every_format_has_a_writer_here() -> None:
    assert set(PER_REQUEST) - {"servetwin"} == set(WRITERS)
