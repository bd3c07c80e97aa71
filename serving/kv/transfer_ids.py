"""The ids of transfers between replicas."""


class TransferIds:
    """Counted over all models of a controller; each is of one model until its end has been told."""

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
        """Whose it was; it has ended, whole or stopped."""
        return self._models.pop(transfer)
