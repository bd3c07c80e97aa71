"""How much of each part of a model each endpoint (replica or host) has: the control plane's book.

``Loads`` writes it from the world's reports; starts and releases of instances change it, too. Whole copies in
hosts' memory and on SSDs are in the caches and the parameter pool, which alone decide when they end. A host
is in this book only during a load to it.
"""

from serving.vocabulary.actions import Endpoint
from serving.vocabulary.layers import Part

_WHOLE = -1


class Residency:
    """By endpoint and part: the number of loaded layers, from the first on. No other count is kept."""

    __slots__ = ("_there",)

    def __init__(self) -> None:
        self._there: dict[Endpoint, dict[Part, int]] = {}

    def begin(self, endpoint: Endpoint, part: Part) -> None:
        """Begin a load to this endpoint; layers of an earlier partial load do not count."""
        self._there.setdefault(endpoint, {})[part] = 0

    def came(self, endpoint: Endpoint, part: Part, layers: int, fully_loaded: bool) -> None:
        """Note the number of loaded layers, or completion; ignored if the endpoint was lost meanwhile."""
        before = self._there.get(endpoint, {}).get(part)
        if before is None:
            return
        assert before != _WHOLE and before <= layers <= len(part), "a layer that was whole is not"
        self._there[endpoint][part] = _WHOLE if fully_loaded else layers

    def put(self, endpoint: Endpoint, part: Part) -> None:
        """Note that all of the part is loaded, including embedding and head."""
        self._there.setdefault(endpoint, {})[part] = _WHOLE

    def clear(self, endpoint: Endpoint) -> None:
        """Note that the endpoint has nothing any more."""
        self._there.pop(endpoint, None)

    def has(self, endpoint: Endpoint, part: Part) -> bool:
        """Whether the endpoint has all of the part."""
        return self._there.get(endpoint, {}).get(part) == _WHOLE

    def layers(self, endpoint: Endpoint, part: Part) -> int:
        """How many layers of the part the endpoint has."""
        layers = self._there.get(endpoint, {}).get(part, 0)
        return len(part) if layers == _WHOLE else layers

    def has_layers(self, endpoint: Endpoint, model: str, first: int, last: int) -> bool:
        """Whether the endpoint has layers [first, last) of a model."""
        return any(
            part.model == model and part.first <= first and last <= part.first + self.layers(endpoint, part)
            for part in self._there.get(endpoint, {})
        )
