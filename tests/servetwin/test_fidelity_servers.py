"""``realexec fidelity http.start=...`` on made-up servers: refusals, arrivals, a kill and what follows."""

import csv
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.cli import fidelity_servers
from servetwin.cli import realexec as realexec_cli
from servetwin.cli.calibrate import words_of_engine
from servetwin.cli.fidelity_servers import LOADS, REPEATS, SCALING, arrivals_at, full_load_per_s
from servetwin.cli.fidelity_servers_page import ROW, claim, rows_of
from servetwin.run.quiet_gate import MOST_BUSY, wait_until_quiet
from tests.worlds.processes import started
from tests.worlds.small_fidelity import shorten

MAIN = "from tests.worlds.small_fidelity import main\nif __name__ == '__main__': main()"
LIMITS = ("engine.max_num_seqs=8", "engine.max_num_batched_tokens=256")


def words(folder: Path, *more: str) -> list[str]:
    fake = f"{sys.executable} -m tests.worlds.fake_openai port={{port}} step_s=0.01 kv_blocks=512"
    return ["fidelity", f"http.start={fake}", *LIMITS, "http.cores=null", *more, f"out={folder / 'out'}"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("trace.limit=9",), "trace.limit=9 is said by each case: leave it out"),
        (("system/scaler=kpa",), "system/scaler=kpa is said by each case"),
        (
            ("cases=[light,knee]",),
            "there is no case 'knee': write cases= with some of light, loaded, scaling",
        ),
        (("repeat=1",), "repeat=1 is out of range"),
        (("http.start=vllm serve MODEL",), "names no port"),
        (("http.cores=1000",), "http.cores=1000 for each of 2 servers needs 2000 cores"),
    ],
)
def test_words_that_do_not_fit_are_refused(
    more: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {word.partition("=")[0] for word in more}
    asked = [word for word in words(tmp_path) if word.partition("=")[0] not in keys]
    assert realexec_cli.run([*asked, *more]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("keys", "device", "found"),
    [
        ({}, "cpu", False),  # vLLM schedules one step after the other there
        ({}, "cuda", None),  # the engine's default holds
        ({}, None, None),
        ({"http.start": "vllm serve M --no-async-scheduling --port {port}"}, "cuda", False),
        ({"engine.asynchronous": "true"}, "cpu", True),
    ],
)
def test_what_a_server_says_of_its_scheduling_reaches_its_simulation(
    keys: dict[str, str], device: str | None, found: bool | None
) -> None:
    given = {"http.start": "vllm serve M --port {port}", **keys}
    assert fidelity_servers._asynchronous(given, device) is found
    record = {
        "server": {"kind": "vllm", "version": "0.32.0"}, "max_num_seqs": 8, "max_num_batched_tokens": 256,
        "asynchronous": found,
    }  # fmt: skip
    said = [word for word in words_of_engine(record) if word.startswith("engine.asynchronous=")]
    assert said == ([] if found is None else [f"engine.asynchronous={str(found).lower()}"])


def test_arrivals_follow_the_loads() -> None:
    """Two seconds at half of the full load, then four at a quarter: 1 + 1 seconds of full load."""
    full = np.arange(5.0, 9.0, 0.01)
    found = arrivals_at(full, [(2.0, 0.5), (4.0, 0.25)])
    assert found[0] == 0 and 5.9 < found[-1] <= 6.0 and len(found) == 201
    assert (found < 2).sum() == pytest.approx(100, abs=1)
    assert np.diff(found[:99]) == pytest.approx(0.02) and np.diff(found[102:]) == pytest.approx(0.04)


def test_the_full_load_is_that_of_these_requests() -> None:
    """100 tokens take 40 ms, a step of 8 requests of 110 tokens 32 ms: 20 tokens of each cost 80 ms."""
    steps = [
        {"prefill_tokens": tokens, "prefill_sequences": 1, "decode_sequences": 0, "context_tokens": 0,
         "median_s": took_s} for tokens, took_s in ((50, 0.02), (150, 0.06))
    ] + [
        {"prefill_tokens": 0, "prefill_sequences": 0, "decode_sequences": count, "context_tokens": context,
         "median_s": took_s} for count, context, took_s in ((8, 0, 0.02), (8, 1760, 0.044), (1, 16, 0.5))
    ]  # fmt: skip
    record = {"steps": steps, "max_num_seqs": 8}
    found = full_load_per_s(record, np.array([100, 100]), np.array([20, 20]))
    assert found == pytest.approx(1 / (0.04 + 20 * 0.032 / 8))


def test_the_gate_says_what_it_saw() -> None:
    seen = wait_until_quiet(0.0)
    assert seen["busy_share"] is None or 0 <= seen["busy_share"] <= 1
    assert seen["quiet"] == (seen["busy_share"] is None or seen["busy_share"] <= MOST_BUSY)


def killed_after(folder: Path, line: str) -> str:
    """Run the command until it says this, kill it with -9 a little later, and return what it had said."""
    said = ""
    with started(MAIN, *words(folder, "repeat=2", "quick=true"), cwd=Path.cwd()) as command:
        assert command.stderr is not None
        while line not in said:
            piece = command.stderr.readline()
            assert piece, said
            said += piece
        time.sleep(1.0)
        os.kill(command.pid, signal.SIGKILL)
        command.wait(30)
    return said


def test_a_killed_command_goes_on_and_writes_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = killed_after(tmp_path, "loaded: real run 1 of 2")
    out = tmp_path / "out"
    assert "light: real run 1 of 2" in said and not (out / "loaded" / "real-1").exists(), "it is unfinished"
    kept = [
        out / "starts.json",
        out / "profile" / "calibration.json",
        out / "light" / "real-1" / "summary.json",
    ]
    before = [file.read_bytes() for file in kept]
    shorten(monkeypatch.setattr)
    asked = words(tmp_path, "repeat=2", "quick=true")
    assert realexec_cli.run([*asked, "engine.block_tokens=32"]) == 2, "other words"
    assert "engine.block_tokens=32 now" in capsys.readouterr().err
    with monkeypatch.context() as other:
        other.setattr(fidelity_servers, "QUIET_S", 17.0)
        assert realexec_cli.run(asked) == 2, "other constants"
        assert "has results of other settings (quiet_s: 16.0 then, 17.0 now)" in capsys.readouterr().err
    assert realexec_cli.run(asked) == 0
    printed = capsys.readouterr().err
    assert "light: real run 1 of 2" not in printed and "is measured" not in printed
    assert "loaded: real run 1 of 2" in printed and "scaling: real run 2 of 2" in printed
    assert before == [file.read_bytes() for file in kept]
    check_results(out)
    assert realexec_cli.run([*asked, "title=again"]) == 0
    assert "real run" not in capsys.readouterr().err
    assert (out / "page.md").read_text(encoding="utf-8").startswith("# Fidelity: again\n")


def check_results(out: Path) -> None:
    report = json.loads((out / "fidelity.json").read_text(encoding="utf-8"))
    page = (out / "page.md").read_text(encoding="utf-8")
    assert set(report["cases"]) == {*LOADS, SCALING} and report["server"]["version"] == "0.0.fake"
    assert "# Fidelity: vLLM 0.0.fake over HTTP and its simulation" in page
    assert "**Nothing is claimed: this was a shorter try" in page and str(out) not in page
    for name, case in report["cases"].items():
        twin, *real = case["requests"]["finished"]
        assert real == [twin, twin] and case["requests"]["failed"] == [0, 0, 0], name
        assert case["tokens"]["checked"] > 0 == case["tokens"]["different"]
        assert (out / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert f"({name}.svg)" in page
    scaling = report["cases"][SCALING]
    for acts in scaling["scaling"]:
        assert [act for act, _ in acts][:2] == ["load", "ready"] and acts[-1][0] == "released"
    assert all(start["ready_s"] > 0 for start in scaling["starts"])
    with (out / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9 and {row["metric"] for row in rows} == {"ttft_ms", "tpot_ms", "e2e_ms"}
    tpot = next(row for row in rows if (row["case"], row["metric"]) == ("light", "tpot_ms"))
    assert float(tpot["error_of_mean"]) == pytest.approx(
        float(tpot["simulated_mean_ms"]) / float(tpot["real_mean_ms"]) - 1
    )
    check_replicas(out / "scaling-over-time.csv")


def check_replicas(file: Path) -> None:
    """Real runs and the twin have one server, then a second that starts, serves and is stopped."""
    with file.open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    for run in ("twin", "real-1", "real-2"):
        mine = [row for row in rows if row["run"] == run]
        held, serving = ([float(row[name]) for row in mine] for name in ("held", "serving"))
        assert held[0] == serving[0] == held[-1] == 1 and max(held) == max(serving) == 2, run
        assert sum(held) >= sum(serving)
        assert max(float(row["kv"]) for row in mine) > 0 and float(mine[-1]["running"]) == 0


def report_of(**more: Any) -> dict[str, Any]:
    every = {"d_sim_over_d_repeat": 1.5, "real_means_apart": 0.4, "verdict": "agrees", "decides": False}
    row = {
        "requests": 200, "simulated": {"mean": 110.0}, "real": {"mean": 100.0}, "d_sim": 0.2, "d_repeat": 0.1,
        "d_sim_over_d_repeat": 2.0, "interval": [1.4, 2.6], "unusual_run": 1.2, "real_means_apart": 0.04,
        "verdict": "differs", "decides": True, "with_all": every,
    }  # fmt: skip
    undecided = row | {"decides": False, "real_means_apart": 0.3}
    agreement = {"timing": {"ttft_ms": row, "e2e_ms": undecided}, "disturbed": "real-3"}
    case = {"agreement": agreement, "quiet": [{"quiet": True}] * REPEATS}
    base = {"cut_down": False, "profile": {"noisy": []}, "cases": {"light": case}, "repeats": REPEATS}
    return base | more


def test_rows_have_both_ways_of_a_disturbed_run() -> None:
    first, second = (dict(zip(ROW, row, strict=True)) for row in rows_of(report_of()))
    assert first["verdict"] == "differs" and second["verdict"] == "not decided"
    assert first["error_of_mean"] == pytest.approx(0.1) and first["disturbed"] == "real-3"
    assert first["with_all_verdict"] == "not decided" and first["with_all_real_means_apart"] == 0.4
    assert claim(report_of()) == (
        "**Of 2 rows 0 agree (the simulation cannot be told from a rerun), 1 differ and 1 decide nothing.**"
    )
    assert "not quiet while its steps" in claim(report_of(profile={"noisy": ["repeats differ"]}))
