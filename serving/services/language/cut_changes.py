"""Re-cuts a language model: its stages get other layers while its requests continue.

The replicas of the new cut load beside the old ones. When all new stages have a replica, new batches use
them. Running batches move there with their KV, each layer to the replica that then runs it, or end where they
are.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from serving.services.language.path_batch import PathBatch
from serving.services.language.path_moves import PathMoves
from serving.services.language.path_stages import PathStages
from serving.services.language.setup import LanguageSetup
from serving.services.stages.stage import Stage
from serving.vocabulary.actions import Action
from serving.vocabulary.layers import Part
from serving.vocabulary.request import Request


class CutHost(Protocol):
    """The service whose stages are re-cut. ``queue``: requests that are in no batch."""

    queue: deque[Request]
    batches: dict[int, PathBatch]

    def feed(self, actions: list[Action]) -> None:
        """Begin new batches for the waiting requests."""


class CutChanges:
    """The re-cuts of one model. ``made``: number completed; ``refused``: number abandoned.

    ``most_layers``: a GPU holds this many of any layers; 0: the model is never re-cut.
    """

    __slots__ = ("_host", "_moves", "_setup", "made", "most_layers", "refused", "stages")

    def __init__(
        self, setup: LanguageSetup, stages: PathStages, moves: PathMoves | None, host: CutHost
    ) -> None:
        self._setup, self.stages, self._moves, self._host = setup, stages, moves, host
        self.made = self.refused = 0
        self.most_layers = setup.most_layers

    def kept_from(self, parts: Sequence[Part]) -> str:
        """Why the model cannot be cut into these parts now; empty: it can."""
        prototypes, host = self._setup.prototypes, self._host
        if self.stages.coming:
            return "another cut comes"
        for part in parts:
            if part not in prototypes:
                return f"{part} do not fit on a GPU with KV"
        known = [*host.queue, *[member for batch in host.batches.values() for member in batch.members()]]
        longest = max([request.prompt_tokens + request.max_new_tokens for request in known], default=0)
        room = min([prototypes[one].longest_request_tokens for one in parts])
        return f"a request has {longest} tokens, a replica room for {room}" if longest > room else ""

    def propose(self, parts: Sequence[Part]) -> list[Stage]:
        """Announce the stages of a new cut; stages that are in both cuts stay."""
        return self.stages.propose(parts)

    def give_up(self) -> list[Stage]:
        """Abandon the new cut; returns the stages that only it has."""
        self.refused += 1
        return self.stages.give_up()

    def take(self, actions: list[Action]) -> list[Stage]:
        """Activate the new cut: batches move to its paths. Returns the stages that only the old cut had."""
        left = self.stages.take()
        self.made += 1
        if self._moves is not None:
            for replica in [member for stage in left for member in stage.fleet.alive()]:
                self._moves.wish(replica)
        self._host.feed(actions)
        return left
