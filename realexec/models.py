"""Small models with random weights, built the same way by every worker and by the token check."""

import copy
from collections.abc import Mapping
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from serving.vocabulary.errors import UserError

# The families whose decoder layers the model runner executes: same submodule names, full causal attention.
FAMILIES: Final = ("llama", "mistral", "qwen2", "qwen3")

# Standard deviation of random weights. The families' own 0.02 makes small models repeat one token, and then
# equal tokens would prove nothing.
INITIALIZER_RANGE: Final = 0.2


def build_model(model: Mapping[str, Any], seed: int) -> PreTrainedModel:
    """A causal language model in fp32 with random weights that depend on ``model`` and ``seed`` only.

    ``model`` holds the keys of the family's `transformers` configuration (``hidden_size``,
    ``num_hidden_layers``, ...); ``model_type`` picks the family (default ``llama``), ``initializer_range`` is
    `INITIALIZER_RANGE` unless given. Raises UserError for unknown keys, other families and sliding windows.
    """
    config = _config(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=torch.float32, attn_implementation="sdpa"
        )
    built.train(False)
    return built


def _config(model: Mapping[str, Any]) -> Any:
    # transformers writes into nested values (rope_parameters), so the caller's mapping must not be shared.
    keys = {"initializer_range": INITIALIZER_RANGE, **copy.deepcopy(dict(model))}
    family = keys.pop("model_type", "llama")
    if family not in FAMILIES:
        raise UserError(f"model.model_type is {family!r}, but real workers run one of {', '.join(FAMILIES)}.")
    known = AutoConfig.for_model(family).to_dict()
    unknown = sorted(set(keys) - set(known))
    if unknown:
        raise UserError(
            f"model.{unknown[0]} is not a key of a {family} configuration; remove it or correct it."
        )
    config = AutoConfig.for_model(family, **keys)
    _refuse_sliding_window(config)
    return config


def _refuse_sliding_window(config: Any) -> None:
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    slides = "sliding_attention" in kinds if kinds else window is not None
    if slides and window < config.max_position_embeddings:
        raise UserError(
            f"model.sliding_window is {window}, but real workers only run full attention; "
            "set it to null or to at least model.max_position_embeddings."
        )
