"""Refuses checkpoints whose quantisation is not read, by config.json, files beside it and stored bytes.

Tools write this in different places: transformers ``quantization_config``, older llm-compressor
``compression_config``, MLX ``quantization``, NVIDIA's ModelOpt the file hf_quant_config.json, AutoGPTQ
quantize_config.json, AutoAWQ quant_config.json, Ascend's msmodelslim quant_model_description.json, Quanto
quanto_qmap.json, others qconfig.json, llama.cpp GGUF files.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.models.config_path import CONFIG_FILE
from hwmodels.models.hf_section import echo
from hwmodels.reading import read_limited

UNFIT: Final = "quantised weights are not supported here: name a folder with weights in 16 or 32 bits"
INSTEAD: Final = (
    f"copy {CONFIG_FILE}, without what it says of quantisation, into a folder of its own, name that folder "
    "and write model.precision=fp8 or another one"
)
_SIDE_FILES: Final = (
    "hf_quant_config.json", "quantize_config.json", "quant_config.json", "quantization_config.json",
    "quant_model_description.json", "quanto_qmap.json", "qconfig.json",
)  # fmt: skip
_INDEXES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MOST_BYTES: Final = 64 << 20
_STATES: Final = re.compile(r"(?:^|_)(?:quant|quanti[sz]ation|quanti[sz]ed|quanti[sz]e|compression)(?:_|$)")
_METHOD: Final = re.compile(r"(?:^|_)(?:quant_)?(?:method|algo|type)$")
_BITS: Final = frozenset({"bit", "bits", "nbits", "num_bits", "w_bit", "w_bits", "wbits", "weight_bits"})
_LOADED: Final = frozenset({"load_in_4bit", "load_in_8bit"})
_FULL_BITS: Final = 16
_FEW_BITS: Final = re.compile(r"(?:float|fp|int|nf|^[iuf])_?[1-8](?:\D|$)|e[2-5]m[0-3]|^w[1-8]a")
_NONE: Final = frozenset(
    {
        "", "none", "null", "no", "false", "float", "float16", "bfloat16", "float32", "fp16", "bf16", "fp32",
        "unquantized", "unquantised",
    }
)  # fmt: skip
_FORMAT: Final = "format"  # llm-compressor's
_DENSE: Final = "dense"
_SERIES: Final = re.compile(r"(.+)-[0-9]{1,9}-of-([0-9]{1,9})\.safetensors")
# Their parameters are not those of the language model.
_OTHER_PARTS: Final = re.compile(r"vision|visual|image|audio|speech")
# Of the bytes that the shape has: stored in 16 bits it has all, in 8 at most 0.7 (large tables kept whole).
_LEAST_STORED: Final = 0.8
# The next wider format takes at least 1.5 times as much, a predictor of further tokens a fiftieth more.
_MOST_STORED: Final = 1.4
_LEAST_FILE_BYTES: Final = 1_000  # less is a pointer to the file, as Git LFS leaves it
_WHOLE_GGUF: Final = re.compile(r"(?:^|[-_.])(?:b?f16|f32)(?:[-_.]|$)", re.IGNORECASE)


def refuse_quantised(
    file: Path, data: Mapping[str, Any], *, instead: str = UNFIT, beside_too: bool = True
) -> None:
    """Raise HardwareError if a config.json, or a file beside it, says that the weights are quantised.

    ``data``: the file's content. A key without a value, or whose value is "none", says nothing. ``instead``:
    what the user is told. ``beside_too`` False: the files beside it are known.
    """
    for key, value in _stated(data):
        raise HardwareError(f"{file} has {echo(key)}: {echo(value)}, and {instead}")
    for name in _SIDE_FILES if beside_too else ():
        beside = file.parent / name
        if beside.exists() and not says_none(_read(beside)):
            raise HardwareError(f"{beside} says how the weights of {file.name} are quantised, and {instead}")
    if file.name == CONFIG_FILE and (only := _only_gguf(file.parent)):
        raise HardwareError(f"the weights beside {file} are in {only}, and {instead}")


def refuse_other_bytes(file: Path, weight_bytes: int, told: str, quantised: bool) -> None:
    """Raise HardwareError if the weights beside ``file`` do not take about ``weight_bytes``.

    Fewer are quantised, or incomplete. More are refused of a model that says it is ``quantised``; others may
    have parts beside the language model.
    """
    stored = _stored_bytes(file.parent) if file.name == CONFIG_FILE else None
    if stored is None or _LEAST_STORED * weight_bytes <= stored <= _MOST_STORED * weight_bytes:
        return
    few = stored < weight_bytes
    if not few and not quantised:
        return
    why = "quantised or incomplete" if few else "stored in more bits than it says"
    raise HardwareError(
        f"the weights beside {file} take {stored / 1e9:.3g} GB and in {told} they would take "
        f"{weight_bytes / 1e9:.3g}, so they are {why}: {INSTEAD}"
    )


def read_beside(file: Path, name: str) -> Any:
    """The JSON content of a file beside ``file``; None if there is none. Raises HardwareError."""
    beside = file.parent / name
    return _read(beside) if beside.exists() else None


def refuse_quantised_checkpoint(folder: Path) -> None:
    """Raise HardwareError if a folder's config.json, or a file beside it, states quantisation.

    What cannot be read is left to the reader of the checkpoint.
    """
    file = folder / CONFIG_FILE
    try:
        data = json.loads(read_limited(file, _MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(data, dict):
        refuse_quantised(file, data)


def _stated(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys, at any depth, that state fewer than 16 bits, and their values."""
    parts = list[tuple[str, Any]]([("", data)])  # a stack: files may be nested deeper than Python calls
    while parts:
        prefix, part = parts.pop()
        if isinstance(part, list):
            parts += [(prefix, text) for text in part if isinstance(text, dict | list)]
            continue
        for key, value in part.items():
            if _states(key.lower(), value):
                yield prefix + key, value
            elif isinstance(value, dict | list) and not (
                _STATES.search(key.lower()) or _OTHER_PARTS.search(key.lower())
            ):
                parts.append((f"{prefix}{key}.", value))


def _states(key: str, value: Any) -> bool:
    if _STATES.search(key):
        return not says_none(value)
    if key in _BITS:
        return 0 < _bits(value) < _FULL_BITS
    if key in _LOADED:
        return value is True or _bits(value) > 0 or (isinstance(value, str) and value.lower() == "true")
    return key.endswith("dtype") and isinstance(value, str) and bool(_FEW_BITS.search(value.lower()))


def says_none(value: Any) -> bool:
    """Whether the value of a key about quantisation, or the content of a file about it, says: none."""
    if isinstance(value, str):
        return value.lower() in _NONE
    if not isinstance(value, dict):
        return not value
    methods = [
        inner for key, inner in value.items() if _METHOD.search(key.lower()) or _STATES.search(key.lower())
    ]
    if methods:
        return all(_names_none(inner) for inner in methods)
    bits = [width for key, inner in value.items() if key.lower() in _BITS and (width := _bits(inner)) > 0]
    if bits:
        return min(bits) >= _FULL_BITS
    return not any(
        inner not in (None, {}, [], "", False) and (key.lower(), inner) != (_FORMAT, _DENSE)
        for key, inner in value.items()
    )


def _bits(value: Any) -> float:
    """A number, or one written as text; 0 for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        return int(value)
    return value if type(value) in (int, float) else 0


def _names_none(value: Any) -> bool:
    """Whether a method, or the mapping that holds one, says: none. A mapping is looked into once."""
    if not isinstance(value, dict):
        return value.lower() in _NONE if isinstance(value, str) else not value
    methods = [inner for key, inner in value.items() if _METHOD.search(key.lower())]
    return not value or (
        bool(methods) and all(not method or str(method).lower() in _NONE for method in methods)
    )


def _read(file: Path) -> Any:
    try:
        return json.loads(read_limited(file, _MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise HardwareError(
            f"{file} cannot be read ({str(error)[:80]}), and it says how weights are quantised: mend it, or "
            f"{INSTEAD}"
        ) from error


def _only_gguf(folder: Path) -> str:
    """The name of a GGUF file of few bits if the folder has GGUF files and no others with weights; or ""."""
    names = sorted(file.name for file in folder.glob("*.gguf"))
    if not names or any(_WHOLE_GGUF.search(name) for name in names):
        return ""
    return "" if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")) else names[0]


def _stored_bytes(folder: Path) -> int | None:
    """Bytes of the weights in a folder, by its index, one file or series; None: none of them is there."""
    for name in _INDEXES:
        try:
            index = json.loads(read_limited(folder / name, _MOST_BYTES).decode("utf-8"))
            return int(index["metadata"]["total_size"])
        except (OSError, ValueError, RecursionError, LookupError, TypeError, OverflowError, HardwareError):
            continue  # not there, or without this number
    try:
        size = (folder / "model.safetensors").stat().st_size
    except OSError:
        return _series_bytes(folder)
    return size if size >= _LEAST_FILE_BYTES else None


def _series_bytes(folder: Path) -> int | None:
    """Bytes of the files NAME-00001-of-00002.safetensors and so on; None unless a whole series is there."""
    series = dict[tuple[str, str], list[int]]()
    for file in folder.glob("*.safetensors"):
        if (match := _SERIES.fullmatch(file.name)) and (size := _size(file)) >= _LEAST_FILE_BYTES:
            series.setdefault((match[1], match[2]), []).append(size)
    whole = [sum(sizes) for (_, count), sizes in series.items() if len(sizes) == int(count)]
    return max(whole, default=None)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
