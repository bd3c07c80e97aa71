"""The comparison of runs: it gives the same twice, and names what differs, is new or gone."""

import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from serving.vocabulary.actions import Action
from tests.same_results import __main__ as command
from tests.same_results.__main__ import main
from tests.same_results.commits import checkout
from tests.same_results.compare import Record, differences
from tests.same_results.configurations import CONFIGURATIONS
from tests.same_results.drawn import DRAWN
from tests.same_results.outputs import FIELDS, Outputs, journal_outputs, summary_outputs
from tests.same_results.recording import ROOT, RunFailed, all_configurations, record

FEW = (
    "engine vllm_v1, no journal",
    "tight vllm_v1",
    "tight vllm_v0, step by step",
    "live, step by step",
    "drawn engines",
)
TIGHT = "tight vllm_v1"


@pytest.fixture(scope="module")
def few() -> Record:
    found: Record = record(FEW)["configurations"]
    return found


def named(before: Record, after: Record, **how: object) -> list[str]:
    failing, _ = differences(before, after, **how)  # type: ignore[arg-type]
    return [f"{one.kind} {one.output or one.configuration}" for one in failing]


def test_there_are_sixty_configurations_of_all_systems() -> None:
    names = [name for name in all_configurations() if not name.startswith("recorded ")]
    assert len(names) >= 60
    systems = {path.stem for path in (ROOT / "experiments/conf/system").glob("*.yaml")}
    assert {f"system {name}" for name in systems} <= set(names)


def test_the_same_code_gives_the_same(few: Record) -> None:
    assert named(few, record(FEW)["configurations"]) == []
    for name in FEW:
        assert len(few[name]) > 20, name
    assert "journal.action preempt.request" in few[TIGHT] and "summary.sim.events" in few[TIGHT]
    assert "journal file" not in few["engine vllm_v1, no journal"]


@pytest.mark.parametrize(
    ("word", "noticed"),
    [
        ("system/dispatch=round_robin", ("requests.replica", "journal.action assign.replica")),
        ("engine.watermark=0.01 engine.block_tokens=8", ("requests.finish_ns", "journal.action run.chunks")),
        ("engine.step_time=roofline", ("requests.first_token_ns", "summary.itl_ms.p50", "journal.order")),
    ],
)
def test_a_run_that_differs_is_noticed(
    few: Record, monkeypatch: pytest.MonkeyPatch, word: str, noticed: tuple[str, ...]
) -> None:
    monkeypatch.setitem(CONFIGURATIONS, TIGHT, f"{CONFIGURATIONS[TIGHT]} {word}")
    found = named({TIGHT: few[TIGHT]}, record([TIGHT])["configurations"])
    assert {f"differs {output}" for output in noticed} <= set(found)


LINES = ['[1,["arrived",0,1,9,9,"m",0],[["assign",0,0,"few"],["run",0,0,[[0,0,9]],true,5,false,"all"]]]']
LONGER = [
    '[1,["arrived",0,1,9,9,"m",0],[["assign",0,0,"less"],["run",0,0,[[0,0,9]],true,5,false,true,"all"]]]'
]


def test_a_field_that_is_new_is_told_apart_from_one_that_differs() -> None:
    before, after = {"one": journal_outputs(LINES)}, {"one": journal_outputs(LONGER)}
    differing = ["differs journal file", "differs journal.action assign.reason"]
    assert named(before, after) == [*differing, "new journal.action run.hand_over"]
    assert named(after, before) == [*differing, "gone journal.action run.hand_over"]
    assert named(before, after, allow_new=True) == differing[1:]
    assert named(before, after, allow_new=True, ignore=["*.reason"]) == []


def test_every_field_of_an_action_has_its_name() -> None:
    for kind in get_args(Action):
        names = {field.name for field in fields(kind)} - {"reason"}
        assert set(FIELDS[kind.__name__.lower()]) == names, kind


def test_a_file_of_the_same_fields_must_be_the_same_bytes() -> None:
    found = {"requests file": "a", "requests.replica": "b"}
    assert named({"one": found}, {"one": found | {"requests file": "c"}}, allow_new=True) == [
        "differs requests file"
    ]


def test_a_configuration_that_is_gone_is_told_unless_its_trace_is_missing() -> None:
    record = {"one": {"a": "b"}, "recorded conv": {"a": "b"}}
    assert named(record, {}) == ["gone one"] and named({}, record) == ["new one"]
    assert named(record, {}, allow_new=True) == []


def test_clocks_are_left_out_of_a_summary_and_rows_compared_by_column() -> None:
    rows = [{"t_s": 1.0, "reason": "x"}, {"t_s": 2.0, "reason": "y", "obstacle": "no_gpu"}]
    summary = {"sim": {"events": 3, "cpu_s": 0.1}, "code": "abc", "scale_events": rows, "seed": 0}
    assert summary_outputs(summary).keys() == {
        "summary.sim.events", "summary.scale_events.t_s", "summary.scale_events.reason",
        "summary.scale_events.obstacle", "summary.seed",
    }  # fmt: skip
    later = summary | {"sim": {"events": 3, "cpu_s": 0.2}, "code": "abd"}
    assert summary_outputs(later) == summary_outputs(summary)


def test_the_command_ends_with_1_where_something_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "before.json"
    assert main(["record", str(path), "--only", TIGHT]) == 0
    assert main(["compare", str(path), "--only", TIGHT]) == 0
    before = json.loads(path.read_text())
    before["configurations"][TIGHT] |= {"requests.ttft_ms": "0"}
    path.write_text(json.dumps(before))
    assert main(["compare", str(path), "--only", TIGHT]) == 1
    assert f"differs {TIGHT}: requests.ttft_ms" in capsys.readouterr().out
    assert main(["record", str(path), "--only", "nothing"]) == 2
    path.write_text("{}")
    assert main(["compare", str(path)]) == 2
    assert "is no record" in capsys.readouterr().err


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout of git")
def test_a_commit_is_checked_out_for_a_while_with_a_script_to_record(tmp_path: Path) -> None:
    with checkout("HEAD") as root:
        assert (root / "tests" / "same_results" / "__main__.py").is_file() and (root / "serving").is_dir()
    assert not root.exists()
    with pytest.raises(RunFailed, match="no-such-commit cannot be checked out"), checkout("no-such-commit"):
        raise AssertionError("there is no such commit")


def test_two_runs_of_one_core_are_no_comparison_of_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def recorded(root: Path, path: Path, *_: object) -> None:
        path.write_text(json.dumps({"head": {"core": "interpreted", "python": "3"}, "configurations": {}}))

    monkeypatch.setattr(command, "record_in", recorded)
    assert main(["both"]) == 2
    assert "both runs were interpreted, which proves nothing" in capsys.readouterr().err


def test_a_run_that_ends_otherwise_is_named_and_nothing_of_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Outputs:
        raise AssertionError("invariant 2: free KV blocks")

    path = tmp_path / "before.json"
    assert main(["record", str(path), "--only", TIGHT, "drawn engines"]) == 0
    monkeypatch.setitem(DRAWN, "drawn engines", broken)
    monkeypatch.setitem(CONFIGURATIONS, TIGHT, "trace=nothing")
    assert main(["compare", str(path), "--allow-new", "--only", TIGHT, "drawn engines"]) == 1
    said = capsys.readouterr().out
    assert "failed  drawn engines raised AssertionError: invariant 2" in said
    assert f"failed  {TIGHT} ended with status 2" in said and "2 runs failed" in said
    assert main(["record", str(tmp_path / "after.json"), "--only", TIGHT]) == 2
    assert not (tmp_path / "after.json").exists()
