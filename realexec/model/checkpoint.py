"""Write a model as a checkpoint folder, from which workers load it layer by layer."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from realexec.model.models import ModelSpec, model_spec
from realexec.model.weight_sources import HEAD, ONE_FILE, random_parameter


def write_random_checkpoint(model: Mapping[str, Any], seed: int, spread: float, folder: Path) -> int:
    """Write a folder like that of a real model of that size, with random parameters drawn on its device.

    They differ from those of a run without a checkpoint: a GPU draws 8 billion in a second, a CPU core in a
    minute. Returns the number of bytes of the parameters.
    """
    spec = model_spec(model)
    generator = torch.Generator(spec.device).manual_seed(seed)
    parameters = spec.skeleton().named_parameters()
    tensors = {
        name: random_parameter(name, tuple(parameter.shape), spread, generator).to(spec.dtype).cpu()
        for name, parameter in parameters
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as beside:
        write_tensors(spec, tensors, Path(beside) / "made")
        (Path(beside) / "made").rename(folder)  # the folder appears complete or not at all
    return sum(tensor.nbytes for tensor in tensors.values())


def write_tensors(spec: ModelSpec, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write config.json and one safetensors file, without the head if it is tied."""
    from safetensors.torch import save_file

    own_tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in tensors.items()
        if not (spec.config.tie_word_embeddings and name == HEAD)
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(own_tensors, folder / ONE_FILE, metadata={"format": "pt"})
    dtype = str(spec.dtype).removeprefix("torch.")
    config = {**spec.config.to_dict(), "dtype": dtype, "architectures": [_architecture(spec)]}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _architecture(spec: ModelSpec) -> str:
    return type(spec.skeleton()).__name__
