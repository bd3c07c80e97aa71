"""Replicas of a language model's stages that run layers while they load: the rest is another one's.

A batch whose path has a replica that loads passes two of that stage: the one that loads, for the layers that
it has, and behind it one that serves, for the others. Each keeps the KV of the layers that it runs. When more
layers are there, more of them are its own, and when all are, the batch passes it alone: KV of those layers
moves (``serving.services.path_moves``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from serving.engine.engine import Engine
from serving.vocabulary.actions import Action

# A replica has more layers to run, or will get no more: batches over it may have another path.
Changed = Callable[[int, list[Action]], None]


class LiveStages(Protocol):
    """Stage replicas that work while they load."""

    def begin(self, target: int) -> None:
        """The parameters of a stage are on their way."""

    def loads(self, target: int) -> bool:
        """Whether it is one of these."""

    def layers_loaded(self, target: int, layers: int, fully_loaded: bool, actions: list[Action]) -> None:
        """So many layers are there; with all of them it serves."""

    def stop(self, target: int, actions: list[Action]) -> None:
        """No more layers come."""


class PathLive:
    """Of one model. ``layers``: how many of its first ones each replica that loads has, and runs."""

    __slots__ = ("_changed", "_engines", "begun", "layers")

    def __init__(self, engines: Mapping[int, Engine], changed: Changed) -> None:
        self._engines, self._changed = engines, changed
        self.layers: dict[int, int] = {}
        self.begun = 0  # requests that joined a batch which a replica that loads was to pass

    def begin(self, target: int) -> None:
        """The parameters of a stage are on their way."""
        self.layers[target] = 0

    def loads(self, target: int) -> bool:
        """Whether it is one of these."""
        return target in self.layers

    def layers_loaded(self, target: int, layers: int, fully_loaded: bool, actions: list[Action]) -> None:
        """The last layer counts with all that is behind it, when the replica joins its stage."""
        if fully_loaded:
            del self.layers[target]
        else:
            most = len(self._engines[target].replica.part) - 1
            self.layers[target] = max(self.layers[target], min(layers, most))
        self._changed(target, actions)

    def stop(self, target: int, actions: list[Action]) -> None:
        """Batches over it look for another path."""
        del self.layers[target]
        self._changed(target, actions)

    def joined(self, path: Iterable[int]) -> None:
        """A request joined a batch."""
        self.begun += any(self.loads(one) for one in path)

    def lose(self, target: int) -> None:
        """It is gone."""
        self.layers.pop(target, None)
