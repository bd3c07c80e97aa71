"""faults=scheduler: what a run without its global scheduler does, coalesced and step by step."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import main as cli
from tests.worlds.faulted import Played, play_both

REQUESTS = 50
WORDS = (
    "trace=llumnix_mm", "trace.rate_per_s=2.5", f"trace.requests={REQUESTS}", "cluster=llumnix_4x1",
    "model=llama_7b", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800", "uncertainty=off",
    "engine.max_model_len=12800", "engine.max_new_tokens=6144",
)  # fmt: skip
MIGRATES = ("system.migration.migrate_out_threshold=300",)  # blocks per request of 851: with three or more
SCALES = (
    "system.instances.both=2", "system.instances.both_max=4", "system.scaler.low=300",
    "system.scaler.first_look_s=6", "system.instances.monitor_period_ms=1000", "engine.start_up=none",
)  # fmt: skip
SYSTEMS = {
    "llumnix_base": MIGRATES,
    "llumnix": (*MIGRATES, "trace.high_priority_share=0.2"),
    "infaas_pp": (),
    "vllm": (),
    "llumnix_base_autoscaled": (*MIGRATES, *SCALES),
    "round_robin_autoscaled": SCALES,
}
Captured = pytest.CaptureFixture[str]
LOST_NS, BACK_NS = 5 * 10**9, 12 * 10**9


def lines_of(played: Played) -> list[tuple[int, list[Any], list[list[Any]]]]:
    """Time, event and actions of every line of its journal."""
    return [(line[0], line[1], line[2]) for line in map(json.loads, played.checked.lines)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_dispatch_falls_back_and_returns_and_nothing_else_begins(system: str) -> None:
    """The helper also checks all invariants, replays the journal and compares both ways to run."""
    words = [f"system={system}", *WORDS, *SYSTEMS[system]]
    played = play_both([*words, "faults=scheduler", "faults.at_s=5", "faults.duration_s=7"])
    assert len(played.ends.finished_ids) == REQUESTS == played.arrived
    (loss,) = played.losses
    assert (loss.what, loss.at_ns, loss.back_ns, loss.nothing) == ("scheduler", LOST_NS, BACK_NS, "")
    lines = lines_of(played)
    told = [(now_ns, event[0]) for now_ns, event, _ in lines if event[0].startswith("scheduler")]
    assert told == [(LOST_NS, "schedulerlost"), (BACK_NS, "schedulerback")]
    within = [(LOST_NS < now_ns <= BACK_NS, actions) for now_ns, _, actions in lines]
    reasons = {
        (lost, one[3].startswith("without the"))
        for lost, actions in within
        for one in actions
        if one[0] == "assign"
    }
    assert reasons == {(False, False), (True, True)}
    assert not {one[0] for lost, actions in within for one in actions if lost and begins(one)}


def begins(action: list[Any]) -> bool:
    """Whether it is of a migration or an instance that begins."""
    return action[0] == "allocategpus" or (action[0] == "migrate" and action[4] == "begun")


@pytest.mark.parametrize("system", ["llumnix_base", "llumnix_base_autoscaled"])
def test_with_its_scheduler_the_same_system_begins_both(system: str) -> None:
    """Otherwise the test above could not fail."""
    words = [f"system={system}", *WORDS, *SYSTEMS[system]]
    begun = [
        one[0]
        for now_ns, _, actions in lines_of(play_both(words))
        for one in actions
        if LOST_NS < now_ns <= BACK_NS and begins(one)
    ]
    assert "migrate" in begun and ("allocategpus" in begun) == ("scaled" in system)


def test_losses_that_overlap_and_instances_lost_meanwhile() -> None:
    events = "3:scheduler:6+4:replica:0+5:scheduler:9+8:host:1+9:scheduler:2"
    words = ["system=llumnix_base", *WORDS, "faults=listed", f"faults.events={events}"]
    played = play_both(words)
    found = [(one.at_ns // 10**9, one.what, one.back_ns, one.nothing) for one in played.losses]
    assert found == [
        (3, "scheduler", 9 * 10**9, ""),
        (4, "replica", None, ""),
        (5, "scheduler", None, "the global scheduler was lost already"),
        (8, "host", None, ""),
        (9, "scheduler", 11 * 10**9, ""),
    ]
    assert played.arrived == REQUESTS and set(played.ends.lost.values()) == {
        "replica 0 failed",
        "host 1 failed",
    }


def test_an_elastic_system_without_instances_waits_for_its_scheduler() -> None:
    """Its only instance is lost with the first request. The second waits; no stall is reported."""
    kept = [word for word in (*WORDS, *SCALES) if not word.startswith(("trace.requests", "system."))]
    words = [
        "system=llumnix_base_autoscaled", *kept, "trace.requests=2", "faults=listed",
        "faults.events=0:scheduler:500+0:replica:0", "system.instances.both=1",
    ]  # fmt: skip
    played = play_both(words)
    began = [now_ns for now_ns, _, actions in lines_of(played) if any(begins(one) for one in actions)]
    assert began[0] > 500 * 10**9 and [*played.ends.lost] == [0] and [*played.ends.finished_ids] == [1]


def test_the_console_and_summary_say_when_it_worked_again(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "run"
    words = ["system=vllm", *WORDS, "faults=scheduler", "faults.at_s=2", "faults.duration_s=3"]
    assert cli.run(["simulate", *words, f"out={out}"]) == 0
    assert "2.000 s: scheduler lost; it worked again after 3.000 s" in capsys.readouterr().out
    (fault,) = json.loads((out / "summary.json").read_text(encoding="utf-8"))["faults"]
    assert fault == {
        "at_s": 2.0, "what": "scheduler", "which": "", "replicas": [], "nothing": "", "recovered_s": 3.0,
    }  # fmt: skip


REFUSED = [
    ("system=blitzscale faults=scheduler", "faults=scheduler needs instances that do prefill and decode"),
    (
        "system=blitzscale faults=scheduler system.instances.split=false",
        "faults=scheduler needs a queue for each instance",
    ),
    ("system=vllm faults=listed faults.events=1:scheduler:0", "write AT_S:scheduler:DURATION_S"),
    ("system=vllm faults=listed faults.events=1:scheduler:long", "write AT_S:scheduler:DURATION_S"),
    ("system=vllm faults=scheduler faults.duration_s=0", "faults.duration_s=0.0 is out of range"),
    ("system=vllm faults=one_host faults.duration_s=3", "faults.duration_s=3.0 does not fit faults=one_host"),
    ("system=vllm faults=scheduler faults.notice_s=3", "faults.notice_s=3.0 does not fit faults=scheduler"),
]


@pytest.mark.parametrize(("words", "told"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_cannot_be_is_refused(tmp_path: Path, capsys: Captured, words: str, told: str) -> None:
    base = ["simulate", "trace=azure_code_like", "trace.limit=9", "cluster=blitz_b"]
    assert cli.run([*base, *words.split(), f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_real_workers_refuse_it(capsys: Captured) -> None:
    from servetwin.cli import realexec

    assert realexec.run(["run", "faults=scheduler", "out=nowhere"]) == 2
    assert "faults=scheduler is for simulations" in capsys.readouterr().err
