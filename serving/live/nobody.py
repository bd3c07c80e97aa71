"""Live scaling of a service none of whose instances works while it loads: it takes from nobody."""

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
from serving.vocabulary.request import Request


class Nobody:
    """LiveHost without a queue."""

    __slots__ = ("_model",)

    def __init__(self, model: str) -> None:
        self._model = model

    @property
    def model(self) -> str:
        """Whose requests these would be."""
        return self._model

    def backlog_tokens(self, batches: Iterable[Request]) -> int:
        """None wait."""
        return 0

    def head_arrival_ns(self) -> int | None:
        """None waits."""
        return None

    def fetch(self, engine: Engine) -> list[Request]:
        """None is taken."""
        return []

    def partners(self) -> list[int]:
        """Nobody."""
        return []

    def helpers(self) -> list[int]:
        """Nobody."""
        return []

    def may_run_layers(self, engine: Engine, pair: LivePair | None) -> bool:
        """Never."""
        return False

    def holds(self, engine: Engine, requests: Iterable[Request]) -> bool:
        """Never."""
        return False

    def keep(self, engine: Engine, requests: Iterable[Request]) -> None:
        """Nothing was pulled."""

    def dropped(self, engine: Engine) -> None:
        """Nothing was pulled."""

    def give_back(self, requests: Iterable[Request]) -> None:
        """Nothing was taken."""

    def computed(
        self,
        engine: Engine,
        done: list[Progress],
        first_layers: Piece | None,
        tokens: int,
        actions: list[Action],
    ) -> None:
        """No layers are run apart."""


def nobody_live(model: str, transfer_ids: TransferIds) -> LiveScaling:
    """Of a service that is asked for it and has none."""
    return LiveScaling(never_live(), {}, Nobody(model), Moves({}, Pieces({}, 0), transfer_ids))
