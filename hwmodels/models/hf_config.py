"""Model shapes from a ``config.json`` in the format of Hugging Face repositories."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.models.experts import Experts, LatentAttention
from hwmodels.models.generation_config import samples_with_top_p
from hwmodels.models.hf_precision import precision_of, stated, without
from hwmodels.models.hf_quantised import CONFIG_FILE, INSTEAD, refuse_other_bytes, refuse_quantised
from hwmodels.models.hf_section import Section, echo
from hwmodels.models.llm_shape import LlmShape
from hwmodels.reading import read_limited

# What each family of dense models has in its ``config.json``: fields of ``LlmShape``, and notes.

# OPT's table of positions starts with this many rows that belong to no position (transformers' modeling_opt).
OPT_EXTRA_POSITIONS: Final = 2
MOST_LAYERS: Final = 4096  # 30 times those of the deepest published models; each is placed on its own

Fields = dict[str, Any]
Notes = tuple[str, ...]


def decoder(section: Section) -> Fields:
    """The fields that all families here share."""
    hidden, heads = section.count("hidden_size"), section.count("num_attention_heads")
    kv_heads = section.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise section.refusal("num_key_value_heads", f"a number that divides the {heads} attention heads")
    if section.data.get("head_dim") is None and hidden % heads:
        raise section.refusal("num_attention_heads", f"a number that divides hidden_size {hidden}")
    return {
        "layers": section.count("num_hidden_layers", most=MOST_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": section.count("head_dim", max(1, hidden // heads)),
        "vocab": section.count("vocab_size"),
        "max_context_tokens": section.count("max_position_embeddings"),
    }


def gated(section: Section) -> Fields:
    """A decoder with a gated MLP, as all families but OPT have."""
    fields = decoder(section)
    fields["intermediate"] = section.count("intermediate_size")
    fields["tied_embeddings"] = section.flag("tie_word_embeddings", False)
    return fields


def llama(section: Section) -> tuple[Fields, Notes]:
    """Llama 1 to 3; biases only if the file says so."""
    attention_bias = section.flag("attention_bias", False)
    biases = {"qkv_bias": attention_bias, "output_bias": attention_bias}
    return gated(section) | biases | {"mlp_bias": section.flag("mlp_bias", False)}, ()


def mistral(section: Section) -> tuple[Fields, Notes]:
    """Mistral; old versions have a sliding window."""
    return gated(section), slides_over(section, section.data.get("sliding_window") is not None)


def qwen2(section: Section) -> tuple[Fields, Notes]:
    """Q, K and V always have a bias, whatever the file says."""
    notes = slides_over(section, section.flag("use_sliding_window", False))
    return gated(section) | {"qkv_bias": True}, notes


def qwen3(section: Section) -> tuple[Fields, Notes]:
    """As a Llama, with norms of queries and keys."""
    fields, _ = llama(section)
    return fields | {"qk_norm": True}, slides_over(section, section.flag("use_sliding_window", False))


def opt(section: Section) -> tuple[Fields, Notes]:
    """OPT-350m alone has its norms after the blocks and a narrower embedding; it is refused."""
    fields = decoder(section)
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


def slides_over(section: Section, slides: bool) -> Notes:
    """A note if a window is treated as the whole context."""
    width = section.data.get("sliding_window")
    return (f"attention over the whole context instead of a window of {width} tokens",) if slides else ()


# What mixtures of experts have in their ``config.json``: Qwen3-MoE, Mixtral, DeepSeek V2 and V3.

_MOST_EXPERTS: Final = 1 << 16  # the most published are hundreds


def qwen3_moe(section: Section) -> tuple[Fields, Notes]:
    """Every layer is a mixture; models that alternate both kinds are refused."""
    if section.count("decoder_sparse_step", 1) != 1:
        raise section.refusal("decoder_sparse_step", "1, every layer a mixture of experts")
    if section.data.get("mlp_only_layers"):
        raise section.refusal("mlp_only_layers", "an empty list, every layer a mixture of experts")
    fields, notes = qwen3(section)
    count = section.count("num_experts", most=_MOST_EXPERTS)
    experts = Experts(
        count=count,
        per_token=_per_token(section, count, "num_experts"),
        width=section.count("moe_intermediate_size"),
    )
    return fields | {"experts": experts}, notes


def mixtral(section: Section) -> tuple[Fields, Notes]:
    """Experts as wide as ``intermediate_size``."""
    fields = decoder(section)
    width, count = section.count("intermediate_size"), section.count("num_local_experts", most=_MOST_EXPERTS)
    fields["intermediate"] = width
    fields["tied_embeddings"] = section.flag("tie_word_embeddings", False)
    experts = Experts(count=count, per_token=_per_token(section, count, "num_local_experts"), width=width)
    return fields | {"experts": experts}, slides_over(section, section.data.get("sliding_window") is not None)


def deepseek(section: Section) -> tuple[Fields, Notes]:
    """Latent attention; the first layers are dense, all others have shared experts beside the routed ones.

    The predictor of further tokens (``num_nextn_predict_layers``) is left out: it is not part of a step.
    """
    if section.count("moe_layer_freq", 1) != 1:
        raise section.refusal("moe_layer_freq", "1, every layer behind the dense ones a mixture of experts")
    count, width = (
        section.count("n_routed_experts", most=_MOST_EXPERTS),
        section.count("moe_intermediate_size"),
    )
    latent = LatentAttention(
        kv_rank=section.count("kv_lora_rank"),
        rope=section.count("qk_rope_head_dim"),
        nope=section.count("qk_nope_head_dim"),
        value=section.count("v_head_dim"),
        query_rank=section.count("q_lora_rank", 0),
    )
    experts = Experts(
        count=count,
        per_token=_per_token(section, count, "n_routed_experts"),
        width=width,
        shared_width=section.count("n_shared_experts", 0) * width,
        dense_layers=section.count("first_k_dense_replace", 0),
        gate_bias=section.data.get("topk_method") == "noaux_tc",
    )
    if experts.dense_layers >= section.count("num_hidden_layers", most=MOST_LAYERS):
        raise section.refusal("first_k_dense_replace", "less than num_hidden_layers")
    fields = decoder(section)
    fields |= {
        "head_dim": latent.nope + latent.rope,
        "intermediate": section.count("intermediate_size"),
        "tied_embeddings": section.flag("tie_word_embeddings", False),
    }
    return fields | {"latent": latent, "experts": experts}, ()


def _per_token(section: Section, count: int, name: str) -> int:
    per_token = section.count("num_experts_per_tok")
    if per_token > count:
        raise section.refusal("num_experts_per_tok", f"at most {name} {count}")
    return per_token


BYTES_OF_DTYPE: Final[Mapping[str, int]] = {"float16": 2, "bfloat16": 2, "float32": 4}
_MOST_BYTES: Final = 16 << 20  # the longest known ones have some hundred kB, of quantised models


def llm_shape_from_config(path: Path | str, name: str | None = None) -> LlmShape:
    """The shape in a Hugging Face ``config.json`` (the file, or the folder that contains one).

    Supports the architectures of ``ARCHITECTURES``; for a multimodal model it uses the ``text_config``.
    ``name`` None: the folder's name. Raises HardwareError naming file and key, and what to write instead.
    """
    outer = _read(Path(path))
    section = _language_model(outer)
    said = stated(outer.path, outer.data)
    rest = without(outer.data, said.key) if said is not None and said.key else outer.data
    refuse_quantised(outer.path, rest, instead=f"this form is not read: {INSTEAD}", beside_too=said is None)
    architecture = _architecture(section)
    fields, notes = ARCHITECTURES[architecture](section)
    dtype = _dtype((section, outer))
    if section.prefix:
        notes = ("the text_config of a multimodal model, without what encodes images or sound", *notes)
    shape = LlmShape(
        name=name or outer.path.resolve().parent.name,
        bytes_per_parameter=BYTES_OF_DTYPE[dtype],
        top_p=samples_with_top_p(
            outer.path.parent, architecture, fields["vocab"], fields["max_context_tokens"]
        ),
        source="; ".join((f"{outer.path}, {architecture}, {dtype}", *notes)),
        **fields,
    )
    if said is not None and (precision := precision_of(said, shape, architecture)) is not None:
        source = f"{shape.source}; {precision.text} by {said.key or said.path.name}"
        shape = replace(shape, precision=precision, source=source)
    refuse_other_bytes(outer.path, shape.weight_bytes, shape.formats.text, shape.quantised)
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
