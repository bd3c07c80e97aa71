"""Default values that depend on the engine: limits by vLLM's rule, the system's batcher and, for a
data-parallel group, its dispatcher.
"""

from collections.abc import Collection
from typing import Any

from hwmodels.catalogue import load_gpu
from hwmodels.catalogue.stacks import is_stack
from servetwin.config.compose.references import MISSING
from servetwin.config.options import option_file
from servetwin.config.overrides import Override, echo
from servetwin.config.vllm_defaults import USAGE_CONTEXTS, batch_defaults
from serving.vocabulary.errors import UserError


def fill_batch_defaults(tree: dict[str, Any], usage: Override | None = None) -> bool:
    """Set the limits that a preset leaves to vLLM's rule; ``usage``: the word for the usage context.

    Returns whether ``max_num_seqs`` was among them.
    """
    engine = tree["engine"]
    unset = [name for name in ("max_num_seqs", "max_num_batched_tokens") if engine[name] == MISSING]
    if usage is not None and not unset:
        raise UserError(
            f"{usage} does nothing with engine={engine['name']}, whose limits are its own: leave it out"
        )
    context = engine["usage_context"] if usage is None else usage.text
    if unset and context in USAGE_CONTEXTS:
        known = batch_defaults(load_gpu(tree["cluster"]["gpu"]), context)
        for name in unset:
            engine[name] = known[name]
    elif unset:
        raise UserError(f"{usage} is unknown: write one of {', '.join(USAGE_CONTEXTS)}")
    return "max_num_seqs" in unset


def clip_default_seqs(engine: dict[str, Any]) -> None:
    """Limit a default ``max_num_seqs`` to the tokens of a step, as vLLM does.

    The end of ``_set_default_max_num_seqs_and_batched_tokens_args`` in vllm/engine/arg_utils.py (0.19.0).
    """
    engine["max_num_seqs"] = min(engine["max_num_seqs"], engine["max_num_batched_tokens"])


def fill_dispatch_default(tree: dict[str, Any]) -> None:
    """Dispatch requests to engines of a data-parallel group as vLLM's own front end does."""
    dispatch = tree["system"]["dispatch"]
    if tree["engine"]["data_parallel_size"] > 1 and dispatch["name"] == "least_outstanding":
        dispatch.clear()
        dispatch |= option_file("system/dispatch", "waiting_running")


def fill_pipeline_defaults(tree: dict[str, Any], written: Collection[str]) -> None:
    """Turn off, for models in stages, what their engines do not have, unless the user wrote it."""
    stages = tree["system"]["stages"]["name"] != "none" and not is_stack(tree["model"]["name"])
    if tree["model"]["pp"] > 1 or stages:
        for name in ("asynchronous", "prefix_caching"):
            if f"engine.{name}" not in written:
                tree["engine"][name] = False


def fill_engine_default(tree: dict[str, Any], groups: dict[str, list[str]]) -> None:
    """Replace ``system/batcher=engine_default`` by the option that ``engine.batcher`` names."""
    options = [name for name in groups["system/batcher"] if name != "engine_default"]
    named, batcher = tree["engine"]["batcher"], tree["system"]["batcher"]
    if named not in options:
        raise UserError(f"engine.batcher={echo(str(named))} is unknown: write one of {', '.join(options)}")
    if batcher["name"] == "engine_default":
        option = option_file("system/batcher", named)
        batcher |= option | {"params": batcher["params"] | option["params"]}
