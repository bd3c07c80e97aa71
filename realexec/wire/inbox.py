"""Messages from many peers, read by the thread that takes them, so that a frame wakes no second thread.

With one reading thread per peer and a queue, each frame would wake two threads, which then wait for each
other's turn of the interpreter lock. Here the thread that takes waits for all connections at once.
"""

import queue
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError

Thing = TypeVar("Thing")
Take = Callable[[dict[str, Any], bytes], None]
Ended = Callable[[ChannelClosed | ProtocolError], None]
_WAKES: Final = 64
# epoll_wait(2) waits whole milliseconds; select(2) takes descriptors below this number on Linux (FD_SETSIZE).
_SELECTED: Final = 1024
_FINE_S: Final = 0.004


class Inbox(Generic[Thing]):
    """A queue: any thread may put, one thread takes. While that one waits it reads the connections."""

    def __init__(self) -> None:
        self._things: deque[Thing] = deque()
        self._new: deque[tuple[Channel, Take, Ended]] = deque()
        self._watched: dict[int, tuple[Channel, Take, Ended]] = {}
        self._poll = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._waker, self._woken = socket.socketpair()
        self._poll.register(self._woken.fileno(), select.POLLIN)
        self._waiting = False

    def put(self, thing: Thing) -> None:
        """Queue a thing behind those that wait."""
        self._things.append(thing)
        self._wake()

    def watch(self, channel: Channel, take: Take, ended: Ended) -> None:
        """Have the taking thread read this channel's frames too; ``take`` and ``ended`` may `put`."""
        self._new.append((channel, take, ended))
        self._wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Thing:
        """Take the next thing; queue.Empty if there is none within ``timeout`` seconds."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while not self._things:
            left_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
            self._look(left_s if block else 0.0)
            if not self._things and (not block or (until_s is not None and time.monotonic() >= until_s)):
                raise queue.Empty
        return self._things.popleft()

    def empty(self) -> bool:
        """Whether no thing waits; only the taking thread may call this."""
        if not self._things:
            self._look(0.0)
        return not self._things

    def close(self) -> None:
        """Read no more from connections; queued things can still be taken."""
        self._watched.clear()
        self._waker.close()
        self._woken.close()

    def _wake(self) -> None:
        if self._waiting:
            self._waker.send(b"!")

    def _look(self, wait_s: float | None) -> None:
        """Read what has arrived, after waiting at most ``wait_s`` for it."""
        if self._woken.fileno() < 0:
            return
        self._waiting = True
        while self._new:
            self._adopt(*self._new.popleft())
        ready = self._ready(0.0 if self._things else wait_s)
        self._waiting = False
        for descriptor in ready:
            if descriptor == self._woken.fileno():
                self._woken.recv(_WAKES)
            elif descriptor in self._watched:
                self._read(descriptor, *self._watched[descriptor])

    def _ready(self, wait_s: float | None) -> list[int]:
        """Wait for descriptors with data. The last milliseconds of a wait are exact to the microsecond."""
        if not isinstance(self._poll, select.epoll):
            return [ready for ready, _ in self._poll.poll(None if wait_s is None else wait_s * 1000)]
        if wait_s and wait_s < _FINE_S and self._poll.fileno() < _SELECTED:
            select.select([self._poll], (), (), wait_s)
            wait_s = 0.0
        elif wait_s:
            wait_s = max(wait_s - _FINE_S / 2, 0.0)
        return [ready for ready, _ in self._poll.poll(wait_s)]

    def _adopt(self, channel: Channel, take: Take, ended: Ended) -> None:
        """Watch a channel, and read what arrived together with its handshake."""
        descriptor = channel.fileno()
        if descriptor < 0:
            ended(ChannelClosed("the connection was closed here"))
            return
        self._watched[descriptor] = channel, take, ended
        self._poll.register(descriptor, select.POLLIN)
        self._read(descriptor, channel, take, ended)

    def _read(self, descriptor: int, channel: Channel, take: Take, ended: Ended) -> None:
        try:
            for head, payload in channel.receive_some():
                take(head, payload)
        except (ChannelClosed, ProtocolError) as error:
            del self._watched[descriptor]
            with suppress(OSError):  # epoll has dropped a closed descriptor by itself
                self._poll.unregister(descriptor)
            ended(error)
