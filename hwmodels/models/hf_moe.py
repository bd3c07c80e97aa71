"""What mixtures of experts have in their ``config.json``: Qwen3-MoE, Mixtral, DeepSeek V2 and V3."""

from typing import Final

from hwmodels.models.experts import Experts, LatentAttention
from hwmodels.models.hf_families import MOST_LAYERS, Fields, Notes, decoder, qwen3, slides_over
from hwmodels.models.hf_section import Section

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
        count, _per_token(section, count, "num_experts"), section.count("moe_intermediate_size")
    )
    return fields | {"experts": experts}, notes


def mixtral(section: Section) -> tuple[Fields, Notes]:
    """Experts as wide as ``intermediate_size``."""
    fields = decoder(section)
    width, count = section.count("intermediate_size"), section.count("num_local_experts", most=_MOST_EXPERTS)
    fields["intermediate"] = width
    fields["tied_embeddings"] = section.flag("tie_word_embeddings", False)
    experts = Experts(count, _per_token(section, count, "num_local_experts"), width)
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
    found = section.count("num_experts_per_tok")
    if found > count:
        raise section.refusal("num_experts_per_tok", f"at most {name} {count}")
    return found
