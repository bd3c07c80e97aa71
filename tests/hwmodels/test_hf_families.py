"""Every family that people serve: parameters and KV from its config.json, against what is published."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import llm_names, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.attention import FULL, LINEAR, SLIDING
from hwmodels.models.hf_config import llm_shape_from_config
from hwmodels.models.hf_families import ARCHITECTURES, language_model
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.precision import Precision, stored_as
from tests.worlds import hf_configs as old
from tests.worlds import hf_families as new
from tests.worlds.hf_published import GLM_4_6, PUBLISHED, Published
from tests.worlds.refusals import refuses


def read(folder: Path, config: dict[str, Any]) -> LlmShape:
    """The shape in a config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return llm_shape_from_config(path)


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name or one.source.rpartition("/")[2])
def test_parameters_are_the_published_ones_to_four_digits(tmp_path: Path, one: Published) -> None:
    shape = read(tmp_path, one.config)
    assert shape.checkpoint_parameters == pytest.approx(one.parameters, rel=5e-5)
    if not one.name:
        return
    assert load_llm(one.name).checkpoint_parameters == shape.checkpoint_parameters
    assert load_llm(str(tmp_path)).name == one.name, "measurements of the catalogue model hold for it"
    assert load_llm(str(tmp_path)).precision == shape.precision


def test_the_predictor_of_glm_4_6_shares_both_tables(tmp_path: Path) -> None:
    name, parameters = GLM_4_6
    shape = load_llm(name)
    assert shape.checkpoint_parameters == parameters
    found = read(tmp_path, new.GLM_4_5 | {"max_position_embeddings": 202752})
    assert found.computes_like(shape)
    assert found.checkpoint_parameters - parameters == 2 * 151552 * 5120


def test_every_architecture_is_tried() -> None:
    others = (old.LLAMA3_8B, old.MISTRAL_24B, old.OPT_13B)
    tried = {config["architectures"][0] for config in (*others, *(one.config for one in PUBLISHED))}
    assert {language_model(name) for name in tried} == set(ARCHITECTURES)


def test_a_text_config_alone_is_known_by_its_model_type(tmp_path: Path) -> None:
    for one in PUBLISHED:
        text = one.config.get("text_config", one.config)
        named = {**text, "architectures": None, "dtype": "bfloat16", "torch_dtype": None}
        if text.get("model_type") is not None:
            assert read(tmp_path, named).computes_like(read(tmp_path, one.config)), one.source


INSIGHTS = "Zhao and others, Insights into DeepSeek-V3 (ISCA 2025), table 1"
SPARSE_FP8 = "vLLM's page on DeepSeek-V3.2 (2025-09-29): 656 bytes of latent; indexer: 128 and a scale"


@pytest.mark.parametrize(
    ("config", "kv", "kv_bytes", "source"),
    [
        (new.DEEPSEEK_V3_FP8, "bf16", 70_272, INSIGHTS),
        (old.QWEN2_5_72B, "bf16", 327_680, INSIGHTS),
        (new.LLAMA3_1_405B, "bf16", 516_096, INSIGHTS),
        (new.DEEPSEEK_V2, "bf16", 34_560 * 2, "DeepSeek-V2 report, table 9: 34.6 K elements"),
        (new.DEEPSEEK_V3_2, "fp8", 61 * (656 + 132), SPARSE_FP8),
        (new.GLM_5, "fp8", 78 * (656 + 132), SPARSE_FP8),
        (new.QWEN3_NEXT, "bf16", 12 * 2 * 2 * 256 * 2, "Qwen3-Next: a quarter of its layers has KV"),
        (new.GPT_OSS_120B, "bf16", 18 * 2 * 8 * 64 * 2, "gpt-oss model card: every other layer is dense"),
        (new.LLAMA4_SCOUT, "bf16", 48 * 2 * 8 * 128 * 2, "chunks of 8,192 tokens count as the whole context"),
    ],
)
def test_kv_of_a_token_is_the_published_one(
    tmp_path: Path, config: dict[str, Any], kv: str, kv_bytes: int, source: str
) -> None:
    shape = read(tmp_path, config)
    stored = replace(shape, precision=stored_as(shape.bytes_per_parameter, shape.precision, None, kv))
    assert stored.kv_bytes_per_token == kv_bytes, source


def test_a_million_tokens_of_minimax_take_what_its_guide_says(tmp_path: Path) -> None:
    """vLLM's recipe for MiniMax-M2: 240 GB for a million tokens of context, which is about 237 GiB."""
    assert read(tmp_path, new.MINIMAX_M2_5).kv_bytes_per_token * 1e6 / 2**30 == pytest.approx(240, rel=0.02)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (new.GPT_OSS_120B, 18 * 128 * 2 * 8 * 64 * 2),
        (new.GEMMA3_27B, 52 * 1024 * 2 * 16 * 128 * 2),
        (new.QWEN3_NEXT, 36 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128)) * 2),
        # The rule's state in 32 bits, the convolution's in 16.
        (new.QWEN3_5_397B, 45 * (64 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 64 * 128) * 2)),
        (new.LLAMA4_SCOUT, 0),
        (new.DEEPSEEK_V3_FP8, 0),
    ],
)
def test_what_a_sequence_keeps_whatever_its_length(tmp_path: Path, config: dict[str, Any], kept: int) -> None:
    assert read(tmp_path, config).kv_bytes_per_sequence == kept


def test_what_layers_attend_to(tmp_path: Path) -> None:
    """By rule where the file states no kinds: the full ones are the last of each period."""
    gemma = read(tmp_path, new.GEMMA3_27B)
    assert gemma.layer_types[:7] == (*(SLIDING,) * 5, FULL, SLIDING) and gemma.layer_types[-1] == SLIDING
    oss = read(tmp_path, {key: value for key, value in new.GPT_OSS_120B.items() if key != "layer_types"})
    assert oss.layer_types == (SLIDING, FULL) * 18
    assert read(tmp_path, new.QWEN3_NEXT).layer_types == (LINEAR, LINEAR, LINEAR, FULL) * 12
    scout = new.LLAMA4_SCOUT["text_config"]
    assert read(tmp_path, new.LLAMA4_SCOUT).layer_types == (SLIDING, SLIDING, SLIDING, FULL) * 12
    stated = new.LLAMA4_SCOUT | {"text_config": scout | {"no_rope_layers": [0, 1] * 24}}
    shape = read(tmp_path, stated)
    assert shape.layer_types == (FULL, SLIDING) * 24
    assert "KV of windows of 8192 tokens is counted like that of the whole context" in shape.source


def test_every_second_layer_of_maverick_is_a_mixture(tmp_path: Path) -> None:
    shape = read(tmp_path, new.LLAMA4_MAVERICK)
    assert [shape.is_mixture(layer) for layer in range(4)] == [False, True, False, True]
    assert shape.intermediate == 16384 and shape.active_parameters / 1e9 == pytest.approx(17.2, abs=0.05)


# gpt-oss model card, table 1 (its count has the head, and not the embedding); DeepSeek-V3 report: 37 B;
# Kimi-K2 report: 32.6 B without head; Qwen3-235B-A22B, Qwen3.5-397B-A17B, GLM-4.5-Air: by name.
@pytest.mark.parametrize(
    ("config", "active_e9"),
    [
        (new.GPT_OSS_120B, 5.13 + 0.58),
        (new.GPT_OSS_20B, 3.61 + 0.58),
        (new.DEEPSEEK_V3_FP8, 37.55),
        (new.KIMI_K2, 32.86),
        (new.QWEN3_235B, 22.19),
        (new.QWEN3_5_397B, 17.35),
    ],
)
def test_active_parameters(tmp_path: Path, config: dict[str, Any], active_e9: float) -> None:
    assert read(tmp_path, config).active_parameters / 1e9 == pytest.approx(active_e9, abs=0.04)


def precision(stored: str, **parts: Any) -> Precision:
    return replace(Precision(attention=stored, mlp=stored, experts=stored, kv="bf16"), **parts)


def modelopt(*left_out: str) -> dict[str, Any]:
    """NVIDIA's NVFP4, with what it leaves in 16 bits."""
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}
    return {"quant_method": "modelopt", "quantization": inner | {"exclude_modules": ["lm_head", *left_out]}}


INNER = "model.language_model.layers"
O_PROJ_ALONE = [f"model.layers.*.self_attn.{name}_proj*" for name in ("q_a", "q_b", "kv_a", "kv_b")]


@pytest.mark.parametrize(
    ("config", "said", "expected", "note"),
    [
        (new.GPT_OSS_120B, None, precision("bf16", experts="mxfp4"), ""),
        (new.KIMI_K2_5, None, precision("bf16", experts="int4", group=32), ""),
        (new.MINIMAX_M2_5, None, precision("fp8_block"), ""),
        (new.DEEPSEEK_V3_2, None, precision("fp8_block"), ""),
        # As nvidia/MiniMax-M2.5-NVFP4, Kimi-K2.6-NVFP4, Qwen3.5-397B-A17B-NVFP4 and DeepSeek-V3.1-NVFP4.
        (
            new.MINIMAX_M2_5,
            modelopt("model.layers.*.self_attn*", "model.layers.*.block_sparse_moe.gate"),
            precision("bf16", experts="nvfp4", kv="fp8"),
            "",
        ),
        (
            new.KIMI_K2,
            modelopt("model.layers.0*", "model.layers.*.self_attn*", "model.layers.*.mlp.shared_experts*"),
            precision("bf16", experts="nvfp4", kv="fp8"),
            "",
        ),
        (
            new.QWEN3_5_397B,
            modelopt("*.mlp.shared_expert.*", f"{INNER}.*.linear_attn*"),
            precision("bf16", experts="nvfp4", kv="fp8"),
            "matrices of attention in 16 bits and nvfp4, all counted in the wider one",
        ),
        (
            new.DEEPSEEK_V3_FP8,
            modelopt(*O_PROJ_ALONE),
            precision("nvfp4", attention="bf16", kv="fp8"),
            "matrices of attention in 16 bits and nvfp4, all counted in the wider one",
        ),
        (
            new.LLAMA4_SCOUT,
            {"quant_method": "fp8", "ignored_layers": ["re:.*self_attn", "re:.*shared_expert"]},
            precision("bf16", experts="fp8"),
            "",
        ),
    ],
)  # fmt: skip
def test_quantised_publications_are_read(
    tmp_path: Path, config: dict[str, Any], said: dict[str, Any] | None, expected: Precision, note: str
) -> None:
    shape = read(tmp_path, config if said is None else config | {"quantization_config": said})
    assert shape.precision == expected and note in shape.source


def test_experts_in_several_formats_are_refused(tmp_path: Path) -> None:
    said = {"quant_method": "fp8", "modules_to_not_convert": ["layers.7.mlp.experts"]}
    refuses(
        HardwareError,
        "of the experts in 16 bits and fp8",
        read,
        tmp_path,
        new.GLM_4_5 | {"quantization_config": said},
    )


@pytest.mark.parametrize(
    "name",
    ["gpt_oss_120b", "gpt_oss_20b", "kimi_k2_5", "kimi_k2", "deepseek_v3", "deepseek_v3_2", "minimax_m2_5"],
)
def test_models_that_are_published_quantised_say_so_by_themselves(tmp_path: Path, name: str) -> None:
    (one,) = [one for one in PUBLISHED if one.name == name]
    assert load_llm(name).precision == read(tmp_path, one.config).precision is not None
    assert load_llm(name).weight_bytes < 1.2 * load_llm(name).parameters


def test_bytes_of_gpt_oss_are_those_of_its_checkpoint() -> None:
    """gpt-oss model card, table 1: 60.8 and 12.8 GiB."""
    assert load_llm("gpt_oss_120b").weight_bytes / 2**30 == pytest.approx(60.8, abs=0.05)
    assert load_llm("gpt_oss_20b").weight_bytes / 2**30 == pytest.approx(12.8, abs=0.05)


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        (new.GPT_OSS_120B, {"layer_types": ["full_attention"]}, '"layer_types".*num_hidden_layers 36'),
        (new.GPT_OSS_120B, {"layer_types": ["local"] * 36}, '"layer_types".*sliding_attention'),
        (new.GPT_OSS_120B, {"num_experts_per_tok": 129}, '"num_experts_per_tok".*num_local_experts 128'),
        (new.GLM_4_5, {"first_k_dense_replace": 92}, '"first_k_dense_replace".*less than'),
        (new.MINIMAX_M2_5, {"attn_type_list": [0] * 62}, '"attn_type_list".*whole context'),
        (new.DEEPSEEK_V3_2, {"index_topk": None}, 'no "index_topk"'),
        (new.DEEPSEEK_V3_2, {"q_lora_rank": None}, 'no "q_lora_rank"'),
        (new.QWEN3_NEXT, {"mamba_ssm_dtype": "float8"}, 'mamba_ssm_dtype.*not read'),
        (new.QWEN3_NEXT, {"mlp_only_layers": [1]}, '"mlp_only_layers".*empty list'),
        (
            new.LLAMA4_SCOUT,
            {"text_config": new.LLAMA4_SCOUT["text_config"] | {"moe_layers": [3]}},
            '"text_config.moe_layers".*the last of every 1 layers',
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    refuses(HardwareError, words, read, tmp_path, config | changes)


def test_what_files_leave_out_has_the_defaults_of_its_family(tmp_path: Path) -> None:
    """Files of Qwen3-Next and Llama 4 with the sizes alone."""
    bare = {key: new.QWEN3_NEXT[key] for key in ("architectures", "torch_dtype", "head_dim")}
    few = bare | sizes_of(new.QWEN3_NEXT)
    assert read(tmp_path, few).computes_like(replace(load_llm("qwen3_next_80b_a3b"), intermediate=5632))
    scout = dict(new.LLAMA4_SCOUT["text_config"])
    for key in ("intermediate_size_mlp", "interleave_moe_layer_step", "attention_chunk_size"):
        del scout[key]
    assert read(tmp_path, new.LLAMA4_SCOUT | {"text_config": scout}).computes_like(load_llm("llama4_scout"))


def sizes_of(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in new.sizes(1, 1, 1, 1, 1, 1)}


def test_indexers_that_layers_share_are_noted(tmp_path: Path) -> None:
    kinds = ["full", *["shared"] * 77]
    assert "an indexer in every layer" in read(tmp_path, new.GLM_5 | {"indexer_types": kinds}).source


def test_every_model_of_the_catalogue_with_experts_is_compared_above() -> None:
    compared = {one.name for one in PUBLISHED} | {GLM_4_6[0]}
    assert {name for name in llm_names() if load_llm(name).experts is not None} <= compared
