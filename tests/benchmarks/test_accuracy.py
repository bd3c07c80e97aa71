"""The page of measured runs turns red when the model is wrong: python -m benchmarks.accuracy."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import kv_memory
from benchmarks.accuracy.__main__ import evaluation_in
from benchmarks.accuracy.errors import Error, broken, broken_memory, errors_of
from benchmarks.accuracy.measured import VARIABLE, measured_runs
from hwmodels.models.kv_capacity import KvCapacity
from hwmodels.step_times.engine_overhead import EngineStepModel
from hwmodels.step_times.scaled_rows import PhaseFactors, ScaledRows
from servetwin.assemble.hardware import Hardware, hardware_of
from servetwin.config.config import RunConfig
from servetwin.run import simulate

# A light and a busy stage of each model.
SOME = ("r0_0", "r1_1", "r8_1", "r19_0", "r17_1", "r21_0")
measured = pytest.mark.skipif(
    not (os.environ.get(VARIABLE) and os.environ.get("SERVETWIN_PROFILES")),
    reason=f"needs {VARIABLE} and SERVETWIN_PROFILES",
)


def found_in(place: Path, *words: str) -> list[Error]:
    evaluation = evaluation_in(place, words)
    runs = [run for run in measured_runs(evaluation.root) if run.name in SOME]
    return errors_of(evaluation.simulated(run) for run in runs)


def slower(factor: float) -> Callable[[RunConfig], dict[str, Hardware]]:
    """``hardware_of`` with longer steps."""

    def made(config: RunConfig) -> dict[str, Hardware]:
        factors = PhaseFactors(prefill=factor, decode=factor, mixed=factor)
        slow = {}
        for model, hardware in hardware_of(config).items():
            step = hardware.step
            assert isinstance(step, EngineStepModel)
            slow[model] = replace(hardware, rows=ScaledRows(step, factors, hardware.overhead))
        return slow

    return made


@measured
def test_some_runs_keep_the_limits_and_show_it_without_a_front_end(tmp_path: Path) -> None:
    assert broken(found_in(tmp_path)) == []
    none = [f"engine.front_end.{name}=0" for name in ("way_in_s", "request_s", "prompt_token_s", "running_s")]
    bare = broken(found_in(tmp_path, *none, "engine.front_end.way_out_s=0"))
    assert bare and bare[0].startswith("ttft_ms.mean is ")


@measured
def test_steps_that_are_10_percent_longer_turn_it_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "hardware_of", slower(1.1))
    red = broken(found_in(tmp_path, "uncertainty=off"))
    assert any(sentence.startswith("tpot_ms.mean is ") for sentence in red)
    assert any(sentence.startswith("e2e_ms.mean is ") for sentence in red)


def test_a_fifth_less_kv_memory_turns_it_red(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_memory(list(kv_memory.logged_values())) == []
    whole = kv_memory.kv_capacity

    def less(*values: object, **named: object) -> KvCapacity:
        kv = whole(*values, **named)  # type: ignore[arg-type]
        return replace(kv, blocks=kv.blocks * 4 // 5, tokens=kv.tokens * 4 // 5)

    monkeypatch.setattr(kv_memory, "kv_capacity", less)
    assert broken_memory(list(kv_memory.logged_values())) != []
