"""Live scaling for a service none of whose instances works while it loads: all queries are empty."""

from collections.abc import Iterable

from serving.engine.engine import Engine
from serving.engine.progress import Progress
from serving.kv.moves import Moves
from serving.kv.pieces import Piece, Pieces
from serving.kv.transfer_ids import TransferIds
from serving.live.never import never_live
from serving.live.pairs import LivePair
from serving.live.scaling import LiveScaling
from serving.vocabulary.actions import Action
from serving.vocabulary.kv_bytes import NO_KV
from serving.vocabulary.request import Request


class Nobody:
    """A LiveHost without queue or partners."""

    __slots__ = ("_model",)

    def __init__(self, model: str) -> None:
        self._model = model

    @property
    def model(self) -> str:
        """The model of the service."""
        return self._model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """Always 0."""
        return 0

    def head_arrival_ns(self) -> int | None:
        """Always None."""
        return None

    def fetch(self, engine: Engine) -> list[Request]:
        """Always empty."""
        return []

    def partners(self) -> list[int]:
        """Always empty."""
        return []

    def helpers(self) -> list[int]:
        """Always empty."""
        return []

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Always False."""
        return False

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Always False."""
        return False

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """Do nothing: no batch is ever pulled."""

    def dropped(self, engine: Engine) -> None:
        """Do nothing: no batch is ever pulled."""

    def give_back(self, requests: Iterable[Request]) -> None:
        """Do nothing: no request is ever taken."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """Do nothing: layers never run separately."""


def nobody_live(model: str, transfer_ids: TransferIds) -> LiveScaling:
    """A LiveScaling for a service that needs one but never has live instances."""
    return LiveScaling(never_live(), {}, Nobody(model), Moves({}, Pieces({}, NO_KV), transfer_ids))
