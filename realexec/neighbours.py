"""Connections between workers, by which one stage of a model tells the next that a pass has ended.

A worker connects to another when it first has something for it. Who connects proves that it knows the secret
of the run, as workers do to the driver.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from realexec.messages import CODEC, Passed
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError
from realexec.wire.listener import Listener, dial


class Listening(Protocol):
    """What is needed of `realexec.ears.Ears`."""

    def listen_to(self, channel: Channel) -> None:
        """Take its frames too."""


class Neighbours:
    """Of the worker in one slot. ``address``: where others reach it."""

    def __init__(self, slot: int, run: Mapping[str, Any], host: str, ears: Listening) -> None:
        """``run``: ``secret`` and ``address`` of the driver. ``host``: the address at which others reach this
        worker, where the driver is reached by TCP; else it listens in the folder that the driver has for the
        run, which goes with the driver."""
        self._slot, self._secret = slot, bytes.fromhex(run["secret"])
        self._addresses: Sequence[Mapping[str, Any]] = ()
        self._channels: dict[int, Channel] = {}
        folder = run["address"].get("path")
        where = {"path": f"{folder}.{slot}"} if folder else {"tcp_host": host}
        self._listener = Listener(self._secret, lambda channel, _: ears.listen_to(channel), **where)
        self.address = self._listener.address

    def meet(self, addresses: Sequence[Mapping[str, Any]]) -> None:
        """Those of all slots."""
        self._addresses = addresses

    def tell(self, slot: int, message: Passed) -> str:
        """Why it does not reach the worker in this slot; empty: it was sent."""
        try:
            self._channel(slot).send(*CODEC.encode(message))
        except (ChannelClosed, ProtocolError, TimeoutError) as error:
            self._channels.pop(slot, None)
            return f"the worker in slot {slot} is not reached: {error}"
        return ""

    def _channel(self, slot: int) -> Channel:
        if slot not in self._channels:
            identity = {"slot": self._slot}
            self._channels[slot] = dial(dict(self._addresses[slot]), self._secret, identity)
        return self._channels[slot]

    def close(self) -> None:
        """Nobody is told anything any more."""
        self._listener.close()
        for channel in self._channels.values():
            channel.close()
