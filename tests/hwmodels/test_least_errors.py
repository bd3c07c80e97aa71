"""Errors of steps by how many sequences decode, where measured runs judge them."""

import pytest

from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.rows import StepRows
from hwmodels.step_times.scaled_rows import PhaseFactors, ScaledRows
from tests.worlds.toy_profile import toy_profile

HIGH = PhaseFactors(prefill=1.2, decode=1.05, mixed=1.08, least=((2, 1.02), (8, 1.1)))
LOW = PhaseFactors(prefill=0.9, decode=0.97, mixed=0.95, least=((2, 0.99), (8, 0.9)))
MODEL = EngineStepModel(OpTableStepModel(toy_profile()), EngineOverhead())


def test_between_two_numbers_the_logarithm_decides_and_the_models_own_error_is_the_least() -> None:
    assert [HIGH.with_decodes(n, 1.0) for n in (1, 2, 8, 100)] == [1.02, 1.02, 1.1, 1.1]
    assert HIGH.with_decodes(4, 1.0) == pytest.approx(1.06)
    assert HIGH.with_decodes(2, 1.05) == 1.05
    assert LOW.with_decodes(4, 1.0) == pytest.approx(0.945)
    assert LOW.with_decodes(1, 0.97) == 0.97
    assert PhaseFactors(decode=1.3).with_decodes(7, 1.3) == 1.3


@pytest.mark.parametrize("n", [1, 4, 8])
def test_rows_at_an_end_take_the_factor_of_their_sequences(n: int) -> None:
    rows, scaled = StepRows(MODEL), ScaledRows(MODEL, HIGH, EngineOverhead())
    decode, mixed = (HIGH.with_decodes(n, own) for own in (HIGH.decode, HIGH.mixed))
    assert scaled.decode_cost(n, 16 * n) / rows.decode_cost(n, 16 * n) == pytest.approx(decode, rel=1e-5)
    chunk = ((9, 0, 16),)
    assert scaled.mixed(n, 16 * n, chunk) / rows.mixed(n, 16 * n, chunk) == pytest.approx(mixed, rel=1e-5)
    assert scaled.mixed(0, 0, chunk) / rows.mixed(0, 0, chunk) == pytest.approx(1.2, rel=1e-5)
