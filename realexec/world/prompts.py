"""Prompts of random token ids: traces contain a prompt's length, not its text."""

import numpy as np


def prompt_ids(seed: int, request: int, tokens: int, vocab_size: int) -> tuple[int, ...]:
    """The ``tokens`` prompt token ids of a request; they depend on the arguments only."""
    return tuple(np.random.default_rng([seed, request]).integers(vocab_size, size=tokens).tolist())
