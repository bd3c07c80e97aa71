"""Step-time models: monotonicity, closed forms, selection, and the integer rows compiled from them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Stamp
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from hwmodels.step_times.linear_catalogue import LinearKey, linear_keys, linear_step_model
from hwmodels.step_times.linear_step import (
    ChunkLine,
    DecodeLine,
    DenseLines,
    LinearCoefficients,
    LinearStepModel,
    MixedAttention,
    TiledStepModel,
)
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.roofline_step import Efficiencies, RooflineStepModel, roofline_step_model
from hwmodels.step_times.rows import FRACTION_BITS, StepRows
from hwmodels.step_times.select import includes_overhead, linear_key, step_model
from hwmodels.step_times.step_time import Piece, StepLimits, StepModel
from tests.worlds.linear_profile import tiny_profile

A100 = load_gpu("a100_80g")
LLAMA3_8B = load_llm("llama3_8b")
QWEN2_5_72B = load_llm("qwen2_5_72b")
NVLINK = load_all_reduce("a100_80g")
FIXED_PER_S = 1_000_000_000 << FRACTION_BITS
MODELS: list[StepModel] = [
    *(linear_step_model(key) for key in linear_keys()),
    roofline_step_model(A100, LLAMA3_8B, 1, all_reduce=NVLINK),
    roofline_step_model(A100, QWEN2_5_72B, 4, all_reduce=NVLINK),
]

# Where parts add, a mixed step is written down here once more.
ADDING = [model for model in MODELS if model.interplay is None]

models = st.sampled_from(MODELS)
sequences = st.integers(1, 255)
prompt_tokens = st.integers(1, 4095)


class Knotted:
    """Two pieces with different intercepts and slopes, 1 ms + 0.1 ms per token or sequence otherwise."""

    limits = StepLimits(8, 1000, 100)
    source = "test"
    error_band = "none"
    interplay = None

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        return 1e-3 + 1e-4 * (prefill_tokens + decode_sequences)

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        return (Piece(500, 2e-3 * decode_sequences, 1e-6), Piece(1000, 0.0, 4e-6))

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        return 1e-8 * new_tokens * (new_tokens + 2 * cached_tokens)


def decode_seconds(model: StepModel, n: int, context: int) -> float:
    piece = next(piece for piece in model.decode_attention(n) if context <= piece.context_limit)
    return model.dense_s(0, 0, n) + piece.intercept_s + piece.slope_s_per_token * context


# Models: monotonicity and closed forms.


@given(models, sequences, st.integers(1, 200))
def test_decode_time_grows_with_sequences_and_context(model: StepModel, n: int, each: int) -> None:
    """With each sequence's context kept: the same total in more sequences may be faster."""
    here = decode_seconds(model, n, n * each)
    assert decode_seconds(model, n + 1, (n + 1) * each) >= here
    assert decode_seconds(model, n, n * each + 1000) >= here
    assert decode_seconds(model, n, n * each + 300 * n) > here, "no kernel takes 300 tokens at once"


@given(models, prompt_tokens, st.integers(0, 255))
def test_dense_time_grows_with_prefill_tokens_and_with_decodes(model: StepModel, tokens: int, n: int) -> None:
    here = model.dense_s(tokens, 1, n)
    assert model.dense_s(tokens + 1, 1, n) >= here >= model.dense_s(0, 0, max(n, 1)) * (n > 0)
    assert model.dense_s(tokens, 1, n + 1) >= here


@given(models, prompt_tokens, st.integers(0, 4000))
def test_prefill_attention_grows_with_new_and_cached_tokens(model: StepModel, new: int, cached: int) -> None:
    here = model.prefill_attention_s(new, cached)
    assert model.prefill_attention_s(new + 1, cached) > here
    assert model.prefill_attention_s(new, cached + 1) > here


@given(st.floats(1.01, 4.0), sequences, st.integers(1, 100_000), st.integers(1, 8192))
def test_roofline_falls_with_bandwidth_and_compute(factor: float, n: int, context: int, tokens: int) -> None:
    slow = roofline_step_model(A100, LLAMA3_8B, 1, all_reduce=NVLINK)
    bandwidth = replace(A100, memory_bandwidth_bytes_per_s=A100.memory_bandwidth_bytes_per_s * factor)
    compute = replace(A100, flops_per_s=A100.flops_per_s * factor)
    wide = roofline_step_model(bandwidth, LLAMA3_8B, 1, all_reduce=NVLINK)
    fast = roofline_step_model(compute, LLAMA3_8B, 1, all_reduce=NVLINK)
    assert decode_seconds(wide, n, context) < decode_seconds(slow, n, context)
    assert fast.dense_s(tokens, 1, 0) <= slow.dense_s(tokens, 1, 0)
    assert fast.dense_s(8192, 1, 0) < slow.dense_s(8192, 1, 0)


@given(models, st.integers(1, 2000), st.integers(1, 2000))
def test_square_terms_of_the_chunks_of_a_prompt_add_up(model: StepModel, first: int, second: int) -> None:
    whole = model.prefill_attention_s(first + second, 0)
    cut = model.prefill_attention_s(first, 0) + model.prefill_attention_s(second, first)
    waves = isinstance(model, TiledStepModel) and model.prefill.tile_tokens > 1
    if isinstance(model, RooflineStepModel) or waves:
        return  # short chunks are bound by reading the cache, or by whole waves
    assert cut == pytest.approx(whole)


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_cutting_a_prompt_never_makes_the_roofline_faster(first: int, second: int) -> None:
    model = roofline_step_model(A100, LLAMA3_8B, 1, all_reduce=NVLINK)
    cut = model.prefill_attention_s(first, 0) + model.prefill_attention_s(second, first)
    assert cut >= model.prefill_attention_s(first + second, 0) * (1 - 1e-12)


def test_roofline_by_hand() -> None:
    """Decode of one sequence reads matrices, head and KV once at 0.8 of the datasheet bandwidth."""
    model = roofline_step_model(A100, LLAMA3_8B, 1, all_reduce=NVLINK, efficiencies=Efficiencies(step_s=0.25))
    rate = 2.039e12 * 0.8
    matrices = 32 * (2 * 4096 * 40 * 128 + 3 * 4096 * 14336) * 2
    head = 128256 * 4096 * 2
    assert model.dense_s(0, 0, 1) == pytest.approx(0.25 + (matrices + head) / rate)
    assert decode_seconds(model, 1, 1000) - model.dense_s(0, 0, 1) == pytest.approx(131_072_000 / rate)
    compute = 2 * (matrices / 2) * 8192 / (312e12 * 0.6)
    assert model.dense_s(8192, 1, 0) == pytest.approx(0.25 + compute + head / rate)


def test_tensor_parallelism_divides_work_and_adds_all_reduces() -> None:
    one, four = (roofline_step_model(A100, QWEN2_5_72B, tp, all_reduce=NVLINK) for tp in (2, 4))
    assert four.layers_weight_read_s == pytest.approx(one.layers_weight_read_s / 2)
    assert four.kv_read_s_per_token == pytest.approx(one.kv_read_s_per_token / 2)
    stretches = NVLINK.of(4).stretches
    _, start_s, s_per_byte = stretches[0]
    assert four.all_reduce.line(0) == pytest.approx((160 * start_s, 160 * 16384 * s_per_byte))
    assert roofline_step_model(A100, LLAMA3_8B, 1, all_reduce=NVLINK).all_reduce.seconds(1000) == 0.0


def test_linear_mixed_step_pays_the_larger_intercept_once() -> None:
    limits = StepLimits(8, 1000, 1000)
    coefficients = LinearCoefficients(
        decode_s=4.0,
        decode_per_sequence_s=0.5,
        decode_per_context_token_s=1.0,
        prefill_s=3.0,
        prefill_per_token_s=0.25,
        prefill_per_square_token_s=1.0,
    )
    model = LinearStepModel(
        coefficients=coefficients, limits=limits, measured=limits, source="test", error_band="none"
    )
    assert model.dense_s(0, 0, 2) == 4.0 + 1.0
    assert model.dense_s(100, 1, 0) == 3.0 + 25.0
    assert model.dense_s(100, 1, 2) == 4.0 + 25.0 + 1.0
    # A short prompt is not cheaper than reading the weights once.
    assert model.dense_s(1, 1, 0) == 4.0


def test_linear_mixed_step_may_have_the_larger_prefill_intercept() -> None:
    limits = StepLimits(8, 1000, 1000)
    model = LinearStepModel(
        coefficients=LinearCoefficients(
            decode_s=3.0,
            decode_per_sequence_s=0.5,
            decode_per_context_token_s=1.0,
            prefill_s=4.0,
            prefill_per_token_s=0.25,
            prefill_per_square_token_s=1.0,
        ),
        limits=limits,
        measured=limits,
        source="t",
        error_band="none",
    )
    assert model.dense_s(100, 1, 2) == 4.0 + 25.0 + 1.0


def test_tiled_lines_by_hand() -> None:
    limits = StepLimits(8, 1000, 1000)
    chunk = ChunkLine(per_token_s=1.0, per_square_token_s=0.5, tile_tokens=10)
    mixed = MixedAttention(
        chunk=chunk,
        per_sequence_s=2.0,
        per_new_token_s=3.0,
        per_context_token_s=4.0,
        reread_per_context_token_s=8.0,
        reread_free_s=600.0,
    )
    dense = DenseLines(
        step_s=1.0,
        per_sequence_s=0.25,
        floor_s=20.0,
        floor_per_token_s=0.5,
        line_s=2.0,
        per_token_s=1.0,
        tile_tokens=16,
    )
    model = TiledStepModel(
        dense=dense,
        decode=DecodeLine(7.0, 2.0, 0.5, 4.0),
        prefill=chunk,
        mixed=mixed,
        limits=limits,
        measured=limits,
        source="t",
        error_band="none",
    )
    assert model.dense_s(0, 0, 4) == 1.0 + 1.0 + 22.0  # the floor
    assert model.dense_s(30, 1, 3) == 1.0 + 1.0 + 2.0 + 48.0  # 33 tokens take 48
    assert model.decode_attention(2) == (Piece(1000, 11.0, 2.0),)  # both wait for the longest
    assert model.decode_attention(16)[0].slope_s_per_token == 0.5
    assert model.prefill_attention_s(5, 20) == 5.0 + 0.5 * 10 * 45
    # A lone decoding sequence hides behind the chunk (225), two of 30 tokens each outlast it.
    assert mixed.mixed_decode_attention_s(1, 10, 5, 20) == 2.0 + 15.0
    assert mixed.mixed_decode_attention_s(2, 60, 5, 20) == 4.0 + 15.0 + (112.5 + 240.0) - 225.0
    # Above it the second slope: 8 * 100 - 600 / 4 is more than 4 * 100.
    assert mixed.mixed_decode_attention_s(4, 100, 5, 20) == 8.0 + 15.0 + (112.5 + 650.0) - 225.0
    assert mixed.mixed_decode_attention_s(0, 0, 5, 20) == 0.0
    assert mixed.skew(4, 5) == 0.0


def test_a_short_chunk_behind_a_long_cache_is_bound_by_reading_it() -> None:
    model = roofline_step_model(A100, LLAMA3_8B, 1, all_reduce=NVLINK)
    assert model.prefill_attention_s(1, 3999) == pytest.approx(4000 * 131_072 / (2.039e12 * 0.8))
    flops = 2 * 32 * 32 * 128 * 4000**2
    assert model.prefill_attention_s(4000, 0) == pytest.approx(flops / (312e12 * 0.6))


def test_the_weight_reading_floor_changes_nothing_on_the_fitted_grid() -> None:
    """The shortest fitted prefill has 128 tokens; there the fitted line is above the floor."""
    for key in linear_keys():
        model = linear_step_model(key)
        if isinstance(model, TiledStepModel) or model.includes_overhead:
            continue  # one line for all tokens, or phases measured apart
        c = model.coefficients
        assert c.prefill_s + 128 * c.prefill_per_token_s >= c.decode_s, key


def test_the_72b_model_has_coefficients_of_its_own_heads() -> None:
    """8 KV heads on 4 GPUs: the cache is read at more than 60 % of the datasheet's bandwidth."""
    model = linear_step_model(LinearKey("a100_80g", "qwen2_5_72b", 4))
    assert isinstance(model, TiledStepModel)
    read_s = QWEN2_5_72B.kv_bytes_per_token / 4 / A100.memory_bandwidth_bytes_per_s
    assert read_s < model.decode.per_context_token_s < 1.6 * read_s
    assert "composed of measured operations" in model.source and "nearest" in model.source


# Selection and refusals.


def test_auto_takes_linear_only_where_coefficients_exist() -> None:
    assert isinstance(step_model("auto", A100, LLAMA3_8B, tp=1), LinearStepModel)
    assert isinstance(step_model("auto", A100, LLAMA3_8B, tp=2), RooflineStepModel)
    assert isinstance(step_model("roofline", A100, LLAMA3_8B, tp=1), RooflineStepModel)
    tiny = step_model("auto", load_gpu("cpu_core"), load_llm("tiny_llama"), tp=1)
    assert isinstance(tiny, LinearStepModel) and "rough" in tiny.source and "rough" in tiny.error_band


def test_linear_without_coefficients_lists_what_exists() -> None:
    with pytest.raises(HardwareError) as refused:
        step_model("linear", A100, LLAMA3_8B, tp=2)
    assert "llama3_8b on a100_80g tp=2" in str(refused.value)
    assert all(str(key) in str(refused.value) for key in linear_keys())


@pytest.mark.parametrize(
    ("kind", "tp", "says"),
    [
        ("table", 1, "write one of auto, whole_step, op_table, linear, calibrated_roofline, roofline"),
        ("auto", 3, "tp=3 does not divide"),
        ("op_table", 1, "'op_table' needs a profile"),
    ],
)
def test_wrong_settings_are_refused(kind: str, tp: int, says: str) -> None:
    with pytest.raises(HardwareError, match=says):
        step_model(kind, A100, LLAMA3_8B, tp=tp)


def test_a_profile_is_the_best_rung() -> None:
    gpu, llm = load_gpu("rtx4090"), load_llm("llama3_8b")
    profile = tiny_profile(
        Stamp(
            gpu="rtx4090",
            llm="llama3_1_8b",
            tp=1,
            engine="e",
            engine_version="1",
            precision="bf16",
            source="toy",
            licence="none",
            files=(),
        )
    )
    assert isinstance(step_model("auto", gpu, llm, tp=1, profile=profile), OpTableStepModel)
    assert isinstance(step_model("op_table", gpu, llm, tp=1, profile=profile), OpTableStepModel)
    assert isinstance(step_model("linear", gpu, llm, tp=1, profile=profile), TiledStepModel)
    with pytest.raises(HardwareError, match="needs a profile"):
        step_model("op_table", gpu, llm, tp=1)


def test_an_all_reduce_that_was_not_measured_is_declared() -> None:
    gpu, llm = load_gpu("rtx_pro_6000"), load_llm("llama3_8b")
    one = tiny_profile(
        Stamp(
            gpu=gpu.name,
            llm=llm.name,
            tp=1,
            engine="e",
            engine_version="1",
            precision="bf16",
            source="toy",
            licence="none",
            files=(),
        )
    )
    two = tiny_profile(
        Stamp(
            gpu=gpu.name,
            llm=llm.name,
            tp=2,
            engine="e",
            engine_version="1",
            precision="bf16",
            source="toy",
            licence="none",
            files=(),
        )
    )
    alone, together = (
        step_model("op_table", gpu, llm, tp=1, profile=one),
        step_model("op_table", gpu, llm, tp=2, profile=two),
    )
    all_reduce = load_all_reduce(gpu.name).of_step(llm, 2)
    for n in (1, 2):
        added_s = together.dense_s(0, 0, n) - alone.dense_s(0, 0, n)
        assert added_s == pytest.approx(all_reduce.seconds(n))
    assert "all-reduce" not in alone.source
    assert "all-reduce between the 2 ranks is the catalogue's: 4 stretches fitted to" in together.source
    label = "all-reduce of 2 rtx_pro_6000: measured in vllm 0.19.0, this run imitates e 1"
    assert together.labels == (label,)


def test_coefficients_hold_for_every_model_of_the_same_shape() -> None:
    gpu = load_gpu("rtx4090")
    assert linear_key(gpu, LLAMA3_8B, 1) == LinearKey("rtx4090", "llama3_1_8b", 1)
    assert isinstance(step_model("auto", gpu, LLAMA3_8B, tp=1), TiledStepModel)
    wider = replace(LLAMA3_8B, name="wider", hidden=8192)
    assert linear_key(gpu, wider, 1) == LinearKey("rtx4090", "wider", 1)


def test_declared_whole_steps_say_that_the_overhead_is_inside() -> None:
    measured = linear_step_model(LinearKey("cpu_core", "tiny_llama", 1))
    assert includes_overhead(measured)
    assert not includes_overhead(step_model("linear", A100, LLAMA3_8B, tp=1))
    assert not includes_overhead(step_model("roofline", A100, LLAMA3_8B, tp=1))


def test_nonsense_coefficients_and_efficiencies_are_refused() -> None:
    with pytest.raises(HardwareError, match="prefill_s=-1"):
        LinearCoefficients(
            decode_s=1.0,
            decode_per_sequence_s=0.0,
            decode_per_context_token_s=0.0,
            prefill_s=-1.0,
            prefill_per_token_s=0.0,
            prefill_per_square_token_s=0.0,
        )
    with pytest.raises(HardwareError, match="tile_tokens=0 must be at least 1"):
        ChunkLine(1.0, 1.0, 0)
    with pytest.raises(HardwareError, match="floor_per_token_s=-1"):
        DenseLines(
            step_s=1.0,
            per_sequence_s=0.0,
            floor_s=1.0,
            floor_per_token_s=-1.0,
            line_s=0.0,
            per_token_s=0.0,
            tile_tokens=1,
        )
    with pytest.raises(HardwareError, match="step_s=-1"):
        Efficiencies(step_s=-1.0)
    with pytest.raises(HardwareError, match=r"memory efficiency 1\.5"):
        Efficiencies(memory=1.5)
    with pytest.raises(HardwareError, match="does not fit into 1 x a100_80g"):
        roofline_step_model(A100, QWEN2_5_72B, 1, all_reduce=NVLINK)


# Integer rows.


@given(models, sequences, st.integers(1, 131_072))
def test_decode_rows_are_integers_within_1e9_of_the_model(model: StepModel, n: int, context: int) -> None:
    rows = StepRows(model)
    assert all(type(number) is int for row in rows.decode(n) for number in row)
    assert all(intercept >= 1 and slope >= 0 for _, intercept, slope in rows.decode(n))
    cost = rows.decode_cost(n, context)
    assert type(cost) is int
    assert cost == pytest.approx(decode_seconds(model, n, context) * FIXED_PER_S, rel=1e-9)


@given(
    st.sampled_from(ADDING),
    st.integers(0, 255),
    st.integers(255, 131_072),
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 3000), st.integers(1, 1024)), min_size=1, max_size=4
    ),
)
def test_mixed_rows_are_integers_within_1e9_of_the_model(
    model: StepModel, n: int, context: int, chunks: list[tuple[int, int, int]]
) -> None:
    seconds = model.dense_s(sum(tokens for _, _, tokens in chunks), len(chunks), n)
    seconds += sum(model.prefill_attention_s(tokens, start) for _, start, tokens in chunks)
    if n > 0:
        seconds += decode_seconds(model, n, context) - model.dense_s(0, 0, n)
    cost = StepRows(model).mixed(n, context, chunks)
    assert type(cost) is int and cost >= 1
    assert cost == pytest.approx(seconds * FIXED_PER_S, rel=1e-9)


def test_the_first_piece_that_reaches_the_context_holds() -> None:
    rows = StepRows(Knotted())
    ms = FIXED_PER_S // 1000
    assert [limit for limit, _, _ in rows.decode(2)] == [500, 1000]
    assert rows.decode_cost(2, 500) == pytest.approx((1.2 + 4.0 + 0.5) * ms, rel=1e-9)
    assert rows.decode_cost(2, 501) == pytest.approx((1.2 + 2.004) * ms, rel=1e-9)
    assert rows.mixed(2, 501, [(7, 0, 10)]) == pytest.approx((2.2 + 2.004 + 0.001) * ms, rel=1e-9)


def test_a_mixed_step_without_chunks_is_exactly_a_decode_step() -> None:
    for model in MODELS:
        rows = StepRows(model)
        for n, context in ((1, 1), (7, 1234), (200, 99_999)):
            assert rows.mixed(n, context, ()) == rows.decode_cost(n, context)


def test_rows_are_compiled_once_per_count() -> None:
    rows = StepRows(MODELS[0])
    assert rows.decode(5) is rows.decode(5)
    assert rows.decode(5) != rows.decode(6)


def test_a_step_that_costs_nothing_still_takes_one_unit() -> None:
    class Free(Knotted):
        def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
            return 0.0

        def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
            return (Piece(1000, 0.0, 0.0),)

        def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
            return 0.0

    rows = StepRows(Free())
    assert rows.decode_cost(1, 1) == 1
    assert rows.mixed(0, 0, [(1, 0, 1)]) == 1


@pytest.mark.parametrize(
    ("n", "context", "chunks", "says"),
    [
        (9, 10, [(1, 0, 5)], "9 decoding sequences are outside the step model's 1 to 8"),
        (-1, 10, [], "a step needs a prefill chunk"),
        (2, 1001, [(1, 0, 5)], "1001 tokens of context are beyond the step model's 1000"),
        (0, 0, [(1, 0, 60), (2, 0, 41)], "101 prefill tokens is beyond the step model's 100"),
        (0, 0, [(4, 950, 60)], "chunk of request 4 covers prompt tokens 950 to 1010"),
        (0, 0, [(4, 0, 0)], "chunk of request 4"),
        (0, 0, [], "a step needs a prefill chunk or a decoding sequence"),
    ],
)
def test_mixed_steps_out_of_range_are_refused(
    n: int, context: int, chunks: list[tuple[int, int, int]], says: str
) -> None:
    with pytest.raises(HardwareError, match=says):
        StepRows(Knotted()).mixed(n, context, chunks)


def test_decode_steps_out_of_range_are_refused() -> None:
    rows = StepRows(Knotted())
    for n in (0, 9):
        with pytest.raises(HardwareError, match=f"{n} decoding sequences are outside"):
            rows.decode(n)
    with pytest.raises(HardwareError, match="beyond the step model's 1000"):
        rows.decode_cost(2, 1001)


def test_pieces_out_of_order_are_a_programming_error() -> None:
    class Disordered(Knotted):
        def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
            return (Piece(1000, 0.0, 1e-6), Piece(500, 0.0, 1e-6))

    with pytest.raises(ValueError, match="increasing context limits"):
        StepRows(Disordered()).decode(1)
