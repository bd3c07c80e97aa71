"""realexec from the command line: real workers, tokens and preemption, and refusals when it cannot run."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from tests.worlds.processes import REAL, patience_s, started, wait_until
from tests.worlds.real_runs import DRAWN, FILES, UNSERVED, of_group
from tests.worlds.user_policies import here, mine

__all__ = ["here", "mine"]

pytestmark = pytest.mark.real

# All at once on little memory: requests are preempted whatever the speed of the machine.
CROWDED = ("workers=1", "trace.limit=12", "trace.rate_per_s=5000", "engine.max_new_tokens=48")
SCARCE = "engine.kv_tokens=320"


def executed(folder: Path, *words: str) -> dict[str, Any]:
    """A real run with a journal that replays; its summary."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert realexec_cli.run(["run", "journal=true", f"out={folder}", *words]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    unserved = {UNSERVED} if summary["requests"]["rejected"] or summary["requests"]["failed"] else set()
    assert {entry.name for entry in folder.iterdir() if entry.name[0] != "."} == FILES | unserved
    assert cli.run(["replay", str(folder), *(word for word in words if "=my_policies:" in word)]) == 0
    return summary


def test_a_real_run_as_the_readme_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("system=vllm", "cluster=local", "workers=2", "model=tiny_llama", "trace=azure_conv_like")
    summary = executed(tmp_path / "run", *words, "trace.limit=30", "trace.tokens_scale=0.1")
    assert summary["requests"] == {"arrived": 30, "finished": 30, "rejected": 0, "failed": 0, "dropped": 0}
    real = summary["real"]
    assert real["tokens_checked"] > 300
    assert (real["tokens_different"], real["first_difference"], real["workers_lost"]) == (0, None, [])
    assert summary["instances"]["max"] == real["workers"] == 2
    cpu = real["cpu"]
    assert cpu["workers_s"] > cpu["steps_s"] > 0 and cpu["driver_s"] > 0
    beside = cpu["driver_s"] + cpu["workers_s"] - cpu["steps_s"]
    assert cpu["share_beside_steps"] == cpu["share_of_messages"] == pytest.approx(beside / cpu["steps_s"])
    assert "tokens scaled by 0.1" in summary["trace"]["labels"]
    printed = capsys.readouterr().out
    assert "30 of 30" in printed and "0 differ" in printed and "– s" not in printed  # noqa: RUF001


def test_a_real_run_has_its_load_over_time_and_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    run, words = str(tmp_path / "run"), ("trace.limit=6", "trace.tokens_scale=0.1", "series.period_s=0.1")
    assert realexec_cli.run(["run", f"out={run}", *words]) == 0
    last = pq.read_table(tmp_path / "run" / "series.parquet").to_pylist()[-2:]  # two workers
    inside = [row[f"vllm:num_requests_{state}"] for row in last for state in ("running", "waiting")]
    assert inside == [0] * 4 and sum(row["vllm:request_success_total"] for row in last) == 6
    capsys.readouterr()
    assert cli.run(["compare", run, run, "json=true"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not [remark for remark in found["remarks"] if "simulated run too" in remark]
    parts = found["decomposition"]["all"]
    assert [part["part"] for part in parts] == ["queueing", "prefill", "decode"]
    assert all(part["measured_ms"] > 0 and part["difference_ms"] == 0 for part in parts)


@pytest.mark.parametrize(
    "extra", [("engine=own_workers",), ("engine=vllm_v0",), ("engine.exact=true",)], ids=str
)
def test_preemption_happens_for_real(tmp_path: Path, extra: tuple[str, ...]) -> None:
    summary = executed(tmp_path / "run", *DRAWN, *CROWDED, SCARCE, *extra)
    assert summary["requests"]["finished"] == 12
    assert summary["preemptions"] > 0
    assert summary["real"]["tokens_different"] == 0
    assert summary["real"]["tokens_checked"] > 50
    assert summary["real"]["tokens_recomputed"] > 0


def test_the_token_bucket_rejects_for_real(mine: Path) -> None:
    """And a dispatcher of the user's own, from the current folder, sends the others."""
    bucket = ("system/admission=token_bucket", "system.admission.rate_per_s=1", "system.admission.burst=2")
    own = ("system/dispatch=my_policies:FillFirst", "system.dispatch.most=2", "system.dispatch.why=mine")
    summary = executed(mine / "run", *DRAWN, *CROWDED, *bucket, *own)
    assert '"mine 1.0 ' in (mine / "run" / "journal").read_text()
    assert summary["requests"]["finished"] >= 2
    assert summary["rejected_reasons"] == {"token bucket empty": summary["requests"]["rejected"]}
    assert summary["requests"]["rejected"] >= 8


@pytest.mark.parametrize("processes", [2, 3], ids=["first worker", "second worker"])
@pytest.mark.parametrize(("number", "everyone"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_ends_the_workers_too(
    tmp_path: Path, number: signal.Signals, everyone: bool, processes: int
) -> None:
    """Ctrl-C reaches the workers as well, however new they are; a TERM only the process it is sent to.

    processes: as many there are when the signal is sent: the command and its workers.
    """
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system does not list its processes in /proc")
    pytest.importorskip("torch")
    code = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"
    words = ("run", *DRAWN, "trace.requests=5000", "workers=2", "out=a/run")
    with started(code, *words, cwd=tmp_path, start_new_session=True) as running:
        wait_until(lambda: len(of_group(running.pid)) >= processes, "no workers were started", REAL)
        (os.killpg if everyone else os.kill)(running.pid, number)
        out, err = running.communicate(timeout=patience_s(REAL))
    assert running.returncode == 128 + number
    assert (out, err) == ("", "realexec: stopped; nothing was written\n")
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not of_group(running.pid), "workers outlive the run", REAL)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_torch_there_is_a_sentence(tmp_path: Path, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom servetwin.cli.realexec import main; main()"
    with started(code, "run", *DRAWN, "trace.limit=2", "out=a/run", cwd=tmp_path) as running:
        out, err = running.communicate(timeout=patience_s(REAL))
    assert (running.returncode, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("realexec: ") and missing in err and "servetwin[real]" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run",), "write out=FOLDER"),
        (("run", "out=OUT", "workers=0"), "workers=0"),
        (("run", "out=OUT", "workers=many"), "an integer"),
        (("run", "out=OUT", "cluster=a100_x2"), "write cluster=local"),
        (("run", "out=OUT", "model=llama3_8b"), "does not fit"),
        (("run", "out=OUT", "model.tp=2"), "tp=2"),
        (("run", "out=OUT", "trace=azure_conv", "trace.path=/nosuch"), "does not exist"),
        (("run", "out=/proc/run"), "out=/proc/run"),
        (("run", "tiny_llama"), "write model=tiny_llama"),
        (("probe", "x"), "write realexec probe"),
        (("simulate",), "write realexec run | observe | calibrate | fidelity | probe"),
    ],
    ids=str,
)
def test_bad_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert realexec_cli.run(words) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("realexec: ") and told in printed.err
    assert list(tmp_path.iterdir()) == []


def test_help_and_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert realexec_cli.run(["run", "--help"]) == 0
    assert "workers=2" in capsys.readouterr().out
    assert realexec_cli.run(["probe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cpus"] >= 1
