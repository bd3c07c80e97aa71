"""State on its way between workers: KV and activations of requests.

The worker that has the state tells where it lies; the worker that is to have it reads it from there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from realexec.messages import Fetch, Fetched, Locate, Located, StopFetch
from realexec.world.holders import Holders
from realexec.world.slots import Slots
from serving.vocabulary.actions import Send
from serving.vocabulary.events import Event, Sent


@dataclass(slots=True)
class Transfer:
    """Between the workers of two slots; ``fetching``: whether the target's has been told where it lies."""

    action: Send
    source: int
    target: int
    fetching: bool = False


class SendBook:
    """All transfers under way. ``ended``: of each kind, how many came whole; ``moved_bytes``: so far."""

    def __init__(self, slots: Slots, holders: Holders, tell: Callable[[Event], None]) -> None:
        self._slots, self._holders, self._tell = slots, holders, tell
        self._open: dict[int, Transfer] = {}
        self.ended = {"kv": 0, "activations": 0}
        self.moved_bytes = {"kv": 0, "activations": 0}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, action: Send) -> None:
        """Ask the worker that has it where it lies; the other one is told of the requests beforehand."""
        source, target = self._slots.of(action.source), self._slots.of(action.target)
        lost = next((slot for slot in (source, target) if slot in self._slots.dead), None)
        if lost is not None:
            self._tell(Sent(action.transfer, 0, f"the worker in slot {lost} is lost"))
            return
        self._open[action.transfer] = Transfer(action, source, target)
        for request in action.requests:
            self._holders.hold(request, source)
            self._holders.hold(request, target)
        what = Locate(action.transfer, action.what, action.requests, action.layers, action.positions)
        self._slots.send(source, what)

    def located(self, message: Located) -> None:
        """It is known where the state lies."""
        transfer = self._open.get(message.transfer)
        if transfer is None:
            return  # it was stopped meanwhile
        transfer.fetching = True
        what = Fetch(message.transfer, transfer.action.what, transfer.source, message.places)
        self._slots.send(transfer.target, what)

    def fetched(self, message: Fetched) -> None:
        """The state has come, or not all of it."""
        transfer = self._open.pop(message.transfer, None)
        if transfer is None:
            return
        what = transfer.action.what
        self.moved_bytes[what] += message.moved_bytes
        if not message.cause:
            self.ended[what] += 1
        self._tell(Sent(message.transfer, message.moved_bytes, message.cause))

    def stop(self, number: int, cause: str) -> None:
        """The controller needs it no more."""
        transfer = self._open.pop(number, None)
        if transfer is None:
            return  # it ended at this very moment
        if transfer.fetching:
            self._slots.send(transfer.target, StopFetch(number))
        self._tell(Sent(number, 0, cause))

    def lose(self, slot: int, cause: str) -> None:
        """A worker is gone: what it was to send or to have does not come."""
        for number in [one for one, found in self._open.items() if slot in (found.source, found.target)]:
            self.stop(number, cause)
