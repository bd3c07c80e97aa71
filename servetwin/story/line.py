"""One line of a story, and the format of its numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from serving.vocabulary.actions import Endpoint
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.units import NS_PER_S

_UNITS: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_PLACES: Final = {"replica": "instance {}", "host": "the memory of host {}", "ssd": "the SSD of host {}"}


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a story. ``now_ns``: the time of the event that the line describes.

    ``why``: the reason in the journal, or empty.
    """

    now_ns: int
    what: str
    why: str = ""


Lines = Iterator[StoryLine]


def seconds(ns: int) -> str:
    """Format a time to the microsecond."""
    return f"{ns / NS_PER_S:.6f} s"


def count(number: int, noun: str) -> str:
    """Return ``1 step``, ``2 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def tokens(start: int, amount: int) -> str:
    """Format positions, counted from 1, so that the last one of a prompt is its length."""
    last = start + amount
    return f"token {last:,}" if amount == 1 else f"tokens {start + 1:,} to {last:,}"


def layer_range(layers: tuple[int, int]) -> str:
    """Format layers [first, last)."""
    first, last = layers
    return f"layer {first}" if last == first + 1 else f"layers {first} to {last - 1}"


def layers_there(event: Loaded | LoadStopped) -> str:
    """Format the layers that a load brought: their number, and which if not the model's first."""
    if not event.first or not event.layers:
        return count(event.layers, "layer")
    return layer_range((event.first, event.first + event.layers))


def size(amount_bytes: int) -> str:
    """Format a size in decimal units."""
    for unit, name in _UNITS:
        if amount_bytes >= unit:
            return f"{amount_bytes / unit:.3g} {name}"
    return count(amount_bytes, "byte")


def numbers(ids: Sequence[int], most: int = 8) -> str:
    """Format the first ids, and the number of the others."""
    shown = ", ".join(map(str, ids[:most]))
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"


def places(stops: Sequence[Endpoint]) -> str:
    """Format the sources or targets of parameters."""
    return ", ".join(_PLACES.get(kind, "remote storage").format(number) for kind, number in stops)


def share(part_ns: int, whole_ns: int) -> str:
    """Format a share as per cent."""
    return f"{100 * part_ns / whole_ns:.3g} %" if whole_ns else "0 %"
