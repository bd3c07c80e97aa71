"""What each layer of a model in a ``config.json`` attends to: stated for each layer, or by a rule."""

from collections.abc import Mapping
from typing import Any, Final

from hwmodels.models.attention import FULL, LINEAR, SLIDING, LayerType
from hwmodels.models.hf_section import Fields, Notes, Section
from hwmodels.models.llm_shape import LONGEST_BOUNDING_WINDOW

_STATED: Final = "layer_types"
_KINDS: Final[Mapping[str, LayerType]] = {
    "full_attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": SLIDING,  # within the token's own chunk: at most as many tokens as a window
    "linear_attention": LINEAR,
}


def layer_kinds(section: Section, layers: int, otherwise: tuple[LayerType, ...]) -> tuple[LayerType, ...]:
    """The kinds that ``layer_types`` states, one for each layer; ``otherwise`` if it is not there."""
    stated = section.data.get(_STATED)
    if stated is None:
        return otherwise
    known = ", ".join(_KINDS)
    if not isinstance(stated, list) or not all(isinstance(kind, str) and kind in _KINDS for kind in stated):
        raise section.refusal(_STATED, f"a list of {known}")
    if len(stated) != layers:
        raise section.refusal(_STATED, f"one for each of num_hidden_layers {layers}")
    return tuple(_KINDS[kind] for kind in stated)


def every(period: int, kind: LayerType, others: LayerType, layers: int) -> tuple[LayerType, ...]:
    """``kind`` in the last of every ``period`` layers, ``others`` before it."""
    return tuple(kind if (layer + 1) % period == 0 else others for layer in range(layers))


def windows(
    section: Section, kinds: tuple[LayerType, ...], key: str = "sliding_window"
) -> tuple[Fields, Notes]:
    """Fields of windows, whose width is under ``key``; a note if they are treated as the whole context."""
    if SLIDING not in kinds:
        return {}, ()
    width = section.count(key)
    if FULL not in kinds:
        return {}, (f"attention over the whole context instead of a window of {width} tokens",)
    wide = width > LONGEST_BOUNDING_WINDOW
    notes = (f"KV of windows of {width} tokens is counted like that of the whole context",) if wide else ()
    return {"layer_types": kinds, "window_tokens": width}, notes


def window_of_all(section: Section, slides: bool, layers: int) -> tuple[Fields, Notes]:
    """Fields and notes of a family whose ``layer_types`` are all the same unless the file states them.

    ``slides``: the file has a window in use.
    """
    any_window: Any = section.data.get("sliding_window")
    alike: LayerType = SLIDING if slides and any_window is not None else FULL
    return windows(section, layer_kinds(section, layers, (alike,) * layers))
