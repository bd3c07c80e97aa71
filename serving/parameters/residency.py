"""How far each part of a model has come to each stop: the control plane's one book of loaded layers.

It is written by ``Loads`` from what the world reports, and when instances come and go. Whole copies in hosts'
memory and on SSDs stand in the caches and the parameter pool, which alone decide when they go; here a host
stands only while a load is on its way to it.
"""

from serving.vocabulary.actions import Stop
from serving.vocabulary.layers import Part

_WHOLE = -1


class Residency:
    """By stop and part how many layers, from the part's first on, are there; others ask and keep no count."""

    __slots__ = ("_there",)

    def __init__(self) -> None:
        self._there: dict[Stop, dict[Part, int]] = {}

    def begin(self, stop: Stop, part: Part) -> None:
        """A load to this stop begins; layers that an earlier one left there in part do not count."""
        self._there.setdefault(stop, {})[part] = 0

    def came(self, stop: Stop, part: Part, layers: int, whole: bool) -> None:
        """So many layers are there by now, or all of it; nothing is where the stop was lost meanwhile."""
        before = self._there.get(stop, {}).get(part)
        if before is None:
            return
        assert before != _WHOLE and before <= layers <= len(part), "a layer that was whole is not"
        self._there[stop][part] = _WHOLE if whole else layers

    def put(self, stop: Stop, part: Part) -> None:
        """All of the part is there, the embedding and the head with their layers."""
        self._there.setdefault(stop, {})[part] = _WHOLE

    def clear(self, stop: Stop) -> None:
        """Nothing is there any more."""
        self._there.pop(stop, None)

    def has(self, stop: Stop, part: Part) -> bool:
        """Whether all of the part is there."""
        return self._there.get(stop, {}).get(part) == _WHOLE

    def layers(self, stop: Stop, part: Part) -> int:
        """How many of its layers are there."""
        found = self._there.get(stop, {}).get(part, 0)
        return len(part) if found == _WHOLE else found

    def has_layers(self, stop: Stop, model: str, first: int, last: int) -> bool:
        """Whether layers [first, last) of a model are there."""
        return any(
            part.model == model and part.first <= first and last <= part.first + self.layers(stop, part)
            for part in self._there.get(stop, {})
        )
