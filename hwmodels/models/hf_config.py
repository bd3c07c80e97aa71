"""Model shapes from a ``config.json`` in the format of Hugging Face repositories."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.hf_families import Fields, Notes, llama, mistral, opt, qwen2, qwen3
from hwmodels.models.hf_moe import deepseek, mixtral, qwen3_moe
from hwmodels.models.hf_quantised import CONFIG_FILE, refuse_few_bytes, refuse_quantised
from hwmodels.models.hf_section import Section, echo
from hwmodels.models.llm_shape import LlmShape
from hwmodels.reading import read_limited

BYTES_OF_DTYPE: Final[Mapping[str, int]] = {"float16": 2, "bfloat16": 2, "float32": 4}
_MOST_BYTES: Final = 16 << 20  # the longest known ones have some hundred kB, of quantised models


def llm_shape_from_config(path: Path | str, name: str | None = None) -> LlmShape:
    """The shape in a Hugging Face ``config.json`` (the file, or the folder that contains one).

    Supports the architectures of ``ARCHITECTURES``; for a multimodal model it uses the ``text_config``.
    ``name`` None: the folder's name. Raises HardwareError naming file and key, and what to write instead.
    """
    outer = _read(Path(path))
    section = _language_model(outer)
    refuse_quantised(outer.path, outer.data)
    architecture = _architecture(section)
    fields, notes = ARCHITECTURES[architecture](section)
    dtype = _dtype((section, outer))
    if section.prefix:
        notes = ("the text_config of a multimodal model, without what encodes images or sound", *notes)
    shape = LlmShape(
        name=name or outer.path.resolve().parent.name,
        bytes_per_parameter=BYTES_OF_DTYPE[dtype],
        source="; ".join((f"{outer.path}, {architecture}, {dtype}", *notes)),
        **fields,
    )
    refuse_few_bytes(outer.path, shape.weight_bytes, dtype)
    return shape


def looks_like_config(text: str) -> bool:
    """Whether a model's name looks like a path: of a config.json, or of a folder."""
    if "/" in text or "\\" in text or text.endswith(".json"):
        return True
    try:
        return Path(text).is_dir()
    except OSError:  # longer than a file name may be
        return False


def _read(file: Path) -> Section:
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
    return Section(file, "", data)


def _language_model(outer: Section) -> Section:
    """The whole file, or the ``text_config`` of a multimodal model."""
    inner = outer.data.get("text_config")
    if inner is None:
        return outer
    if not isinstance(inner, dict):
        raise outer.refusal("text_config", "an object with the language model's keys")
    return Section(outer.path, "text_config.", inner)


def _architecture(section: Section) -> str:
    """The architecture from ``architectures``, or from ``model_type`` if a text_config has only that."""
    named, model_type = section.data.get("architectures"), section.data.get("model_type")
    if named is None and isinstance(model_type, str):
        named = [MODEL_TYPES.get(model_type, model_type)]
    known = f"one of {', '.join(ARCHITECTURES)}"
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named) or len(named) != 1:
        raise section.refusal("architectures", f"{known} in a list")
    if named[0] not in ARCHITECTURES:
        raise HardwareError(
            f"{section.path} describes a {echo(named[0])}, which is not supported: give a model that is "
            f"{known}, or write its shape into hwmodels/catalogue/models.yaml"
        )
    return str(named[0])


def _dtype(sections: Sequence[Section]) -> str:
    """The ``dtype``, or its older name ``torch_dtype``; for a multimodal model it may be outside."""
    known = f"one of {', '.join(BYTES_OF_DTYPE)}"
    for section in sections:
        for key in ("dtype", "torch_dtype"):
            value = section.data.get(key)
            if isinstance(value, str) and value in BYTES_OF_DTYPE:
                return value
            if value is not None:
                raise section.refusal(key, known)
    raise sections[0].refusal("torch_dtype", known)


ARCHITECTURES: Final[Mapping[str, Callable[[Section], tuple[Fields, Notes]]]] = {
    "LlamaForCausalLM": llama,
    "MistralForCausalLM": mistral,
    "Qwen2ForCausalLM": qwen2,
    "Qwen3ForCausalLM": qwen3,
    "OPTForCausalLM": opt,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "MixtralForCausalLM": mixtral,
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
}
MODEL_TYPES: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "opt": "OPTForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
