"""Readers of mixtures of experts with grouped-query attention in a ``config.json``."""

from typing import Any, Final

from hwmodels.models.attention import FULL, SLIDING
from hwmodels.models.experts import Experts
from hwmodels.models.hf_dense import decoder, gated, mistral, qwen3
from hwmodels.models.hf_layers import every, layer_kinds, windows
from hwmodels.models.hf_section import Fields, Notes, Section

_MOST_EXPERTS: Final = 1 << 16  # the most published are hundreds


def experts_of(section: Section, count_key: str, *, width: int, **rest: Any) -> Experts:
    """A mixture whose routed experts are counted under ``count_key``."""
    count = section.count(count_key, most=_MOST_EXPERTS)
    per_token = section.count("num_experts_per_tok")
    if per_token > count:
        raise section.refusal("num_experts_per_tok", f"at most {count_key} {count}")
    return Experts(count=count, per_token=per_token, width=width, **rest)


def experts_behind_dense_layers(section: Section, layers: int, *, otherwise: int, gate_bias: bool) -> Experts:
    """DeepSeek's keys: routed and shared experts of one width, and dense first layers.

    ``otherwise``: the number of shared experts and of dense layers that a file without their keys has.
    """
    width, dense = section.count("moe_intermediate_size"), section.count("first_k_dense_replace", otherwise)
    if dense >= layers:
        raise section.refusal("first_k_dense_replace", "less than num_hidden_layers")
    return experts_of(
        section,
        "n_routed_experts",
        width=width,
        shared_width=section.count("n_shared_experts", otherwise) * width,
        dense_layers=dense,
        gate_bias=gate_bias,
    )


def qwen_experts(section: Section, **rest: Any) -> Experts:
    """Experts in the last of every ``decoder_sparse_step`` layers; single dense layers are refused."""
    if section.data.get("mlp_only_layers"):
        raise section.refusal(
            "mlp_only_layers", "an empty list: no layer is dense beside decoder_sparse_step"
        )
    step = section.count("decoder_sparse_step", 1)
    width = section.count("moe_intermediate_size")
    return experts_of(section, "num_experts", width=width, every=step, **rest)


def qwen3_moe(section: Section) -> tuple[Fields, Notes]:
    """Qwen3 with experts."""
    fields, notes = qwen3(section)
    return fields | {"experts": qwen_experts(section)}, notes


def mixtral(section: Section) -> tuple[Fields, Notes]:
    """Experts as wide as ``intermediate_size``."""
    fields, notes = mistral(section)
    return fields | {"experts": experts_of(section, "num_local_experts", width=fields["intermediate"])}, notes


def minimax_m2(section: Section) -> tuple[Fields, Notes]:
    """Norms over all heads together. The predictors that the file counts are not in the published weights."""
    if set(section.data.get("attn_type_list") or [1]) != {1}:
        raise section.refusal("attn_type_list", "1 for every layer: attention over the whole context")
    fields = gated(section)
    experts = experts_of(
        section,
        "num_local_experts",
        width=fields["intermediate"],
        shared_width=section.count("shared_intermediate_size", 0),
        gate_bias=section.flag("use_routing_bias", True),
    )
    normed = section.flag("use_qk_norm", True)
    wide = section.data.get("qk_norm_type", "per_layer") == "per_layer"
    return fields | {"experts": experts, "qk_norm": normed, "wide_qk_norm": normed and wide}, ()


def glm4_moe(section: Section) -> tuple[Fields, Notes]:
    """GLM-4.5 and later: dense first layers, shared experts, biases of Q, K and V alone."""
    fields = gated(section)
    experts = experts_behind_dense_layers(section, fields["layers"], otherwise=1, gate_bias=True)
    return fields | {
        "experts": experts,
        "qkv_bias": section.flag("attention_bias", False),
        "qk_norm": section.flag("use_qk_norm", False),
        "predictors": section.count("num_nextn_predict_layers", 0),
    }, ()


def gpt_oss(section: Section) -> tuple[Fields, Notes]:
    """Every other layer has a window; sinks, and biases everywhere."""
    section = section.having({"sliding_window": 128})
    fields = gated(section)
    layers = fields["layers"]
    sliding, notes = windows(section, layer_kinds(section, layers, every(2, FULL, SLIDING, layers)))
    bias = section.flag("attention_bias", True)
    experts = experts_of(
        section, "num_local_experts", width=fields["intermediate"], gate_bias=True, bias=True
    )
    attention = {"qkv_bias": bias, "output_bias": bias, "sinks": True}
    return fields | attention | {"experts": experts} | sliding, notes


# What Llama 4's files leave out (transformers, models/llama4/configuration_llama4.py).
_LLAMA4: Final = {
    "intermediate_size_mlp": 16_384,
    "interleave_moe_layer_step": 1,
    "no_rope_layer_interval": 4,
    "attention_chunk_size": 8192,
}


def llama4(section: Section) -> tuple[Fields, Notes]:
    """Layers with rotary embedding attend to chunks; a mixture in every so many layers, one expert shared.

    Queries and keys are normalised without weights.
    """
    section = section.having(_LLAMA4)
    width = section.count("intermediate_size")
    step = section.count("interleave_moe_layer_step")
    fields = decoder(section)
    layers = fields["layers"]
    stated = section.data.get("moe_layers")
    if stated is not None and stated != list(range(step - 1, layers, step)):
        raise section.refusal("moe_layers", f"the last of every {step} layers, as interleave_moe_layer_step")
    whole = every(section.count("no_rope_layer_interval"), FULL, SLIDING, layers)
    rotary = section.data.get("no_rope_layers")
    if isinstance(rotary, list) and len(rotary) == layers:  # 1 stands for a layer with rotary embedding
        whole = tuple(SLIDING if one else FULL for one in rotary)
    sliding, notes = windows(section, layer_kinds(section, layers, whole), "attention_chunk_size")
    experts = experts_of(section, "num_local_experts", width=width, shared_width=width, every=step)
    return fields | {
        "intermediate": section.count("intermediate_size_mlp"),
        "tied_embeddings": section.flag("tie_word_embeddings", False),
        "qkv_bias": section.flag("attention_bias", False),
        "experts": experts,
    } | sliding, notes
