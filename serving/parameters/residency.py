"""How much of each part of a model is at each endpoint (replica or host): the control plane's book.

It is written by ``Loads`` from what the world reports, and when instances come and go. Whole copies in hosts'
memory and on SSDs stand in the caches and the parameter pool, which alone decide when they go; here a host
stands only while a load is on its way to it.
"""

from serving.vocabulary.actions import Endpoint
from serving.vocabulary.layers import Part

_WHOLE = -1


class Residency:
    """By endpoint and part: how many of its layers, from the first on, are there. No other count is kept."""

    __slots__ = ("_there",)

    def __init__(self) -> None:
        self._there: dict[Endpoint, dict[Part, int]] = {}

    def begin(self, endpoint: Endpoint, part: Part) -> None:
        """A load to this endpoint begins; layers that an earlier one left there in part do not count."""
        self._there.setdefault(endpoint, {})[part] = 0

    def came(self, endpoint: Endpoint, part: Part, layers: int, fully_loaded: bool) -> None:
        """So many layers are there by now, or all of it; not noted if the endpoint was lost meanwhile."""
        before = self._there.get(endpoint, {}).get(part)
        if before is None:
            return
        assert before != _WHOLE and before <= layers <= len(part), "a layer that was whole is not"
        self._there[endpoint][part] = _WHOLE if fully_loaded else layers

    def put(self, endpoint: Endpoint, part: Part) -> None:
        """All of the part is there, the embedding and the head with their layers."""
        self._there.setdefault(endpoint, {})[part] = _WHOLE

    def clear(self, endpoint: Endpoint) -> None:
        """Nothing is there any more."""
        self._there.pop(endpoint, None)

    def has(self, endpoint: Endpoint, part: Part) -> bool:
        """Whether all of the part is there."""
        return self._there.get(endpoint, {}).get(part) == _WHOLE

    def layers(self, endpoint: Endpoint, part: Part) -> int:
        """How many of its layers are there."""
        found = self._there.get(endpoint, {}).get(part, 0)
        return len(part) if found == _WHOLE else found

    def has_layers(self, endpoint: Endpoint, model: str, first: int, last: int) -> bool:
        """Whether layers [first, last) of a model are there."""
        return any(
            part.model == model and part.first <= first and last <= part.first + self.layers(endpoint, part)
            for part in self._there.get(endpoint, {})
        )
