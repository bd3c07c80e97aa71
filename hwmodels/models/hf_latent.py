"""Readers of models with multi-head latent attention in a ``config.json``: DeepSeek, Kimi-K2, GLM-5."""

from dataclasses import replace

from hwmodels.models.attention import LatentAttention, SparseIndex
from hwmodels.models.hf_dense import decoder
from hwmodels.models.hf_mixtures import experts_behind_dense_layers
from hwmodels.models.hf_section import Fields, Notes, Section


def deepseek(section: Section) -> tuple[Fields, Notes]:
    """DeepSeek V2, V3 and R1, Kimi-K2: dense first layers, and shared experts beside the routed ones."""
    if section.count("moe_layer_freq", 1) != 1:
        raise section.refusal("moe_layer_freq", "1, every layer behind the dense ones a mixture of experts")
    latent = _latent(section)
    fields = decoder(section)
    return fields | {
        "head_dim": latent.nope + latent.rope,
        "intermediate": section.count("intermediate_size"),
        "tied_embeddings": section.flag("tie_word_embeddings", False),
        "latent": latent,
        "experts": experts_behind_dense_layers(
            section, fields["layers"], otherwise=0, gate_bias=section.data.get("topk_method") == "noaux_tc"
        ),
        "predictors": section.count("num_nextn_predict_layers", 0),
    }, ()


def glm_sparse(section: Section) -> tuple[Fields, Notes]:
    """GLM-5: its predictors have no embedding and no head of their own."""
    fields, notes = deepseek_sparse(section)
    return fields | {"predictor_tables": False}, notes


def deepseek_sparse(section: Section) -> tuple[Fields, Notes]:
    """DeepSeek-V3.2: as DeepSeek-V3, with an indexer in every layer."""
    fields, _ = deepseek(section)
    if not fields["latent"].query_rank:
        raise section.refusal("q_lora_rank", "the rank of queries, from which the indexer makes its own")
    index = SparseIndex(
        heads=section.count("index_n_heads"),
        head_dim=section.count("index_head_dim"),
        chosen=section.count("index_topk"),
    )
    shared = "shared" in (section.data.get("indexer_types") or ())
    notes = ("an indexer in every layer instead of one shared by several",) if shared else ()
    return fields | {"latent": replace(fields["latent"], index=index)}, notes


def _latent(section: Section) -> LatentAttention:
    return LatentAttention(
        kv_rank=section.count("kv_lora_rank"),
        rope=section.count("qk_rope_head_dim"),
        nope=section.count("qk_nope_head_dim"),
        value=section.count("v_head_dim"),
        query_rank=section.count("q_lora_rank", 0),
    )
