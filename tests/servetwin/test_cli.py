"""servetwin from the command line, used as it should be: every option, odd names, terminals and loads."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nativecore import core, why_interpreted
from servetwin.cli import main as cli
from servetwin.config.compose.resolved import load_resolved
from tests.worlds.processes import patience_s

ROOT = Path(__file__).resolve().parents[2]
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FILES = {"summary.json", "requests.parquet", "config.yaml", "report.html"}
SPREADS = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
DRAWN = ("trace=azure_conv_like", "trace.requests=60", "trace.utilization=2")
ODD_NAMES = (
    *("a b", "a=b", "a,b", "{a: 1}", '"q"', "'q'", "$HOME", "${seed}", "übung 数", "-x", "two\nlines", "#c"),
    *("null", "*", "[1]", "%s", "@x", "a\tb", "\x85", "back\\slash", "trailing ", "~", "\udcff"),
)
# So few that requests are preempted, and enough that each of the longest fits.
SCARCE = ("engine.kv_tokens=8192", "engine.max_new_tokens=1024", "cluster=a100_x2")


def simulated(folder: Path, *words: str) -> dict[str, Any]:
    """Run, check what every result folder holds, return the summary."""
    assert cli.run(["simulate", f"out={folder}", *words]) == 0
    assert [entry.name for entry in folder.parent.iterdir() if "unfinished" in entry.name] == []
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    requests = summary["requests"]
    unserved = {"unserved.parquet"} if requests["rejected"] or requests["failed"] else set()
    wanted = FILES | ({"journal"} if "journal=true" in words else set()) | unserved
    assert {entry.name for entry in folder.iterdir() if entry.name[0] != "."} == wanted
    ended = sum(requests[how] for how in ("finished", "rejected", "failed", "dropped"))
    assert requests["arrived"] == ended
    with (folder / "requests.parquet").open("rb") as file:
        assert pq.read_metadata(file).num_rows == requests["finished"]
    for how in ("rejected", "failed"):
        assert sum(summary[f"{how}_reasons"].values()) == requests[how]
    assert sum(summary["trace"]["dropped"].values()) == requests["dropped"]
    return summary


def replays(folder: Path) -> bool:
    return cli.run(["replay", str(folder)]) == 0


def trace_of(path: Path, *rows: str) -> Path:
    path.write_text(HEADER + "".join(f"2023-11-16 18:15:{row}\n" for row in rows), encoding="utf-8")
    return path


def recorded(folder: Path, *words: str) -> dict[str, Any]:
    """A run of the trace file written into ``folder`` before."""
    return simulated(folder / "run", "trace=azure_conv", f"trace.path={folder / 'trace.csv'}", *words)


def process(words: list[str], folder: Path, **changes: Any) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, in ``folder``; ``env`` replaces all but where things are."""
    code = "from servetwin.cli.main import main; main()"
    kept = {name: os.environ[name] for name in ("PATH", "SERVETWIN_CACHE")}
    env = {"PYTHONPATH": str(ROOT), **kept, **changes.pop("env", {})}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **changes}
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, env=env, text=True, timeout=patience_s(), **given
    )


@pytest.fixture(scope="module")
def real_traces() -> Path:
    places = [*os.environ.get("SERVETWIN_TRACES", "").split(os.pathsep), ROOT.parent / "shared/data/traces"]
    for place in map(Path, filter(None, places)):
        if (place / "AzureLLMInferenceTrace_conv.csv").is_file():
            return place
    pytest.skip("the Azure traces are not here: set SERVETWIN_TRACES to their folder")


def test_five_minutes_of_the_azure_trace(
    real_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVETWIN_TRACES", str(real_traces))
    words = ("system=vllm", "cluster=a100_x8", "model=llama3_8b", "trace=azure_conv", "journal=true")
    words += ("trace.limit=5500",)
    summary = simulated(tmp_path / "run", *words)
    assert summary["requests"] == {
        "arrived": 5500,
        "finished": 5499,
        "rejected": 1,  # a prompt of 14,050 tokens, beyond the model's context
        "failed": 0,
        "dropped": 0,
    }
    for name in SPREADS:
        spread = summary[name]
        assert list(spread) == ["mean", "p50", "p90", "p95", "p99", "max"]
        assert 0 < spread["p50"] <= spread["p90"] <= spread["p95"] <= spread["p99"] <= spread["max"]
    slo = {"ttft_attainment", "tpot_attainment", "attainment", "goodput_req_per_s"}
    assert slo < set(summary["slo"]) and all(summary["slo"][key] > 0 for key in slo)
    assert summary["throughput"]["req_per_s"] > 4
    assert summary["throughput"]["output_tokens_per_s"] > 1000
    assert summary["gpu_seconds"] == pytest.approx(8 * summary["duration_s"])
    assert summary["instances"] == {"mean": 8.0, "max": 8}
    assert summary["preemptions"] == 0
    sim = summary["sim"]
    assert (sim.pop("core"), sim.pop("why_interpreted")) == (core(), why_interpreted())
    keys = {"wall_s", "cpu_s", "process_cpu_s", "range_cpu_s", "requests_per_cpu_s", "events", "policies"}
    assert set(sim) == keys
    assert all(sim.values())
    assert "5,499 of 5,500" in capsys.readouterr().out
    assert replays(tmp_path / "run")
    assert " 0 differ" in capsys.readouterr().out


def test_the_first_requests_of_the_code_trace(
    real_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVETWIN_TRACES", str(real_traces))
    summary = simulated(tmp_path / "run", "trace=azure_code", "trace.limit=500", "engine=vllm_v0")
    assert summary["requests"]["finished"] == 500
    assert summary["trace"]["labels"] == ["first 500 of 8819 requests"]


# Every pair of choices is in one of these.
CHOICES = [
    (dispatch, batchers[engine], f"vllm_v{engine}")
    for batchers, dispatchers in (
        (("chunked_prefill", "prefill_first"), ("round_robin", "least_outstanding")),
        (("prefill_first", "chunked_prefill"), ("power_of_two", "least_kv")),
    )
    for dispatch in dispatchers
    for engine in (0, 1)
]


@pytest.mark.parametrize(("dispatch", "batcher", "engine"), CHOICES)
def test_every_policy_on_scarce_memory(tmp_path: Path, dispatch: str, batcher: str, engine: str) -> None:
    choice = (f"system/dispatch={dispatch}", f"system/batcher={batcher}", f"engine={engine}")
    summary = simulated(tmp_path / "run", *DRAWN, *SCARCE, *choice, "journal=true")
    assert summary["requests"]["finished"] > 50
    assert summary["preemptions"] > 0
    assert replays(tmp_path / "run")
    system = load_resolved(tmp_path / "run" / "config.yaml").system
    assert (system.dispatch.name, system.batcher.name) == (dispatch, batcher)


@pytest.mark.parametrize(
    "words",
    [
        ("model=qwen2_5_72b",),
        ("model=qwen2_5_72b", "model.tp=8", "engine.step_time=roofline"),
        ("model=llama2_7b", "engine=vllm_v0"),
        ("model=tiny_llama", "cluster=local"),
        ("engine.step_time=roofline",),
        ("engine.step_time=linear",),
        ("cluster=a100_x1024",),
        ("cluster=a100_x1",),
        ("engine.exact=true",),
        ("engine.block_tokens=1",),
        ("engine.max_num_seqs=1", "engine.max_num_batched_tokens=64"),
        ("engine=vllm_v0", "engine.max_num_batched_tokens=1"),
        ("engine.watermark=0.5",),
        ("seed=9223372036854775807",),
    ],
    ids=" ".join,
)
def test_every_kind_of_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    summary = simulated(tmp_path / "run", "trace=azure_conv_like", "trace.requests=30", *words)
    assert summary["requests"]["finished"] == 30
    gpus = load_resolved(tmp_path / "run" / "config.yaml").cluster.gpus
    assert summary["gpu_seconds"] == pytest.approx(gpus * summary["duration_s"])


def test_a_request_that_can_never_fit_is_rejected_with_the_reason(tmp_path: Path) -> None:
    trace_of(tmp_path / "trace.csv", "46,100,10", "47,2000,10", "48,100,10")
    summary = recorded(tmp_path, "engine.kv_tokens=1024", "engine.max_new_tokens=64")
    assert summary["requests"]["finished"] == 2
    ((reason, times),) = summary["rejected_reasons"].items()
    assert times == 1 and "1008 KV tokens" in reason  # one block of 16 is the null block


def test_the_token_bucket_rejects_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = ("system/admission=token_bucket", "system.admission.rate_per_s=2", "system.admission.burst=3")
    summary = simulated(tmp_path / "run", *DRAWN, *bucket, "journal=true")
    rejected = summary["requests"]["rejected"]
    assert 0 < rejected < 60
    assert summary["rejected_reasons"] == {"token bucket empty": rejected}
    assert f"{rejected} rejected: token bucket empty" in capsys.readouterr().out
    assert replays(tmp_path / "run")


def test_long_outputs_are_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_of(tmp_path / "trace.csv", "46,100,5", "47,100,6", "48,100,7")
    summary = recorded(tmp_path, "engine.max_new_tokens=6")
    assert summary["trace"]["truncated_outputs"] == 1
    table = pq.read_table(tmp_path / "run" / "requests.parquet")
    assert table["output_tokens"].to_pylist() == [5, 6, 6]
    assert "1 outputs longer than max_new_tokens" in capsys.readouterr().out


def test_a_changed_trace_says_so_in_the_summary_and_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_of(tmp_path / "trace.csv", *(f"{second},100,40" for second in range(10, 50)))
    words = ("trace.limit=30", "trace.tokens_scale=0.1", "trace.utilization=0.01")
    summary = recorded(tmp_path, *words)
    labels = summary["trace"]["labels"]
    assert labels[0] == "tokens scaled by 0.1"
    assert labels[1].startswith("replicated")
    assert labels[2].startswith("first 30 of"), "the limit is the number of requests run"
    assert summary["requests"]["arrived"] == 30
    printed = " ".join(capsys.readouterr().out.split())
    assert all(" ".join(label.split()) in printed for label in labels)


def test_zero_output_rows_are_dropped_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_of(tmp_path / "trace.csv", "46,100,5", "47,100,0", "48,100,7", "49,9,0")
    summary = recorded(tmp_path)
    assert summary["requests"]["arrived"] == 4
    assert summary["requests"]["dropped"] == 2
    assert summary["trace"]["dropped"] == {"zero output tokens": 2}
    assert "2 dropped from the trace: zero output tokens" in capsys.readouterr().out


def test_equal_timestamps_keep_the_order_of_the_file(tmp_path: Path) -> None:
    trace_of(tmp_path / "trace.csv", *(f"46,{100 + row},5" for row in (3, 1, 2, 0)))
    recorded(tmp_path, "cluster=a100_x1", "engine.max_num_seqs=1")
    table = pq.read_table(tmp_path / "run" / "requests.parquet")
    assert table["prompt_tokens"].to_pylist() == [103, 101, 102, 100]
    first = table["first_token_ns"].to_pylist()
    assert first == sorted(first) and len(set(first)) == 4


def test_one_request_with_one_token(tmp_path: Path) -> None:
    trace_of(tmp_path / "trace.csv", "46,100,1")
    summary = recorded(tmp_path, "trace.limit=200000000", "journal=true")
    assert summary["requests"]["finished"] == 1
    assert summary["tpot_ms"]["p99"] is None and summary["itl_ms"]["mean"] is None
    assert summary["ttft_ms"]["max"] == summary["e2e_ms"]["max"] > 0
    assert replays(tmp_path / "run")


@pytest.mark.parametrize("engine", ["vllm_v0", "vllm_v1"])
def test_many_requests_at_one_instant(tmp_path: Path, engine: str) -> None:
    trace_of(tmp_path / "trace.csv", *["46,100,20"] * 300)
    summary = recorded(tmp_path, f"engine={engine}", *SCARCE, "journal=true")
    assert summary["requests"]["finished"] == 300
    assert summary["preemptions"] > 0
    assert replays(tmp_path / "run")


def test_ten_thousand_requests_within_a_microsecond(tmp_path: Path) -> None:
    drawn = ("trace=azure_conv_like", "trace.requests=10000", "trace.rate_per_s=1e10")
    summary = simulated(tmp_path / "run", *drawn, "trace.tokens_scale=0.01", "cluster=a100_x64")
    assert summary["requests"]["finished"] == 10_000


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_folder_of_any_name_and_a_trace_in_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes no such name")
    trace_of(folder / "trace.csv", "46,100,5").rename(folder / f"{name}.csv")
    run = folder / name
    words = ("trace=azure_conv", f"trace.path={folder / name}.csv", "journal=true")
    assert simulated(run, *words)["requests"]["finished"] == 1
    config = load_resolved(run / "config.yaml")
    assert (config.out, config.trace.path) == (str(run), f"{folder / name}.csv")
    assert replays(run)


def test_home_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder called '~' is made: removing it by hand would be a disaster."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    trace_of(tmp_path / "home" / "t.csv", "46,100,5")
    words = ["trace=azure_conv", "trace.path=~/t.csv", "journal=true", "out=~/run"]
    monkeypatch.chdir(tmp_path)
    assert cli.run(["simulate", *words]) == 0
    assert (tmp_path / "home" / "run" / "summary.json").is_file()
    assert cli.run(["replay", "~/run"]) == 0
    assert {entry.name for entry in tmp_path.iterdir()} == {"home"}


def test_overwriting_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = simulated(tmp_path / "run", *DRAWN)
    assert cli.run(["simulate", *DRAWN, f"out={tmp_path / 'run'}"]) == 2
    assert "overwrite=true" in capsys.readouterr().err
    second = simulated(tmp_path / "run", *DRAWN, "seed=1", "overwrite=true")
    assert (first["seed"], second["seed"]) == (0, 1)


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "dumb", "LANG": "C", "PYTHONHASHSEED": "1"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "COLUMNS": "3"},
        {"PYTHONIOENCODING": "ascii", "PYTHONHASHSEED": "77", "PYTHONWARNINGS": "error"},
    ],
    ids=str,
)
def test_the_environment_changes_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    """No HOME, no locale, no wide terminal, another hash seed; one-token answers print a dash."""
    words = [*DRAWN, "engine.max_new_tokens=1", "journal=true"]
    here = simulated(tmp_path / "here", *words)
    done = process(["simulate", *words, "out=übung"], tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    there = json.loads((tmp_path / "übung" / "summary.json").read_text(encoding="utf-8"))
    assert here.pop("sim") and there.pop("sim")
    assert json.dumps(here) == json.dumps(there)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = process(["simulate", *DRAWN, "out=run"], tmp_path, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_error(tmp_path: Path, closed: int) -> None:
    run = process(["simulate", *DRAWN, "out=run"], tmp_path, preexec_fn=lambda: os.close(closed))
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").is_file()


def test_a_terminal_sees_a_bar_and_then_a_clean_line(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    shown = b""

    def read() -> None:  # as it comes: a slow run says more than a terminal holds unread
        nonlocal shown
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            while part := os.read(ours, 65536):
                shown += part

    reader = threading.Thread(target=read)
    reader.start()
    try:
        done = process(["simulate", *DRAWN, "out=run"], tmp_path, stderr=theirs, env={"TERM": "xterm"})
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    assert done.returncode == 0
    assert b"simulating" in shown and b"60/60" in shown
    assert "results in" in done.stdout and "\x1b" not in done.stdout


def test_help_lists_every_option_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", "--help"]) == 0
    listed = capsys.readouterr().out
    for word in ("a100_xN", "token_bucket", "qwen2_5_72b", "trace.utilization=null", "model.tp=1", "journal"):
        assert word in listed
    assert "workers=" not in listed
    assert cli.run(["--help"]) == cli.run(["replay", "-h"]) == cli.run(["--version"]) == 0
    assert cli.run([]) == 2
    assert "servetwin replay DIR" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["servetwin.cli.main", "servetwin.cli.realexec", "servetwin"])
def test_modules_are_the_commands(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    name = "realexec" if "realexec" in module else "servetwin"
    assert done.stdout.startswith(f"{name} ")
