"""The ids of transfers between replicas."""


class TransferIds:
    """Issues ids unique over all models of a controller; has the model of each transfer until it ends."""

    __slots__ = ("_models", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._models: dict[int, str] = {}

    def begin(self, model: str) -> int:
        """The id of a new transfer."""
        transfer = self._next
        self._next = transfer + 1
        self._models[transfer] = model
        return transfer

    def model_of(self, transfer: int) -> str:
        """The model of a transfer that has ended, complete or stopped; the id is forgotten."""
        return self._models.pop(transfer)
