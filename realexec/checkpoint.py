"""Writing a model as a checkpoint folder, from which workers then load it layer by layer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from realexec.models import ModelSpec, build_model, model_spec
from realexec.weight_sources import HEAD, ONE_FILE


def write_checkpoint(model: Mapping[str, Any], seed: int, folder: Path) -> None:
    """The model that ``model`` and ``seed`` give, as a folder for ``model.checkpoint`` and others."""
    spec = model_spec(model)
    write_tensors(spec, dict(build_model(model, seed).named_parameters()), folder)


def write_tensors(spec: ModelSpec, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """config.json and one safetensors file; a tied head is not written."""
    from safetensors.torch import save_file

    kept = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in tensors.items()
        if not (spec.config.tie_word_embeddings and name == HEAD)
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(kept, folder / ONE_FILE, metadata={"format": "pt"})
    dtype = str(spec.dtype).removeprefix("torch.")
    config = {**spec.config.to_dict(), "dtype": dtype, "architectures": [_architecture(spec)]}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _architecture(spec: ModelSpec) -> str:
    return type(spec.skeleton()).__name__
