"""What is to be sent to a peer that may be slow: nobody waits until it has read."""

import threading
from collections import deque
from typing import Any

from realexec.wire.channel import Bytes, Channel
from realexec.wire.frames import ChannelClosed, encoded


class Outbox:
    """Sends at once what the system takes, and the rest in a thread, in order.

    Frames may be put before there is a channel. Nobody else sends on it.
    """

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._waiting: deque[Bytes] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def open(self, channel: Channel) -> None:
        """From now on frames go there, first those that came before."""
        with self._changed:
            self._channel = channel
            if self._waiting:
                self._start()

    def put(self, head: dict[str, Any], payload: bytes = b"") -> None:
        """Returns at once. What a peer that is gone does not get is dropped: its end is told elsewhere."""
        frame = encoded(head, len(payload)) + payload
        with self._changed:
            if self._closed:
                return
            if self._channel is None or self._waiting:
                self._waiting.append(frame)
                self._changed.notify()
                return
            sent = self._channel.send_now(frame)
            if sent < len(frame):
                self._waiting.append(memoryview(frame)[sent:])
                self._start()

    def close(self) -> None:
        """What still waits is dropped. Close the channel first, so that no thread is left in a send."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._send, name="outbox", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _send(self) -> None:
        """The first frame stays in its place while it is sent: what comes meanwhile goes behind it."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    return
                frame = self._waiting[0]
                channel = self._channel
            assert channel is not None
            try:
                channel.send_views([frame])
            except ChannelClosed:
                self._drop()
                return
            with self._changed:
                if self._waiting:
                    self._waiting.popleft()

    def _drop(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
