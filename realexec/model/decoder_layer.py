"""One decoder layer around attention, with the submodules of the Llama family.

Hidden states are [rows, hidden size]: a row is a position of one request or a request of a batch. Queries,
keys and values are [1, heads, rows, head dim].
"""

from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from realexec.model.chunk_cuts import FEWEST_CUT, KEY_BLOCK

# Cosines and sines of the rows' positions, each [1, rows, head dim].
Rotation = tuple[torch.Tensor, torch.Tensor]


def project(
    layer: Any, hidden: torch.Tensor, rotation: Rotation
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute rotated queries, rotated keys, and values of every row."""
    attention = layer.self_attn
    normed = layer.input_layernorm(hidden)
    queries = _heads(attention.q_proj(normed), attention.head_dim)
    keys = _heads(attention.k_proj(normed), attention.head_dim)
    values = _heads(attention.v_proj(normed), attention.head_dim)
    if hasattr(attention, "q_norm"):  # Qwen3 normalises queries and keys per head
        queries, keys = attention.q_norm(queries), attention.k_norm(keys)
    queries, keys = apply_rotary_pos_emb(queries, keys, *rotation)
    return queries, keys, values


def attend(layer: Any, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Compute one request's attention over its keys and values; returns [rows, heads * head dim].

    Several rows are positions 0, 1, ... and attend causally; one row attends to everything. Transformers' own
    layers make the same call, so grouped queries take the same kernel.
    """
    attention = layer.self_attn
    output, _ = sdpa_attention_forward(attention, queries, keys, values, None, scaling=attention.scaling)
    return output.reshape(queries.shape[2], -1)


def attend_chunk(
    layer: Any, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int
) -> torch.Tensor:
    """Compute attention of the chunk that starts at ``start``, over `attended_positions` keys and values.

    The kernel splits its sums according to shapes, so a chunk alone gives other bits (3e-6 in the logits)
    than the same rows within the whole prompt. Therefore the chunk's queries are placed into a zero tensor
    that the kernel splits like the whole prompt: causality masks later positions, and each row's sums are the
    same. The price is attention over positions whose results are thrown away.
    """
    rows, positions = queries.shape[2], keys.shape[2]
    if rows == positions:
        return attend(layer, queries, keys, values)
    laid = queries.new_zeros((*queries.shape[:2], positions, queries.shape[3]))
    laid[:, :, start : start + rows] = queries
    return attend(layer, laid, keys, values)[start : start + rows]


def attended_positions(end: int, known_tokens: int) -> int:
    """Return how many positions to give the kernel for a chunk that ends at ``end`` of ``known_tokens``.

    All of them, or only up to a place where the kernel's blocks end anyway; it does not need the rest.
    """
    block_end = -(-end // KEY_BLOCK) * KEY_BLOCK
    return min(known_tokens, max(block_end, FEWEST_CUT))


def finish(layer: Any, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """Apply output projection, MLP and residuals; rows that ``attended`` lacks are dummies, with zeros."""
    hidden = hidden + layer.self_attn.o_proj(pad_rows(attended, hidden.shape[0]))
    correction: torch.Tensor = layer.mlp(layer.post_attention_layernorm(hidden))
    return hidden + correction


def pad_rows(values: torch.Tensor, rows: int) -> torch.Tensor:
    """Append zero rows to ``values`` [n, width] until it has ``rows`` rows."""
    missing = rows - values.shape[0]
    return torch.nn.functional.pad(values, (0, 0, 0, missing)) if missing else values


def _heads(projected: torch.Tensor, head_dim: int) -> torch.Tensor:
    return projected.view(1, projected.shape[0], -1, head_dim).transpose(1, 2)
