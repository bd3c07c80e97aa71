"""A connection that carries whole frames, and bytes behind them where both sides know how many."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from realexec.wire.frames import (
    HEADER_BYTES,
    ChannelClosed,
    Limits,
    ProtocolError,
    encoded,
    head_of,
    lengths,
)

_READ_BYTES: Final = 1 << 14
# How many buffers one sendmsg(2) or recvmsg(2) takes at most is 1,024 on Linux (IOV_MAX).
MOST_VIEWS: Final = 512
# Of one system call: with more, bytes leave the processor's cache between one side's copy and the other's.
MOVED_BYTES: Final = 256 << 10
_TOO_LONG: Final = "the peer took too long"
Bytes = bytes | bytearray | memoryview


class Channel:
    """Over a connected stream socket, which it owns. Many threads may send; one at a time receives."""

    def __init__(self, connection: socket.socket, limits: Limits | None = None) -> None:
        connection.setblocking(True)
        self._socket = connection
        self.limits = limits or Limits()
        self._sending = threading.Lock()
        self._came = b""  # read, and from `_at` on not asked for yet
        self._at = 0
        self._closed = False

    def send(self, head: dict[str, Any], payload: Bytes = b"") -> None:
        """Returns when the system has taken it all; ChannelClosed when nobody will read it."""
        self.send_views([encoded(head, len(payload)), payload] if len(payload) else [encoded(head, 0)])

    def send_views(self, views: Sequence[Bytes]) -> None:
        """These bytes one behind the other, with no other thread's in between."""
        with self._sending:
            try:
                for batch in _batches(views):
                    self._send_some(batch)
            except (OSError, ValueError) as error:
                raise ChannelClosed(self._why(error)) from None

    def send_now(self, frame: bytes) -> int:
        """How many of these bytes the system took without waiting; all where nobody will read them."""
        if not self._sending.acquire(blocking=False):
            return 0
        try:
            return self._socket.send(frame, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return 0
        except (OSError, ValueError):
            return len(frame)
        finally:
            self._sending.release()

    def receive(self, deadline_s: float | None = None) -> tuple[dict[str, Any], bytes]:
        """The next frame's head and payload.

        Raises ChannelClosed at the end, ProtocolError for what is no frame or too long, TimeoutError when
        ``time.monotonic()`` has passed ``deadline_s``, however steadily bytes trickle in until then. Payloads
        that are long have no deadline: strangers may send none.
        """
        header = self._take(HEADER_BYTES, deadline_s)
        try:
            head_bytes, payload_bytes = lengths(header, self.limits)
            head = head_of(self._take(head_bytes, deadline_s))
        except ProtocolError:
            self.close()  # nobody knows where the next frame would begin
            raise
        if payload_bytes <= _READ_BYTES:
            return head, self._take(payload_bytes, deadline_s)
        payload = bytearray(payload_bytes)
        self.receive_into([memoryview(payload)])
        return head, bytes(payload)

    def receive_some(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The frames that are whole after one look at the socket, which waits for nothing.

        Of a long frame that has begun the rest is waited for. Raises as `receive` does.
        """
        try:
            self._add(self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT))
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, ValueError) as error:
            raise ChannelClosed(self._why(error)) from None
        while len(self._came) - self._at >= HEADER_BYTES:
            try:
                frame = self._frame_here()
            except ProtocolError:
                self.close()
                raise
            if frame is None:
                return
            yield frame

    def _frame_here(self) -> tuple[dict[str, Any], bytes] | None:
        """The next one if it is whole; of a long one the rest is waited for."""
        begin = self._at + HEADER_BYTES
        head_bytes, payload_bytes = lengths(self._came[self._at : begin], self.limits)
        middle, end = begin + head_bytes, begin + head_bytes + payload_bytes
        if end > len(self._came):
            return self.receive() if end - self._at > _READ_BYTES else None
        came, self._at = self._came, end
        return head_of(came[begin:middle]), came[middle:end]

    def receive_into(self, views: Sequence[memoryview]) -> None:
        """Fill these with the bytes that follow a frame."""
        waiting = list(views)
        waiting.reverse()
        while waiting and self._came:
            view = waiting.pop()
            now = min(len(view), len(self._came) - self._at)
            view[:now] = self._take(now, None)
            if now < len(view):
                waiting.append(view[now:])
        while waiting:
            self._fill_some(waiting)

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Whether `receive` has something to take or would tell an end; waits so long for that at most."""
        return len(self._came) > self._at or self._closed or self.unread(timeout_s)

    def unread(self, timeout_s: float = 0.0) -> bool:
        """Whether the system has something that nobody has read yet; for any thread."""
        watch = select.poll()
        try:
            watch.register(self._socket, select.POLLIN)
            return bool(watch.poll(timeout_s * 1000))
        except (OSError, ValueError):  # closed meanwhile
            return True

    def fileno(self) -> int:
        """Of its socket, for who waits for several things at once; -1 once it is closed."""
        return self._socket.fileno()

    def set_buffers(self, size_bytes: int) -> None:
        """How much the system may hold on the way out and in."""
        for which in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, which, size_bytes)

    def set_timeout(self, silence_s: float | None) -> None:
        """A receive that hears nothing for so long raises TimeoutError; None waits for ever."""
        self._socket.settimeout(silence_s)

    def close(self) -> None:
        """Ends what other threads are waiting for here; twice does no harm."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send_some(self, views: list[memoryview]) -> None:
        while views:
            sent = self._socket.sendmsg(views) if len(views) > 1 else self._socket.send(views[0])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def _fill_some(self, waiting: list[memoryview]) -> None:
        """One system call; ``waiting`` is in reverse."""
        try:
            if len(waiting) == 1 or len(waiting[-1]) >= _READ_BYTES:
                got = self._socket.recv_into(waiting[-1], min(len(waiting[-1]), MOVED_BYTES))
            else:
                got = self._socket.recvmsg_into(waiting[: -MOST_VIEWS - 1 : -1])[0]
        except TimeoutError:
            raise TimeoutError(_TOO_LONG) from None
        except (OSError, ValueError) as error:
            raise ChannelClosed(self._why(error)) from None
        if not got:
            raise ChannelClosed(self._why(None))
        while got:
            view = waiting.pop()
            if got < len(view):
                waiting.append(view[got:])
                return
            got -= len(view)

    def _take(self, size: int, deadline_s: float | None) -> bytes:
        while len(self._came) - self._at < size:
            self._read_more(size - len(self._came) + self._at, deadline_s)
        begin, self._at = self._at, self._at + size
        taken = self._came[begin : self._at]
        if self._at == len(self._came):
            self._came, self._at = b"", 0
        return taken

    def _read_more(self, missing: int, deadline_s: float | None) -> None:
        try:
            if deadline_s is not None:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(left_s)
            got = self._socket.recv(max(_READ_BYTES, min(missing, MOVED_BYTES)))
            if deadline_s is not None:
                self._socket.settimeout(None)
        except TimeoutError:
            raise TimeoutError(_TOO_LONG) from None
        except (OSError, ValueError) as error:
            raise ChannelClosed(self._why(error)) from None
        self._add(got)

    def _add(self, got: bytes) -> None:
        if not got:
            raise ChannelClosed(self._why(None))
        self._came = self._came[self._at :] + got if self._came else got
        self._at = 0

    def _why(self, error: Exception | None) -> str:
        if self._closed:
            return "the connection was closed here"
        return "the peer closed the connection" if error is None else f"the connection broke: {error}"


def _batches(views: Sequence[Bytes]) -> Iterator[list[memoryview]]:
    """What goes into one system call each."""
    batch: list[memoryview] = []
    room = MOVED_BYTES
    for whole in views:
        view = memoryview(whole)
        for begin in range(0, len(view), MOVED_BYTES):
            part = view[begin : begin + MOVED_BYTES]
            if len(part) > room or len(batch) == MOST_VIEWS:
                yield batch
                batch, room = [], MOVED_BYTES
            batch.append(part)
            room -= len(part)
    if batch:
        yield batch
