"""Connections between workers: the worker of one stage tells the next that a pass has ended.

A worker connects to another one before its first message to it. The connecting worker proves that it knows
the run's secret, as workers do to the driver.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError
from realexec.wire.listener import Listener, dial
from realexec.wire.messages import CODEC, Passed


class Listening(Protocol):
    """The method of `realexec.worker.compute_inbox.ComputeInbox` that `StageChannels` uses."""

    def listen_to(self, channel: Channel) -> None:
        """Read this channel's frames too."""


class StageChannels:
    """The worker in slot ``slot`` and its connections to others. ``address``: where they reach it."""

    def __init__(self, slot: int, run: Mapping[str, Any], host: str, inbox: Listening) -> None:
        """``run``: ``secret`` and ``address`` of the driver. ``host``: the address at which others reach this
        worker, if the driver is reached by TCP. Otherwise the worker listens on a socket beside the driver's,
        in a folder that the driver removes."""
        self._slot, self._secret = slot, bytes.fromhex(run["secret"])
        self._addresses: Sequence[Mapping[str, Any]] = ()
        self._channels: dict[int, Channel] = {}
        folder = run["address"].get("path")
        self._listener = Listener(
            self._secret,
            lambda channel, _: inbox.listen_to(channel),
            tcp_host=None if folder else host,
            path=f"{folder}.{slot}" if folder else None,
        )
        self.address = self._listener.address

    def meet(self, addresses: Sequence[Mapping[str, Any]]) -> None:
        """Keep the addresses of the workers of all slots."""
        self._addresses = addresses

    def tell(self, slot: int, message: Passed) -> str:
        """Send a message to the worker in this slot; returns why it failed, or an empty string."""
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
        """Close the listener and all connections."""
        self._listener.close()
        for channel in self._channels.values():
            channel.close()
