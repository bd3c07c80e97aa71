"""Readers of hybrids of full and linear attention in a ``config.json``: Qwen3-Next and Qwen3.5."""

from typing import Final

from hwmodels.models.attention import FULL, LINEAR, LinearAttention
from hwmodels.models.experts import Experts
from hwmodels.models.hf_dense import qwen3
from hwmodels.models.hf_layers import every, layer_kinds
from hwmodels.models.hf_mixtures import qwen_experts
from hwmodels.models.hf_section import Fields, Notes, Section

# What the files leave out (transformers, models/qwen3_next/configuration_qwen3_next.py).
_QWEN3_NEXT: Final = {
    "intermediate_size": 5632,
    "max_position_embeddings": 32_768,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
# Qwen3.5's mixtures have no MLP beside the experts, and no key for its width.
_QWEN3_5: Final = {"full_attention_interval": 4, "attn_output_gate": True}
_STATE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}


def qwen3_next(section: Section) -> tuple[Fields, Notes]:
    """Three of four layers have a gated delta net; every layer is a mixture with a gated shared expert.

    Its one predictor of further tokens is in the weights, and the file has no key for it.
    """
    section = section.having(_QWEN3_NEXT)
    fields = _hybrid(section)
    return fields | {"experts": _experts(section), "output_gate": True, "predictors": 1}, ()


def qwen3_5(section: Section) -> tuple[Fields, Notes]:
    """The text part of a dense Qwen3.5."""
    section = section.having(_QWEN3_5)
    return _hybrid(section) | _of_3_5(section), ()


def qwen3_5_moe(section: Section) -> tuple[Fields, Notes]:
    """The text part of a Qwen3.5 with experts."""
    width = section.count("moe_intermediate_size")
    section = section.having({**_QWEN3_5, "intermediate_size": width})
    return _hybrid(section) | _of_3_5(section) | {"experts": _experts(section)}, ()


def _of_3_5(section: Section) -> Fields:
    return {
        "output_gate": section.flag("attn_output_gate", True),
        "predictors": section.count("mtp_num_hidden_layers", 0),
    }


def _experts(section: Section) -> Experts:
    shared = section.count("shared_expert_intermediate_size", 0)
    return qwen_experts(section, shared_width=shared, shared_gate=bool(shared))


def _hybrid(section: Section) -> Fields:
    """Fields of attention; the predictors have no embedding and no head of their own."""
    fields, _ = qwen3(section)
    layers = fields["layers"]
    by_rule = every(section.count("full_attention_interval"), FULL, LINEAR, layers)
    state = section.data.get("mamba_ssm_dtype", "bfloat16")
    if not isinstance(state, str) or state not in _STATE_BYTES:
        raise section.refusal("mamba_ssm_dtype", f"one of {', '.join(_STATE_BYTES)}")
    linear = LinearAttention(
        key_heads=section.count("linear_num_key_heads"),
        value_heads=section.count("linear_num_value_heads"),
        key_dim=section.count("linear_key_head_dim"),
        value_dim=section.count("linear_value_head_dim"),
        conv_width=section.count("linear_conv_kernel_dim"),
        state_bytes=_STATE_BYTES[state],
    )
    kinds = layer_kinds(section, layers, by_rule)
    return fields | {"layer_types": kinds, "linear": linear, "predictor_tables": False}
