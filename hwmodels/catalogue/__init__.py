"""The catalogue: GPUs, model shapes and linear coefficients in YAML files in this folder, with sources."""

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from hwmodels.catalogue.names import gpu_called, gpu_like, is_hub_name, llm_called, published_as
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.gpus.gpu_file import OWN, gpu_entry, is_gpu_file
from hwmodels.gpus.power import GpuPower
from hwmodels.models.attention import LatentAttention, LinearAttention, SparseIndex
from hwmodels.models.config_path import CONFIG_FILE, looks_like_config
from hwmodels.models.experts import Experts
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.precision import Precision, quantised
from hwmodels.yaml_text import yaml_data

FOLDER: Final = Path(__file__).parent
GPUS_FILE = "gpus.yaml"
MODELS_FILE = "models.yaml"
LINEAR_FILE = "linear.yaml"
LINEAR_COMPOSED_FILE = "linear_composed.yaml"
ALL_REDUCE_FILE = "all_reduce.yaml"


@cache
def read_yaml(file_name: str) -> Any:
    """Parsed content of one catalogue file; callers must not change it."""
    return yaml_data(catalogue_text(file_name))


def catalogue_text(file_name: str) -> str:
    """The text of one catalogue file."""
    return (FOLDER / file_name).read_text(encoding="utf-8")


def gpu_named(text: str) -> str:
    """The catalogue's name of the GPU that ``text`` means, in any case or by alias. Raises HardwareError.

    The path of a file of the user's own stays.
    """
    if is_gpu_file(text):
        return text
    entries = read_yaml(GPUS_FILE)
    name = known_gpu(text)
    if name is None:
        near = gpu_like(text, entries) or text
        raise HardwareError(f"unknown GPU {text!r}: {_suggest(near, entries, _card)}, or {OWN}")
    return name


def known_gpu(text: str) -> str | None:
    """The catalogue's name of the GPU that ``text`` means; None if it means none."""
    entries = read_yaml(GPUS_FILE)
    return text if text in entries else gpu_called(text, entries)


def _gpu_entry(text: str) -> Mapping[str, Any]:
    """The entry of a GPU, of the catalogue or of a file of the user's own."""
    entry: Mapping[str, Any] = gpu_entry(text) if is_gpu_file(text) else read_yaml(GPUS_FILE)[gpu_named(text)]
    return entry


def llm_named(text: str) -> str:
    """The catalogue's name of the model that ``text`` means, also by its name on Hugging Face.

    ``text`` itself if it means none, or is the path of something that exists.
    """
    entries = read_yaml(MODELS_FILE)
    if text in entries or os.path.lexists(text):
        return text
    return llm_called(text, entries) or text


def quantised_publication(text: str) -> tuple[str, str] | None:
    """The catalogue's name and the precision (``model.precision``) of a well-known quantised publication."""
    return None if os.path.lexists(text) else _published_as(text)


@lru_cache(maxsize=256)
def _published_as(text: str) -> tuple[str, str] | None:
    return published_as(text, read_yaml(MODELS_FILE))


def published_names(name: str, precision: str | None) -> tuple[str, ...]:
    """The names on Hugging Face of a model of the catalogue, quantised so (None: as it is published).

    Empty if none is known, and for a model that is not of the catalogue.
    """
    entry = read_yaml(MODELS_FILE).get(name, {})
    return tuple(
        entry.get("huggingface", ()) if precision is None else entry.get("quantised", {}).get(precision, ())
    )


_SOME_HAVE: Final = ("compute_efficiency", "fp8_flops_per_s", "fp4_flops_per_s", "int8_flops_per_s")


def load_gpu(name: str) -> Gpu:
    """The GPU called ``name`` in gpus.yaml, by one of its other names, or in the user's file at that path."""
    name = gpu_named(name)
    entry = _gpu_entry(name)
    numbers = {
        key: entry[key]
        for key in ("memory_bytes", "memory_bandwidth_bytes_per_s", "flops_per_s", "activation_reserve_bytes")
    }
    numbers |= {key: entry[key] for key in _SOME_HAVE if key in entry}
    source = "; ".join(f"{key}: {number['source']}" for key, number in numbers.items())
    values = {key: number["value"] for key, number in numbers.items()}
    cache = entry.get("l2_cache_bytes", {}).get("value")
    nvlink = entry.get("nvlink", {}).get("value", False)
    sms = entry.get("sms", {}).get("value")
    unmeasured = is_gpu_file(name) or entry.get("unmeasured", {}).get("value", False)
    return Gpu(
        name=name,
        source=source,
        l2_cache_bytes=cache,
        nvlink=nvlink,
        sms=sms,
        unmeasured=unmeasured,
        **values,
    )


def gpu_power(name: str) -> GpuPower | None:
    """The power of the GPU called ``name``; None if unknown."""
    entry = _gpu_entry(name)
    if "power_limit_w" not in entry:
        return None
    return GpuPower(float(entry["power_limit_w"]["value"]), float(entry["idle_w"]["value"]))


def load_llm(name: str) -> LlmShape:
    """The model shape called ``name`` in models.yaml, or in the config.json (or its folder) at that path.

    A config.json with exactly a catalogue model's shape counts as that model, so measurements of it apply.
    Another one is named by its path, which no catalogue name can equal.
    """
    if (publication := quantised_publication(name)) is not None:
        shape = load_llm(publication[0])
        return replace(shape, precision=quantised(publication[1], shape.bytes_per_parameter))
    name = llm_named(name)
    if name in read_yaml(MODELS_FILE):
        return _catalogue_llm(name)
    if not looks_like_config(name) or (is_hub_name(name) and not os.path.lexists(name)):
        raise unknown_llm(name)
    from hwmodels.models.hf_config import llm_shape_from_config

    shape = llm_shape_from_config(name, name)
    for known in map(load_llm, llm_names()):
        if (
            shape.computes_like(replace(known, precision=shape.precision))
            and shape.max_context_tokens == known.max_context_tokens
        ):
            source = f"{shape.source}; the shape of {known.name}"
            return replace(known, source=source, precision=shape.precision, top_p=shape.top_p)
    return shape


_NAMES: Final = ("huggingface", "quantised")


_PARTS: Final[Mapping[str, Callable[..., Any]]] = {
    "experts": Experts,
    "latent": LatentAttention,
    "linear": LinearAttention,
}


@cache
def _catalogue_llm(name: str) -> LlmShape:
    """Build the shape of an entry once, with the parts that are entries of their own."""
    entry = read_yaml(MODELS_FILE)[name]
    values = {key: value for key, value in entry.items() if key not in _NAMES}
    values |= {key: _part(build, values[key]) for key, build in _PARTS.items() if key in values}
    if "layer_types" in values:
        values["layer_types"] = tuple(islice(cycle(values["layer_types"]), values["layers"]))
    if "precision" in values:
        stored = values["precision"]
        width = values["bytes_per_parameter"]
        values["precision"] = quantised(stored, width) if isinstance(stored, str) else Precision(**stored)
    return LlmShape(name=name, **values)


def _part(build: Callable[..., Any], entry: Mapping[str, Any]) -> Any:
    """Build a part; ``index`` of latent attention is a part of its own."""
    index = {"index": SparseIndex(**entry["index"])} if "index" in entry else {}
    return build(**{**entry, **index})


def unknown_llm(name: str) -> HardwareError:
    """The refusal of a model that is neither in the catalogue nor a path of something that exists."""
    entries = read_yaml(MODELS_FILE)
    own = f"the path of its own {CONFIG_FILE}, or of the folder that holds one"
    if not is_hub_name(name):
        return HardwareError(f"unknown model {name!r}: {_suggest(name, entries)}, or {own}")
    hub = {one: known for known, entry in entries.items() for one in entry.get("huggingface", ())}
    alike = [one for one in hub if one.startswith(name) or name.startswith(one)]
    like = f" (it has {hub[alike[0]]}, which is {alike[0]})" if alike else ""
    names = ", ".join(sorted(entries, key=_by_number))
    return HardwareError(
        f"{name} is not in the catalogue{like}, and no file here: save its {CONFIG_FILE} from Hugging Face"
        f" into a folder and write model=FOLDER, or write one of {names}"
    )


def gpu_all_reduce(gpu_name: str) -> Mapping[str, Any]:
    """The declaration in gpus.yaml of all-reduces between GPUs of this kind; empty if there is none."""
    entries: Mapping[str, Any] = _gpu_entry(gpu_name).get("all_reduce", {})
    return entries


def gpu_names() -> tuple[str, ...]:
    """Every GPU in the catalogue, sorted by name and number."""
    return tuple(sorted(read_yaml(GPUS_FILE), key=_by_number))


def llm_names() -> tuple[str, ...]:
    """Every model in the catalogue, sorted by name and number."""
    return tuple(sorted(read_yaml(MODELS_FILE), key=_by_number))


def _card(name: str) -> str:
    """Which card a GPU of the catalogue is, in brackets."""
    card = read_yaml(GPUS_FILE)[name].get("names", {}).get("card")
    return f" ({card})" if card else ""


def _suggest(name: str, known: Iterable[str], told: Callable[[str], str] = lambda name: "") -> str:
    names = sorted(known, key=_by_number)
    folded = name.lower().replace("-", "_").replace(".", "_")
    begun = [known for known in names if known.startswith(folded)]
    # A cut-off of 0 always returns the nearest name: the lists are short and a poor guess costs nothing.
    nearest = difflib.get_close_matches(folded, begun or names, n=1, cutoff=0.0)[0]
    return f"write {nearest!r}{told(nearest)} or another of {', '.join(names)}"


def _by_number(name: str) -> list[tuple[str, int]]:
    """Sort key that puts llama2_7b before llama2_13b."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", name)]
