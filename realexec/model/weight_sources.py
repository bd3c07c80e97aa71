"""Sources of parameters: random numbers from a seed, or the safetensors files of a checkpoint."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

# Hugging Face's names of one-file checkpoints, and of the index of checkpoints with several files.
ONE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
HEAD: Final = "lm_head.weight"
_MOST_JSON_BYTES: Final = 64 << 20  # an index has some 100 bytes for each of up to 100,000 parameters
EMBEDDING_TABLE: Final = "model.embed_tokens.weight"


class WeightSource(Protocol):
    """Reads parameters by their names in the family's state dict."""

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the parameter, on the CPU, in the dtype in which it is stored."""
        ...


class SeededSource:
    """Random parameters. Each depends on the model's keys, the seed and its own name only.

    So all workers have the same ones, whichever layers they fill and in whatever order. Norms are around one
    and biases are not zero: otherwise no test would notice if those of two layers were swapped.
    """

    def __init__(self, keys: Mapping[str, Any], seed: int, spread: float, tied: bool) -> None:
        self._stem = f"{json.dumps(dict(keys), sort_keys=True)} {seed} "
        self._spread, self._tied = spread, tied

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Draw from a normal distribution around 1 (norms) or 0, with the configured standard deviation."""
        name = EMBEDDING_TABLE if self._tied and name == HEAD else name
        digest = hashlib.sha256((self._stem + name).encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
        return random_parameter(name, shape, self._spread, generator)


def random_parameter(
    name: str, shape: tuple[int, ...], spread: float, generator: torch.Generator
) -> torch.Tensor:
    """Draw from a normal distribution around 1 (norms) or 0, on the generator's device."""
    drawn = torch.randn(shape, generator=generator, device=generator.device).mul_(spread)
    return drawn.add_(1) if name.endswith("norm.weight") else drawn


class SafetensorsSource:
    """The files of a checkpoint folder, mapped into memory: reading a parameter loads its pages."""

    def __init__(self, folder: Path, tied: bool) -> None:
        self._folder, self._tied = folder, tied
        self._file_of = _files_by_name(folder)
        self._open: dict[str, Any] = {}

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return it as stored in the file; UserError if it is missing or has another shape."""
        if name == HEAD and self._tied and name not in self._file_of:
            name = EMBEDDING_TABLE
        if name not in self._file_of:
            raise UserError(
                f"{self._folder} has no parameter {name}; take the whole checkpoint of the model."
            )
        tensor: torch.Tensor = self._opened(self._file_of[name]).get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise UserError(
                f"{name} in {self._folder} has shape {list(tensor.shape)}, but its config.json says "
                f"{list(shape)}; take both from one checkpoint."
            )
        return tensor

    def _opened(self, file: str) -> Any:
        if file not in self._open:
            self._open[file] = _mapped(self._folder / file)
        return self._open[file]


def _files_by_name(folder: Path) -> dict[str, str]:
    """Map each parameter's name to the file that has it."""
    if (folder / INDEX_FILE).is_file():
        index = json_object(folder / INDEX_FILE).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
            raise UserError(f"{folder / INDEX_FILE} has no weight_map of file names; fetch it again.")
        return index
    if not (folder / ONE_FILE).is_file():
        raise UserError(
            f"{folder} has neither {ONE_FILE} nor {INDEX_FILE}; give the folder of a checkpoint in the "
            "safetensors format."
        )
    return dict.fromkeys(_mapped(folder / ONE_FILE).keys(), ONE_FILE)


def json_object(path: Path) -> dict[str, Any]:
    """Read a checkpoint's JSON file. Raises UserError if it is none, or no regular file of its size."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_JSON_BYTES:
            raise ValueError("it is no file, or too large")
        parsed = json_data(path.read_bytes())
        if not isinstance(parsed, dict):
            raise ValueError("it is no JSON object")
        return parsed
    except (OSError, ValueError) as error:
        raise UserError(
            f"model.checkpoint: {path} cannot be read ({error}); give a folder with a config.json."
        ) from None


def _mapped(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"{path} is no file, and cannot be read as safetensors; fetch it again.")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors ({error}); fetch it again.") from None
