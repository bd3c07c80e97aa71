"""The catalogue: GPUs, model shapes and linear coefficients in YAML files in this folder, with sources."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.gpus.power import GpuPower
from hwmodels.models.experts import Experts, LatentAttention
from hwmodels.models.hf_config import llm_shape_from_config, looks_like_config
from hwmodels.models.llm_shape import LlmShape
from hwmodels.yaml_text import yaml_data

GPUS_FILE = "gpus.yaml"
MODELS_FILE = "models.yaml"
LINEAR_FILE = "linear.yaml"
LINEAR_COMPOSED_FILE = "linear_composed.yaml"
ALL_REDUCE_FILE = "all_reduce.yaml"


@cache
def read_yaml(file_name: str) -> Any:
    """Parsed content of one catalogue file; callers must not change it."""
    return yaml_data((files(__name__) / file_name).read_text(encoding="utf-8"))


def load_gpu(name: str) -> Gpu:
    """The GPU called ``name`` in gpus.yaml."""
    entry = _entry("GPU", name, GPUS_FILE)
    numbers = {
        key: entry[key]
        for key in ("memory_bytes", "memory_bandwidth_bytes_per_s", "flops_per_s", "activation_reserve_bytes")
    }
    numbers |= {key: entry[key] for key in ("compute_efficiency",) if key in entry}
    source = "; ".join(f"{key}: {number['source']}" for key, number in numbers.items())
    values = {key: number["value"] for key, number in numbers.items()}
    cache = entry.get("l2_cache_bytes", {}).get("value")
    nvlink = entry.get("nvlink", {}).get("value", False)
    return Gpu(name=name, source=source, l2_cache_bytes=cache, nvlink=nvlink, **values)


def gpu_power(name: str) -> GpuPower | None:
    """The power of the GPU called ``name``; None if unknown."""
    entry = _entry("GPU", name, GPUS_FILE)
    if "power_limit_w" not in entry:
        return None
    return GpuPower(float(entry["power_limit_w"]["value"]), float(entry["idle_w"]["value"]))


def load_llm(name: str) -> LlmShape:
    """The model shape called ``name`` in models.yaml, or in the config.json (or its folder) at that path.

    A config.json with exactly a catalogue model's shape counts as that model, so measurements of it apply.
    Another one is named by its path, which no catalogue name can equal.
    """
    if name in read_yaml(MODELS_FILE) or not looks_like_config(name):
        return _llm(name, _entry("model", name, MODELS_FILE))
    shape = llm_shape_from_config(name, name)
    for known in map(load_llm, llm_names()):
        if shape.computes_like(known) and shape.max_context_tokens == known.max_context_tokens:
            return replace(known, source=f"{shape.source}; the shape of {known.name}")
    return shape


def _llm(name: str, entry: Mapping[str, Any]) -> LlmShape:
    """Build the shape; experts and latent attention are entries of their own."""
    parts: dict[str, Any] = {}
    if "experts" in entry:
        parts["experts"] = Experts(**entry["experts"])
    if "latent" in entry:
        parts["latent"] = LatentAttention(**entry["latent"])
    return LlmShape(name=name, **{**entry, **parts})


def gpu_all_reduce(gpu_name: str) -> Mapping[str, Any]:
    """The declaration in gpus.yaml of all-reduces between GPUs of this kind; empty if there is none."""
    entries: Mapping[str, Any] = _entry("GPU", gpu_name, GPUS_FILE).get("all_reduce", {})
    return entries


def gpu_names() -> tuple[str, ...]:
    """Every GPU in the catalogue, sorted by name and number."""
    return tuple(sorted(read_yaml(GPUS_FILE), key=_by_number))


def llm_names() -> tuple[str, ...]:
    """Every model in the catalogue, sorted by name and number."""
    return tuple(sorted(read_yaml(MODELS_FILE), key=_by_number))


def _entry(kind: str, name: str, file_name: str) -> Mapping[str, Any]:
    entries: Mapping[str, Mapping[str, Any]] = read_yaml(file_name)
    if name not in entries:
        path = ", or the path of a config.json" if kind == "model" else ""
        raise HardwareError(f"unknown {kind} {name!r}: {_suggest(name, entries)}{path}")
    return entries[name]


def _suggest(name: str, known: Iterable[str]) -> str:
    names = sorted(known, key=_by_number)
    folded = name.lower().replace("-", "_").replace(".", "_")
    begun = [known for known in names if known.startswith(folded)]
    # A cut-off of 0 always returns the nearest name: the lists are short and a poor guess costs nothing.
    nearest = difflib.get_close_matches(folded, begun or names, n=1, cutoff=0.0)[0]
    return f"write {nearest!r} or another of {', '.join(names)}"


def _by_number(name: str) -> list[tuple[str, int]]:
    """Sort key that puts llama2_7b before llama2_13b."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", name)]
