"""What a quantised checkpoint says of itself becomes the formats of its matrices and its KV, or a refusal."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.hf_config import llm_shape_from_config
from hwmodels.models.precision import Precision
from tests.worlds.hf_configs import DEEPSEEK_V3, LLAMA3_8B, MIXTRAL_8X7B, QWEN3_30B_A3B
from tests.worlds.refusals import refuses


def compressed(weights: dict[str, Any], **beside: Any) -> dict[str, Any]:
    """A quantization_config as llm-compressor writes it."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}} | beside


FLOAT8: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor"}
BLOCKS: dict[str, Any] = FLOAT8 | {"strategy": "block", "block_structure": [128, 128]}
NVFP4: dict[str, Any] = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
INT4: dict[str, Any] = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
KV8 = {"num_bits": 8, "type": "float", "dynamic": False}
BESIDE = {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "kv_cache_scheme": KV8}


# As Qwen3-30B-A3B-FP8 lists the gates, and Kimi-K2-Thinking all but its routed experts.
GATES = ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(48))]
BESIDE_EXPERTS = [
    "lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
]  # fmt: skip


def precision(stored: str, kv: str = "bf16", **parts: Any) -> Precision:
    return replace(Precision(attention=stored, mlp=stored, experts=stored, kv=kv), **parts)


def read(folder: Path, config: dict[str, Any], **beside: Any) -> Precision | None:
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return llm_shape_from_config(folder).precision


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"quant_method": "fp8", "activation_scheme": "static"}, precision("fp8")),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, precision("fp8_block", group=16384)),
        ({"quant_method": "fp8", "weight_block_size": [1, 64]}, precision("fp8_block", group=64)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, precision("int4")),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, precision("int4", group=32)),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, precision("int8")),
        (compressed(FLOAT8, ignore=["lm_head"]), precision("fp8")),
        (compressed(FLOAT8 | {"strategy": "channel"}, kv_cache_scheme=KV8), precision("fp8", "fp8")),
        (compressed(BLOCKS), precision("fp8_block", group=16384)),
        (compressed(NVFP4), precision("nvfp4")),
        (compressed(NVFP4 | {"group_size": 32}), precision("mxfp4")),
        (compressed(INT4), precision("int4")),
        (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}), precision("int8")),
        (compressed(FLOAT8, ignore=["re:.*self_attn.*"]), precision("fp8", attention="bf16")),
        (compressed(FLOAT8, ignore=["re:.*vision.*", "lm_head"]), precision("fp8")),
        (MODELOPT, precision("nvfp4", "fp8")),
        (
            MODELOPT | {"exclude_modules": ["model.layers.*.self_attn*"]},
            precision("nvfp4", "fp8", attention="bf16"),
        ),
    ],
)  # fmt: skip
def test_a_dense_checkpoint_is_read(tmp_path: Path, said: dict[str, Any], expected: Precision) -> None:
    found = read(tmp_path, LLAMA3_8B | {"quantization_config": said})
    if expected.group == 16384:  # the format's own
        expected = replace(expected, group=None)
    assert found == expected


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("hf_quant_config", BESIDE | {"kv_cache_quant_algo": "FP8"}, precision("fp8", "fp8")),
        ("hf_quant_config", BESIDE | {"kv_cache_quant_algo": None}, precision("fp8")),
        (
            "hf_quant_config",
            {"quant_algo": None, "kv_cache_quant_algo": "FP8"},
            precision("bf16", "fp8"),
        ),
        (
            "hf_quant_config",
            {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["*self_attn*"]},
            precision("nvfp4", attention="bf16"),
        ),
        ("quantize_config", {"bits": 4, "group_size": 64}, precision("int4", group=64)),
        ("quant_config", {"w_bit": 4, "q_group_size": 128, "zero_point": True}, precision("int4")),
    ],
)  # fmt: skip
def test_a_file_beside_config_is_read(tmp_path: Path, name: str, content: Any, expected: Precision) -> None:
    inside = {"quantization": content} if name == "hf_quant_config" else content
    assert read(tmp_path, LLAMA3_8B, **{name: inside}) == expected


def test_an_older_key_and_a_nested_one_are_read(tmp_path: Path) -> None:
    inner = LLAMA3_8B | {"quantization_config": {"quant_method": "fp8"}}
    assert read(tmp_path, {"model_type": "mllama", "text_config": inner}) == precision("fp8")
    older = {"config_groups": compressed(FLOAT8)["config_groups"], "sparsity_config": {"format": "dense"}}
    assert read(tmp_path, LLAMA3_8B | {"compression_config": older}) == precision("fp8")


@pytest.mark.parametrize(
    ("config", "said", "expected"),
    [
        (MIXTRAL_8X7B, {"quant_method": "mxfp4"}, precision("bf16", experts="mxfp4")),
        (QWEN3_30B_A3B, {"quant_method": "fp8", "modules_to_not_convert": GATES}, precision("fp8")),
        (DEEPSEEK_V3, {"quant_method": "fp8", "weight_block_size": [128, 128]}, precision("fp8_block")),
        (
            DEEPSEEK_V3,
            compressed(INT4 | {"group_size": 32}, ignore=BESIDE_EXPERTS),
            precision("bf16", experts="int4", group=32),
        ),
    ],
    ids=["mixtral_mxfp4", "qwen3_fp8", "deepseek_fp8", "kimi_int4"],
)  # fmt: skip
def test_a_mixture_is_read(
    tmp_path: Path, config: dict[str, Any], said: dict[str, Any], expected: Precision
) -> None:
    assert read(tmp_path, config | {"quantization_config": said}) == expected


def test_groups_with_targets_of_their_own(tmp_path: Path) -> None:
    """Attention in FP8 and the MLP in NVFP4, as two groups of one file."""
    attention = {"targets": ["re:.*self_attn.*"], "weights": FLOAT8}
    mlp = {"targets": ["re:.*mlp.*"], "weights": NVFP4}
    said = {"quant_method": "compressed-tensors", "config_groups": {"group_0": attention, "group_1": mlp}}
    found = read(tmp_path, LLAMA3_8B | {"quantization_config": said})
    assert found == precision("nvfp4", attention="fp8")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (compressed(FLOAT8, ignore=["model.layers.0.mlp.down_proj"]), "16 bits and fp8"),
        (compressed(FLOAT8, ignore=["re:.*down_proj"]), "of the MLP in 16 bits and fp8"),
        (compressed(FLOAT8, ignore=["re:("]), "no regular expression"),
        (compressed(FLOAT8, ignore=["mlp.experts.3"]), "apart from other experts"),
        (compressed(FLOAT8, ignore="lm_head"), "ignore.*no list"),
        (compressed({"num_bits": 2, "type": "int"}), "config_groups"),
        (compressed({"num_bits": 4, "type": "float", "group_size": 64}), "groups of 64"),
        (compressed(FLOAT8, kv_cache_scheme={"num_bits": 8, "type": "int"}), "kv_cache_scheme.*not FP8"),
        (compressed(FLOAT8, sparsity_config={"format": "sparse-24-bitmask"}), "sparsity_config"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "gptq", "bits": 3}, "bits.*neither 4 nor 8"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*": {}}}, "dynamic"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo.*none of FP8"),
        (MODELOPT | {"kv_cache_quant_algo": "NVFP4"}, "kv_cache_quant_algo.*not FP8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method.*none of fp8"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3_8B | {"quantization_config": said}))
    refuses(HardwareError, words, llm_shape_from_config, tmp_path)
    refuses(HardwareError, "without what it says of quantisation", llm_shape_from_config, tmp_path)


@pytest.mark.parametrize(("share", "reads"), [(1.0, True), (1.02, True), (0.6, False), (1.77, False)])
def test_stored_bytes_must_be_those_of_the_precision(tmp_path: Path, share: float, reads: bool) -> None:
    """0.6: really 4 bits; 1.77: really 16; 1.02: with a predictor of further tokens."""
    config = LLAMA3_8B | {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weight_bytes = llm_shape_from_config(tmp_path).weight_bytes
    index = {"metadata": {"total_size": int(share * weight_bytes)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    if reads:
        assert llm_shape_from_config(tmp_path).weight_bytes == weight_bytes
        return
    refuses(HardwareError, "quantised or incomplete|more bits than it says", llm_shape_from_config, tmp_path)


def test_bytes_of_deepseek_v3_as_published(tmp_path: Path) -> None:
    """A byte for each value of a matrix, 4 for each 128x128 of them, and 2 for every other parameter."""
    said = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3 | {"quantization_config": said}))
    shape = llm_shape_from_config(tmp_path)
    in_8_bits = 61 * shape.latent.matrix_parameters(7168, 128) if shape.latent else 0
    in_8_bits += 3 * 3 * 7168 * 18432 + 58 * 257 * 3 * 7168 * 2048
    assert shape.weight_bytes == 2 * shape.parameters - in_8_bits + in_8_bits // 4096


def test_a_quantised_copy_of_a_catalogue_model_keeps_its_name(tmp_path: Path) -> None:
    config = LLAMA3_8B | {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = load_llm(str(tmp_path))
    assert shape.name == "llama3_8b" and shape.precision == precision("fp8")
    assert not shape.computes_like(load_llm("llama3_8b"))
