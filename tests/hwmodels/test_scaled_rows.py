"""Step times at an end of their error, against the same model with its times multiplied."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.rows import StepRows
from hwmodels.step_times.scaled_rows import PhaseFactors, ScaledRows
from tests.worlds.toy_profile import toy_profile

OVERHEAD = EngineOverhead(step_s=3e-4, per_sequence_s=2e-6, graph_batches=(1, 2, 4, 8))
MODEL = EngineStepModel(OpTableStepModel(toy_profile()), OVERHEAD)
FACTORS = PhaseFactors(prefill=1.5, decode=0.75, mixed=2.0)
HIGH = replace(OVERHEAD, step_s=6e-4, per_sequence_s=4e-6)
ROWS, SCALED = StepRows(MODEL), ScaledRows(MODEL, FACTORS, HIGH)
CLOSE = 1e-6  # factors have 20 binary digits


def _operations(cost: int, sequences: int) -> float:
    return cost - _overhead(sequences)


def _overhead(sequences: int) -> float:
    return (3e-4 + 2e-6 * sequences) * 1e9 * (1 << 24)


def _at_end(cost: int, factor: float, sequences: int) -> float:
    return _operations(cost, sequences) * factor + 2 * _overhead(sequences)


@given(n=st.integers(1, 8), context=st.integers(1, 64))
def test_decode_steps_take_their_factor_and_the_other_overhead(n: int, context: int) -> None:
    total = n * context
    expected = _at_end(ROWS.decode_cost(n, total), 0.75, n)
    assert SCALED.decode_cost(n, total) == pytest.approx(expected, rel=CLOSE)
    assert SCALED.mixed(n, total, ()) == SCALED.decode_cost(n, total)


@given(n=st.integers(0, 4), new=st.integers(1, 32), chunks=st.integers(1, 3))
def test_prompts_take_the_factor_of_their_phase(n: int, new: int, chunks: int) -> None:
    parts = tuple((number, 0, new) for number in range(chunks))
    expected = _at_end(ROWS.mixed(n, 16 * n, parts), 2.0 if n else 1.5, n + chunks)
    assert SCALED.mixed(n, 16 * n, parts) == pytest.approx(expected, rel=CLOSE)


def test_factors_of_one_change_a_step_by_its_rounding_at_most() -> None:
    same = ScaledRows(MODEL, PhaseFactors(), OVERHEAD)
    assert same.decode_cost(3, 30) == pytest.approx(ROWS.decode_cost(3, 30), abs=2)
    assert same.mixed(2, 20, ((0, 0, 5),)) == pytest.approx(ROWS.mixed(2, 20, ((0, 0, 5),)), abs=2)


def test_what_generated_tokens_add_is_the_other_overheads() -> None:
    own = EngineStepModel(MODEL.operations, replace(OVERHEAD, per_output_token_s=5e-7))
    low, high, _ = own.overhead.ends()
    assert StepRows(own).output_token == 500 << 24
    assert ScaledRows(own, FACTORS, low).output_token == 250 << 24
    assert ScaledRows(own, FACTORS, high).output_token == 1000 << 24
    assert StepRows(own).decode_cost(3, 30) == ROWS.decode_cost(3, 30)  # the event loop adds it


def test_the_range_ends_where_that_of_the_model_ends() -> None:
    last = ROWS.decode(2)[-1][0]
    with pytest.raises(HardwareError, match="beyond the step model"):
        SCALED.decode_cost(2, last + 1)
    assert [row[0] for row in SCALED.decode(2)] == [row[0] for row in ROWS.decode(2)]
