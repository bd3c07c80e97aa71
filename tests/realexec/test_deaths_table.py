"""Workers that die at chosen moments of real runs: what is lost, what is told and when; others go on.

A row of the table is a run: a moment, who goes then, and which requests may be lost by it.
"""

import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from realexec.world.execution import NOBODY_LEFT
from servetwin.cli import main as cli
from tests.worlds.processes import REAL, started, wait_until
from tests.worlds.real_deaths import (
    Death,
    Moment,
    at_the_moment,
    end_of_live_pass,
    middle_of_live_pass,
    of_commit,
    of_load,
    of_send,
    one_that_came,
    real_run_with_a_death,
    source_of_live_pass,
)
from tests.worlds.real_runs import of_group

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are looked up in /proc"),
]

KILLED: Final = "the worker process was ended by SIGKILL"
STOPPED: Final = "nothing was heard of the worker process for 4 s: it is stopped (SIGSTOP or a debugger)"
# (what is said, within so many seconds) of each way to go.
TOLD: Final = {signal.SIGKILL: (KILLED, 2.0), signal.SIGSTOP: (STOPPED, 5.0)}
TRACE: Final = ("trace=azure_conv_like", "engine.max_new_tokens=400")
LIVE: Final = (
    *TRACE,
    "system=blitzscale", "system.instances.split=false", "workers=3", "system.scaler.prefill=[0.01,0.02]",
    "system.live.slo_ms=0", "trace.tokens_scale=0.05", "cluster.nic_gbps=0.1",
)  # fmt: skip
# One whole instance and two that load through a chain while requests wait that nobody can serve in time.
CHAIN: Final = (*LIVE, "trace.rate_per_s=200", "trace.limit=60")
# Two whole instances: one is left. Requests enough that both are busy until layers have come to the third.
TWO_WHOLE: Final = (*LIVE, "system.instances.both_min=2", "trace.rate_per_s=2000", "trace.limit=160")
# All requests at once on one of two instances; links so slow that much is decoded while KV is copied.
MIGRATION: Final = (
    *TRACE,
    "system=vllm", "system/dispatch=tests.worlds.first_only:FirstButTwo", "system/migration=least_loaded",
    "workers=2", "trace.rate_per_s=5000", "trace.tokens_scale=0.3", "trace.limit=9", "migration.period_ms=20",
    "migration.last_stage=paper", "migration.max_stages=20", "cluster.nic_gbps=0.02",
)  # fmt: skip
# Short steps and slower links: blocks are filled during the first stage, and the next is not the last.
LONG_STAGES: Final = (*MIGRATION[:-1], "cluster.nic_gbps=0.01", "engine.max_num_batched_tokens=64")
HAND_OVER: Final = (
    *TRACE,
    "system=distserve_full", "trace.rate_per_s=200", "trace.tokens_scale=0.05", "trace.limit=20",
)  # fmt: skip
TWO_TO_ONE: Final = (*HAND_OVER, "workers=3", "system.instances.prefill=2", "system.instances.decode=1")
ONE_TO_TWO: Final = (*HAND_OVER, "workers=3", "system.instances.prefill=1", "system.instances.decode=2")
# Two stages; requests come for several looks long, far more than one replica of each can end.
STAGES: Final = (
    "system=quart", "system/provision=multicast", "model=tiny_llama", "pipeline.stages=2",
    "pipeline.cut=layers", "pipeline.period_s=0.25", "pipeline.window_s=1", "engine.max_num_seqs=4",
    "workers=4", "trace=gamma", "trace.gap_cv=1", "trace.limit=null", "trace.requests=160",
    "trace.rate_per_s=200", "trace.tokens_scale=0.05", "transport=tcp",
)  # fmt: skip
# What the journal has when the driver is killed.
DRIVER: Final = {
    "live pass": (CHAIN, b'["load",'),
    "hidden states": (CHAIN, b'"activations"'),
    "migration": (MIGRATION, b'"begun"'),
    "commit": (MIGRATION, b'"committed"'),
    "hand-over": (TWO_TO_ONE, b'["send",'),
    "stages": (STAGES, b'["load",'),
}
# One death of each kind of moment; the others take some ten minutes: make test-deaths.
OFTEN: Final = {
    "live pass, source",
    "live pass, target stopped",
    "hidden states, who has them",
    "first stage, target",
    "between stages, source",
    "last stage, source",
    "commit, target",
    "hand-over, source",
    "stages, who loads",
    "migration",
}
MAIN: Final = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"
LOOK_S: Final = 0.02
RUNS: Final = 3


class Row(NamedTuple):
    """``moment`` names who goes; ``before``: the action that it is known by. ``moving``: what becomes of the
    requests that are on their way then; None: that depends."""

    words: tuple[str, ...]
    moment: Moment
    before: bool = False
    moving: str | None = None
    how: signal.Signals = signal.SIGKILL


def stage(end: str, number: int, moving: str | None, before: bool = False, last: bool = False) -> Row:
    mark = "stage" if last else f"stage {number} of"
    words = MIGRATION if number < 1 else LONG_STAGES
    return Row(words, of_send(end, "kv", mark, last=last), before, moving)


ROWS: Final[Mapping[str, Row]] = {
    "live pass, source": Row(TWO_WHOLE, source_of_live_pass),
    "live pass, source stopped": Row(TWO_WHOLE, source_of_live_pass, how=signal.SIGSTOP),
    "live pass, middle": Row(CHAIN, middle_of_live_pass),
    "live pass, target": Row(CHAIN, end_of_live_pass),
    "live pass, target stopped": Row(CHAIN, end_of_live_pass, how=signal.SIGSTOP),
    "hidden states, who has them": Row(CHAIN, of_send("source", "activations")),
    "hidden states, who is to have them": Row(TWO_WHOLE, of_send("target", "activations")),
    "first stage, source": stage("source", 0, "lost"),
    "first stage, target": stage("target", 0, "goes on"),
    "between stages, source": stage("source", 1, "lost", before=True),
    "between stages, target": stage("target", 1, "goes on", before=True),
    "second stage, source": stage("source", 1, "lost"),
    "second stage, target": stage("target", 1, "goes on"),
    "last stage, source": stage("source", -1, None, last=True),  # few bytes: they may have come already
    "last stage, target": stage("target", -1, "goes on", last=True),
    "last stage, source stopped": stage("source", -1, None, last=True)._replace(how=signal.SIGSTOP),
    "commit, source": Row(MIGRATION, of_commit("source"), True, "goes on"),
    "commit, target": Row(MIGRATION, of_commit("target"), True, "lost"),
    "hand-over, source": Row(TWO_TO_ONE, of_send("source", "kv")),
    "hand-over, target": Row(ONE_TO_TWO, of_send("target", "kv")),
    "hand-over, target stopped": Row(ONE_TO_TWO, of_send("target", "kv"), how=signal.SIGSTOP),
    "stages, who has a load read from it": Row(STAGES, of_load("sources")),
    "stages, who loads": Row(STAGES, of_load("targets")),
    "stages, one that came": Row(STAGES, one_that_came),
}


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in OFTEN else pytest.mark.deaths) for name in names]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


@pytest.mark.parametrize("name", marked(ROWS))
def test_only_what_the_dead_worker_had_is_lost(tmp_path: Path, name: str) -> None:
    row = ROWS[name]
    death, summary = run_with_the_death(tmp_path, row)
    requests, real = summary["requests"], summary["real"]
    cause, limit_s = TOLD[row.how]
    assert real["workers_lost"] == [[death.replica, cause]]
    assert death.known_after_s <= limit_s + 2 * death.late_s  # a thread tells another
    assert death.unserved <= death.resident, "others lost their answer too"
    assert requests["finished"] + requests["failed"] == requests["arrived"] and requests["rejected"] == 0
    assert requests["failed"] == len(death.unserved) and requests["finished"] > 0
    assert real["tokens_checked"] > 0 and (real["tokens_different"], real["first_difference"]) == (0, None)
    if row.moving is not None:
        lost = set(death.moving) & death.unserved
        assert lost == (set(death.moving) if row.moving == "lost" else set())


def run_with_the_death(folder: Path, row: Row) -> tuple[Death, dict[str, Any]]:
    """How long a step takes is the machine's: a moment that did not come is waited for in another run."""
    for number in range(RUNS):
        with at_the_moment(row.moment, row.before, row.how) as death:
            summary = real_run_with_a_death(folder / f"run{number}", row.words, status=(0, 4))
        if death.replica >= 0:
            return death, summary
    pytest.fail(f"the moment came in none of {RUNS} runs")


def test_a_run_ends_when_nobody_is_left_who_could_serve(tmp_path: Path) -> None:
    """The only decode instance goes: whoever is not lost with it waits for ever, and is told so."""
    words = (*HAND_OVER, "workers=2", "system.instances.prefill=1", "system.instances.decode=1")
    with at_the_moment(of_send("target", "kv"), False, signal.SIGKILL) as death:
        summary = real_run_with_a_death(tmp_path / "run", words, status=(4,))
    requests = summary["requests"]
    assert summary["real"]["workers_lost"] == [[death.replica, KILLED]]
    assert requests["failed"] == requests["arrived"] - requests["finished"] == len(death.unserved) > 0
    assert death.unserved - death.resident and NOBODY_LEFT.encode() in written(tmp_path)


@pytest.mark.parametrize("name", marked(DRIVER))
def test_no_worker_outlives_the_driver_and_what_it_wrote_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words, mark = DRIVER[name]
    with started(MAIN, "run", *words, "journal=true", "out=run", cwd=tmp_path, start_new_session=True) as run:
        wait_until(lambda: mark in written(tmp_path) or run.poll() is not None, "it never began", REAL)
        assert run.poll() is None, run.communicate()
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert orphans_gone_after_s(run.pid) <= 2.0
    (folder,) = tmp_path.iterdir()
    assert cli.run(["replay", str(folder), *(word for word in words if "=tests." in word)]) == 1
    out, err = capsys.readouterr()
    assert ", 0 differ\n" in out and "its run was ended before it was complete" in out and err == ""


def written(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("*/journal"))


def orphans_gone_after_s(group: int) -> float:
    """Counted in looks, not by the clock: what else runs on the machine makes a look late."""
    looks = 0
    while of_group(group):
        looks += 1
        assert looks * LOOK_S < 60.0, "workers outlive the run"
        time.sleep(LOOK_S)
    return looks * LOOK_S
