"""What the two of a group tell each other before they are one, over a channel that they have already.

`torch.distributed` asks a store for it, whose own kinds listen at a port without a secret, or want a folder
that both see.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from realexec.wire.channel import Channel
from realexec.wire.frames import ProtocolError


def pair_store(channel: Channel) -> Any:
    """A `torch.distributed.Store` of the two ends of a channel; nothing else is said on it meanwhile."""
    from torch import distributed

    class PairStore(distributed.Store):
        """What one end sets, the other end has once it waits for it."""

        def __init__(self) -> None:
            super().__init__()
            self._known: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self._known[key] = value.encode() if isinstance(value, str) else bytes(value)
            channel.send({"type": "set", "key": key, "value": self._known[key].hex()})

        def get(self, key: str) -> bytes:
            while key not in self._known:
                head, _ = channel.receive()
                if head.get("type") != "set":
                    raise ProtocolError("a peer said something else before its group was made")
                self._known[str(head["key"])] = bytes.fromhex(str(head["value"]))
            return self._known[key]

        def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
            for key in keys:
                self.get(key)

        def check(self, keys: Sequence[str]) -> bool:
            return all(key in self._known for key in keys)

        def set_timeout(self, timeout: timedelta) -> None:
            """The channel has its own."""

    return PairStore()
