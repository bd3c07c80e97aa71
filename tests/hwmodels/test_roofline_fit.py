"""The calibrated roofline: shares it must find again, and measured tables it beats the datasheet on."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile import Profile
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from hwmodels.step_times.held_out import held_out_errors
from hwmodels.step_times.roofline_fit import Iterations, fit_efficiencies, fit_roofline, roofline_model
from hwmodels.step_times.roofline_step import ERROR_BAND, Efficiencies, RooflineStepModel, roofline_step_model
from tests.worlds.linear_profile import tiny_profile

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
RTX4090, LLAMA3_1_8B = load_gpu("rtx4090"), load_llm("llama3_1_8b")
TRUTH = Efficiencies(0.62, 0.83, 0.41, 0.74, 2.5e-3)


def iterations(model: RooflineStepModel) -> Iterations:
    """Decode and prefill steps as ``model`` times them."""
    decode = [(n, n * context) for n in (1, 8, 64, 256) for context in (64, 512, 4096)]
    prefill = [(new, cached) for new in (32, 256, 1024, 4096) for cached in (0, 1024, 8192)]
    seconds = [
        model.dense_s(0, 0, n) + model.decode_attention(n)[0].slope_s_per_token * total for n, total in decode
    ]
    seconds += [model.dense_s(new, 1, 0) + model.prefill_attention_s(new, cached) for new, cached in prefill]
    squares = [0] * len(decode) + [new * (new + 2 * cached) for new, cached in prefill]
    context = [total for _, total in decode] + [new + cached for new, cached in prefill]
    tokens = [n for n, _ in decode] + [new for new, _ in prefill]
    sequences = [n for n, _ in decode] + [1] * len(prefill)
    return Iterations(
        *(np.array(one, dtype=np.float64) for one in (tokens, sequences, squares, context, seconds))
    )


def test_the_fit_finds_the_shares_behind_a_roofline() -> None:
    all_reduce = load_all_reduce("rtx4090")
    rows = iterations(roofline_step_model(RTX4090, LLAMA3_1_8B, 1, all_reduce=all_reduce, efficiencies=TRUTH))
    found = fit_efficiencies(rows, RTX4090, LLAMA3_1_8B, 1, all_reduce)
    for name in ("compute", "memory", "attention_compute", "attention_memory", "step_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.02), name


def test_shares_stay_within_the_datasheet() -> None:
    """Steps in half the time that peak rates need."""
    all_reduce = load_all_reduce("rtx4090")
    peak = iterations(
        roofline_step_model(
            RTX4090, LLAMA3_1_8B, 1, all_reduce=all_reduce, efficiencies=Efficiencies(1.0, 1.0)
        )
    )
    found = fit_efficiencies(replace(peak, seconds=peak.seconds / 2), RTX4090, LLAMA3_1_8B, 1, all_reduce)
    assert (found.compute, found.memory, found.step_s) == pytest.approx((1.0, 1.0, 0.0), abs=1e-3)


def test_attention_shares_default_to_those_of_the_dense_part() -> None:
    assert Efficiencies(0.5, 0.7).of_attention == (0.5, 0.7)
    assert Efficiencies(0.5, 0.7, 0.3, 0.4).of_attention == (0.3, 0.4)


def test_a_fitted_roofline_says_so() -> None:
    model = roofline_model(tiny_profile(), RTX4090, LLAMA3_1_8B, 1)
    assert "fitted to made up" in model.source and model.error_band != ERROR_BAND
    assert model.step_s == fit_roofline(tiny_profile(), RTX4090, LLAMA3_1_8B, 1).step_s
    declared = roofline_step_model(RTX4090, LLAMA3_1_8B, 1, all_reduce=load_all_reduce("rtx4090"))
    assert "declared" in declared.source and declared.error_band == ERROR_BAND


@pytest.mark.skipif(
    not (PROFILES / "llmservingsim").is_dir(), reason="SERVETWIN_PROFILES names no folder of measured tables"
)
def test_the_fit_is_nearer_to_measured_steps_than_the_datasheet() -> None:
    path = PROFILES / "llmservingsim/RTX4090/meta-llama/Llama-3.1-8B"
    profile = import_profile(
        "llmservingsim", ImportRequest(path=path, gpu="rtx4090", llm="llama3_1_8b", tp=1)
    )
    single = replace(profile, tables=replace(profile.tables, mixed=()))

    def wide(model: RooflineStepModel) -> RooflineStepModel:
        # The tables go beyond what the GPU's memory can hold.
        return replace(model, limits=replace(model.limits, max_context_tokens=10**8))

    def declared(_: Profile) -> RooflineStepModel:
        return wide(roofline_step_model(RTX4090, LLAMA3_1_8B, 1, all_reduce=load_all_reduce("rtx4090")))

    def fitted(thin: Profile) -> RooflineStepModel:
        return wide(roofline_model(thin, RTX4090, LLAMA3_1_8B, 1))

    for rough, fine in zip(held_out_errors(single, declared), held_out_errors(single, fitted), strict=True):
        assert fine.mean_percent < 0.7 * rough.mean_percent
        assert fine.mean_percent < 12.0
