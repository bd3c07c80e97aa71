"""Prompts made of random token ids: traces say how long a prompt is, not what it says."""

import numpy as np


def prompt_ids(seed: int, request: int, tokens: int, vocab_size: int) -> tuple[int, ...]:
    """The ``tokens`` prompt token ids of a request; they depend on the arguments only."""
    return tuple(np.random.default_rng([seed, request]).integers(vocab_size, size=tokens).tolist())
