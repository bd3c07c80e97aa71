"""Servers that the run starts and stops: phases, ports, cores, logs, and nothing left after any death."""

import json
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from realexec.http.start_log import device_of, phases_of
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.processes import patience_s, started, wait_until
from tests.worlds.quick_scalers import scaler_words
from tests.worlds.started_servers import LOAD, MAIN, left, of_word, script, wait_gone, words

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")

PHASES = ("process_s", "first_log_s", "listens_s", "listed_s", "ready_s")
KPA = scaler_words("kpa")


def summary_of(folder: Path) -> dict[str, Any]:
    """Of a run whose requests all finished, with the right tokens, and whose journal replays."""
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    assert summary["real"]["tokens_different"] == summary["real"]["recomputed_different"] == 0
    assert cli.run(["replay", str(folder / "run")]) == 0
    assert left(folder) == []
    return summary


def test_a_scaler_starts_servers_and_stops_them(tmp_path: Path) -> None:
    command = script(tmp_path, "way_up_s=0.2")
    assert realexec_cli.run(words(tmp_path, command, *scaler_words("hpa"), servers=3)) == 0
    summary = summary_of(tmp_path)
    real, starts = summary["real"], summary["real"]["starts"]
    acts = [event["act"] for event in summary["scale_events"]]
    assert len(starts["servers"]) == 1 + acts.count("ready") >= 2 and starts["failed"] == 0
    for start in starts["servers"]:
        times = [start[name] for name in PHASES]
        assert times == sorted(times) and start["listens_s"] > 0.2, "in this order, as measured"
        assert start["log_says"] == {"read_parameters_s": 0.2}
        log = (tmp_path / "run" / start["log"]).read_text(encoding="utf-8")
        assert f"http://127.0.0.1:{start['port']}\n" in log
    assert len({start["port"] for start in starts["servers"]}) == len(starts["servers"])
    assert set(starts["cold"]) == set(PHASES)
    assert sum(starts["stopped"].values()) == acts.count("released") and real["workers_lost"] == []
    assert real["metrics_read"] and real["tokens_checked"] > 0


def test_a_system_without_a_scaler_has_all_servers_from_the_start(tmp_path: Path) -> None:
    all_words = words(tmp_path, script(tmp_path), "http.kill_s=5")
    all_words[all_words.index("system=allcache")] = "system=vllm"
    all_words.remove("system.instances.split=false")
    assert realexec_cli.run(all_words) == 0
    real = summary_of(tmp_path)["real"]
    assert len(real["starts"]["servers"]) == len(real["servers"]) == 2
    assert real["front_end"]["requests"] == 60, "counted from the first to the last"


def test_a_stopped_server_starts_again_warm_and_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    command = script(tmp_path, "stubborn=true")
    slow = ("trace.limit=40", "trace.rate_scale=1", "trace.tokens_scale=0.1", "http.check_tokens=100")
    zero = ("system.instances.both_min=0", "http.kill_s=0.1")
    assert realexec_cli.run(words(tmp_path, command, *scaler_words("keda"), *zero, servers=1, load=slow)) == 0
    starts = summary_of(tmp_path)["real"]["starts"]
    assert [start["kind"] for start in starts["servers"]][:2] == ["cold", "warm"]
    assert starts["stopped"]["by_sigkill"] >= 1 and starts["stopped"]["by_sigterm"] == 0
    assert starts["warm"]["ready_s"] > 0


@pytest.mark.parametrize(
    ("before", "keys", "told"),
    [
        ("echo no memory; exit 3", (), "its process ended with exit status 3; its log ends with: no memory"),
        ("kill -9 $$", (), "its process was ended by SIGKILL"),
        ("sleep 100", ("http.start_timeout_s=5",), "it serves no model in time, but came to process"),
    ],
)
def test_a_server_that_does_not_start_is_refused_with_its_log(
    before: str, keys: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert realexec_cli.run(words(tmp_path, script(tmp_path, before=before), *KPA, *keys)) == 2
    error = capsys.readouterr().err
    assert f"the server that http.start starts is of no use: {told}" in error
    assert left(tmp_path) == [] and not (tmp_path / "run").exists()


def test_servers_that_stop_starting_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = f"[ -e {tmp_path}/once ] && echo no port && exit 4\ntouch {tmp_path}/once"
    assert realexec_cli.run(words(tmp_path, script(tmp_path, before=once), *KPA)) == 2
    assert "exit status 4; its log ends with: no port" in capsys.readouterr().err
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (("http.start='vllm serve M'",), "names no port: write {port} where the command has it"),
        (("http.start='serve {port} {x}'",), "is no command"),
        (("http.start='serve {port}'", "http.servers=[http://127.0.0.1:1]"), "write one of them"),
        (("http.start='serve {port}'", "http.cores=4096"), "needs 8192 cores"),
        (("http.start='serve {port}'", "http.pod_port=80"), "is of pods: add http.launcher=kubernetes"),
        (("http.start='serve {port}'", "http.gpus=1"), "Ray gives a server: add http.launcher=ray"),
        (
            ("http.start='serve {port}'", "ray.address=auto"),
            "read only by launcher=ray and http.launcher=ray",
        ),
        (("http.launcher=ray",), "http.launcher=ray starts servers: write http.start=COMMAND"),
        (("http.launcher=kubernetes",), "http.deployment is missing: write http.deployment=NAMESPACE/NAME"),
        (("http.launcher=kubernetes", "http.deployment=a/b/c"), "http.deployment=a/b/c names no Deployment"),
        (("http.launcher=kubernetes", "http.deployment=a", "http.cores=1"), "http.cores does not fit"),
        (("http.launcher=kubernetes", "http.deployment=a", "http.kubeconfig=none"), "none is no kubeconfig"),
        (("http.launcher=slurm",), "http.launcher=slurm is unknown: write one of processes, kubernetes"),
    ],
)
def test_commands_that_start_nothing_are_refused(
    keys: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("world=http", "workers=2", "system=allcache", "system.instances.split=false")
    assert realexec_cli.run(["run", *own, *keys, f"out={tmp_path / 'run'}"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes have no affinity here")
def test_a_server_has_cores_of_its_own(tmp_path: Path) -> None:
    core = sorted(os.sched_getaffinity(0))[0]
    with started(
        MAIN, *words(tmp_path, script(tmp_path), *KPA, "http.cores=1", servers=1), cwd=tmp_path
    ) as run:
        wait_until(lambda: run.poll() is not None or of_word(tmp_path, "fake_openai"), "no server started")
        (server,) = of_word(tmp_path, "fake_openai")
        assert os.sched_getaffinity(server) == {core}
        assert run.wait(patience_s()) == 0
    assert summary_of(tmp_path)["real"]["starts"]["servers"][0]["cores"] == [core]


def test_requests_that_outlast_the_grace_period_go_elsewhere_or_fail(tmp_path: Path) -> None:
    long = ("trace.limit=16", "trace.rate_per_s=10", "trace.tokens_scale=0.6", "http.check_tokens=50")
    apa = ("system/scaler=apa", "system.scaler.target=100", "system.scaler.period_s=0.3")
    full = ("system.instances.size=full", "system.instances.both=2", "system.signals.scrape_s=0.3")
    for after, place in (("elsewhere", tmp_path / "a"), ("fail", tmp_path / "b")):
        place.mkdir()
        grace = ("system.instances.drain_s=0.2", f"http.after_grace={after}")
        assert realexec_cli.run(words(place, script(place), *apa, *full, *grace, load=long)) == 0
        summary = json.loads((place / "run" / "summary.json").read_text(encoding="utf-8"))
        assert summary["real"]["past_grace"] > 0 and left(place) == []
        failed = 0 if after == "elsewhere" else summary["real"]["past_grace"]
        assert summary["requests"]["failed"] == failed
        assert summary["real"]["tokens_different"] == summary["real"]["recomputed_different"] == 0
        assert cli.run(["replay", str(place / "run")]) == 0


# Deaths at drawn moments.


@on_drawn_seeds([1, 2, 3])
def test_a_killed_server_costs_no_request(seed: int, tmp_path: Path) -> None:
    """Its requests continue on another one, or wait until it has started again."""
    random = Random(seed)
    slow = ("trace.limit=60", "trace.rate_scale=4", "trace.tokens_scale=0.2", "http.check_tokens=200")
    servers = random.choice([1, 2])
    victim = random.choice(["fake_openai", "server_keeper"])
    run_words = words(tmp_path, script(tmp_path), *KPA, servers=servers, load=slow)

    def streams() -> bool:
        assert run.poll() is None, run.communicate()
        return any(b'["streamed",' in file.read_bytes() for file in tmp_path.glob("*/journal"))

    with started(MAIN, *run_words, cwd=tmp_path) as run:
        wait_until(streams, "no token came")
        time.sleep(random.random())
        if killed := of_word(tmp_path, victim):
            os.kill(random.choice(killed), signal.SIGKILL)
        out, err = run.communicate(timeout=patience_s())
    assert run.returncode == 0 and err == "", (out, err)
    summary = summary_of(tmp_path)
    lost, starts = summary["real"]["workers_lost"], summary["real"]["starts"]["servers"]
    (cause,) = [cause for _, cause in lost]
    assert killed and cause.endswith("its process was ended by SIGKILL")
    assert servers > 1 or len(starts) >= 2, "it was started again"


@on_drawn_seeds([4, 5, 6, 7])
def test_nothing_is_left_of_a_killed_driver(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    command = script(tmp_path, "way_up_s=0.3")
    with started(MAIN, *words(tmp_path, command, *KPA, load=LOAD), cwd=tmp_path) as run:
        wait_until(lambda: run.poll() is not None or left(tmp_path), "no server started")
        time.sleep(3 * random.random())
        run.send_signal(random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        run.communicate(timeout=patience_s())
    wait_gone(tmp_path)


def test_nothing_is_left_of_a_killed_keeper(tmp_path: Path) -> None:
    with started(MAIN, *words(tmp_path, script(tmp_path), *KPA, servers=1), cwd=tmp_path) as run:
        wait_until(lambda: run.poll() is not None or of_word(tmp_path, "fake_openai"), "no server started")
        for keeper in of_word(tmp_path, "server_keeper"):
            os.kill(keeper, signal.SIGKILL)
        run.communicate(timeout=patience_s())
    wait_until(lambda: len(left(tmp_path)) <= 1, "the server outlives its keeper")
    for process in left(tmp_path):  # a daemon of the server, in a session of its own
        os.kill(process, signal.SIGKILL)


def test_lines_of_vllms_log_are_read() -> None:
    log = """
INFO 11-30 04:00:01 [default_loader.py:308] Loading weights took 1.25 seconds
INFO 11-30 04:00:02 [gpu_model_runner.py:2653] Model loading took 14.98 GiB and 3.500000 seconds
INFO 11-30 04:00:20 [monitor.py:34] torch.compile takes 17.31 s in total
INFO 11-30 04:00:29 [gpu_model_runner.py:3480] Graph capturing finished in 8 secs, took 0.61 GiB
INFO 11-30 04:00:30 [core.py:210] init engine (profile, create kv cache, warmup model) took 27.90 seconds
"""
    assert phases_of(log) == {
        "read_parameters_s": 1.25,
        "load_model_s": 3.5,
        "compile_s": 17.31,
        "capture_graphs_s": 8.0,
        "init_engine_s": 27.9,
    }
    assert phases_of("Loading weights took ... seconds\n") == {"read_parameters_s": 0.0}


def test_the_log_names_the_device() -> None:
    line = "INFO core.py:114] Initializing a V1 LLM engine (v0.32.0) with config: {}quantization=None\n"
    assert device_of(line.format("device_config=cpu, ")) == "cpu"
    assert device_of(line.format("device_config=cuda, ")) == "cuda"
    assert device_of(line.format("")) is None
