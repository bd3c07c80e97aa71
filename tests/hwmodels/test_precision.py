"""Bytes of weights and KV in every number format: closed forms, laws, and what follows from them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.catalogue import llm_names, load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import kv_capacity
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import model_units
from hwmodels.models.parallelism import Parallelism
from hwmodels.models.precision import FORMATS, PRECISIONS, Precision, stored_as
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from hwmodels.step_times.roofline_step import RooflineStepModel, efficiencies_of, roofline_step_model
from hwmodels.step_times.select import linear_key, step_model
from tests.worlds.refusals import refuses

# Bytes of a value with its scales: 4 in 128x128, 2 in 128, 1 in 32, 1 in 16.
VALUE_BYTES = {
    "bf16": 2.0, "fp8": 1.0, "fp8_block": 1 + 4 / 16384, "int8": 1.0, "int4": 0.5 + 2 / 128,
    "mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
}  # fmt: skip
# Words that leave parts of a mixture in 16 bits: the format, and whether the MLP has it too.
ON_PARTS = {"int4_experts": False, "mxfp4_experts": False, "nvfp4_experts": False, "nvfp4_mlp": True}
# Matrices of 80 layers: Q and O, K and V, three of the MLP; two tables of 128,256 rows, 161 norms.
MATRICES_70B = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
TABLES_70B = 2 * 128256 * 8192
NORMS_70B = 161 * 8192


def stored(name: str, precision: str | None, kv: str = "auto") -> LlmShape:
    shape = load_llm(name)
    return replace(shape, precision=stored_as(shape.bytes_per_parameter, shape.precision, precision, kv))


@pytest.mark.parametrize("precision", VALUE_BYTES)
def test_bytes_of_llama_70b_are_those_of_its_matrices_and_16_bit_tables(precision: str) -> None:
    shape = stored("llama3_1_70b", precision)
    assert shape.weight_bytes == MATRICES_70B * VALUE_BYTES[precision] + 2 * (TABLES_70B + NORMS_70B)


@pytest.mark.parametrize("precision", ON_PARTS)
def test_parts_of_a_mixture_in_fewer_bits(precision: str) -> None:
    """Of DeepSeek-V2-Lite: 26 mixtures of 64 experts and 2 shared ones, and one dense MLP."""
    shape = stored("deepseek_v2_lite", precision)
    routed, mlps = 26 * 64 * 3 * 2048 * 1408, 26 * 3 * 2048 * 2816 + 3 * 2048 * 10944
    fewer = routed + (mlps if ON_PARTS[precision] else 0)
    saved = fewer * (2 - VALUE_BYTES[precision.partition("_")[0]])
    assert load_llm("deepseek_v2_lite").weight_bytes - shape.weight_bytes == saved


def test_every_word_is_tried_above() -> None:
    assert set(PRECISIONS) == set(VALUE_BYTES) | set(ON_PARTS)


def test_half_of_the_matrices_is_saved_in_fp8() -> None:
    whole, half = load_llm("llama3_1_70b"), stored("llama3_1_70b", "fp8")
    assert whole.weight_bytes - half.weight_bytes == MATRICES_70B
    assert (whole.weight_bytes, half.weight_bytes) == (141_107_412_992, 72_656_371_712)


def test_experts_alone_in_mxfp4_leave_the_rest_in_16_bits() -> None:
    shape = load_llm("mixtral_8x7b")
    formats = replace(shape.formats, experts="mxfp4")
    experts = 32 * 8 * 3 * 4096 * 14336
    found = replace(shape, precision=formats)
    assert found.expert_bytes == experts * 17 // 32
    assert shape.weight_bytes - found.weight_bytes == 2 * experts - found.expert_bytes


@pytest.mark.parametrize("name", llm_names())
def test_a_model_in_its_own_width_is_as_before(name: str) -> None:
    """Those that are published in fewer bits alone are in it if a run says so."""
    width = load_llm(name).bytes_per_parameter
    shape = stored(name, "bf16") if width == 2 else load_llm(name)
    assert shape.weight_bytes == shape.parameters * width and not shape.quantised
    assert shape == replace(load_llm(name), precision=None)


@pytest.mark.parametrize("name", ["llama3_1_70b", "mixtral_8x7b", "deepseek_v2_lite", "opt_13b"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_units_and_shards_add_up(name: str, precision: str) -> None:
    shape = stored(name, precision)
    assert sum(unit.size_bytes for unit in model_units(shape)) == shape.weight_bytes
    ranks = [model_units(shape, 2, rank) for rank in range(2)]
    assert sum(unit.size_bytes for units in ranks for unit in units) == shape.weight_bytes
    plain = {unit.name: unit.size_bytes for unit in model_units(load_llm(name))}
    found = {unit.name: unit.size_bytes for unit in model_units(shape)}
    assert (plain["embedding"], plain.get("head")) == (found["embedding"], found.get("head"))


@given(name=st.sampled_from(llm_names()), kv=st.sampled_from(("auto", "fp8", "bf16")))
@settings(max_examples=40)
def test_fewer_bits_are_never_more_bytes(name: str, kv: str) -> None:
    by_size = sorted(VALUE_BYTES, key=lambda precision: VALUE_BYTES[precision])
    sizes = [stored(name, precision, kv).weight_bytes for precision in by_size]
    assert sizes == sorted(sizes)
    kvs = [stored(name, None, dtype).kv_bytes_per_token for dtype in ("fp8", "bf16")]
    latent = load_llm(name).latent
    if latent is None or latent.index is None:  # an indexer's keys are in FP8 in both
        assert kvs[0] * 2 == kvs[1]
    assert kvs[0] < kvs[1]


@given(name=st.sampled_from(sorted(FORMATS)), values=st.integers(0, 10**7), more=st.integers(0, 10**5))
@settings(max_examples=100)
def test_more_values_are_never_fewer_bytes(name: str, values: int, more: int) -> None:
    known = FORMATS[name]
    assert known.size_bytes(values) <= known.size_bytes(values + more)
    assert known.size_bytes(values) >= values * known.bits / 8


@pytest.mark.parametrize(
    ("name", "values"), [("llama3_1_70b", 80 * 2 * 8 * 128), ("deepseek_v2_lite", 27 * (512 + 64))]
)
def test_kv_in_fp8_is_a_byte_for_each_value(name: str, values: int) -> None:
    assert stored(name, None, "fp8").kv_bytes_per_token == values
    assert load_llm(name).kv_bytes_per_token == 2 * values


def test_kv_memory_gains_what_the_weights_leave() -> None:
    gpu = load_gpu("h100")

    def tokens(precision: str | None, kv: str) -> int:
        shape = stored("llama3_1_70b", precision, kv)
        return kv_capacity(gpu, shape, tp=4, memory_utilization=0.9, block_tokens=16).tokens

    gained = (tokens("fp8", "auto") - tokens(None, "auto")) * 327_680
    assert abs(gained - MATRICES_70B) < 2 * 16 * 327_680
    assert abs(tokens("fp8", "fp8") - 2 * tokens("fp8", "auto")) <= 16


def test_stored_words_override_what_is_published() -> None:
    published = Precision(attention="fp8", mlp="fp8", experts="fp8", kv="fp8")
    assert stored_as(2, published, None, "auto") == published
    assert stored_as(2, published, "bf16", "bf16") is None
    assert stored_as(2, published, "nvfp4", "auto") == replace(
        published, attention="nvfp4", mlp="nvfp4", experts="nvfp4"
    )


def test_an_unknown_format_is_refused() -> None:
    refuses(
        HardwareError,
        "unknown number format 'fp6': write one of",
        replace,
        load_llm("llama3_8b").formats,
        mlp="fp6",
    )


def roofline(gpu: str, shape: LlmShape, tp: int) -> RooflineStepModel:
    known = load_gpu(gpu)
    return roofline_step_model(
        known, shape, tp, all_reduce=load_all_reduce(gpu), efficiencies=efficiencies_of(known)
    )


def test_a_roofline_reads_the_stored_bytes_and_computes_at_their_rate() -> None:
    """H100: twice the 16-bit rate in FP8; A100 has no such rate, and B200 has one for FP4."""
    plain, fp8 = (
        roofline("h100", load_llm("llama3_1_70b"), 4),
        roofline("h100", stored("llama3_1_70b", "fp8"), 4),
    )
    assert fp8.layers_weight_read_s == pytest.approx(plain.layers_weight_read_s / 2)
    assert fp8.layers_compute_s_per_token == pytest.approx(plain.layers_compute_s_per_token / 2)
    assert fp8.head_weight_read_s == plain.head_weight_read_s and not fp8.labels
    a100 = roofline("a100_80g", stored("llama3_1_70b", "fp8"), 4)
    assert (
        a100.layers_compute_s_per_token
        == roofline("a100_80g", load_llm("llama3_1_70b"), 4).layers_compute_s_per_token
    )
    assert any("fp8 weights run at the 16-bit rate of a100_80g" in label for label in a100.labels)
    four = roofline("b200", stored("llama3_1_70b", "nvfp4"), 1).layers_compute_s_per_token
    assert four == pytest.approx(
        roofline("b200", stored("llama3_1_70b", "bf16"), 1).layers_compute_s_per_token / 4
    )


def test_parts_in_different_formats_compute_at_their_own_rates() -> None:
    shape = load_llm("llama3_1_70b")
    mixed = replace(shape, precision=replace(shape.formats, mlp="fp8"))
    ends = [
        roofline("h100", one, 4).layers_compute_s_per_token
        for one in (stored("llama3_1_70b", "fp8"), mixed, shape)
    ]
    share = 3 * 8192 * 28672 * 80 / MATRICES_70B
    assert ends[1] == pytest.approx(ends[2] * (share / 2 + 1 - share)) and ends == sorted(ends)


def test_16_bit_coefficients_are_not_taken_for_a_quantised_model() -> None:
    gpu, shape = load_gpu("h100"), stored("llama3_1_70b", "fp8")
    assert linear_key(gpu, shape, 4).llm != shape.name
    refuses(HardwareError, "engine.step_time=linear.*model.precision", step_model, "linear", gpu, shape, tp=4)
    assert isinstance(step_model("roofline", gpu, shape, tp=4), RooflineStepModel)
    assert not shape.computes_like(load_llm("llama3_1_70b"))


def test_a_part_of_the_experts_of_a_group() -> None:
    shape = stored("qwen3_30b_a3b", "fp8")
    Parallelism(1, 8, True).check(shape)
    part, whole = model_units(shape, expert_parts=8)[1], model_units(shape)[1]
    assert whole.size_bytes - part.size_bytes == 128 * 3 * 2048 * 768 * 7 // 8
