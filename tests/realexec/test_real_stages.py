"""Real runs of a language model in stages: each worker has some of its layers, and the KV of these.

A run in which no activations travelled proves nothing, so each says how many did. Nothing here depends on
how long anything takes.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from tests.worlds.processes import REAL, patience_s, started, wait_until
from tests.worlds.real_runs import of_group
from tests.worlds.real_workers import worker_number

pytestmark = pytest.mark.real

TRACE = ("trace=azure_conv_like", "trace.tokens_scale=0.05", "journal=true")
STAGES = ("system=pipeline", "model=tiny_llama", "pipeline.cut=layers")
MAIN = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"


def read(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


def test_a_request_passes_stages_on_three_workers(tmp_path: Path) -> None:
    """4 layers as 1 + 2 + 1, the second stage twice, so that paths differ."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path / "run"
    cut = ("pipeline.stages=3", "pipeline.replicas=1+2+1", "workers=4")
    more = (*cut, "trace.limit=12", "trace.rate_per_s=60")
    assert realexec_cli.run(["run", *TRACE, *STAGES, *more, f"out={folder}"]) == 0
    summary = read(folder)
    real = summary["real"]
    assert (real["tokens_different"], real["first_difference"], real["workers_lost"]) == (0, None, [])
    assert real["tokens_checked"] > 100 and real["tokens_recomputed"] == real["tokens_unchecked"] == 0
    assert summary["requests"]["finished"] == summary["requests"]["arrived"] == 12
    assert real["stages"] == 3 and real["stage_passes"] > 100 and real["activation_bytes"] > 0
    assert [one["layers"] for one in summary["language_stages"]] == [[0, 1], [1, 3], [3, 4]]
    assert len(summary["replica_busy_share"]) == 4 and all(summary["replica_busy_share"])
    assert cli.run(["replay", str(folder)]) == 0


@pytest.mark.parametrize("transport", ["shared_memory", "tcp"])
def test_replicas_of_stages_come_while_requests_run(tmp_path: Path, transport: str) -> None:
    """More come before the first look than two workers end in that time, however short the first requests
    are by whose times stages are judged: idle workers load."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path / "run"
    burst = (
        "trace=gamma",
        "trace.gap_cv=1",
        "trace.limit=null",
        "trace.requests=120",
        "trace.rate_per_s=4000",
    )
    often = ("pipeline.period_s=0.05", "pipeline.window_s=1", "engine.max_num_seqs=4", "workers=4")
    quart = ("system=quart", "system/provision=multicast", *STAGES[1:], "pipeline.stages=2")
    words = [*TRACE[1:], *burst, *often, *quart, f"transport={transport}"]
    assert realexec_cli.run(["run", *words, f"out={folder}"]) == 0
    summary = read(folder)
    real, acts = summary["real"], [one["act"] for one in summary["scale_events"]]
    assert (real["tokens_different"], real["first_difference"], real["workers_lost"]) == (0, None, [])
    assert real["tokens_checked"] > 100 and real["tokens_recomputed"] == 0
    assert summary["requests"]["finished"] == 120 and real["transport"] == transport
    assert real["loads"] == acts.count("ready") == acts.count("load") >= 2
    layers = [one["bytes"] for one in summary["language_stages"]]
    assert real["loaded_bytes"] >= real["loads"] * min(layers), "a stage each, and no more"
    assert real["loaded_bytes"] <= real["loads"] * max(layers)
    busy = summary["replica_busy_share"]
    assert len(busy) >= 4 and all(busy), "what came computed"
    assert cli.run(["replay", str(folder)]) == 0


def test_two_models_have_workers_of_their_own(tmp_path: Path) -> None:
    """Of one shape, each with parameters of its own: tokens of the other one would differ."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path / "run"
    two = ("models=zipf", "models.count=2", "models.rate_per_s=20", "models.requests=14", "trace.limit=null")
    words = [*TRACE, *two, "system=vllm", "model=tiny_llama", "workers=2"]
    assert realexec_cli.run(["run", *words, f"out={folder}"]) == 0
    summary = read(folder)
    real, models = summary["real"], summary["models"]
    assert (real["tokens_different"], real["first_difference"], real["workers_lost"]) == (0, None, [])
    assert models["count"] == models["asked_for"] == 2
    assert real["tokens_checked"] > 50 and all(summary["replica_busy_share"])
    assert cli.run(["replay", str(folder)]) == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found in /proc")
def test_a_lost_stage_takes_its_requests_with_it_and_the_others_go_on(tmp_path: Path) -> None:
    """Each stage twice; one worker is killed once batches go round. Whom it had depends on the moment."""
    pytest.importorskip("torch")
    folder = tmp_path / "run"

    def journal() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.glob("*/journal"))

    more = ("pipeline.stages=2", "pipeline.replicas=2", "workers=4", "trace.limit=24", "trace.rate_per_s=20")
    with started(MAIN, "run", *TRACE, *STAGES, *more, "out=run", cwd=tmp_path, start_new_session=True) as run:
        wait_until(lambda: b'["ran",' in journal() or run.poll() is not None, "no batch went round", REAL)
        assert run.poll() is None, run.communicate()
        os.kill(_worker(run.pid, 1), signal.SIGKILL)
        out, err = run.communicate(timeout=patience_s(REAL))
    assert run.returncode in (0, 4) and err == "", out
    requests, real = read(folder)["requests"], read(folder)["real"]
    assert requests["finished"] + requests["failed"] == 24 and requests["finished"] > 0
    assert real["workers_lost"] == [[2, "the worker process was ended by SIGKILL"]]
    assert real["tokens_different"] == 0 and real["tokens_recomputed"] == 0
    assert b'["lost",2,' in journal(), "stages lie side by side: slot 1 has the first replica of the second"
    assert cli.run(["replay", str(folder)]) == 0


def _worker(group: int, slot: int) -> int:
    for number in of_group(group):
        if worker_number(number) == slot:
            return number
    raise AssertionError(f"there is no worker {slot}")
