"""The last lines of ``.ci/run``: what did not run on this machine, and why."""

import subprocess
from pathlib import Path

import pytest

from tests import not_run_here
from tests.worlds.processes import ROOT
from tests.worlds.vllm_servers import PYTHON

WHAT = ("RDMA verbs", "NIXL", "Ray", "vLLM", "GPUs")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that has nothing of it."""
    monkeypatch.setattr(not_run_here, "lack_of", lambda name: f"no {name}\nat all")
    monkeypatch.setattr(not_run_here, "cuda", lambda: {"devices": [], "fault": None})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv(PYTHON, raising=False)
    return monkeypatch


def test_each_part_that_did_not_run_has_a_line_with_its_cause(bare: pytest.MonkeyPatch) -> None:
    said = list(not_run_here.lines(verbs=3))
    assert [line.removeprefix(not_run_here.MARK).partition(" (")[0] for line in said] == list(WHAT)
    for part, line in zip(
        ("says why", "no nixl at all", "not installed", PYTHON, "no GPU"), said, strict=True
    ):
        assert part in line and "\n" not in line


@pytest.mark.parametrize(
    ("status", "part"), [(1, "FAILED (status 1)"), (124, "time was up"), (137, "status 137")]
)
def test_a_run_over_verbs_that_did_not_pass_is_told(bare: pytest.MonkeyPatch, status: int, part: str) -> None:
    assert part in next(not_run_here.lines(status))


def test_a_slow_machine_leaves_out_two_parts_and_says_so(bare: pytest.MonkeyPatch) -> None:
    verbs, native, *_ = not_run_here.lines(not_run_here.NOT_BEGUN)
    assert "RDMA verbs" in verbs and "make test-compiled" in native
    assert verbs.endswith("most of an hour of this machine") and native.endswith(
        verbs.partition(": ")[2][-20:]
    )


def test_what_ran_has_no_line(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(not_run_here, "lack_of", lambda name: None)
    bare.setattr(not_run_here, "cuda", lambda: {"devices": ["NVIDIA H200"], "fault": None})
    bare.setenv(PYTHON, "/usr/bin/python3")
    (ray,) = not_run_here.lines(verbs=0)
    assert "starts no cluster" in ray


def test_the_words_are_those_of_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert not_run_here.main([]) == not_run_here.main(["verbs=x"]) == not_run_here.main(["nixl=1"]) == 2
    assert "verbs=STATUS" in capsys.readouterr().out


def test_the_script_goes_on_to_say_so_whatever_the_run_over_verbs_was(tmp_path: Path) -> None:
    """Its last lines, with a run that fails in their place; nothing of them fails the script."""
    script = (ROOT / ".ci" / "run").read_text()
    head, _, tail = script.partition("# A real run over verbs")
    assert head.startswith("#!") and "set -euo pipefail" in head
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$2" = tests.rdma ] && exit 7\necho "$@"\n')
    python.chmod(0o755)
    for seconds, status, made in ((0, 7, "test-compiled"), (3300, 125, "test-compiled-runs")):
        words = f"set -euo pipefail\nmake() {{ echo made $*; }}\nSECONDS={seconds}\n#{tail}"
        done = subprocess.run(["bash", "-c", words], cwd=tmp_path, text=True, capture_output=True)
        said = done.stdout.splitlines()
        assert (done.returncode, said[-1]) == (0, f"-m tests.not_run_here verbs={status}"), done
        assert f"made {made}" in said
