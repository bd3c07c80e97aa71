"""A `torch.distributed` store with which two processes set up their group, over a channel they already have.

The stores that `torch.distributed` brings listen on a port without a secret, or need a shared folder.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from realexec.wire.channel import Channel
from realexec.wire.frames import ProtocolError


def pair_store(channel: Channel) -> Any:
    """Return a `torch.distributed.Store` for one end of a channel, which then carries nothing else."""
    from torch import distributed

    torch_names: Any = distributed  # of those that torch offers, its types do not list this one

    class PairStore(torch_names.Store):  # type: ignore[misc]
        """A key-value store. A value that one end sets reaches the other end when that end waits for it."""

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
                    raise ProtocolError("a peer sent an unexpected message before its group was made")
                self._known[str(head["key"])] = bytes.fromhex(str(head["value"]))
            return self._known[key]

        def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
            for key in keys:
                self.get(key)

        def check(self, keys: Sequence[str]) -> bool:
            return all(key in self._known for key in keys)

        def set_timeout(self, timeout: timedelta) -> None:
            """Do nothing: the channel has its own timeout."""

    return PairStore()
