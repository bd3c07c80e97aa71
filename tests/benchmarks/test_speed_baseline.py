"""The check against recorded speeds: what is slower, what is measured again, what is left out. No clock."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks import baseline, speed, speed_runs
from benchmarks.baseline import Entries, Verdict, ending, judge
from benchmarks.modes import COMPILED, INTERPRETED, NO_COMPILED_CORE
from benchmarks.raw import Repeats
from benchmarks.scale import GROWING
from benchmarks.scenarios import ALL, LARGE, SCENARIOS
from benchmarks.speed_runs import Child, Measured, ModeRuns
from serving.vocabulary.errors import UserError

RECORDED: Entries = {"static": {INTERPRETED: {"raw": 60.0}}}


def never() -> NoReturn:
    raise AssertionError("it is not measured again")


def found(raw: float) -> ModeRuns:
    """So many raw per request, at 1 us."""
    return ModeRuns(Repeats((raw * 1e-6, 2 * raw * 1e-6), (1e-6, 1e-6, 1e-6)), 3.0, 60.0)


def scripted(*answers: Measured) -> Callable[..., Measured]:
    given = iter(answers)
    return lambda name, modes: next(given)


@pytest.mark.parametrize("raw", [1.0, 60.0, 71.9, 72.0])
def test_up_to_a_fifth_above_is_no_slower_and_is_measured_once(raw: float) -> None:
    verdict = judge("static", INTERPRETED, raw, RECORDED, never)
    assert (
        verdict.compared
        and not verdict.slower
        and verdict.sentence.startswith(f"{raw:.1f} raw, recorded 60.0")
    )


@pytest.mark.parametrize(("again", "slower"), [(72.0, False), (60.0, False), (72.1, True), (90.0, True)])
def test_a_row_over_the_limit_is_measured_once_more_before_it_is_called_slower(
    again: float, slower: bool
) -> None:
    asked = list[int]()

    def measured() -> float:
        asked.append(1)
        return again

    verdict = judge("static", INTERPRETED, 72.1, RECORDED, measured)
    assert (verdict.slower, asked) == (slower, [1])
    assert f"72.1, then {again:.1f} raw" in verdict.sentence


def test_a_row_that_cannot_run_or_was_never_recorded_is_said_to_be_left_out_and_does_not_fail() -> None:
    cannot = judge("static", INTERPRETED, "no trace", RECORDED, never)
    unknown = judge("static", COMPILED, 900.0, RECORDED, never)
    assert cannot.line() == "static, interpreted: left out: no trace"
    assert unknown.sentence == (
        "left out: nothing is recorded: write python -m benchmarks.speed static --record"
    )
    line, status = ending([cannot, unknown])
    assert (line, status) == ("rows: 0 compared, 2 left out; nothing is known", 0)


def test_the_check_fails_and_names_each_row_that_is_slower() -> None:
    rows = [
        Verdict("a", INTERPRETED, ""),
        Verdict("b", COMPILED, "", True),
        Verdict("c", INTERPRETED, "", True),
    ]
    line, status = ending(rows)
    assert status == 1 and line.endswith("slower than recorded: b compiled, c interpreted")
    assert ending(rows[:1]) == (
        "rows: 1 compared, 0 left out; none is more than 20 % slower than recorded",
        0,
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "baseline.json"
    monkeypatch.setattr(baseline, "read", lambda path=path, read=baseline.read: read(path))
    monkeypatch.setattr(
        baseline, "write", lambda entries, path=path, write=baseline.write: write(entries, path)
    )
    return path


def test_what_is_recorded_is_what_the_check_holds_against(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command, with made-up runs: recorded, then the same, then slower twice, then slower once."""

    def command(*answers: Measured) -> int:
        monkeypatch.setattr(speed, "measure", scripted(*answers))
        return speed.main(["static", "--check"])

    both: Measured = {INTERPRETED: found(60), COMPILED: NO_COMPILED_CORE}
    slow: Measured = {INTERPRETED: found(80), COMPILED: NO_COMPILED_CORE}
    monkeypatch.setattr(speed, "measure", scripted(both))
    assert speed.main(["static", "--record"]) == 0
    entry = json.loads(file.read_text())["static"][INTERPRETED]
    assert entry["raw"] == 60 and entry["events_per_request"] == 3
    assert {"date", "python", "commit", "cpu_us", "raw_us"} < {*entry}
    assert command(both) == 0
    assert command(slow, {INTERPRETED: found(79)}) == 1
    assert command(slow, {INTERPRETED: found(61)}) == 0
    printed = capsys.readouterr().out
    assert "static, interpreted: 80.0, then 79.0 raw, recorded 60.0 (+31.7 %): slower\n" in printed
    assert f"static, compiled: left out: {NO_COMPILED_CORE}\n" in printed


def test_recording_one_row_keeps_the_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed.record("journal", {INTERPRETED: found(80), COMPILED: found(50)})
    speed.record("static", {INTERPRETED: found(60), COMPILED: "left out"})
    speed.record("journal", {INTERPRETED: found(81), COMPILED: "left out"})
    entries = json.loads(file.read_text())
    assert [*entries] == ["static", "journal"], "in the order of the scenarios"
    assert [entries["journal"][mode]["raw"] for mode in (INTERPRETED, COMPILED)] == [81, 50]


def test_the_recorded_file_names_scenarios_that_there_are() -> None:
    growth = tuple(f"growth_{system}_" for system in GROWING)  # of benchmarks.scale
    entries = {name: modes for name, modes in baseline.read().items() if not name.startswith(growth)}
    assert entries and {*entries} <= {*ALL}
    for modes in entries.values():
        assert {*modes} <= {INTERPRETED, COMPILED}
        assert all(entry["raw"] > 0 and entry["commit"] and entry["python"] for entry in modes.values())


def test_a_line_has_both_times_of_both_modes_and_the_budgets() -> None:
    assert speed.row("static", {INTERPRETED: found(60), COMPILED: found(30)}) == (
        "| `static` | 60.0 (90.0) | 30.0 (45.0) | 60.00 / 30.00 | 1.000 / 1.000 | 62 / 32 | 16,667 / 33,333 "
        "| 3.00 | 60 / 60 |"
    )
    alone = speed.row("replicas_8", {INTERPRETED: found(60), COMPILED: NO_COMPILED_CORE})
    assert alone == "| `replicas_8` | 60.0 (90.0) | - | 60.00 | 1.000 | - | 16,667 | 3.00 | 60 |"
    assert alone.count("|") == speed.HEAD.splitlines()[1].count("|")
    without = speed.row("static", {INTERPRETED: "no trace", COMPILED: NO_COMPILED_CORE})
    assert without == "| `static` | left out: no trace |"


def test_words_of_the_command() -> None:
    assert speed._names([]) == [*SCENARIOS]
    assert speed._names(["large", "static"]) == [*LARGE, "static"]
    for words in (["--record", "--check"], ["--check", "--check"], ["--chekc"], ["statix"]):
        with pytest.raises(UserError):
            speed.main(words)


def test_modes_are_asked_in_turn_and_each_keeps_its_own_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    class Scripted:
        def __init__(self, name: str, mode: str) -> None:
            self.mode, self.cost = mode, 60 if mode == INTERPRETED else 30

        def __enter__(self) -> "Scripted":
            return self

        def __exit__(self, *_: object) -> None:
            asked.append(f"{self.mode} ended")

        def answer(self) -> dict[str, object]:
            return {"ran": self.mode, "repeats": 2, "raw_s": 2e-6}

        def run(self) -> dict[str, object]:
            asked.append(self.mode)
            return {"cpu_s": self.cost * 1e-6, "events": 3.0, "peak_mb": 50.0, "raw_s": 1e-6}

    monkeypatch.setattr(speed_runs, "Child", Scripted)
    monkeypatch.setattr(speed_runs, "available", lambda: (INTERPRETED, COMPILED))
    measured = speed_runs.measure("static", (INTERPRETED, COMPILED))
    assert asked[:4] == [INTERPRETED, COMPILED] * 2 and len(asked) == 6
    assert measured == {
        mode: ModeRuns(Repeats((cost * 1e-6,) * 2, (2e-6, 1e-6, 1e-6)), 3.0, 50.0)
        for mode, cost in ((INTERPRETED, 60), (COMPILED, 30))
    }


def test_a_process_that_uses_another_core_than_asked_for_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a compiled core a process that is to be compiled is not; and no run is made of a wrong name."""
    with Child("static", "compiled") as child:
        line = json.dumps({"ran": INTERPRETED, "repeats": 7, "raw_s": 1e-6})
        monkeypatch.setattr(child.process.stdout, "readline", lambda: line)
        with pytest.raises(UserError, match="asked for the compiled core, its process used interpreted"):
            child.answer()


def test_a_process_that_ends_early_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with Child("no_such_scenario", INTERPRETED) as child, pytest.raises(UserError, match="exit status 2"):
        child.answer()
    assert "there is no scenario 'no_such_scenario'" in capfd.readouterr().err
