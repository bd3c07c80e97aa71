"""Bytes that decode steps read and operations that they do, all ranks of a replica together."""

from hwmodels.models.llm_shape import LlmShape


def weight_bytes_read(llm: LlmShape, batch: float) -> float:
    """Bytes of weights that a step of ``batch`` tokens reads, from one token up.

    Of a separate embedding table it reads a row per token, which is nothing. Experts are chosen
    independently and alike, so that few tokens leave some unread.
    """
    embedding = 0 if llm.tied_embeddings else llm.embedding_parameters * llm.bytes_per_parameter
    whole = float(llm.weight_bytes - embedding)
    if llm.experts is None:
        return whole
    unread: float = (1.0 - llm.experts.per_token / llm.experts.count) ** batch
    return whole - llm.expert_bytes * unread


def flops_per_token(llm: LlmShape, context_tokens: float) -> float:
    """Operations of one token: two per weight that it uses, four per channel and token of its context."""
    used = llm.active_parameters - (0 if llm.tied_embeddings else llm.embedding_parameters)
    return 2.0 * used + 4.0 * llm.layers * llm.heads * llm.head_dim * context_tokens
