"""How a Hugging Face checkpoint is stored, from what it says of its quantisation.

Read are ``quantization_config`` (fp8, mxfp4, AWQ, GPTQ, compressed-tensors, ModelOpt) and older
``compression_config`` in config.json or its text_config, and beside it ModelOpt's hf_quant_config.json,
AutoGPTQ's quantize_config.json and AutoAWQ's quant_config.json. Other forms are refused (``hf_quantised``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.models.hf_modules import PARTS, Selection, modules_of
from hwmodels.models.hf_quantised import INSTEAD, read_beside, says_none
from hwmodels.models.hf_section import echo
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.precision import FORMATS, Precision, uniform

_KEYS: Final = ("quantization_config", "compression_config")
_INNER: Final = "text_config"
_METHOD: Final = "quant_method"
_EXCLUSIONS: Final = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")
_LINEAR: Final = "Linear"
_MOST_NAMES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Stated:
    """Where a checkpoint says how it is stored: a key of its config.json, or a file beside it (key "")."""

    path: Path
    key: str
    data: Mapping[str, Any]

    def refusal(self, name: str, why: str) -> HardwareError:
        """The error about ``name`` in it."""
        dotted = ".".join(word for word in (self.key, name) if word)
        value = self.data.get(name)
        shown = f" is {echo(value)}" if value is not None else ""
        return HardwareError(f'"{dotted}" in {self.path}{shown}, {why}: {INSTEAD}')


@dataclass(frozen=True, slots=True)
class _Group:
    """Matrices of the same format: ``targets`` select them (None: all), ``size`` values share a scale."""

    format: str
    size: int | None = None
    targets: tuple[str, ...] | None = None
    parts: tuple[str, ...] = tuple(PARTS)


@dataclass(frozen=True, slots=True)
class _Scheme:
    """What a checkpoint says: groups of matrices, and the format of KV (None: not said)."""

    groups: tuple[_Group, ...]
    kv: str | None = None


def stated(file: Path, data: Mapping[str, Any]) -> Stated | None:
    """Where this config.json, or a file beside it, says how its weights are quantised; None: nowhere.

    A second statement inside config.json, or a form that is not read, is left to ``refuse_quantised``.
    """
    inner = data.get(_INNER)
    places = [("", data)] + ([(f"{_INNER}.", inner)] if isinstance(inner, dict) else [])
    for prefix, part in places:
        for key in _KEYS:
            value = part.get(key)
            if isinstance(value, dict) and not says_none(value):
                return Stated(file, prefix + key, value)
    for name in _READ_BESIDE:
        content = read_beside(file, name)
        if isinstance(content, dict) and not says_none(content):
            return Stated(file.parent / name, "", content)
    return None


def without(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The content of a config.json without a dotted key."""
    first, _, rest = key.partition(".")
    if rest:
        return {**data, first: without(data[first], rest)}
    return {name: value for name, value in data.items() if name != first}


def precision_of(
    said: Stated, shape: LlmShape, architecture: str
) -> tuple[Precision | None, tuple[str, ...]]:
    """How the checkpoint's matrices and KV are stored (None: all as wide as ``shape`` says), and notes.

    Raises HardwareError for a form that is not read, and if experts or a dense model are only partly
    quantised. Attention and MLPs of a mixture, a small part of it, count in the widest of their formats.
    """
    scheme = _of_config(said) if said.key else _READ_BESIDE[said.path.name](said)
    plain = uniform(shape.bytes_per_parameter)
    groups, notes = _by_part(said, scheme, shape, architecture)
    formats = {part: group.format for part, group in groups.items()}
    sizes = {group.size for group in groups.values() if group.size not in (None, FORMATS[group.format].group)}
    if len(sizes) > 1:
        raise HardwareError(f"{said.path} has scales of {' and '.join(map(str, sizes))} values: {INSTEAD}")
    attention = formats.get("attention", plain.attention)
    mlp = formats.get("mlp", plain.mlp if _has_mlp(shape) else attention)
    precision = Precision(
        attention=attention,
        mlp=mlp,
        experts=formats.get("experts", plain.experts if shape.experts is not None else mlp),
        kv=scheme.kv or plain.kv,
        group=next(iter(sizes), None),
    )
    return None if precision == plain else precision, notes


def _has_mlp(shape: LlmShape) -> bool:
    """Whether any layer has one. A part that a model does not have is told as the others."""
    return shape.experts is None or shape.moe_layers < shape.layers or bool(shape.experts.shared_width)


def _by_part(
    said: Stated, scheme: _Scheme, shape: LlmShape, architecture: str
) -> tuple[dict[str, _Group], tuple[str, ...]]:
    """The group of each part that is quantised, and notes of parts that are in several formats."""
    ignored = Selection(_names(said), said.path)
    targets = [
        None if group.targets is None else Selection(group.targets, said.path) for group in scheme.groups
    ]
    groups, notes = dict[str, _Group](), list[str]()
    for part, modules in modules_of(shape, architecture).items():
        found = set[_Group | None]()
        for module in modules:
            if ignored.has(module):
                found.add(None)
                continue
            meant = (
                group
                for group, selected in zip(scheme.groups, targets, strict=True)
                if part in group.parts and (selected is None or selected.has(module))
            )
            found.add(next(meant, None))
        group = max(found or {None}, key=_bits)
        if len(found) > 1:
            notes.append(_mixed(said, shape, part, found))
        if group is not None:
            groups[part] = group
    return groups, tuple(notes)


def _bits(group: _Group | None) -> int:
    return FORMATS["bf16" if group is None else group.format].bits


def _mixed(said: Stated, shape: LlmShape, part: str, found: set[_Group | None]) -> str:
    """The note of a part in several formats. HardwareError if it is too much of the model to count so."""
    names = " and ".join(sorted("16 bits" if group is None else group.format for group in found))
    if part == "experts" or shape.experts is None:
        raise HardwareError(
            f"{said.path} has matrices of {PARTS[part]} in {names}, and all of a part have one format "
            f"here: {INSTEAD}"
        )
    return f"matrices of {PARTS[part]} in {names}, all counted in the wider one"


def _names(said: Stated) -> tuple[str, ...]:
    """The modules that are not quantised, by name or pattern."""
    names: list[str] = []
    inner = said.data.get("quantization")
    for place in (said.data, inner if isinstance(inner, dict) else {}):
        for key in _EXCLUSIONS:
            value = place.get(key)
            if value is None:
                continue
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise said.refusal(key, "no list of modules")
            names += value
    if len(names) > _MOST_NAMES:
        raise said.refusal("ignore", f"more than {_MOST_NAMES} modules")
    return tuple(names)


def _of_config(said: Stated) -> _Scheme:
    method = said.data.get(_METHOD)
    if method is None and "config_groups" in said.data:
        method = "compressed-tensors"
    if method is None and "quant_algo" in said.data:
        method = "modelopt"
    reader = _METHODS.get(method) if isinstance(method, str) else None
    if reader is None:
        raise said.refusal(_METHOD, f"none of {', '.join(_METHODS)}")
    return reader(said)


def _fp8(said: Stated) -> _Scheme:
    block = said.data.get("weight_block_size")
    if block is None:
        return _Scheme((_Group("fp8"),))
    return _Scheme((_block(said, "weight_block_size", block),))


def _block(said: Stated, key: str, block: Any) -> _Group:
    if not (isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
        raise said.refusal(key, "no rows and columns such as [128, 128]")
    return _Group("fp8_block", block[0] * block[1])


def _mxfp4(said: Stated) -> _Scheme:
    """As gpt-oss: the routed experts alone (transformers, integrations/mxfp4.py)."""
    return _Scheme((_Group("mxfp4", parts=("experts",)),))


def _integers(bits_key: str, size_key: str) -> Callable[[Stated], _Scheme]:
    """A reader of weights in integers with a scale per group: AWQ and GPTQ."""

    def read(said: Stated) -> _Scheme:
        if said.data.get("lm_head") is True or said.data.get("dynamic"):
            key = "dynamic" if said.data.get("dynamic") else "lm_head"
            raise said.refusal(key, "not read")
        key = bits_key if bits_key in said.data else "bits"
        return _Scheme((_integer_group(said, key, said.data.get(key), said.data.get(size_key, 128)),))

    return read


def _integer_group(said: Stated, key: str, bits: Any, size: Any) -> _Group:
    if bits not in (4, 8) or type(bits) is not int:
        raise said.refusal(key, "neither 4 nor 8")
    if size is not None and (type(size) is not int or (size < 1 and size != -1)):
        raise said.refusal("group_size", "no number of values")
    whole_row = size in (None, -1)
    return _Group("int8") if bits == 8 else _Group("int4", _ROW if whole_row else size)


# A scale per row: as few as of the longest groups.
_ROW: Final = 1 << 14


def _compressed(said: Stated) -> _Scheme:
    groups = said.data.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise said.refusal("config_groups", "which says how weights are stored, is missing")
    sparsity = said.data.get("sparsity_config")
    if isinstance(sparsity, dict) and sparsity.get("format", "dense") != "dense":
        raise said.refusal("sparsity_config", "sparse weights, which are not read")
    read = tuple([_compressed_group(said, group) for group in groups.values()])
    return _Scheme(read, _compressed_kv(said))


def _compressed_group(said: Stated, group: Any) -> _Group:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise said.refusal("config_groups", "a group without weights")
    targets = group.get("targets", [_LINEAR])
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise said.refusal("config_groups", "targets that are no list of modules")
    chosen = None if _LINEAR in targets else tuple(targets)
    bits, kind, size = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    if (bits, kind) == (8, "float"):
        if weights.get("strategy") == "block":
            block = _block(said, "config_groups", weights.get("block_structure"))
            return _Group(block.format, block.size, chosen)
        return _Group("fp8", targets=chosen)
    if (bits, kind) == (4, "float") and size in (16, 32):
        return _Group("nvfp4" if size == 16 else "mxfp4", targets=chosen)
    if kind == "int" and bits in (4, 8):
        found = _integer_group(said, "config_groups", bits, size)
        return _Group(found.format, found.size, chosen)
    raise said.refusal("config_groups", f"{bits} bits of {kind} in groups of {size}, which are not read")


def _compressed_kv(said: Stated) -> str | None:
    scheme = said.data.get("kv_cache_scheme")
    if scheme is None:
        return None
    if scheme == "FP8":  # as ModelOpt writes it
        return "fp8"
    if not isinstance(scheme, dict) or (scheme.get("num_bits"), scheme.get("type")) != (8, "float"):
        raise said.refusal("kv_cache_scheme", "not FP8")
    return "fp8"


# NVIDIA Model Optimizer's names (modelopt/torch/export/quant_utils.py).
_ALGORITHMS: Final = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "W4A16_AWQ": "int4", "INT4_AWQ": "int4", "INT8_SQ": "int8",
}  # fmt: skip


def _modelopt(said: Stated) -> _Scheme:
    """Both forms: the file hf_quant_config.json, and the same keys in quantization_config."""
    inner = said.data.get("quantization")
    data = inner if isinstance(inner, dict) else said.data
    if inner is None and "quant_algo" not in data and "config_groups" in data:
        return _compressed(said)
    algorithm, kv = data.get("quant_algo"), data.get("kv_cache_quant_algo")
    found = Stated(said.path, ".".join(word for word in (said.key, "quantization") if word), data)
    if inner is None:
        found = said
    groups: tuple[_Group, ...] = ()
    if algorithm is not None:
        known = _ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
        if known is None:
            raise found.refusal("quant_algo", f"none of {', '.join(_ALGORITHMS)}")
        size = data.get("group_size") if known == "int4" else None
        if size is not None and (type(size) is not int or size < 1):
            raise found.refusal("group_size", "no number of values")
        groups = (_Group(known, size),)
    if kv is None:
        return _Scheme(groups, _compressed_kv(said))
    if kv != "FP8":
        raise found.refusal("kv_cache_quant_algo", "not FP8")
    return _Scheme(groups, "fp8")


_METHODS: Final[Mapping[str, Callable[[Stated], _Scheme]]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _integers("w_bit", "group_size"),
    "gptq": _integers("bits", "group_size"),
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
}
_READ_BESIDE: Final[Mapping[str, Callable[[Stated], _Scheme]]] = {
    "hf_quant_config.json": _modelopt,
    "quantize_config.json": _integers("bits", "group_size"),
    "quant_config.json": _integers("w_bit", "q_group_size"),
}
"""Files beside config.json that are read, in this order."""
