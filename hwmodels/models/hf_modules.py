"""Names of a model's matrices in a checkpoint, and which of them a list of names and patterns means."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.hf_quantised import INSTEAD
from hwmodels.models.llm_shape import LlmShape

PARTS: Final[Mapping[str, str]] = {"attention": "attention", "mlp": "the MLP", "experts": "the experts"}
"""Parts of a model that have one number format each, with their names in errors."""
_REGEX: Final = "re:"
_LONGEST: Final = 500
_FUSED: Final = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_OUTER: Final = ("", "model.", "language_model.model.", "model.language_model.")
_WRAPPERS: Final = re.compile(r"^(?:model\.|language_model\.|decoder\.)+")
_ONE_EXPERT: Final = re.compile(r"(?:^|\.)experts\.[0-9]+(?:\.|$)")


def modules_of(shape: LlmShape, architecture: str) -> dict[str, tuple[str, ...]]:
    """The matrices of every part that the model has, in all layers, as ``layers.3.self_attn.q_proj``.

    Of the routed experts the first and the last one stand for all (``Selection`` refuses single ones).
    """
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    for layer in range(shape.layers):
        place = f"layers.{layer}"
        found["attention"] += [f"{place}.self_attn.{name}" for name in _attention(shape, architecture)]
        if shape.experts is None or not shape.is_mixture(layer):
            found["mlp"] += [f"{place}.{name}" for name in _mlp(architecture)]
            continue
        inside = "block_sparse_moe" if architecture == "MixtralForCausalLM" else "mlp"
        names = ("w1", "w3", "w2") if inside == "block_sparse_moe" else _GATED
        found["experts"] += [
            f"{place}.{inside}.experts.{expert}.{name}"
            for expert in (0, shape.experts.count - 1)
            for name in names
        ]
        if shape.experts.shared_width:
            found["mlp"] += [f"{place}.{inside}.shared_experts.{name}" for name in _GATED]
    return {part: tuple(names) for part, names in found.items() if names}


_GATED: Final = ("gate_proj", "up_proj", "down_proj")


def _attention(shape: LlmShape, architecture: str) -> tuple[str, ...]:
    if shape.latent is None:
        return ("q_proj", "k_proj", "v_proj", "out_proj" if architecture == "OPTForCausalLM" else "o_proj")
    queries = ("q_a_proj", "q_b_proj") if shape.latent.query_rank else ("q_proj",)
    return (*queries, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")


def _mlp(architecture: str) -> tuple[str, ...]:
    return ("fc1", "fc2") if architecture == "OPTForCausalLM" else tuple(f"mlp.{name}" for name in _GATED)


class Selection:
    """Modules by name, by part of a name (``self_attn``), with wildcards, or as ``re:REGEX``.

    A module is meant by its own name and by that of one it lies in. Raises HardwareError for a regex that is
    none, and for single experts.
    """

    __slots__ = ("_names", "_patterns")

    def __init__(self, names: Iterable[str], file: Path) -> None:
        self._names = set[str]()
        self._patterns = list[tuple[re.Pattern[str], bool]]()
        for name in names:
            if name.startswith(_REGEX):
                self._patterns.append((_compiled(name, file), False))
            elif any(mark in name for mark in "*?["):
                self._patterns.append((re.compile(translate(name)), True))
            else:
                self._add(_WRAPPERS.sub("", name), file)

    def has(self, module: str) -> bool:
        """Whether a module is meant."""
        words = module.split(".")
        ends = range(1, len(words) + 1)
        if any(".".join(words[first:end]) in self._names for end in ends for first in range(end)):
            return True
        return any(_matches(pattern, module, inside) for pattern, inside in self._patterns)

    def _add(self, name: str, file: Path) -> None:
        if _ONE_EXPERT.search(name):
            raise HardwareError(
                f"{file} stores {name[:_LONGEST]} apart from other experts, and all have one format here: "
                f"{INSTEAD}"
            )
        outer, dot, last = name.rpartition(".")
        for one in _FUSED.get(last, (last,)):
            self._names.add(f"{outer}{dot}{one}")


def _compiled(name: str, file: Path) -> re.Pattern[str]:
    try:
        if len(name) > _LONGEST:
            raise re.error("too long")
        return re.compile(name.removeprefix(_REGEX))
    except re.error as error:
        raise HardwareError(
            f"{name[:_LONGEST]!r} in {file} is no regular expression ({error}): {INSTEAD}"
        ) from error


def _matches(pattern: re.Pattern[str], module: str, inside: bool) -> bool:
    """Whether a pattern fits a module, under any name of the whole; ``inside``: an outer module counts."""
    words = module.split(".")
    names = [".".join(words[:end]) for end in range(1, len(words) + 1)] if inside else [module]
    return any(pattern.match(outer + name) for outer in _OUTER for name in names)
