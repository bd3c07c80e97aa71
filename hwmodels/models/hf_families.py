"""What each family of dense models has in its ``config.json``: fields of ``LlmShape``, and notes."""

from typing import Any, Final

from hwmodels.models.hf_section import Section

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
