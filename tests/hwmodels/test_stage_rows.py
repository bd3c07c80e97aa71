"""Step times of stages: they add up to the whole, and only the last one has the head."""

import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.models.stage_cuts import even_cut
from hwmodels.step_times.rows import FIXED_PER_S, StepRows
from hwmodels.step_times.select import step_model
from hwmodels.step_times.stage_rows import StageHop, StageRows, activation_bytes, head_share

GPU, SHAPE = load_gpu("a100_80g"), load_llm("llama3_8b")
WHOLE = StepRows(step_model("auto", GPU, SHAPE, tp=1))
STAGES = StageRows(WHOLE, even_cut(32, 4), head_share(GPU, SHAPE), [StageHop(1e-6, 2e-9)] * 3)


@pytest.mark.parametrize("sequences", [1, 7, 64])
def test_decode_steps_of_stages_add_up_to_those_of_the_model(sequences: int) -> None:
    for own, whole in zip(STAGES.decode(sequences), WHOLE.decode(sequences), strict=True):
        assert (own[0], sum(own[1]), sum(own[2])) == whole


def test_a_step_with_prompts_adds_up_too() -> None:
    chunks = ((0, 0, 700), (1, 512, 300))
    assert sum(STAGES.mixed(5, 4000, chunks)) == WHOLE.mixed(5, 4000, chunks)


def test_the_head_makes_the_last_stage_slower_while_decoding_and_hardly_with_prompts() -> None:
    first, *_, last = STAGES.decode(8)[0][1]
    # 0.53 billion of 7.5 billion weights are read by the head: 2.3 layers' time.
    layer = first / 8
    assert (last - first) / layer == pytest.approx(
        SHAPE.embedding_parameters / (SHAPE.parameters_of(SHAPE.layers - 1)), rel=0.01
    )
    first, *_, last = STAGES.mixed(0, 0, ((0, 0, 2048),))
    assert last < 1.03 * first


def test_activations_are_two_tensors_of_a_token() -> None:
    assert activation_bytes(SHAPE) == 2 * 4096 * 2
    assert STAGES.hops(100) == (0, *[round(1e-6 * FIXED_PER_S) + 100 * round(2e-9 * FIXED_PER_S)] * 3)
