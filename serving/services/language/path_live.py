"""Lets replicas of a language model's stages run layers while they load; a serving replica runs the rest.

A batch with a loading replica on its path passes two replicas of that stage: the loading one for the layers
it has, then a serving one for the others. Each keeps the KV of the layers that it runs. As more layers load,
the loading replica takes over more of them; with all of them, the batch passes it alone. KV of those layers
moves (``serving.services.language.path_moves``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from serving.engine.engine import Engine
from serving.vocabulary.actions import Action

# Called when a replica has more layers to run, or gets no more: batches over it may change their paths.
Changed = Callable[[int, list[Action]], None]


class LiveStages(Protocol):
    """The stage replicas that work while they load, as the loads use them."""

    def begin(self, target: int) -> None:
        """The parameters of a stage begin to load."""

    def loads(self, target: int) -> bool:
        """Whether the replica is loading."""

    def layers_loaded(self, target: int, layers: int, fully_loaded: bool, actions: list[Action]) -> None:
        """This many layers are loaded; with all of them the replica serves."""

    def stop(self, target: int, actions: list[Action]) -> None:
        """The load stops: no more layers come."""


class PathLive:
    """Loading replicas of one model. ``layers``: for each replica, its number of loaded layers."""

    __slots__ = ("_changed", "_engines", "begun", "layers")

    def __init__(self, engines: Mapping[int, Engine], changed: Changed) -> None:
        self._engines, self._changed = engines, changed
        self.layers: dict[int, int] = {}
        self.begun = 0  # requests that joined a batch with a loading replica on its path

    def begin(self, target: int) -> None:
        """The parameters of a stage begin to load."""
        self.layers[target] = 0

    def loads(self, target: int) -> bool:
        """Whether the replica is loading."""
        return target in self.layers

    def layers_loaded(self, target: int, layers: int, fully_loaded: bool, actions: list[Action]) -> None:
        """Record loaded layers. The last one, with what follows it, counts once the replica serves."""
        if fully_loaded:
            del self.layers[target]
        else:
            most = len(self._engines[target].replica.part) - 1
            self.layers[target] = max(self.layers[target], min(layers, most))
        self._changed(target, actions)

    def stop(self, target: int, actions: list[Action]) -> None:
        """Stop a load: batches over the replica look for another path."""
        del self.layers[target]
        self._changed(target, actions)

    def joined(self, path: Iterable[int]) -> None:
        """Count a request that joined a batch on this path."""
        self.begun += any(self.loads(replica) for replica in path)

    def lose(self, target: int) -> None:
        """Forget a lost replica."""
        self.layers.pop(target, None)
