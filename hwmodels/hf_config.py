"""Model shapes from a ``config.json`` as Hugging Face repositories have them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.llm_shape import LlmShape
from hwmodels.reading import read_limited

CONFIG_FILE: Final = "config.json"
BYTES_OF_DTYPE: Final[Mapping[str, int]] = {"float16": 2, "bfloat16": 2, "float32": 4}
# OPT's table of positions starts with this many rows that belong to no position (transformers' modeling_opt).
OPT_EXTRA_POSITIONS: Final = 2
_LONGEST_ECHO: Final = 60
_MOST_BYTES: Final = 16 << 20  # the longest known are some hundred kB, of quantised models


@dataclass(frozen=True, slots=True)
class _Section:
    """The part of a config.json that describes the language model; ``prefix`` stands before its keys."""

    path: Path
    prefix: str
    data: Mapping[str, Any]

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1; without ``default`` it must be there."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < 1:
            raise self.refusal(key, "a whole number of at least 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.data.get(key, default)
        if type(value) is not bool:
            raise self.refusal(key, "true or false")
        return value

    def refusal(self, key: str, wanted: str) -> HardwareError:
        """What is wrong with ``key``, or that it is missing."""
        name = f'"{self.prefix}{key}"'
        if self.data.get(key) is None:
            return HardwareError(f"{self.path} has no {name}: write it with {wanted}")
        return HardwareError(f"{name} in {self.path} is {_echo(self.data[key])}: write {wanted}")


def llm_shape_from_config(path: Path | str, name: str | None = None) -> LlmShape:
    """The shape in a Hugging Face ``config.json`` (the file, or the folder that holds one).

    Knows the architectures of ``ARCHITECTURES``; of a multimodal model the ``text_config`` is taken. ``name``
    None: the folder's name. Raises HardwareError naming file and key, and what to write instead.
    """
    outer = _read(Path(path))
    section = _language_model(outer)
    for part in (outer, section):
        if part.data.get("quantization_config"):
            raise HardwareError(
                f'{part.path} has "{part.prefix}quantization_config", and quantised weights have no shape '
                f"here: give the {CONFIG_FILE} of the model before quantisation"
            )
    architecture = _architecture(section)
    fields, notes = ARCHITECTURES[architecture](section)
    dtype = _dtype((section, outer))
    if section.prefix:
        notes = ("the text_config of a multimodal model, without what encodes images or sound", *notes)
    return LlmShape(
        name=name or outer.path.resolve().parent.name,
        bytes_per_parameter=BYTES_OF_DTYPE[dtype],
        source="; ".join((f"{outer.path}, {architecture}, {dtype}", *notes)),
        **fields,
    )


def looks_like_config(text: str) -> bool:
    """Whether a model's name is rather a path: of a config.json, or of a folder."""
    if "/" in text or "\\" in text or text.endswith(".json"):
        return True
    try:
        return Path(text).is_dir()
    except OSError:  # longer than a file name may be
        return False


def _read(file: Path) -> _Section:
    give = f"give a model's {CONFIG_FILE} or the folder that holds one"
    try:
        file = file / CONFIG_FILE if file.is_dir() else file
        data = json.loads(read_limited(file, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise HardwareError(f"{file} cannot be read ({error.strerror}): {give}") from error
    except (ValueError, RecursionError) as error:
        raise HardwareError(f"{file} is not JSON ({error}): {give}") from error
    if not isinstance(data, dict):
        raise HardwareError(f"{file} is not a JSON object: {give}")
    return _Section(file, "", data)


def _language_model(outer: _Section) -> _Section:
    """The whole file, or the ``text_config`` of a multimodal model."""
    inner = outer.data.get("text_config")
    if inner is None:
        return outer
    if not isinstance(inner, dict):
        raise outer.refusal("text_config", "an object with the language model's keys")
    return _Section(outer.path, "text_config.", inner)


def _architecture(section: _Section) -> str:
    """From ``architectures``, or from ``model_type`` where a text_config has only that."""
    named, model_type = section.data.get("architectures"), section.data.get("model_type")
    if named is None and isinstance(model_type, str):
        named = [MODEL_TYPES.get(model_type, model_type)]
    known = f"one of {', '.join(ARCHITECTURES)}"
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named) or len(named) != 1:
        raise section.refusal("architectures", f"{known} in a list")
    if named[0] not in ARCHITECTURES:
        raise HardwareError(
            f"{section.path} describes a {_echo(named[0])}, which is not read here: give a model that is "
            f"{known}, or write its shape into hwmodels/catalogue/models.yaml"
        )
    return str(named[0])


def _dtype(sections: Sequence[_Section]) -> str:
    """``dtype`` is the newer name of ``torch_dtype``; of a multimodal model it may stand outside."""
    known = f"one of {', '.join(BYTES_OF_DTYPE)}"
    for section in sections:
        for key in ("dtype", "torch_dtype"):
            value = section.data.get(key)
            if isinstance(value, str) and value in BYTES_OF_DTYPE:
                return value
            if value is not None:
                raise section.refusal(key, known)
    raise sections[0].refusal("torch_dtype", known)


Fields = dict[str, Any]
Notes = tuple[str, ...]


def _decoder(section: _Section) -> Fields:
    """What every family here shares."""
    hidden, heads = section.count("hidden_size"), section.count("num_attention_heads")
    kv_heads = section.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise section.refusal("num_key_value_heads", f"a number that divides the {heads} attention heads")
    if section.data.get("head_dim") is None and hidden % heads:
        raise section.refusal("num_attention_heads", f"a number that divides hidden_size {hidden}")
    return {
        "layers": section.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": section.count("head_dim", max(1, hidden // heads)),
        "vocab": section.count("vocab_size"),
        "max_context_tokens": section.count("max_position_embeddings"),
    }


def _gated(section: _Section) -> Fields:
    fields = _decoder(section)
    fields["intermediate"] = section.count("intermediate_size")
    fields["tied_embeddings"] = section.flag("tie_word_embeddings", False)
    return fields


def _llama(section: _Section) -> tuple[Fields, Notes]:
    attention_bias = section.flag("attention_bias", False)
    biases = {"qkv_bias": attention_bias, "output_bias": attention_bias}
    return _gated(section) | biases | {"mlp_bias": section.flag("mlp_bias", False)}, ()


def _mistral(section: _Section) -> tuple[Fields, Notes]:
    return _gated(section), _window(section, section.data.get("sliding_window") is not None)


def _qwen2(section: _Section) -> tuple[Fields, Notes]:
    """Q, K and V always have a bias, whatever the file says."""
    window = _window(section, section.flag("use_sliding_window", False))
    return _gated(section) | {"qkv_bias": True}, window


def _qwen3(section: _Section) -> tuple[Fields, Notes]:
    fields, _ = _llama(section)
    return fields | {"qk_norm": True}, _window(section, section.flag("use_sliding_window", False))


def _opt(section: _Section) -> tuple[Fields, Notes]:
    """OPT-350m alone has its norms after the blocks and a narrower embedding; it is refused."""
    fields = _decoder(section)
    if not section.flag("do_layer_norm_before", True):
        raise section.refusal("do_layer_norm_before", "true, or take another size of OPT")
    if section.count("word_embed_proj_dim", fields["hidden"]) != fields["hidden"]:
        raise section.refusal("word_embed_proj_dim", f"hidden_size {fields['hidden']}, or take another OPT")
    bias = section.flag("enable_bias", True)
    return fields | {
        "intermediate": section.count("ffn_dim"),
        "tied_embeddings": section.flag("tie_word_embeddings", True),
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
        "norm_bias": section.flag("layer_norm_elementwise_affine", True),
        "gated_mlp": False,
        "position_rows": fields["max_context_tokens"] + OPT_EXTRA_POSITIONS,
    }, ()


def _window(section: _Section, slides: bool) -> Notes:
    width = section.data.get("sliding_window")
    return (f"attention over the whole context instead of a window of {width} tokens",) if slides else ()


ARCHITECTURES: Final[Mapping[str, Callable[[_Section], tuple[Fields, Notes]]]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "OPTForCausalLM": _opt,
}
MODEL_TYPES: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "opt": "OPTForCausalLM",
}


def _echo(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= _LONGEST_ECHO else shown[: _LONGEST_ECHO - 3] + "..."
