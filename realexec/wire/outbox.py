"""A queue of frames for a peer that may be slow: queueing never waits until the peer has read."""

import threading
from collections import deque
from typing import Any

from realexec.wire.channel import Bytes, Channel
from realexec.wire.frames import ChannelClosed, encoded


class Outbox:
    """Sends at once what the system takes, and the rest in a thread, in order.

    Frames may be queued before there is a channel. Only the outbox sends on the channel.
    """

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._waiting: deque[Bytes] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def open(self, channel: Channel) -> None:
        """Attach the channel; frames queued before are sent first."""
        with self._changed:
            self._channel = channel
            if self._waiting:
                self._start()

    def put(self, head: dict[str, Any], payload: bytes = b"") -> None:
        """Queue a frame; returns at once. Drops it if the peer is gone: another part reports that."""
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
        """Drop frames that still wait. Close the channel first, so that no thread remains in a send."""
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
        """Loop of the sending thread. The first frame keeps its place until sent; later ones go behind it."""
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
