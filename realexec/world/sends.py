"""Transfers of state between workers: KV and activations of requests.

The source worker reports where the state lies; the target worker reads it from there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from realexec.wire.messages import Fetch, Fetched, Locate, Located, StopFetch
from realexec.world.holders import Holders
from realexec.world.slots import Slots
from serving.vocabulary.actions import Send
from serving.vocabulary.events import Event, Sent


@dataclass(slots=True)
class Transfer:
    """A transfer between two slots; ``fetching``: whether the target has received the state's location."""

    action: Send
    source: int
    target: int
    fetching: bool = False


class SendBook:
    """All transfers in progress. ``ended``: number completed, by kind; ``moved_bytes``: so far, by kind."""

    def __init__(self, slots: Slots, holders: Holders, tell: Callable[[Event], None]) -> None:
        self._slots, self._holders, self._tell = slots, holders, tell
        self._open: dict[int, Transfer] = {}
        self.ended = {"kv": 0, "activations": 0}
        self.moved_bytes = {"kv": 0, "activations": 0}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, action: Send) -> None:
        """Send both workers the requests, then ask the source worker where the state lies."""
        source, target = self._slots.of(action.source), self._slots.of(action.target)
        lost = next((slot for slot in (source, target) if slot in self._slots.dead), None)
        if lost is not None:
            self._tell(Sent(action.transfer, 0, f"the worker in slot {lost} is lost"))
            return
        self._open[action.transfer] = Transfer(action, source, target)
        for request in action.requests:
            self._holders.hold(request, source)
            self._holders.hold(request, target)
        locate = Locate(action.transfer, action.what, action.requests, action.layers, action.positions)
        self._slots.send(source, locate)

    def located(self, message: Located) -> None:
        """Send the state's location to the target worker, which reads it."""
        transfer = self._open.get(message.transfer)
        if transfer is None:
            return  # it was stopped meanwhile
        transfer.fetching = True
        fetch = Fetch(message.transfer, transfer.action.what, transfer.source, message.places)
        self._slots.send(transfer.target, fetch)

    def fetched(self, message: Fetched) -> None:
        """End a transfer: all of the state has come, or the worker reports a cause."""
        transfer = self._open.pop(message.transfer, None)
        if transfer is None:
            return
        kind = transfer.action.what
        self.moved_bytes[kind] += message.moved_bytes
        if not message.cause:
            self.ended[kind] += 1
        self._tell(Sent(message.transfer, message.moved_bytes, message.cause))

    def stop(self, number: int, cause: str) -> None:
        """Stop a transfer that the controller no longer needs."""
        transfer = self._open.pop(number, None)
        if transfer is None:
            return  # it has just ended
        if transfer.fetching:
            self._slots.send(transfer.target, StopFetch(number))
        self._tell(Sent(number, 0, cause))

    def lose(self, slot: int, cause: str) -> None:
        """Stop all transfers from or to a lost worker."""
        for number in [one for one, found in self._open.items() if slot in (found.source, found.target)]:
            self.stop(number, cause)
