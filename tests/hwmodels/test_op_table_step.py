"""The op-table rung on a made-up profile whose times are known everywhere."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Lattice
from hwmodels.step_times.op_table_step import NOT_JUDGED, PIECE_TOLERANCE, OpTableStepModel
from hwmodels.step_times.step_time import Interplay, StepLimits
from tests.worlds.refusals import refuses
from tests.worlds.toy_profile import (
    CONTEXT,
    NEW,
    SEQUENCES,
    decode_s,
    dense_s,
    head_s,
    lattice,
    mixed_s,
    piece_s,
    prefill_s,
    toy_profile,
    wave,
)

MODEL = OpTableStepModel(toy_profile())
# Straight lines between refined lines of a curve.
NEAR = 5e-3
sequences = st.integers(1, 16)


def interplay(model: OpTableStepModel = MODEL) -> Interplay:
    assert model.interplay is not None
    return model.interplay


def at(function: object, *point: int) -> float:
    assert callable(function)
    return float(function(*(np.array([float(value)]) for value in point))[0])


# What is answered, and what for.


def test_limits_are_where_the_tables_end() -> None:
    assert MODEL.limits == StepLimits(16, 16 * 1024, 256, 1024 + 128)


def test_the_source_names_what_was_measured() -> None:
    assert MODEL.source == ("op tables: toy_llm on toy_gpu tp=1, bf16, vllm 1.2.3, made up; one note")
    assert MODEL.error_band == NOT_JUDGED
    assert OpTableStepModel(toy_profile(), "+-3 %").error_band == "+-3 %"


# Dense layers.


@given(st.integers(0, 240), st.integers(0, 40), sequences)
def test_dense_time_is_of_all_tokens_and_all_sequences(tokens: int, prompts: int, n: int) -> None:
    expected = dense_s(tokens + n) + head_s(prompts + n)
    assert MODEL.dense_s(tokens, prompts, n) == pytest.approx(expected)


@pytest.mark.parametrize("step", [(257, 1, 0), (250, 1, 7), (64, 60, 5)])
def test_more_tokens_or_sequences_than_measured_are_refused(step: tuple[int, int, int]) -> None:
    refuses(HardwareError, "beyond the 256 tokens and 64 sequences measured", MODEL.dense_s, *step)


# Decode.


@given(sequences, st.integers(16, 1024))
def test_decode_pieces_follow_the_curve(n: int, context: int) -> None:
    found = piece_s(MODEL.decode_attention(n), n * context)
    expected = at(decode_s, n, context)
    step = MODEL.dense_s(0, 0, n) + expected
    assert abs(found - expected) <= 1.2 * PIECE_TOLERANCE * step


@given(sequences, st.booleans())
def test_decode_pieces_are_continuous_and_rise(n: int, wild: bool) -> None:
    profile = toy_profile(decode=(lattice(wave, SEQUENCES, range(16, 200, 7)),)) if wild else toy_profile()
    pieces = OpTableStepModel(profile).decode_attention(n) if wild else MODEL.decode_attention(n)
    assert pieces[-1].context_limit == n * (198 if wild else 1024)
    assert all(piece.slope_s_per_token >= 0.0 for piece in pieces)
    for piece, after in pairwise(pieces):
        knot = piece.context_limit
        assert after.intercept_s + after.slope_s_per_token * knot == pytest.approx(piece_s((piece,), knot))


def test_few_pieces_are_enough() -> None:
    assert all(len(MODEL.decode_attention(n)) <= 3 for n in range(1, 17))


def test_before_the_first_context_decode_time_is_nearly_flat() -> None:
    pieces = MODEL.decode_attention(4)
    assert piece_s(pieces, 4) == pytest.approx(at(decode_s, 4, 16), abs=PIECE_TOLERANCE * 6e-3)


def test_decode_goes_on_beyond_the_edge_of_its_table_and_says_so() -> None:
    table = lattice(decode_s, SEQUENCES, CONTEXT)
    table.values[4, 2:] = np.nan
    model = OpTableStepModel(toy_profile(decode=(table,)))
    # Between 8 sequences up to 1024 and 16 up to 64 the edge is the line from (8, 256) to (16, 64).
    assert "measured up to 8192 tokens of context in all, 1024 of 16 sequences: beyond" in model.source
    assert "beyond the edge" not in OpTableStepModel(toy_profile()).source
    for n in (8, 9, 12, 16):
        pieces = model.decode_attention(n)
        assert pieces[-1].context_limit == 1024 * n
        whole = piece_s(MODEL.decode_attention(n), 1024 * n)
        assert piece_s(pieces, 1024 * n) == pytest.approx(whole, rel=0.1)
    assert model.limits.max_context_tokens == 16 * 1024
    table.values[4, 0] = np.nan
    with pytest.raises(HardwareError, match="no decode attention at 9 sequences of 16 tokens"):
        OpTableStepModel(toy_profile(decode=(table,)))


@pytest.mark.parametrize("n", [0, 17])
def test_decoding_sequences_out_of_range_are_refused(n: int) -> None:
    refuses(HardwareError, "outside the measured 1 to 16", MODEL.decode_attention, n)


# Prefill.


@given(st.integers(16, 128), st.integers(0, 1024))
def test_a_chunk_costs_what_the_curve_says(new: int, cached: int) -> None:
    assert MODEL.prefill_attention_s(new, cached) == pytest.approx(at(prefill_s, new, cached), rel=NEAR)


def test_measured_chunks_are_met_and_short_ones_cost_as_the_first() -> None:
    for new in NEW:
        assert MODEL.prefill_attention_s(new, 256) == pytest.approx(at(prefill_s, new, 256))
    assert MODEL.prefill_attention_s(3, 64) == MODEL.prefill_attention_s(16, 64)


@given(st.integers(1, 128), st.integers(0, 1000), st.integers(1, 24))
def test_a_longer_cache_never_makes_a_chunk_faster(new: int, cached: int, more: int) -> None:
    assert MODEL.prefill_attention_s(new, cached + more) >= MODEL.prefill_attention_s(new, cached)


@pytest.mark.parametrize(("new", "cached"), [(129, 0), (16, 1025)])
def test_chunks_out_of_range_are_refused(new: int, cached: int) -> None:
    refuses(HardwareError, r"up to 128 new and 1024 cached tokens", MODEL.prefill_attention_s, new, cached)


def test_chunks_in_a_hole_are_refused() -> None:
    table = lattice(prefill_s, NEW, (0, 64, 256))
    table.values[3, 2] = np.nan
    model = OpTableStepModel(toy_profile(prefill=(table,), mixed=()))
    assert model.prefill_attention_s(128, 64) > 0.0
    refuses(HardwareError, "outside the measured prefill attention", model.prefill_attention_s, 100, 200)


def test_where_only_prompts_were_measured_chunks_are_differences() -> None:
    whole = lattice(prefill_s, (1, 16, 64, 128, 256), (0,))
    model = OpTableStepModel(toy_profile(prefill=(whole,), mixed=()))
    assert model.interplay is None
    assert model.limits.max_prompt_tokens == 256
    assert model.prefill_attention_s(64, 0) == pytest.approx(at(prefill_s, 64, 0))
    expected = at(prefill_s, 256, 0) - at(prefill_s, 64, 0)
    assert model.prefill_attention_s(192, 64) == pytest.approx(max(expected, at(prefill_s, 1, 0)))
    assert model.prefill_attention_s(1, 200) == pytest.approx(at(prefill_s, 1, 0)), "at least a launch"
    refuses(HardwareError, "outside the measured prefill attention", model.prefill_attention_s, 57, 200)


# Mixed.


@given(st.integers(16, 128), st.integers(0, 1024), sequences, st.integers(16, 1024))
def test_a_mixed_step_costs_what_was_measured_together(new: int, cached: int, n: int, context: int) -> None:
    added = interplay().mixed_decode_attention_s(n, n * context, new, cached)
    together = MODEL.prefill_attention_s(new, cached) + added
    assert together == pytest.approx(at(mixed_s, new, cached, n, context), rel=2e-2)


@given(st.integers(1, 128), st.integers(0, 1024), sequences, st.integers(1, 1023), st.integers(1, 512))
def test_a_longer_context_never_makes_a_mixed_step_faster(
    new: int, cached: int, n: int, context: int, more: int
) -> None:
    short, long = (
        interplay().mixed_decode_attention_s(n, n * tokens, new, cached)
        for tokens in (context, min(context + more, 1024))
    )
    assert long >= short - 1e-15


def test_below_the_first_lines_a_mixed_step_costs_as_at_them() -> None:
    mixed = interplay().mixed_decode_attention_s
    assert mixed(4, 4 * 3, 5, 0) == pytest.approx(mixed(4, 4 * 16, 16, 0))
    assert mixed(4, 30.5, 16, 0) == pytest.approx(mixed(4, 64, 16, 0))


@pytest.mark.parametrize(
    "step", [(17, 17 * 16, 16, 0), (4, 4 * 1024 + 1, 16, 0), (4, 64, 129, 0), (4, 64, 16, 1025)]
)
def test_mixed_steps_out_of_range_are_refused(step: tuple[int, int, int, int]) -> None:
    with pytest.raises(
        HardwareError, match="1 to 16 sequences of up to 1024 tokens each, 128 new and 1024 cached"
    ):
        interplay().mixed_decode_attention_s(*step)


def test_the_ends_of_the_mixed_table_are_answered() -> None:
    added = interplay().mixed_decode_attention_s(16, 16 * 1024, 128, 1024)
    together = MODEL.prefill_attention_s(128, 1024) + added
    assert together == pytest.approx(at(mixed_s, 128, 1024, 16, 1024))


def test_an_axis_of_one_line_is_no_table() -> None:
    one_line = lattice(mixed_s, NEW, (0,), SEQUENCES, CONTEXT)
    refuses(HardwareError, "measured at 0 only on one axis", OpTableStepModel, toy_profile(mixed=(one_line,)))


# Unequal contexts.


@pytest.mark.parametrize(
    ("n", "tokens", "alpha"),
    [
        (1, 0, 0.0),
        (1, 64, 0.0),
        (2, 0, 0.0625),
        (8, 0, 0.25),
        (4, 0, (0.0625 + 0.25) / 2),
        (16, 0, 0.25),
        (8, 1, 0.75),
        (8, 31, 0.75),
        (2, 33, 1.0),
        (8, 33, 0.0),
        (8, 5000, 0.0),
    ],
)
def test_alpha_is_straight_in_log_sequences_on_the_nearest_line_of_tokens(
    n: int, tokens: int, alpha: float
) -> None:
    assert interplay().skew(n, tokens) == pytest.approx(alpha)


def test_alpha_is_0_where_it_was_not_measured() -> None:
    hollow = Lattice(((0, 16), (2, 8)), np.array([[np.nan, 0.5], [np.nan, np.nan]]))
    assert interplay(OpTableStepModel(toy_profile(skew=hollow))).skew(2, 64) == 0.5
    for skew in (None, Lattice(((0,), (2,)), np.array([[np.nan]]))):
        found = interplay(OpTableStepModel(toy_profile(skew=skew)))
        assert found.skew(2, 0) == found.skew(16, 64) == 0.0


def test_mixed_steps_go_on_in_a_line_as_far_as_decode_steps_are_measured() -> None:
    """Decode is known up to 16 sequences; without the mixed line of 16 that from 4 to 8 goes on, flagged."""
    whole = toy_profile()
    (mixed,) = whole.tables.mixed
    assert mixed.axes[2] == (1, 2, 4, 8, 16)
    short = Lattice((*mixed.axes[:2], mixed.axes[2][:-1], mixed.axes[3]), mixed.values[:, :, :-1])
    model, full = OpTableStepModel(toy_profile(mixed=(short,))), OpTableStepModel(whole)
    assert "more than 8 decoding sequences were not measured" in model.source
    assert "were not measured" not in full.source
    assert model.interplay is not None and full.interplay is not None
    four, eight, ten = (model.interplay.mixed_decode_attention_s(n, 100 * n, 64, 0) for n in (4, 8, 10))
    assert ten == pytest.approx(eight + (eight - four) / 2)
    assert ten == pytest.approx(full.interplay.mixed_decode_attention_s(10, 1000, 64, 0), rel=0.02)
    refuses(HardwareError, "1 to 16 sequences", model.interplay.mixed_decode_attention_s, 17, 1700, 64, 0)
