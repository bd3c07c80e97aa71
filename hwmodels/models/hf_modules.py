"""Names of a model's matrices in a checkpoint, and which of them a list of names and patterns means."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.attention import LINEAR
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What the modules of a layer are called. ``fused``: all experts are one tensor per matrix."""

    mlp: str = "mlp"
    matrices: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    expert_matrices: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    shared: str = "shared_experts"
    fused: bool = False
    out: str = "o_proj"
    linear: tuple[str, ...] = ()


_FUSED_EXPERTS: Final = ("gate_up_proj", "down_proj")
_MIXTRAL: Final = _Names(mlp="block_sparse_moe", expert_matrices=("w1", "w3", "w2"))
_OF: Final[Mapping[str, _Names]] = {
    "OPTForCausalLM": _Names(mlp="", matrices=("fc1", "fc2"), out="out_proj"),
    "MixtralForCausalLM": _MIXTRAL,
    "MiniMaxM2ForCausalLM": _MIXTRAL,
    "GptOssForCausalLM": _Names(expert_matrices=_FUSED_EXPERTS, fused=True),
    "Llama4ForCausalLM": _Names(mlp="feed_forward", shared="shared_expert"),
    "Qwen3NextForCausalLM": _Names(shared="shared_expert", linear=("in_proj_qkvz", "out_proj")),
    "Qwen3_5ForCausalLM": _Names(linear=("in_proj_qkv", "in_proj_z", "out_proj")),
    "Qwen3_5MoeForCausalLM": _Names(shared="shared_expert", linear=("in_proj_qkv", "in_proj_z", "out_proj")),
}
"""Where they differ from a Llama's, by architecture."""


def modules_of(shape: LlmShape, architecture: str) -> dict[str, tuple[str, ...]]:
    """The matrices of every part that the model has, in all layers, as ``layers.3.self_attn.q_proj``.

    Of the routed experts the first and the last one stand for all (``Selection`` refuses single ones). Gates,
    rates of linear attention and indexers, which stay in 16 bits in published checkpoints, are left out.
    """
    names = _OF.get(architecture, _Names())
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    for layer in range(shape.layers):
        place = f"layers.{layer}"
        found["attention"] += [f"{place}.{name}" for name in _attention(shape, layer, names)]
        inside = f"{place}.{names.mlp}".removesuffix(".")
        if shape.experts is None or not shape.is_mixture(layer):
            found["mlp"] += [f"{inside}.{name}" for name in names.matrices]
            continue
        those = ("experts",) if names.fused else ("experts.0", f"experts.{shape.experts.count - 1}")
        found["experts"] += [f"{inside}.{one}.{name}" for one in those for name in names.expert_matrices]
        if shape.experts.shared_width:
            found["mlp"] += [f"{inside}.{names.shared}.{name}" for name in names.matrices]
    return {part: tuple(modules) for part, modules in found.items() if modules}


def _attention(shape: LlmShape, layer: int, names: _Names) -> tuple[str, ...]:
    if shape.layer_type(layer) == LINEAR:
        return tuple(f"linear_attn.{name}" for name in names.linear)
    if shape.latent is None:
        matrices: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", names.out)
    else:
        queries = ("q_a_proj", "q_b_proj") if shape.latent.query_rank else ("q_proj",)
        matrices = (*queries, "kv_a_proj_with_mqa", "kv_b_proj", names.out)
    return tuple(f"self_attn.{name}" for name in matrices)


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
