"""faults= and driver.carries_out= on the command line: what is lost, what is told of it, what is refused."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from servetwin.assemble import faults
from servetwin.assemble.faults import drawn
from servetwin.cli import main as cli
from simcore.faults.plan import Fault
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.faulted import play_both, prepared_world
from tests.worlds.faulted_kinds import KINDS, world_of
from tests.worlds.faulted_losses import FAULTS

WORDS = ("simulate", "trace=azure_code_like", "trace.rate_scale=4", "trace.limit=60", "cluster=blitz_b_2x4")
SYSTEMS = ("vllm system/dispatch=least_kv", "distserve_full", "serverlessllm", "blitzscale")
Captured = pytest.CaptureFixture[str]


def simulated(folder: Path, words: str) -> dict[str, Any]:
    assert cli.run([*WORDS, *words.split(), f"out={folder}", "overwrite=true"]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("what", ["replica", "host", "link", "ssd"])
def test_every_kind_of_loss_reaches_every_system(tmp_path: Path, system: str, what: str) -> None:
    run = simulated(tmp_path / "run", f"system={system} faults=one_{what} faults.at_s=0.7 journal=true")
    (fault,) = run["faults"]
    assert (fault["at_s"], fault["what"], fault["nothing"]) == (0.7, what, "")
    requests = run["requests"]
    assert requests["arrived"] == 60 == sum(requests[how] for how in ("finished", "rejected", "failed"))
    assert sum(run["failed_reasons"].values()) == requests["failed"] and "" not in run["failed_reasons"]
    assert bool(fault["replicas"]) == (what in ("replica", "host"))
    told = {json.loads(line)[1][0] for line in (tmp_path / "run" / "journal").read_text().splitlines()[1:-1]}
    assert {"replica": "lost", "host": "losthost", "link": "lostlink", "ssd": "lostssd"}[what] in told
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("system", [*SYSTEMS, "blitzscale system.instances.split=false"])
@pytest.mark.parametrize("what", ["replica", "host"])
def test_a_notice_reaches_every_system_and_elastic_ones_replace_the_instance(
    tmp_path: Path, system: str, what: str
) -> None:
    words = f"system={system} faults=one_{what} faults.at_s=0.9 faults.notice_s=0.5 journal=true"
    run = simulated(tmp_path / "run", words)
    (fault,) = run["faults"]
    assert (fault["at_s"], fault["nothing"]) == (0.9, "") and fault["replicas"]
    requests = run["requests"]
    assert requests["arrived"] == 60 == sum(requests[how] for how in ("finished", "rejected", "failed"))
    lines = (tmp_path / "run" / "journal").read_text().splitlines()[1:-1]
    noticed = [line for at_ns, (event, *line), *_ in map(json.loads, lines) if event == "lossnotice"]
    assert len(noticed) == len(fault["replicas"]) + (what == "host")
    acts = [one["act"] for one in run.get("scale_events", ()) if one["t_s"] >= 0.4]
    if acts:
        assert {"terminating", "lost"} <= set(acts) and "ready" in acts[acts.index("terminating") :]
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_the_console_and_the_report_tell_what_was_lost(tmp_path: Path, capsys: Captured) -> None:
    words = "system=vllm faults=listed faults.events=0.7:host:1+0.2:replica:0+9999:ssd:0"
    run = simulated(tmp_path / "run", words)
    assert [(one["what"], one["replicas"]) for one in run["faults"]] == [
        ("replica", [0]),
        ("host", [4, 5, 6, 7]),
        ("ssd", []),
    ]
    told, report = capsys.readouterr().out, (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in (told, report):
        assert "0.200 s: replica 0" in text and "0.700 s: host 1" in text and "lost, with 4 replicas" in text
        assert "9999.000 s: ssd 0" in text and "the run had ended after" in text
    assert f"{run['requests']['failed']} failed" in told or "failed: host 1 failed" in told


def test_without_faults_a_run_says_nothing_of_them(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", "system=vllm")
    config = (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    assert "faults" not in run and "\nfaults:" not in config and "\ndriver:" not in config


def test_a_system_whose_last_replica_is_lost_ends_every_request(tmp_path: Path) -> None:
    lost = "0.5:host:0+0.6:host:1"
    for system in ("vllm", "distserve_full", "blitzscale"):
        run = simulated(tmp_path / "run", f"system={system} faults=listed faults.events={lost}")
        requests = run["requests"]
        assert requests["finished"] + requests["rejected"] + requests["failed"] == 60 > requests["finished"]
        reasons = {*run["failed_reasons"], *run["rejected_reasons"]}
        assert reasons & {
            "the remaining cluster can serve no request",
            "no replica of llama3_8b is alive",
        }


def test_faults_without_end_do_not_keep_a_run_going_that_serves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_limit(*arguments: Any) -> Iterator[Fault]:
        yield from islice(drawn(*arguments), 2000)
        raise AssertionError("the run went on after everything was lost")

    monkeypatch.setattr(faults, "drawn", with_limit)
    for system in ("distserve_full", "blitzscale"):
        rates = "faults=drawn faults.replica_per_hour=9e4 faults.link_per_hour=9e4"
        requests = simulated(tmp_path / "run", f"system={system} {rates}")["requests"]
        assert requests["finished"] + requests["rejected"] + requests["failed"] == 60


def test_drawn_faults_are_the_same_with_one_seed_and_each_kind_has_its_own_stream() -> None:
    def first(seed: int, **per_hour: float) -> list[Any]:
        return list(islice(drawn(seed, per_hour), 50))  # type: ignore[arg-type]

    both = first(1, replica=100.0, host=10.0)
    assert both == first(1, replica=100.0, host=10.0) != first(2, replica=100.0, host=10.0)
    assert [one.at_ns for one in both] == sorted(one.at_ns for one in both)
    alone = first(1, host=10.0)
    assert [one for one in both if one.what == "host"] == alone[: sum(one.what == "host" for one in both)]
    per_hour = [one.at_ns for one in islice(drawn(3, {"replica": 60.0}), 6000)][-1] / 3600e9
    assert per_hour == pytest.approx(100, rel=0.05)


REFUSED = [
    ("faults=one_host faults.host=2", "faults.host=2 is not in this run, which has 2 of them"),
    ("faults=one_replica faults.replica=8", "faults.replica=8 is not in this run, which has 8 of them"),
    ("faults=one_link faults.link=host9/nic0", "faults.link=host9/nic0 is no cable of cluster=blitz_b_2x4"),
    ("faults=one_host cluster=a100_x8", "cannot be lost in cluster=a100_x8, of which only GPUs are known"),
    ("faults=listed faults.events=soon:host:0", "whose time is no number of seconds"),
    ("faults=listed faults.events=1:host", "write AT_S:WHAT:WHICH"),
    ("faults=listed faults.events=1:gpu:0", "gpu is no kind of loss"),
    ("faults=listed", "write faults.events=VALUE"),
    ("faults=drawn", "faults=drawn draws nothing"),
    ("faults=one_ssd faults.notice_s=3", "faults.notice_s=3.0 does not fit faults=one_ssd"),
    ("faults=one_host faults.notice_s=-1", "faults.notice_s=-1.0 is out of range"),
    ("faults=drawn faults.host_per_hour=-1", "faults.host_per_hour=-1.0 is out of range"),
    ("faults.at_s=3", "faults.at_s=3.0 does not fit faults=none"),
    ("driver.carries_out=[run,fly]", "has 'fly', which is no action"),
    ("driver.carries_out=[run,assign]", "system=vllm may ask for Interrupt, Preempt, Reject"),
    (
        "system=blitzscale driver.carries_out=[assign,run,reject,interrupt,preempt,fail]",
        "may ask for AllocateGpus, JoinBatch, Load, ReleaseGpus, Send, SwitchRole, Wake",
    ),
    ("faults=one_replica driver.carries_out=[run,assign,reject,interrupt,preempt]", "may ask for Fail,"),
]


@pytest.mark.parametrize(("words", "told"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, capsys: Captured, words: str, told: str
) -> None:
    cluster = WORDS[:-1] if "cluster=" in words else WORDS
    assert cli.run([*cluster, *words.split(), f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and not (tmp_path / "run").exists()


def test_a_run_under_a_mask_is_the_same_where_nobody_asks_for_more(tmp_path: Path) -> None:
    runs = {}
    for name, words in (
        ("all", ""),
        ("masked", "driver.carries_out=[assign,run,reject,interrupt,preempt,fail]"),
    ):
        runs[name] = simulated(tmp_path / name, f"system=vllm journal=true {words}")
    assert runs["all"]["ttft_ms"] == runs["masked"]["ttft_ms"]
    lines = {name: (tmp_path / name / "journal").read_text().splitlines() for name in runs}
    assert lines["all"][1:-1] == lines["masked"][1:-1]
    assert json.loads(lines["masked"][0])["carries_out"] == [
        "Assign",
        "Fail",
        "Interrupt",
        "Preempt",
        "Reject",
        "Run",
    ]


def test_a_simulation_runs_under_the_mask_of_stock_engines(tmp_path: Path, capsys: Captured) -> None:
    """Requests that move are computed again; KV that moves is refused before the run."""
    words = "system/migration=least_loaded driver.carries_out=http journal=true"
    simulated(tmp_path / "again", f"{words} migration.mode=recompute")
    assert '["migrate",' in (tmp_path / "again" / "journal").read_text()
    assert cli.run([*WORDS, *words.split(), f"out={tmp_path / 'copied'}"]) == 2
    assert "may ask for StopSend, which" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
@on_drawn_seeds([3])
def test_a_drawn_world_with_losses_is_one_coalesced_and_step_by_step(kind: str, seed: int) -> None:
    """Again by hand: python -m tests.swarm --kind KIND --count 1 --seed SEED."""
    world = world_of(seed, [kind])
    played = play_both(world.words, world.prepared)
    assert played.checked.controller.arrived


def test_losses_written_as_words_are_those_of_the_world() -> None:
    for fault in FAULTS:
        world = world_of(5, ["static"], [fault])
        assert prepared_world(world.words).config == world.prepared.config


@pytest.mark.parametrize("words, which", [
    (("faults=scheduler",), "scheduler"),
    (("faults=one_replica",), "replica 0"),
    (("faults=one_link", "faults.link=host1/nic2", "cluster=blitz_a"), "link host1/nic2"),
    (("faults=listed", "faults.events=1:replica:1+900:host:0", "cluster=blitz_a"), "host 0"),
])  # fmt: skip
def test_a_fault_after_the_runs_end_is_told(
    words: tuple[str, ...], which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = () if any(word.startswith("cluster=") for word in words) else ("cluster=a100_x2",)
    at = () if "faults=listed" in words else ("faults.at_s=900",)
    run = ["simulate", "trace=poisson", "trace.requests=10", "model=llama3_8b", "uncertainty=off", *cluster]
    assert cli.run([*run, *words, *at, f"out={tmp_path / 'r'}"]) == 0
    assert f"900.000 s: {which}" in " ".join(capsys.readouterr().out.split())
    *_, last = json.loads((tmp_path / "r" / "summary.json").read_text())["faults"]
    assert last["nothing"].startswith("the run had ended after ") and last["at_s"] == 900
