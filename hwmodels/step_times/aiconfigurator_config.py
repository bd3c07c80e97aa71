"""A model's shape in the form of a config.json, as an architecture that the library of step times knows."""

from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.models.attention import FULL, LINEAR, SLIDING, LatentAttention
from hwmodels.models.experts import Experts
from hwmodels.models.llm_shape import LlmShape

LIBRARY: Final = "aiconfigurator-core"
_WORDS: Final = {FULL: "full_attention", SLIDING: "sliding_attention", LINEAR: "linear_attention"}


def asked_of(llm: LlmShape) -> bool:
    """Whether the library knows every part of a model."""
    return not _odd_part(llm)


def library_config(llm: LlmShape) -> dict[str, Any]:
    """``llm`` as the config.json of a model that the library knows.

    Raises HardwareError for shapes whose operations it would not add up.
    """
    if odd := _odd_part(llm):
        raise HardwareError(
            f"{llm.name} has {odd}, which is not asked from {LIBRARY}: write engine.step_time=roofline or "
            "engine.profile=FILE"
        )
    config = {
        "architectures": [_architecture(llm)],
        "num_hidden_layers": llm.layers,
        "hidden_size": llm.hidden,
        "num_attention_heads": llm.heads,
        "num_key_value_heads": llm.kv_heads,
        "head_dim": llm.head_dim,
        "intermediate_size": llm.intermediate,
        "vocab_size": llm.vocab,
        "max_position_embeddings": llm.max_context_tokens,
    }
    if llm.experts is not None:
        config |= _of_experts(llm.experts)
    if llm.latent is not None:
        config |= _of_latent(llm.latent)
    if llm.layer_types:
        config |= _of_layers(llm)
    return config


def unasked_parts(llm: LlmShape) -> tuple[str, ...]:
    """What the library takes for something else, in words: it has no such layers in this architecture."""
    experts, found = llm.experts, []
    if llm.latent is not None and experts is not None and experts.dense_layers:
        found.append(f"{experts.dense_layers} dense layers are taken for layers with experts")
    return tuple(found)


def _odd_part(llm: LlmShape) -> str:
    if not llm.gated_mlp:
        return "an MLP without a gate"
    if llm.latent is not None:
        return "" if llm.experts is not None else "latent attention without experts"
    if SLIDING in llm.layer_types:
        return "" if llm.sinks else "sliding windows"
    if LINEAR in llm.layer_types or llm.experts is None:
        return ""
    if llm.experts.shared_width:
        return "shared experts"
    return "dense layers among those with experts" if llm.moe_layers < llm.layers else ""


def _architecture(llm: LlmShape) -> str:
    mixture = llm.experts is not None
    if llm.latent is not None and llm.latent.index is not None:
        return "GlmMoeDsaForCausalLM" if llm.latent.nope != _V3_NOPE else "DeepseekV32ForCausalLM"
    if llm.latent is not None:
        return "DeepseekV3ForCausalLM"
    if llm.sinks:
        return "GptOssForCausalLM"
    if LINEAR in llm.layer_types:
        return "Qwen3_5MoeForConditionalGeneration" if mixture else "Qwen3_5ForConditionalGeneration"
    if mixture:
        return "Qwen3MoeForCausalLM"
    return "Qwen3ForCausalLM" if llm.qk_norm else "LlamaForCausalLM"


# Its tables of sparse attention are kept by architecture: DeepSeek-V3.2's query heads have 128 values without
# rotary embedding, GLM-5's 192.
_V3_NOPE: Final = 128


def _of_experts(experts: Experts) -> dict[str, Any]:
    return {
        "num_experts": experts.count,
        "n_routed_experts": experts.count,
        "num_experts_per_tok": experts.per_token,
        "moe_intermediate_size": experts.width,
        "n_shared_experts": experts.shared_width // experts.width,
        "shared_expert_intermediate_size": experts.shared_width,
        "first_k_dense_replace": experts.dense_layers,
    }


def _of_latent(latent: LatentAttention) -> dict[str, Any]:
    config = {
        "q_lora_rank": latent.query_rank,
        "kv_lora_rank": latent.kv_rank,
        "qk_nope_head_dim": latent.nope,
        "qk_rope_head_dim": latent.rope,
        "v_head_dim": latent.value,
    }
    if latent.index is None:
        return config
    return config | {
        "index_n_heads": latent.index.heads,
        "index_head_dim": latent.index.head_dim,
        "index_topk": latent.index.chosen,
    }


def _of_layers(llm: LlmShape) -> dict[str, Any]:
    config: dict[str, Any] = {"layer_types": [_WORDS[kind] for kind in llm.layer_types]}
    if llm.window_tokens:
        config["sliding_window"] = llm.window_tokens
    if llm.linear is None:
        return config
    return config | {
        "linear_num_key_heads": llm.linear.key_heads,
        "linear_key_head_dim": llm.linear.key_dim,
        "linear_num_value_heads": llm.linear.value_heads,
        "linear_value_head_dim": llm.linear.value_dim,
        "linear_conv_kernel_dim": llm.linear.conv_width,
    }
