"""How a worker's compute thread receives messages from the driver and from its own data threads.

While idle, the compute thread reads the driver's connection itself: a message wakes one thread. During steps
a listening thread reads, as some messages need no step boundary. Switching only changes the events that its
epoll waits for, which wakes no thread. Only the compute thread reads from other workers.
"""

import queue
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from realexec.system.thread_exceptions import raising
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError
from realexec.wire.messages import CODEC, Passed, ToWorker

Thing = ToWorker | Passed | Callable[[], None]
_WAKES: Final = 64


class Source(Protocol):
    """The methods of `realexec.worker.worker_process.Control` that `ComputeInbox` uses."""

    def recv_some(self) -> Iterator[ToWorker]:
        """Yield the messages that have arrived, without waiting; EOFError when the driver is gone."""

    def fileno(self) -> int:
        """The connection's descriptor, to wait for messages."""


class ComputeInbox:
    """Passes each message to ``take`` in the thread that reads it; ``take`` may queue it with `put`."""

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
        self._aside: Any = None  # the listening thread's epoll; None: this system has no epoll
        if hasattr(select, "epoll"):
            self._aside = select.epoll()
            self._aside.register(source.fileno(), 0)
            threading.Thread(target=self._listen, name="listen", daemon=True).start()

    def begin(self) -> None:
        """Read the messages that arrived with the handshake: the channel has buffered them already."""
        self._hear()

    def put(self, thing: Thing | None) -> None:
        """Queue a message or call for the compute thread; any thread may. None: the driver is gone."""
        self._things.append(thing)
        self._wake()

    def listen_to(self, channel: Channel) -> None:
        """Have the compute thread also read another worker's connection whenever it waits."""
        self._new.append(channel)
        self._wake()

    def empty(self) -> bool:
        """Whether the compute thread has taken everything that was queued."""
        return not self._things

    def next(self, wait: bool) -> Thing:
        """Take the oldest queued thing. EOFError: the driver is gone. queue.Empty: none, and not ``wait``."""
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
        """Have the listening thread read while the compute thread runs steps."""
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
        """Watch a worker's channel, and read what arrived together with its handshake."""
        descriptor = channel.fileno()
        self._channels[descriptor] = channel
        self._poll.register(descriptor, select.POLLIN)
        self._read(descriptor, channel)

    def _read(self, descriptor: int, channel: Channel) -> None:
        """Read another worker's messages. If that worker has exited, the driver learns of it on its own."""
        try:
            for head, payload in channel.receive_some():
                self._things.append(CODEC.decode(head, payload))
        except (ChannelClosed, ProtocolError):
            del self._channels[descriptor]
            self._poll.unregister(descriptor)
            channel.close()

    def _listen(self) -> None:
        """Loop of the listening thread: it wakes while steps are computed, and when the driver is gone."""
        while True:
            events = self._aside.poll()
            gone = any(event & (select.EPOLLHUP | select.EPOLLERR) for _, event in events)
            if (self._computing or gone) and not self._hear():
                return

    def _hear(self) -> bool:
        """Read and pass on the messages that have arrived; False if no more can arrive."""
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
