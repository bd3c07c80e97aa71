"""Model shapes from a ``config.json`` in the format of Hugging Face repositories."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.config_path import CONFIG_FILE
from hwmodels.models.generation_config import samples_with_top_p
from hwmodels.models.hf_families import (
    ARCHITECTURES,
    DTYPES,
    FAMILIES,
    language_model,
    of_model_type,
)
from hwmodels.models.hf_precision import precision_of, stated, without
from hwmodels.models.hf_quantised import INSTEAD, refuse_other_bytes, refuse_quantised
from hwmodels.models.hf_section import Section, echo
from hwmodels.models.llm_shape import LlmShape
from hwmodels.reading import read_limited

BYTES_OF_DTYPE: Final[Mapping[str, int]] = {"float16": 2, "bfloat16": 2, "float32": 4}
_MOST_BYTES: Final = 16 << 20  # the longest known ones have some hundred kB, of quantised models


def llm_shape_from_config(path: Path | str, name: str | None = None) -> LlmShape:
    """The shape in a Hugging Face ``config.json`` (the file, or the folder that contains one).

    Supports the architectures of ``ARCHITECTURES``; for a multimodal model it uses the ``text_config``.
    ``name`` None: the folder's name. Raises HardwareError naming file and key, and what to write instead.
    """
    outer = _read(Path(path))
    section = _language_model(outer)
    said = stated(outer.path, outer.data)
    rest = without(outer.data, said.key) if said is not None and said.key else outer.data
    refuse_quantised(outer.path, rest, instead=f"this form is not read: {INSTEAD}", beside_too=said is None)
    architecture = _architecture(section, outer)
    fields, notes = ARCHITECTURES[architecture](section)
    dtype = _dtype((section, outer), architecture)
    if section.prefix:
        notes = ("the text_config of a multimodal model, without what encodes images or sound", *notes)
    shape = LlmShape(
        name=name or outer.path.resolve().parent.name,
        bytes_per_parameter=BYTES_OF_DTYPE[dtype],
        top_p=samples_with_top_p(
            outer.path.parent, architecture, fields["vocab"], fields["max_context_tokens"]
        ),
        source="; ".join((f"{outer.path}, {architecture}, {dtype}", *notes)),
        **fields,
    )
    if said is not None:
        precision, mixed = precision_of(said, shape, architecture)
        by = () if precision is None else (f"{precision.text} by {said.key or said.path.name}",)
        shape = replace(shape, precision=precision, source="; ".join((shape.source, *by, *mixed)))
    refuse_other_bytes(outer.path, shape.weight_bytes, shape.formats.text, shape.quantised)
    return shape


def _read(file: Path) -> Section:
    give = f"give a model's {CONFIG_FILE} or the folder that holds one"
    try:
        file = file / CONFIG_FILE if file.is_dir() else file
        data = json.loads(read_limited(file, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise HardwareError(f"{file} cannot be read ({error.strerror}): {give}") from error
    except (ValueError, RecursionError) as error:
        raise HardwareError(f"{file} is not JSON ({error}): {give}") from error
    if not isinstance(data, dict):
        raise HardwareError(f"{file} is not a JSON object: {give}")
    return Section(file, "", data)


def _language_model(outer: Section) -> Section:
    """The whole file, or the ``text_config`` of a multimodal model.

    What it leaves out about tied embeddings may stand outside.
    """
    inner = outer.data.get("text_config")
    if inner is None:
        return outer
    if not isinstance(inner, dict):
        raise outer.refusal("text_config", "an object with the language model's keys")
    outside = {key: outer.data[key] for key in ("tie_word_embeddings",) if key in outer.data}
    return Section(outer.path, "text_config.", inner).having(outside)


def _architecture(section: Section, outer: Section) -> str:
    """The architecture of the language model, from ``architectures`` or ``model_type``.

    A text_config without both is told by the whole file.
    """
    for part in (section, outer):
        named, model_type = part.data.get("architectures"), part.data.get("model_type")
        if named is None and isinstance(model_type, str):
            named = [of_model_type(model_type)]
        if named is not None:
            break
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named) or len(named) != 1:
        raise section.refusal("architectures", f"one of {', '.join(ARCHITECTURES)} in a list")
    architecture = language_model(named[0])
    if architecture not in ARCHITECTURES:
        raise HardwareError(
            f"{section.path} describes a {echo(named[0])}, which is not read; {FAMILIES} are: write one "
            'with the same layers into "architectures", such as LlamaForCausalLM, or the shape into '
            "hwmodels/catalogue/models.yaml"
        )
    return architecture


def _dtype(sections: Sequence[Section], architecture: str) -> str:
    """The ``dtype``, or its older name ``torch_dtype``; for a multimodal model it may be outside."""
    known = f"one of {', '.join(BYTES_OF_DTYPE)}"
    for section in sections:
        for key in ("dtype", "torch_dtype"):
            value = section.data.get(key)
            if isinstance(value, str) and value in BYTES_OF_DTYPE:
                return value
            if value is not None:
                raise section.refusal(key, known)
    if architecture in DTYPES:
        return DTYPES[architecture]
    raise sections[0].refusal("torch_dtype", known)
