"""A real run that is killed, and one whose worker is: what is left, and what is said."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from tests.worlds.processes import REAL, patience_s, started, wait_until
from tests.worlds.real_runs import DRAWN, FILES, UNSERVED, of_group
from tests.worlds.real_workers import worker_number

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
]

MAIN = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"
# All at once, so that requests are in flight when the first of them has come.
BUSY = (*DRAWN, "trace.rate_per_s=5000", "journal=true")


def lines_of(folder: Path) -> list[bytes]:
    """Of the journal of a run that goes on."""
    return [line for file in folder.glob("*/journal") for line in file.read_bytes().splitlines()]


def wait_for_lines(running: "subprocess.Popen[str]", folder: Path, marks: bytes, least: int) -> None:
    def are_there() -> bool:
        assert running.poll() is None, running.communicate()
        return sum(marks in line for line in lines_of(folder)) >= least

    wait_until(are_there, "too few events were written", REAL)


def workers_of(group: int) -> list[int]:
    found = [number for number in of_group(group) if number != group]
    return [number for number in found if worker_number(number) is not None]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


def test_a_killed_run_leaves_its_journal_and_no_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("run", *BUSY, "trace.requests=2000", "workers=2", "out=run")
    with started(MAIN, *words, cwd=tmp_path, start_new_session=True) as running:
        wait_for_lines(running, tmp_path, b"", 6)
        running.send_signal(signal.SIGKILL)
        running.wait()
        wait_until(lambda: not of_group(running.pid), "workers outlive the run", REAL)
    (folder,) = tmp_path.iterdir()
    before = len(lines_of(tmp_path))
    assert cli.run(["replay", str(folder)]) == 1
    out, err = capsys.readouterr()
    compared, cut = out.splitlines()
    assert err == "" and compared.endswith(", 0 differ")
    assert before - 2 <= int(compared.split()[3]) <= before - 1, "all events but one that is cut"
    assert "its run was ended before it was complete" in cut


def test_workers_that_just_start_end_with_a_killed_run(tmp_path: Path) -> None:
    words = ("run", *BUSY, "trace.requests=2000", "workers=2", "out=run")
    with started(MAIN, *words, cwd=tmp_path, start_new_session=True) as running:
        wait_until(lambda: workers_of(running.pid), "no worker was started", REAL)
        running.send_signal(signal.SIGKILL)
        running.wait()
        wait_until(lambda: not of_group(running.pid), "workers outlive the run", REAL)


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_of_a_worker_that_died_have_an_exit_status_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    words = ("run", *BUSY, "trace.requests=20", f"workers={workers}", "out=run")
    with started(MAIN, *words, cwd=tmp_path, start_new_session=True) as running:
        wait_for_lines(running, tmp_path, b'"arrived"', 1)
        os.kill(workers_of(running.pid)[0], signal.SIGKILL)
        out, err = running.communicate(timeout=patience_s(REAL))
    assert (running.returncode, err) == (4, "")
    assert "was lost: the worker process was ended by SIGKILL" in out and "results in" in out
    assert {entry.name for entry in (tmp_path / "run").iterdir() if entry.name[0] != "."} == {
        *FILES,
        UNSERVED,
    }
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    requests, real = summary["requests"], summary["real"]
    assert requests["failed"] > 0 and requests["failed"] + requests["finished"] == 20
    assert len(real["workers_lost"]) == 1 and real["tokens_different"] == 0
    assert requests["finished"] > 0 or workers == 1
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
