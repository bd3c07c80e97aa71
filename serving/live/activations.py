"""Transfers of activations of live batches: those of the last layer that ran, or embedded prompts."""

from collections.abc import Container

from serving.kv.transfer_ids import TransferIds
from serving.live.pairs import LiveBatch
from serving.vocabulary.actions import Action, Send, StopSend


class Activations:
    """Transfers of one model's batches. ``bytes_per_token``: between two layers."""

    __slots__ = ("_bytes_per_token", "_model", "_moving", "_transfer_ids")

    def __init__(self, model: str, bytes_per_token: int, transfer_ids: TransferIds) -> None:
        self._model = model
        self._bytes_per_token = bytes_per_token
        self._transfer_ids = transfer_ids
        self._moving: dict[int, LiveBatch] = {}

    def send(self, source: int, target: int, batch: LiveBatch, why: str, actions: list[Action]) -> None:
        """Send a batch's activations from one instance to the other."""
        transfer = self._transfer_ids.begin(self._model)
        self._moving[transfer] = batch
        ids = tuple([request.id for request in batch.requests])
        size_bytes = batch.tokens * self._bytes_per_token
        actions.append(Send(transfer, "activations", ids, source, target, size_bytes, why))

    def activations_arrived(self, transfer: int) -> LiveBatch | None:
        """The batch of this transfer; None if it belongs to no batch, or the batch no longer needs it."""
        return self._moving.pop(transfer, None)

    def stop(self, batches: Container[LiveBatch], reason: str, actions: list[Action]) -> None:
        """Stop the transfers of these batches."""
        for stopped in [one for one, batch in self._moving.items() if batch in batches]:
            del self._moving[stopped]
            actions.append(StopSend(stopped, reason))
