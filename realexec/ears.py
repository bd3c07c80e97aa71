"""How a worker's compute thread hears of the driver and of its own data threads.

While it has nothing to do it reads the connection itself: a message wakes one thread. While it runs steps
another one reads, for there is what waits for no step boundary. Which of the two does is a matter of what
epoll is told to look for, which wakes nobody. What other workers say it reads itself.
"""

import queue
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from realexec.messages import CODEC, Passed, ToWorker
from realexec.raising import raising
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError

Thing = ToWorker | Passed | Callable[[], None]
_WAKES: Final = 64


class Source(Protocol):
    """What is needed of `realexec.worker_process.Control`."""

    def recv_some(self) -> Iterator[ToWorker]:
        """The messages that are there; waits for none. EOFError when the driver is gone."""

    def fileno(self) -> int:
        """Of what they come by, to wait for them."""


class Ears:
    """``take`` is told each message, by the thread that reads it; what it cannot do it should `put`."""

    def __init__(self, source: Source, take: Callable[[Any], None]) -> None:
        self._source, self._take = source, take
        self._things: deque[Thing | None] = deque()
        self._reading = threading.Lock()
        self._waker, self._woken = socket.socketpair()
        self._waiting = self._computing = False
        self._new: deque[Channel] = deque()
        self._channels: dict[int, Channel] = {}  # of other workers, by descriptor
        self._poll = select.poll()
        for descriptor in (source.fileno(), self._woken.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        self._aside: Any = None  # what the other thread waits by; None: there is no epoll here
        if hasattr(select, "epoll"):
            self._aside = select.epoll()
            self._aside.register(source.fileno(), 0)
            threading.Thread(target=self._listen, name="listen", daemon=True).start()

    def begin(self) -> None:
        """Take what came behind the greeting, which has been read already."""
        self._hear()

    def put(self, thing: Thing | None) -> None:
        """For the compute thread, from any; None: the driver is gone."""
        self._things.append(thing)
        self._wake()

    def listen_to(self, channel: Channel) -> None:
        """From now on the compute thread has what another worker says here, too, whenever it waits."""
        self._new.append(channel)
        self._wake()

    def empty(self) -> bool:
        """Whether all that was put has been taken."""
        return not self._things

    def next(self, wait: bool) -> Thing:
        """What was put first; EOFError when the driver is gone, queue.Empty when there is nothing yet."""
        if not self._things and self._computing and self._aside is None:
            self._hear()
        while not self._things:
            if not wait:
                raise queue.Empty
            self._wait()
        thing = self._things.popleft()
        if thing is None:
            raise EOFError
        return thing

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The compute thread is at steps: the other one reads meanwhile."""
        self._computing = True
        self._look_for(select.POLLIN)
        try:
            yield
        finally:
            self._computing = False
            self._look_for(0)

    def _look_for(self, events: int) -> None:
        if self._aside is not None:
            self._aside.modify(self._source.fileno(), events)

    def _wake(self) -> None:
        if self._waiting:
            self._waker.send(b"!")

    def _wait(self) -> None:
        self._waiting = True
        while self._new:
            self._adopt(self._new.popleft())
        ready = [] if self._things else self._poll.poll()
        self._waiting = False
        for descriptor, _ in ready:
            if descriptor in self._channels:
                self._read(descriptor, self._channels[descriptor])
            elif descriptor == self._woken.fileno():
                self._woken.recv(_WAKES)
            else:
                self._hear()

    def _adopt(self, channel: Channel) -> None:
        """What came behind its greeting has been read already."""
        descriptor = channel.fileno()
        self._channels[descriptor] = channel
        self._poll.register(descriptor, select.POLLIN)
        self._read(descriptor, channel)

    def _read(self, descriptor: int, channel: Channel) -> None:
        """Of a worker that has gone the driver hears by itself."""
        try:
            for head, payload in channel.receive_some():
                self._things.append(CODEC.decode(head, payload))
        except (ChannelClosed, ProtocolError):
            del self._channels[descriptor]
            self._poll.unregister(descriptor)
            channel.close()

    def _listen(self) -> None:
        """Wakes while the compute thread is at steps, and when the driver is gone."""
        while True:
            events = self._aside.poll()
            gone = any(event & (select.EPOLLHUP | select.EPOLLERR) for _, event in events)
            if (self._computing or gone) and not self._hear():
                return

    def _hear(self) -> bool:
        """Take what has come; False when nothing more will."""
        with self._reading:
            try:
                for message in self._source.recv_some():
                    self._take(message)
            except EOFError:
                self.put(None)
            except Exception as error:
                self.put(raising(error))
            else:
                return True
        return False
