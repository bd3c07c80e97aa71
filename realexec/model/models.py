"""The model of a run: its configuration, its dtype and device, and the source of its parameters."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from realexec.memory.device import CPU, device_of
from realexec.model.layer_layout import LayerLayout, Parameters
from realexec.model.weight_sources import (
    EMBEDDING_TABLE,
    HEAD,
    SafetensorsSource,
    SeededSource,
    WeightSource,
    json_object,
)
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange

# The families whose decoder layers the model runner executes: same submodule names, full causal attention.
FAMILIES: Final = ("llama", "mistral", "qwen2", "qwen3")

# Standard deviation of random weights. With the families' own 0.02 small models repeat one token, and then
# equal tokens would prove nothing.
INITIALIZER_RANGE: Final = 0.2

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Keys of this program beside those of the family's configuration.
_OURS: Final = ("checkpoint", "dtype", "device")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model and how to run it. ``keys``: the given keys of its configuration.

    ``checkpoint``: the folder with its parameters; None: they are random.
    """

    keys: Mapping[str, Any]
    config: Any
    checkpoint: Path | None
    dtype: torch.dtype
    device: str

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return int(self.config.num_hidden_layers)

    def source(self, seed: int) -> WeightSource:
        """Return the source of its parameters: its checkpoint, or random numbers of ``seed``."""
        tied = self.config.tie_word_embeddings
        if self.checkpoint is not None:
            return SafetensorsSource(self.checkpoint, tied)
        return SeededSource(self.keys, seed, self.config.initializer_range, tied)

    def skeleton(self) -> PreTrainedModel:
        """Build its modules without parameters, on the device ``meta``, which has no memory."""
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                self.config, dtype=self.dtype, attn_implementation="sdpa"
            )
        # No checkpoint holds its frequencies; the module computes them.
        with torch.device(self.device):
            model.model.rotary_emb = type(model.model.rotary_emb)(config=self.config)
        model.train(False)
        return model

    def units(self) -> list[Parameters]:
        """Names and shapes of every unit's parameters. Takes tens of milliseconds, as it builds modules."""
        return units_of_skeleton(self.skeleton(), self.layers)

    def layout(
        self, layers: LayerRange | None = None, units: Sequence[Parameters] | None = None
    ) -> LayerLayout:
        """Lay out the parameters of these layers (None: of all) in one stretch of memory; ``units``: the
        result of `units`, if the caller has it."""
        units = self.units() if units is None else units
        whole = LayerRange(0, self.layers) if layers is None else layers
        return LayerLayout(units, self.dtype.itemsize, whole, self.config.tie_word_embeddings)


def model_spec(model: Mapping[str, Any]) -> ModelSpec:
    """Read a model's keys: those of the family's `transformers` configuration (``hidden_size``,
    ``num_hidden_layers``, ...); ``model_type`` selects the family (default ``llama``), ``initializer_range``
    is `INITIALIZER_RANGE` unless given. Further keys: ``dtype`` (float32 or bfloat16), ``device``
    (`realexec.memory.device`), and ``checkpoint``, a folder with config.json and safetensors files, whose
    configuration is then used.

    Raises UserError for unknown keys, other families, sliding windows and devices that this machine lacks.
    """
    keys = {key: value for key, value in model.items() if key not in _OURS}
    checkpoint = None if model.get("checkpoint") is None else Path(model["checkpoint"]).expanduser()
    config = _config(keys) if checkpoint is None else _config_of_checkpoint(checkpoint, keys)
    dtype = str(model.get("dtype", "float32"))
    if dtype not in DTYPES:
        raise UserError(f"model.dtype is {dtype!r}; write one of {', '.join(DTYPES)}.")
    return ModelSpec(
        keys, config, checkpoint, DTYPES[dtype], device_of(str(model.get("device", CPU))).torch_name
    )


def build_model(model: Mapping[str, Any], seed: int) -> PreTrainedModel:
    """Build the whole model without layouts, as the reference that workers are checked against."""
    spec = model_spec(model)
    built, source = spec.skeleton(), spec.source(seed)
    tied = spec.config.tie_word_embeddings
    parameters = {
        name: source.read(name, tuple(parameter.shape)).to(spec.device, spec.dtype, copy=True)
        for name, parameter in built.named_parameters(remove_duplicate=False)
        if not (tied and name == HEAD)
    }
    if tied:
        parameters[HEAD] = parameters[EMBEDDING_TABLE]
    built.load_state_dict(parameters, assign=True)
    built.tie_weights()
    built.requires_grad_(False)
    return built


def units_of_skeleton(skeleton: PreTrainedModel, layers: int) -> list[Parameters]:
    """Names and shapes of the parameters of every unit: embedding, layers, head."""
    units: list[dict[str, tuple[int, ...]]] = [{} for _ in range(layers + 2)]
    for name, parameter in skeleton.named_parameters(remove_duplicate=False):
        if name.startswith("model.layers."):
            unit = int(name.split(".")[2]) + 1
        else:
            unit = 0 if name == EMBEDDING_TABLE else layers + 1
        units[unit][name] = tuple(parameter.shape)
    return [*units]


def _config_of_checkpoint(folder: Path, given_keys: Mapping[str, Any]) -> Any:
    path = folder / "config.json"
    written = json_object(path)
    for key, value in given_keys.items():
        if key != "initializer_range" and key in written and written[key] != value:
            raise UserError(f"model.{key} is {value!r}, but {path} says {written[key]!r}; leave it out.")
    try:
        config = type(AutoConfig.for_model(_family(written))).from_dict(written)
    except Exception as error:  # huggingface_hub checks values, and raises classes of its own
        reason = " ".join(str(error).split())
        raise UserError(
            f"model.checkpoint: {path} describes no model ({reason}); give a folder with a config.json."
        ) from None
    _refuse_sliding_window(config)
    return config


def _family(keys: Mapping[str, Any]) -> str:
    family = str(keys.get("model_type", "llama"))
    if family not in FAMILIES:
        raise UserError(f"model.model_type is {family!r}, but real workers run one of {', '.join(FAMILIES)}.")
    return family


def _config(given: Mapping[str, Any]) -> Any:
    family = _family(given)
    # transformers writes into nested values (rope_parameters), so the caller's mapping must not be shared.
    keys = {"initializer_range": INITIALIZER_RANGE, **copy.deepcopy(dict(given))}
    keys.pop("model_type", None)
    known = AutoConfig.for_model(family).to_dict()
    unknown = sorted(set(keys) - set(known))
    if unknown:
        raise UserError(
            f"model.{unknown[0]} is not a key of a {family} configuration; remove it or correct it."
        )
    config = AutoConfig.for_model(family, **keys)
    _refuse_sliding_window(config)
    return config


def _refuse_sliding_window(config: Any) -> None:
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    slides = "sliding_attention" in kinds if kinds else window is not None
    if slides and window < config.max_position_embeddings:
        raise UserError(
            f"model.sliding_window is {window}, but real workers only run full attention; "
            "set it to null or to at least model.max_position_embeddings."
        )
