"""Step times asked from AIConfigurator's library: what is asked, and what stands between its points."""

import builtins
import json
from dataclasses import replace
from typing import Any

import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.attention import LatentAttention, LinearAttention, SparseIndex
from hwmodels.models.experts import Experts
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.models.precision import Precision, quantised
from hwmodels.step_times import aiconfigurator_library as library
from hwmodels.step_times.aiconfigurator_config import asked_of, library_config
from hwmodels.step_times.library_step import TERMS, library_model
from hwmodels.step_times.mixture_step import MixtureStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.select import asks_library, shared_experts, step_model
from hwmodels.step_times.step_time import StepModel, pieces_s

LLAMA = replace(load_llm("llama3_1_8b"), precision=quantised("fp8", 2))
QWEN = load_llm("qwen3_30b_a3b")
_INT4 = Precision(attention="bf16", mlp="bf16", experts="int4", kv="bf16")
LATENT = replace(
    QWEN, name="latent", layers=61, hidden=7168, heads=64, kv_heads=64, head_dim=192, vocab=163_840,
    qk_norm=False, experts=Experts(count=384, per_token=8, width=2048, shared_width=2048, dense_layers=1),
    latent=LatentAttention(kv_rank=512, rope=64, nope=128, value=128, query_rank=1536), precision=_INT4,
)  # fmt: skip
SPARSE = replace(
    LATENT, name="sparse", experts=Experts(count=256, per_token=8, width=2048, shared_width=2048),
    latent=LatentAttention(
        kv_rank=512, rope=64, nope=128, value=128, query_rank=1536, index=SparseIndex(64, 128, 2048)
    ), heads=128, kv_heads=128,
    precision=quantised("fp8_block", 2),
)  # fmt: skip
WINDOWS = replace(
    QWEN, name="windows", layers=36, hidden=2880, heads=64, kv_heads=8, head_dim=64, qk_norm=False,
    sinks=True, experts=Experts(count=128, per_token=4, width=2880), layer_types=("sliding", "full") * 18,
    window_tokens=128, precision=replace(_INT4, experts="mxfp4"),
)  # fmt: skip
STATES = replace(
    QWEN, name="states", layers=60, hidden=4096, heads=32, kv_heads=2, head_dim=256, output_gate=True,
    experts=Experts(count=512, per_token=10, width=1024, shared_width=1024, shared_gate=True),
    layer_types=("linear", "linear", "linear", "full") * 15,
    linear=LinearAttention(key_heads=16, value_heads=64, key_dim=128, value_dim=128, conv_width=4),
    precision=quantised("fp8_block", 2),
)  # fmt: skip


def without_launches(llm: LlmShape, seconds: float) -> float:
    launches = 0.0 if llm.latent is None else llm.layers * TERMS.latent_graph_s
    return max(seconds - launches, seconds / 4)


def decode_s(model: StepModel, sequences: int, context: int) -> float:
    attention = pieces_s(model.decode_attention(sequences), sequences * context)
    assert attention is not None
    return model.dense_s(0, 0, sequences) + attention


@pytest.mark.parametrize(
    ("llm", "gpu", "tp"), [(LLAMA, "h100", 1), (LATENT, "h200", 8), (WINDOWS, "b200", 1), (STATES, "h200", 8)]
)
def test_steps_between_the_points_are_what_the_library_says(llm: LlmShape, gpu: str, tp: int) -> None:
    """Whole decode and prompt steps at sizes that are on no lattice line."""
    model = library_model(gpu, llm, Parallelism(tp))
    operations, _ = library._operations(gpu, llm, Parallelism(tp))
    more = llm.moe_layers * TERMS.query_norm_s if llm.qk_norm else 0.0
    for sequences, context in ((1, 777), (5, 3333), (23, 1500), (90, 2222), (201, 700)):
        said = operations.dense_s(sequences) + operations.head_s(sequences) + more
        said += without_launches(llm, operations.decode_s(sequences, context))
        assert decode_s(model, sequences, context) == pytest.approx(said, rel=0.03)
    more += llm.moe_layers * TERMS.expert_layer_prompt_s
    for new, cached in ((700, 0), (3000, 0), (1500, 2500), (7300, 0)):
        said = operations.dense_s(new) + operations.head_s(1) + operations.prefill_s(new, cached) + more
        asked = model.dense_s(new, 1, 0) + model.prefill_attention_s(new, cached)
        assert asked == pytest.approx(said, rel=0.05)


@pytest.mark.parametrize("llm", [LLAMA, QWEN, LATENT, WINDOWS, STATES])
def test_every_operation_is_counted_once(llm: LlmShape) -> None:
    """An operation is attention, head, routed or rest; one engine has no part with others."""
    operations, _ = library._operations("h200", llm, Parallelism(8 if llm.layers > 48 else 2, 1, False))
    for places in (operations._context, operations._generation):
        every = [*places.rest, *places.attention, *places.head, *places.routed]
        assert sorted(every) == list(range(len(every)))
        assert places.attention and not places.routed


def test_up_to_256_tokens_shared_experts_run_beside_the_routed_ones() -> None:
    operations, _ = library._operations("h200", LATENT, Parallelism(8))
    context = operations._context.rest
    apart = operations._engine.evaluate_context_ops(context, batch_size=1, s=library.BESIDE_TOKENS)
    assert operations.dense_s(library.BESIDE_TOKENS) < sum(row[1] for row in apart) * 1e-3
    after = operations._engine.evaluate_context_ops(context, batch_size=1, s=library.BESIDE_TOKENS + 1)
    assert operations.dense_s(library.BESIDE_TOKENS + 1) == pytest.approx(sum(row[1] for row in after) * 1e-3)


def test_engines_in_data_parallel_have_a_part_of_their_own_and_one_together() -> None:
    """Together they take what the library says of such an engine with its share of the tokens."""
    split = Parallelism(4, 2, True)
    llm = replace(LATENT, experts=SPARSE.experts, precision=SPARSE.precision, heads=128, kv_heads=128)
    own = step_model("aiconfigurator", load_gpu("h200"), llm, tp=4, parallelism=split)
    group = shared_experts(load_gpu("h200"), llm, split, None, "aiconfigurator").times(llm, split)
    operations, asked = library._operations("h200", llm, split)
    assert asked.dp == 2 and not isinstance(own, MixtureStepModel)
    rows = operations._engine.evaluate_generation_ops(
        [*operations._generation.rest, *operations._generation.routed], batch_size=32, s=1
    )
    whole = sum(row[1] for row in rows) * 1e-3
    assert own.dense_s(0, 0, 32) - operations.head_s(32) + group.seconds(64) == pytest.approx(whole, rel=1e-6)
    assert group.seconds(0) == 0.0 and group.moved_s.max() == 0.0


def test_sparse_attention_takes_its_tables_of_other_formats_and_says_so() -> None:
    profile = library.asked_profile("h200", SPARSE, Parallelism(8))
    assert any("takes its times of fp8_block" in note or "fp8" in note for note in profile.stamp.notes)
    assert library_config(SPARSE)["architectures"] == ["DeepseekV32ForCausalLM"]
    assert library_config(SPARSE)["index_topk"] == 2048


@pytest.mark.parametrize(
    ("llm", "architecture"),
    [
        (LLAMA, "LlamaForCausalLM"),
        (QWEN, "Qwen3MoeForCausalLM"),
        (LATENT, "DeepseekV3ForCausalLM"),
        (WINDOWS, "GptOssForCausalLM"),
        (STATES, "Qwen3_5MoeForConditionalGeneration"),
    ],
)
def test_a_shape_is_asked_as_an_architecture_that_the_library_knows(llm: LlmShape, architecture: str) -> None:
    config = json.loads(json.dumps(library_config(llm)))
    assert config["architectures"] == [architecture] and asked_of(llm)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"gated_mlp": False}, "an MLP without a gate"),
        ({"layer_types": ("sliding", "full") * 24, "window_tokens": 128}, "sliding windows"),
        ({"experts": Experts(count=8, per_token=2, width=768, shared_width=768)}, "shared experts"),
        ({"experts": Experts(count=8, per_token=2, width=768, every=2)}, "dense layers among"),
    ],
)
def test_parts_that_the_library_does_not_add_up_are_not_asked(change: dict[str, Any], part: str) -> None:
    shape = replace(QWEN, name="odd", **change)
    assert not asked_of(shape)
    with pytest.raises(HardwareError, match=part):
        library_config(shape)


def test_auto_falls_back_to_a_labelled_roofline_where_a_table_is_missing() -> None:
    odd = replace(WINDOWS, name="odd", hidden=2944, experts=Experts(count=96, per_token=4, width=1920))
    gpu, split = load_gpu("a100_80g"), Parallelism(2)
    assert asks_library(gpu, odd, split) and library.missing_times("a100_80g", odd, split)
    model = step_model("auto", gpu, odd, tp=2)
    assert isinstance(model, MixtureStepModel) and "roofline by the datasheet" in " ".join(model.labels)
    with pytest.raises(HardwareError, match="has no times for this model"):
        step_model("aiconfigurator", gpu, odd, tp=2)


def test_without_the_package_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("aiconfigurator_core"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    never = replace(LLAMA, name="never asked before")
    for kind in ("auto", "aiconfigurator"):
        with pytest.raises(HardwareError, match=r"pip install 'servetwin\[silicon\]'"):
            step_model(kind, load_gpu("l40s"), never, tp=1)


def test_errors_of_the_library_are_those_of_measured_runs() -> None:
    model = step_model("auto", load_gpu("h200"), LATENT, tp=8)
    assert isinstance(model, OpTableStepModel)
    assert (model.errors.decode.low, model.errors.decode.high) == TERMS.expert_decodes


def test_a_gpu_without_tables_is_refused_with_those_that_have_them() -> None:
    with pytest.raises(HardwareError, match=r"no tables for mi300x: write engine.step_time=roofline"):
        library.tables_stamp("mi300x")
