"""Checkpoints whose quantisation is not read are refused wherever they say so, and whole ones are not."""

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.hf_config import llm_shape_from_config
from hwmodels.models.hf_quantised import refuse_quantised_checkpoint
from tests.worlds.refusals import refuses

LLAMA3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "vocab_size": 128256,
}  # fmt: skip
INNER = {key: value for key, value in LLAMA3_8B.items() if key != "architectures"}
WEIGHT_BYTES = load_llm("llama3_8b").weight_bytes
NO_MODELOPT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": None, "group_size": 128}}
FP8 = {"quant_method": "fp8"}
UNREAD = {"quant_method": "quark"}
NO_METHOD = {"quant_algo": None, "kv_cache_quant_algo": None, "group_size": 128}


def folder_with(tmp_path: Path, config: dict[str, Any], **beside: Any) -> Path:
    """A folder with config.json and further JSON files, by name with ``__`` for each dot."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, content in beside.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"quantization_config": UNREAD}, "quantization_config.quant_method"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "compression_config.config_groups"),
        ({"quant_config": {"w_bit": 4}}, "quant_config"),
        ({"quantization": {"group_size": 64, "bits": 4}}, "quantization"),
        ({"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}, "quantization"),
        ({"quant_method": "awq"}, "quant_method"),
        ({"weight_bits": 1}, "weight_bits"),
        ({"load_in_8bit": True}, "load_in_8bit"),
        ({"torch_dtype": "float8_e4m3fn"}, "torch_dtype"),
        ({"dtype": "bfloat16", "torch_dtype": "float8_e4m3fn"}, "torch_dtype"),
        ({"expert_dtype": "fp4"}, "expert_dtype"),
        (
            {"text_config": INNER | {"quantization_config": UNREAD}},
            "text_config.quantization_config.quant_method",
        ),
        ({"text_config": INNER, "llm_config": {"quant_method": "fp8"}}, "llm_config.quant_method"),
        ({"language_config": {"quantization_config": FP8}}, "language_config.quantization_config"),
        ({"a": {"b": {"c": {"quantization": "nvfp4"}}}}, "a.b.c.quantization"),
        ({"bits": "4"}, "bits"),
        ({"gptq": {"bits": "4"}}, "gptq.bits"),
        ({"w_bits": 4}, "w_bits"),
        ({"bit": 8}, "bit"),
        ({"num_bits": 4}, "num_bits"),
        ({"load_in_4bit": 1}, "load_in_4bit"),
        ({"load_in_4bit": "true"}, "load_in_4bit"),
        ({"quantization": {"bits": "4"}}, "quantization"),
        ({"compression_config": {"format": "pack-quantized"}}, "compression_config.quant_method"),
        ({"layers_config": [[], [{"quantization": {"bits": 4}}]]}, "layers_config.quantization"),
    ],
)
def test_config_that_states_quantisation_is_refused(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    path = folder_with(tmp_path, LLAMA3_8B | changes) / "config.json"
    with pytest.raises(HardwareError) as refused:
        llm_shape_from_config(path)
    assert all(
        part in str(refused.value) for part in (str(path), f'"{key}"', "without what it says of quantisation")
    )
    refuses(HardwareError, "with weights in 16 or 32 bits", refuse_quantised_checkpoint, path.parent)


@pytest.mark.parametrize(
    "changes",
    [
        {"quantization_config": None},
        {"quantization_config": {}},
        {"quantization_config": {"quant_method": "none", "bits": 4}},
        {"quantization": NO_METHOD},
        {"compression_config": []},
        {"quant_method": "bf16"},
        {"bits": 16},
        {"bits": "16"},
        {"load_in_4bit": False},
        {"load_in_4bit": 0},
        {"quantization": {"bits": 16, "group_size": 64}},
        {"quant_method": "unquantized"},
        {"quantization_config": {"quant_method": "unquantized"}},
        {"compression_config": {"format": "dense"}},
        {"layers_config": [{"quantization": {"bits": 16}}]},
        {"pre_quantization_dtype": "bfloat16"},
        {"num_quantizers": 8, "weight_dtype": "float16"},
        {"vision_config": {"quantization_config": FP8}},
    ],
)
def test_config_that_states_none_is_read(tmp_path: Path, changes: dict[str, Any]) -> None:
    shape = llm_shape_from_config(folder_with(tmp_path, LLAMA3_8B | changes))
    assert shape.weight_bytes == WEIGHT_BYTES


@pytest.mark.parametrize(
    ("name", "content", "reads"),
    [
        ("hf_quant_config__json", NO_MODELOPT, True),
        ("hf_quant_config__json", "{", False),
        ("quantize_config__json", {"bits": 3, "group_size": 128}, False),
        ("quant_config__json", {"zero_point": True, "w_bit": 2}, False),
        ("quant_model_description__json", {"model_quant_type": "W8A8", "lm_head.weight": "FLOAT"}, False),
        ("quant_model_description__json", {"model_quant_type": "FLOAT", "lm_head.weight": "FLOAT"}, True),
        ("quanto_qmap__json", {"lm_head": {"weights": "qint4", "activations": "none"}}, False),
        ("quanto_qmap__json", {}, True),
        ("qconfig__json", {"weight_dtype": "int4"}, False),
        ("model-Q4_K_M__gguf", "", False),
        ("model-BF16__gguf", "", True),
        ("model__safetensors__index__json", {"metadata": {"total_size": 8_030_261_248}}, False),
        ("model__safetensors__index__json", {"metadata": {"total_size": WEIGHT_BYTES + 1}}, True),
        ("model__safetensors__index__json", {"metadata": {}}, True),
        ("model__safetensors__index__json", "[", True),
        ("model__safetensors", "x" * 2_000, False),
        ("model__safetensors", "version https://git-lfs.github.com/spec/v1", True),
    ],
)
def test_file_beside_config_decides(tmp_path: Path, name: str, content: Any, reads: bool) -> None:
    folder = folder_with(tmp_path, LLAMA3_8B, **{name: content})
    if reads:
        assert llm_shape_from_config(folder).weight_bytes == WEIGHT_BYTES
        return
    with pytest.raises(HardwareError) as refused:
        llm_shape_from_config(folder / "config.json")
    assert "without what it says of quantisation" in str(refused.value) and str(folder) in str(refused.value)


def test_gguf_beside_safetensors_says_nothing(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, LLAMA3_8B, **{"model-Q4_0__gguf": "", "part__safetensors": ""})
    assert llm_shape_from_config(folder).weight_bytes == WEIGHT_BYTES


@pytest.mark.parametrize(
    ("sizes", "reads"),
    [([2_000, 3_000], False), ([2_000], True), ([2_000, 130], True), ([WEIGHT_BYTES, 2_000], True)],
)
def test_series_of_files_without_index_is_weighed(tmp_path: Path, sizes: list[int], reads: bool) -> None:
    """Whole, it counts; one file missing, or only its Git LFS pointer there, it says nothing."""
    folder = folder_with(tmp_path, LLAMA3_8B)
    for at, size in enumerate(sizes, 1):
        with (folder / f"model-{at:05}-of-00002.safetensors").open("wb") as file:
            file.truncate(size)
    if reads:
        assert llm_shape_from_config(folder).weight_bytes == WEIGHT_BYTES
        return
    refuses(HardwareError, "quantised or incomplete", llm_shape_from_config, folder)


def test_folder_in_place_of_a_file_about_quantisation_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, LLAMA3_8B)
    (folder / "quant_config.json").mkdir()
    refuses(HardwareError, r"quant_config\.json", llm_shape_from_config, folder)


def test_deeply_nested_config_is_searched(tmp_path: Path) -> None:
    depth = 400
    text = (
        json.dumps(LLAMA3_8B)[:-1]
        + ', "a": '
        + '{"a": ' * depth
        + '{"quant_method": "fp8"}'
        + "}" * depth
        + "}"
    )
    (tmp_path / "config.json").write_text(text)
    refuses(HardwareError, "without what it says of quantisation", llm_shape_from_config, tmp_path)


def test_checkpoint_that_cannot_be_read_is_left_to_its_reader(tmp_path: Path) -> None:
    refuse_quantised_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[")
    refuse_quantised_checkpoint(tmp_path)
