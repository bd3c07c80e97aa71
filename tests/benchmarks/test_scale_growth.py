"""Exponents of growth: the slope, what a check refuses, what is recorded. No clock."""

import pytest

from benchmarks import baseline, scale
from benchmarks.baseline import Entries
from benchmarks.modes import ran
from benchmarks.scale import AXES, GROWING, Growth, check, growth_of, main
from experiments.scale.cells import CLUSTERS, MODELS
from serving.vocabulary.errors import UserError

SCENARIOS = [f"growth_serverlessllm_{axis.lower()}" for axis in AXES]


def grown(gpus: float, models: float) -> scale.Cost:
    """A cost with these exponents."""
    return lambda _, gpu_count, model_count: 3.0 * gpu_count**gpus * model_count**models


def recorded(exponent: float) -> Entries:
    return {scenario: {ran(): {"exponent": exponent}} for scenario in SCENARIOS}


def test_the_exponent_is_that_of_a_power_and_is_fitted_to_all_points() -> None:
    costs = dict[tuple[int, int], float]()
    found = {axis: growth_of("blitzscale", axis, grown(0.5, 1.0), costs) for axis in AXES}
    assert [found[axis].exponent for axis in AXES] == pytest.approx([0.5, 1.0])
    assert len(costs) == 5  # the axes share a run
    bent = Growth((1, 10, 100), (1.0, 10.0, 10.0))
    assert bent.exponent == pytest.approx(0.5)
    assert bent.text("models") == "raw per request 1 at 1, 10 at 10, 10 at 100 models: exponent 0.50"


@pytest.mark.parametrize(("exponent", "status"), [(0.3, 0), (0.39, 0), (0.41, 1), (0.1, 0)])
def test_a_higher_exponent_is_refused(
    exponent: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(["serverlessllm"], recorded(0.3), grown(exponent, 0.3)) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": higher") == bool(status) and not lines[1].endswith(": higher")
    assert lines[-1].endswith(SCENARIOS[0] if status else "none")


def test_what_is_too_high_is_measured_once_more() -> None:
    calls = list[int]()

    def disturbed(system: str, gpus: int, models: int) -> float:
        calls.append(gpus)
        return grown(0.8 if len(calls) <= 3 else 0.3, 0.3)(system, gpus, models)

    assert check(["serverlessllm"], recorded(0.3), disturbed) == 0
    assert calls[:6] == [256, 1024, 8192] * 2


def test_what_is_not_recorded_is_left_out_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    def never(*_: object) -> float:
        raise AssertionError("nothing to compare with")

    assert check(["serverlessllm"], {}, never) == 0
    assert "left out: nothing is recorded: write python -m benchmarks.scale" in capsys.readouterr().out


def test_recording_keeps_the_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: Entries = {"static": {ran(): {"raw": 60.0}}}
    monkeypatch.setattr(baseline, "read", lambda: entries)
    monkeypatch.setattr(baseline, "write", entries.update)
    monkeypatch.setattr(scale, "raw_per_request", grown(0.2, 0.4))
    assert main(["--record", "serverlessllm"]) == 0
    assert list(entries) == ["static", *SCENARIOS]
    entry = entries[SCENARIOS[1]][ran()]
    assert entry["exponent"] == 0.4 and list(entry["raw"]) == ["10", "100", "1000"]
    assert main(["--check", "serverlessllm"]) == 0


def test_what_is_recorded_in_the_project_is_checked() -> None:
    names = [f"growth_{system}_{axis.lower()}" for system in GROWING for axis in AXES]
    entries = baseline.read()
    assert [name for name in entries if name.startswith("growth_")] == names
    cells = {cell for axis in AXES.values() for cell in axis}
    assert all(gpus in CLUSTERS and models in MODELS for gpus, models in cells)


@pytest.mark.parametrize("words", [["--check", "--record"], ["nosystem"], ["--all"]])
def test_unknown_words_are_refused(words: list[str]) -> None:
    with pytest.raises(UserError):
        main(words)
