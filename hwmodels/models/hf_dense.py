"""Readers of dense families in a ``config.json``: fields of ``LlmShape``, and notes."""

from typing import Final

from hwmodels.models.attention import FULL, SLIDING
from hwmodels.models.hf_layers import every, layer_kinds, window_of_all, windows
from hwmodels.models.hf_section import Fields, Notes, Section

# OPT's table of positions starts with this many rows that belong to no position (transformers' modeling_opt).
OPT_EXTRA_POSITIONS: Final = 2
MOST_LAYERS: Final = 4096  # 30 times those of the deepest published models; each is placed on its own


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
    """Mistral and Phi-3; old versions have a sliding window."""
    fields = gated(section)
    sliding, notes = window_of_all(section, True, fields["layers"])
    return fields | sliding, notes


def qwen2(section: Section) -> tuple[Fields, Notes]:
    """Q, K and V always have a bias, whatever the file says."""
    fields = gated(section)
    sliding, notes = _qwen_windows(section, fields["layers"])
    return fields | {"qkv_bias": True} | sliding, notes


def qwen3(section: Section) -> tuple[Fields, Notes]:
    """As a Llama, with norms of queries and keys."""
    fields, _ = llama(section)
    sliding, notes = _qwen_windows(section, fields["layers"])
    return fields | {"qk_norm": True} | sliding, notes


def _qwen_windows(section: Section, layers: int) -> tuple[Fields, Notes]:
    return window_of_all(section, section.flag("use_sliding_window", False), layers)


# What Gemma 3's files leave out (transformers, models/gemma3/configuration_gemma3.py).
_GEMMA3: Final = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
}


def gemma3(section: Section) -> tuple[Fields, Notes]:
    """Norms before and behind attention and MLP; all but every sixth layer have a window."""
    section = section.having(_GEMMA3)
    fields, _ = llama(section)
    layers = fields["layers"]
    by_rule = every(section.count("sliding_window_pattern"), FULL, SLIDING, layers)
    sliding, notes = windows(section, layer_kinds(section, layers, by_rule))
    return fields | {"qk_norm": True, "norms": 4} | sliding, notes


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
