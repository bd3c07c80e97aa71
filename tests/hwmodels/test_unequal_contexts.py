"""What unequal contexts cost where no table measured it, by the attention kernel of the GPU."""

from dataclasses import replace

import pytest

from hwmodels.catalogue import gpu_names, load_gpu, load_llm, read_yaml
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.rows import StepRows
from hwmodels.step_times.scaled_rows import PhaseFactors, ScaledRows
from hwmodels.step_times.unequal_contexts import (
    UNEQUAL_CONTEXTS_FILE,
    LongestShare,
    unequal_contexts,
)
from tests.worlds.toy_profile import toy_profile

NONE = EngineOverhead()
EIGHT_KV_HEADS = load_llm("llama3_8b")  # 32 query heads


def test_the_longest_decides_while_all_tiles_fit_and_less_with_each_wave() -> None:
    high = unequal_contexts(load_gpu("h100"), EIGHT_KV_HEADS, 2).high  # 132 SMs, 4 KV heads of a rank
    assert [high.skew(n, 0) for n in (1, 2, 33)] == [0.0, 1.0, 1.0]
    assert high.skew(66, 0) == 0.5
    assert high.skew(330, 0) == pytest.approx(0.1)
    # 1,000 prompt tokens with four queries for each KV head fill 32 tiles of 128 rows.
    assert high.skew(34, 1000) == 0.5


def test_kernels_decide_what_a_run_takes_and_its_range() -> None:
    hopper, ada, volta = (
        unequal_contexts(load_gpu(gpu), EIGHT_KV_HEADS, 1) for gpu in ("h100", "l40s", "v100")
    )
    assert (hopper.usual.counts, hopper.high.counts, hopper.kernel) == (False, True, "flash_attention_3")
    assert "flash_prepare_scheduler" in hopper.told()
    assert (ada.usual.counts, ada.high.skew(100, 0)) == (False, 0.15)
    assert (volta.usual.counts, volta.kernel) == (False, "unknown")
    assert volta.high.skew(10, 0) == 1.0
    assert volta.high.skew(80, 0) == 80 / 8 / 80
    own = unequal_contexts(replace(load_gpu("h100"), name="mine.yaml", sms=None), EIGHT_KV_HEADS, 1)
    assert own.high.skew(1000, 0) == 1.0
    assert own.in_short() == "unequal contexts as their total to as the longest (unknown)"
    other = unequal_contexts(load_gpu("b200"), EIGHT_KV_HEADS, 1)
    assert other.usual.skew(37, 0) == 0.5


def test_every_gpu_of_the_catalogue_but_the_cpu_has_its_multiprocessors() -> None:
    assert [name for name in gpu_names() if load_gpu(name).sms is None] == ["cpu_core"]


def test_a_gpu_has_one_kernel() -> None:
    listed = [gpu for entry in read_yaml(UNEQUAL_CONTEXTS_FILE).values() for gpu in entry["gpus"]]
    assert len(listed) == len(set(listed))
    assert set(listed) < set(gpu_names())


def test_steps_take_the_share_where_none_was_measured() -> None:
    half = LongestShare(constant=0.5, tiles=None, queries=1)
    operations = OpTableStepModel(toy_profile(mixed=False))
    rows = StepRows(EngineStepModel(operations, NONE, half))
    equal = StepRows(EngineStepModel(operations, NONE))
    assert rows.skewed
    assert not equal.skewed
    assert (rows.shift(4, 20), rows.shift(1, 20), equal.shift(4, 20)) == (10, 0, 0)
    chunk = ((0, 0, 2),)
    assert rows.mixed(4, 40, chunk, 20) == equal.mixed(4, 50, chunk)


def test_ends_have_their_own_share() -> None:
    operations = OpTableStepModel(toy_profile(mixed=False))
    whole = LongestShare(constant=1.0, tiles=None, queries=1)
    none = replace(whole, constant=0.0)
    step = EngineStepModel(operations, NONE, none)
    assert not ScaledRows(step, PhaseFactors(), NONE).skewed
    assert ScaledRows(step, PhaseFactors(), NONE, whole).shift(4, 20) == 20
    low = EngineStepModel(operations, NONE, whole)
    assert ScaledRows(low, PhaseFactors(), NONE, none).shift(4, 20) == 0


def test_a_measured_share_stays() -> None:
    measured = OpTableStepModel(toy_profile())
    assert measured.interplay is not None
    assert measured.interplay.skewed
    whole = LongestShare(constant=1.0, tiles=None, queries=1)
    rows = StepRows(EngineStepModel(measured, NONE, whole))
    assert rows.shift(2, 1 << 16) == int(measured.interplay.skew(2, 0) * (1 << 16))
