"""Model shapes read from config.json files: every family, every default, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwmodels.catalogue import llm_names, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.config_path import looks_like_config
from hwmodels.models.hf_config import llm_shape_from_config
from tests.worlds.hf_configs import (
    DEEPSEEK_V2_LITE,
    DEEPSEEK_V3,
    LLAMA3_8B,
    LLAMA_7B,
    MISTRAL_24B,
    MIXTRAL_8X7B,
    OPT_13B,
    QWEN2_5_72B,
    QWEN3_30B_A3B,
    QWEN3_32B,
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a config.json, some keys changed, some (``...``) left out."""

    def written(config: dict[str, Any], **changes: Any) -> Path:
        data = {key: value for key, value in (config | changes).items() if value is not ...}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(data))
        return path

    return written


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA3_8B, "llama3_8b"),
        (LLAMA_7B, "llama_7b"),
        (MISTRAL_24B, "mistral_24b"),
        (QWEN2_5_72B, "qwen2_5_72b"),
        (QWEN3_32B, "qwen3_32b"),
        (OPT_13B, "opt_13b"),
        (QWEN3_30B_A3B, "qwen3_30b_a3b"),
        (MIXTRAL_8X7B, "mixtral_8x7b"),
        (DEEPSEEK_V2_LITE, "deepseek_v2_lite"),
    ],
)
def test_a_published_config_is_the_catalogue_model(write: Write, config: dict[str, Any], name: str) -> None:
    path = write(config)
    shape, known = llm_shape_from_config(path), load_llm(name)
    assert shape.computes_like(known) and shape.max_context_tokens == known.max_context_tokens
    assert shape.name == path.parent.name and str(path) in shape.source
    assert load_llm(str(path)).name == name, "measurements of the catalogue model hold for it"
    assert load_llm(str(path.parent)).name == name
    assert str(path) in load_llm(str(path)).source


# Of safetensors metadata (total size / 2) and model cards: Qwen3-30B-A3B 30.5 B in total and 3.3 B active,
# Mixtral 46.7 B and 12.9 B (Mixtral of Experts), DeepSeek-V2-Lite 15.7 B and 2.4 B without embeddings and
# head, DeepSeek-V3 671 B and 37 B (DeepSeek-V3 report, table 1 and section 4.2).
@pytest.mark.parametrize(
    ("config", "total", "active_e9"),
    [
        (QWEN3_30B_A3B, 30_532_122_624, 3.35),
        (MIXTRAL_8X7B, 46_702_792_704, 12.88),
        (DEEPSEEK_V2_LITE, 15_706_484_224, 2.66),
        (DEEPSEEK_V3, 671_026_419_200, 37.6),
    ],
)
def test_parameters_of_a_mixture_are_the_published_ones(
    write: Write, config: dict[str, Any], total: int, active_e9: float
) -> None:
    shape = llm_shape_from_config(write(config))
    assert shape.parameters == total
    assert shape.active_parameters / 1e9 == pytest.approx(active_e9, abs=0.05)


@pytest.mark.parametrize(
    ("config", "kv_bytes"),
    [
        (QWEN3_30B_A3B, 2 * 48 * 4 * 128 * 2),
        (MIXTRAL_8X7B, 2 * 32 * 8 * 128 * 2),
        (DEEPSEEK_V2_LITE, 27 * (512 + 64) * 2),  # one latent and one rotary key, whatever the heads
    ],
)
def test_kv_of_a_mixture(write: Write, config: dict[str, Any], kv_bytes: int) -> None:
    shape = llm_shape_from_config(write(config))
    assert shape.kv_bytes_per_token == kv_bytes
    assert shape.kv_copies(4) == (4 if "kv_lora_rank" in config else 1)


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        (QWEN3_30B_A3B, {"num_experts": ...}, ('no "num_experts"', "whole number")),
        (QWEN3_30B_A3B, {"decoder_sparse_step": 0}, ('"decoder_sparse_step"', "whole number")),
        (QWEN3_30B_A3B, {"mlp_only_layers": [3]}, ('"mlp_only_layers"', "empty list")),
        (MIXTRAL_8X7B, {"num_experts_per_tok": 9}, ('"num_experts_per_tok"', "at most num_local_experts 8")),
        (DEEPSEEK_V2_LITE, {"kv_lora_rank": ...}, ('no "kv_lora_rank"',)),
        (DEEPSEEK_V2_LITE, {"first_k_dense_replace": 27}, ('"first_k_dense_replace"', "less than")),
        (
            DEEPSEEK_V3,
            {"quantization_config": {"quant_method": "quark"}},
            ("of quantisation",),
        ),
    ],
)
def test_a_mixture_that_is_not_whole_is_refused(
    write: Write, config: dict[str, Any], changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(HardwareError) as error:
        llm_shape_from_config(write(config, **changes))
    assert all(word in str(error.value) for word in words)


def test_an_unknown_shape_is_called_by_its_path(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(LLAMA3_8B, num_hidden_layers=31)
    assert load_llm(str(path)).name == str(path)
    # Not even a folder that is called like a catalogue model can be taken for it.
    folder = path.parent / "llama3_8b"
    folder.mkdir()
    path.rename(folder / "config.json")
    monkeypatch.chdir(path.parent)
    assert load_llm("llama3_8b").layers == 32
    assert (load_llm("./llama3_8b").layers, load_llm("./llama3_8b").name) == (31, "./llama3_8b")


def test_a_folder_in_the_current_one_needs_no_slash(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(OPT_13B)
    monkeypatch.chdir(path.parent.parent)
    assert load_llm(path.parent.name).name == "opt_13b"


def test_a_longer_context_is_another_model_that_computes_alike() -> None:
    short, long = load_llm("llama3_8b"), load_llm("llama3_1_8b")
    assert short.computes_like(long) and short != long
    assert not short.computes_like(load_llm("llama2_7b"))


def test_defaults_of_what_a_file_leaves_out(write: Write) -> None:
    shape = llm_shape_from_config(write(LLAMA_7B))
    assert (shape.kv_heads, shape.head_dim, shape.tied_embeddings) == (32, 128, False)
    assert (shape.qkv_bias, shape.output_bias, shape.mlp_bias) == (False, False, False)
    assert llm_shape_from_config(write(OPT_13B)).tied_embeddings


def test_biases_are_counted(write: Write) -> None:
    plain = llm_shape_from_config(write(LLAMA3_8B)).parameters
    attention = llm_shape_from_config(write(LLAMA3_8B, attention_bias=True)).parameters
    mlp = llm_shape_from_config(write(LLAMA3_8B, mlp_bias=True)).parameters
    assert attention - plain == 32 * (4096 + 2 * 1024 + 4096)
    assert mlp - plain == 32 * (2 * 14336 + 4096)


@pytest.mark.parametrize(
    ("dtype", "width"), [("float16", 2), ("bfloat16", 2), ("float32", 4)], ids=lambda value: str(value)
)
def test_bytes_per_parameter_follow_the_type(write: Write, dtype: str, width: int) -> None:
    assert llm_shape_from_config(write(LLAMA3_8B, torch_dtype=dtype)).bytes_per_parameter == width
    newer = write(LLAMA3_8B, torch_dtype=..., dtype=dtype)
    assert llm_shape_from_config(newer).bytes_per_parameter == width


def test_a_multimodal_model_gives_its_text_config(write: Write) -> None:
    inner = {key: value for key, value in MISTRAL_24B.items() if key not in ("architectures", "torch_dtype")}
    path = write({"architectures": ["Mistral3ForConditionalGeneration"], "torch_dtype": "bfloat16"},
                 text_config=inner, vision_config={})  # fmt: skip
    shape = llm_shape_from_config(path)
    assert shape.computes_like(load_llm("mistral_24b")) and "multimodal" in shape.source
    with pytest.raises(
        HardwareError, match=r'has no "text_config\.vocab_size": write it with a whole number'
    ):
        llm_shape_from_config(write({"dtype": "bfloat16"}, text_config=inner | {"vocab_size": None}))


def test_a_sliding_window_is_noted(write: Write) -> None:
    assert "window of 4096" in llm_shape_from_config(write(MISTRAL_24B, sliding_window=4096)).source
    assert "window of" not in llm_shape_from_config(write(QWEN2_5_72B)).source
    assert "window of 131072" in llm_shape_from_config(write(QWEN2_5_72B, use_sliding_window=True)).source


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        (LLAMA3_8B, {"hidden_size": ...}, ('no "hidden_size"', "write it with a whole number of at least 1")),
        (LLAMA3_8B, {"vocab_size": "many"}, ('"vocab_size"', 'is "many"', "write a whole number")),
        (LLAMA3_8B, {"num_hidden_layers": True}, ('"num_hidden_layers"', "is true", "write a whole number")),
        (LLAMA3_8B, {"num_hidden_layers": 10**9}, ('"num_hidden_layers"', "is 1000000000", "at most 4096")),
        (LLAMA3_8B, {"hidden_size": 10**30}, ('"hidden_size"', "write a whole number of at most")),
        (LLAMA3_8B, {"attention_bias": 1}, ('"attention_bias"', "is 1", "write true or false")),
        (LLAMA3_8B, {"num_key_value_heads": 5}, ('"num_key_value_heads"', "divides the 32 attention heads")),
        (LLAMA3_8B, {"hidden_size": 4100}, ('"num_attention_heads"', "divides hidden_size 4100")),
        (LLAMA3_8B, {"torch_dtype": ...}, ('no "torch_dtype"', "float16, bfloat16, float32")),
        (LLAMA3_8B, {"torch_dtype": "int8"}, ('"torch_dtype"', '"int8"', "of quantisation")),
        (LLAMA3_8B, {"torch_dtype": "float64"}, ('"torch_dtype"', '"float64"', "write one of float16")),
        (LLAMA3_8B, {"torch_dtype": ["float16"]}, ('"torch_dtype"', "write one of float16")),
        (LLAMA3_8B, {"architectures": ["XForCausalLM"]}, ("XForCausalLM", "Qwen2 to Qwen3.5", "models.yaml")),
        (LLAMA3_8B, {"architectures": ..., "model_type": "gpt2"}, ('"gpt2"', "Llama 1 to 4")),
        (LLAMA3_8B, {"architectures": [], "model_type": ...}, ('"architectures"', "in a list")),
        (LLAMA3_8B, {"architectures": [["x"]]}, ('"architectures"', "in a list")),
        (LLAMA3_8B, {"text_config": 3}, ('"text_config"', "write an object")),
        (LLAMA3_8B, {"quantization_config": {"bits": 4}}, ("quantization_config", "of quantisation")),
        (OPT_13B, {"do_layer_norm_before": False}, ('"do_layer_norm_before"', "write true")),
        (OPT_13B, {"word_embed_proj_dim": 512}, ('"word_embed_proj_dim"', "hidden_size 5120")),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_sentence(
    write: Write, config: dict[str, Any], changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    path = write(config, **changes)
    with pytest.raises(HardwareError) as refused:
        llm_shape_from_config(path)
    sentence = str(refused.value)
    assert all(word in sentence for word in (str(path), *words)), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, '{"a": NaN'])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(HardwareError, match=r"config\.json.* is not .*: give a model's config\.json"):
        llm_shape_from_config(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"cannot be read \(No such file or directory\): give a model's"):
        load_llm(str(tmp_path))
    with pytest.raises(HardwareError, match="cannot be read"):
        load_llm("nowhere/config.json")


def test_only_paths_look_like_one() -> None:
    assert not any(looks_like_config(name) for name in (*llm_names(), "llama3-8b", "x" * 1000, "\0"))
    assert all(looks_like_config(name) for name in ("a/b", "config.json", "./x"))
    with pytest.raises(HardwareError, match=r"unknown model 'x{1000}'"):
        load_llm("x" * 1000)
