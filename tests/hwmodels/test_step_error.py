"""How far off step times may be: parts that add, what a profile's words say, and what is assumed where."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile import Profile
from hwmodels.step_times.engine_overhead import EngineOverhead
from hwmodels.step_times.held_out import held_out_errors
from hwmodels.step_times.linear_catalogue import linear_entry, linear_keys, linear_step_model
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.select import step_model
from hwmodels.step_times.step_error import (
    ADDED_PARTS,
    NO_ERROR,
    PHASES,
    ROUGH,
    StepError,
    judged_errors,
    judged_text,
    off_by,
)
from tests.worlds.toy_profile import toy_profile

PROFILES = os.environ.get("SERVETWIN_PROFILES")
needs_profiles = pytest.mark.skipif(PROFILES is None, reason="SERVETWIN_PROFILES is not set")


def test_errors_in_one_direction_add() -> None:
    both = off_by(0.10, "held out", "a").beside(off_by(0.20, "assumed", "b", too_slow=0.05))
    assert both.high == pytest.approx(1.30)
    assert both.low == pytest.approx(1.0 / 1.15)
    assert (both.how, both.source) == ("assumed", "a; b")


def test_no_error_adds_nothing() -> None:
    one = off_by(0.1, "held out", "a")
    assert one.beside(NO_ERROR.decode) is one


@pytest.mark.parametrize("low, high, how", [(0, 2, "held out"), (1.1, 2, "held out"), (0.5, 0.9, "fitted"),
                                            (1, float("inf"), "fitted"), (1, 1, "guessed")])  # fmt: skip
def test_what_is_no_band_is_refused(low: float, high: float, how: str) -> None:
    with pytest.raises(HardwareError, match="write"):
        StepError(low, high, how, "made up")  # type: ignore[arg-type]


def test_a_negative_share_is_refused() -> None:
    with pytest.raises(HardwareError, match=r"write a share such as 0\.05"):
        off_by(-0.1, "assumed", "made up")


def test_a_profile_carries_its_errors_as_words_that_read_back() -> None:
    text = judged_text([("decode", 0.44, 1.12), ("prefill", 0.5, 2.2), ("mixed", 2.0, 8.4)])
    assert judged_errors(f"mean / p95 on held-out grid lines: {text}; a sum of operations") == {
        "decode": 1.1,
        "prefill": 2.2,
        "mixed": 8.4,
    }
    assert judged_errors("how far off was not judged") is None
    assert judged_errors(judged_text([("decode", 1.0, 2.0)])) is None  # prefill is missing


def test_op_tables_take_the_errors_of_their_profile() -> None:
    model = OpTableStepModel(toy_profile(), "mean / p95: decode 1.0 / 5.0 %, prefill 1.0 / 10.0 %")
    assert model.errors.decode.high == pytest.approx(1.05)
    assert model.errors.prefill.low == pytest.approx(1 / 1.1)
    assert model.errors.decode.how == "held out"
    assert model.errors.mixed.high == pytest.approx(1.1 + ADDED_PARTS.high - 1.0)  # parts are added
    unjudged = OpTableStepModel(toy_profile()).errors
    assert unjudged.decode.how == "assumed"
    assert unjudged.decode.high > model.errors.decode.high


def test_every_entry_of_the_catalogue_is_as_far_off_as_its_held_out_points() -> None:
    for key in linear_keys():
        entry, errors = linear_entry(key), linear_step_model(key).errors
        if "errors_percent" not in entry:
            assert errors == ROUGH
            continue
        for phase in ("prefill", "decode"):
            share = entry["errors_percent"][phase]["held_out_p95"] / 100
            found = getattr(errors, phase)
            assert found.high >= 1 + share - 1e-12
            assert found.low <= 1 / (1 + share) + 1e-12
        assert (
            errors.mixed.high >= max(errors.prefill.high, errors.decode.high)
            or "mixed" in entry["errors_percent"]
        )


def test_a_rough_all_reduce_widens_the_band_by_its_share() -> None:
    gpu, llm = load_gpu("rtx4090"), load_llm("llama3_1_8b")
    alone, two = (step_model("roofline", gpu, llm, tp=tp).errors for tp in (1, 2))
    for phase in PHASES:
        assert getattr(two, phase).high > getattr(alone, phase).high == pytest.approx(1.4)
        assert getattr(two, phase).low < getattr(alone, phase).low
    assert "rough" in two.prefill.source


def test_declared_overhead_is_within_a_factor_and_unknown_one_has_a_most() -> None:
    low, high, rests_on = EngineOverhead(step_s=1e-3, per_sequence_s=2e-6, source="said").ends()
    assert (low.step_s, low.per_sequence_s) == pytest.approx((5e-4, 1e-6))
    assert (high.step_s, high.per_sequence_s) == pytest.approx((2e-3, 4e-6))
    assert "assumed" in rests_on
    none, most, _ = EngineOverhead().ends()
    assert (none.step_s, most.step_s) == (0.0, 9.0e-4)
    inside = EngineOverhead(inside=True)
    assert inside.ends()[:2] == (inside, inside)


def _without_mixed(profile: Profile) -> OpTableStepModel:
    return OpTableStepModel(replace(profile, tables=replace(profile.tables, mixed=())))


@needs_profiles
@pytest.mark.parametrize("folder, gpu", [("RTX4090", "rtx4090"), ("RTXPRO6000", "rtx_pro_6000")])
def test_added_parts_of_mixed_steps_are_too_fast_as_declared(folder: str, gpu: str) -> None:
    """Held-out lines of two tables: of the steps that a run makes 19 of 20 are within ADDED_PARTS."""
    assert PROFILES is not None
    path = Path(PROFILES) / "llmservingsim" / folder / "meta-llama" / "Llama-3.1-8B"
    profile = import_profile("llmservingsim", ImportRequest(path=path, gpu=gpu, llm="llama3_1_8b", tp=1))
    tables = profile.tables
    short = tuple(
        replace(lattice, values=np.where(_served(lattice.axes), lattice.values, np.nan))
        for lattice in tables.mixed
    )
    errors = held_out_errors(replace(profile, tables=replace(tables, mixed=short)), _without_mixed)
    mixed = next(error for error in errors if error.phase == "mixed")
    assert mixed.bias_percent < 0.0
    assert 1.0 / (1.0 - mixed.p95_percent / 100.0) == pytest.approx(ADDED_PARTS.high, abs=0.07)


def _served(axes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Chunks of 256 tokens and more, contexts up to 4,096."""
    new, cached, _, context = np.meshgrid(*(np.array(axis) for axis in axes), indexing="ij")
    return (new >= 256) & (cached <= 4096) & (context <= 4096)
