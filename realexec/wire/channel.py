"""A connection that carries whole frames, and raw bytes after a frame if both sides know how many."""

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
    FrameLimits,
    ProtocolError,
    encoded,
    head_of,
    lengths,
)

_READ_BYTES: Final = 1 << 14
# sendmsg(2) and recvmsg(2) take at most 1,024 buffers on Linux (IOV_MAX).
MOST_VIEWS: Final = 512
# Most bytes received per system call: with more, they leave the processor's cache before the receiver's copy.
MOVED_BYTES: Final = 256 << 10
# Most bytes sent per system call: the sender is woken less often, and the receiver takes the first of them
# meanwhile. Over loopback 2 MB then took 1 / 1.27 of the time that they took by 256 KiB.
SENT_BYTES: Final = 1 << 20
_UNPACED: Final = b"reno"  # Linux always has it and lets every user choose it
_TOO_LONG: Final = "the peer took too long"
Bytes = bytes | bytearray | memoryview


class Channel:
    """Owns a connected stream socket. Many threads may send; one at a time receives."""

    def __init__(self, connection: socket.socket, limits: FrameLimits | None = None) -> None:
        connection.setblocking(True)
        self._socket = connection
        self.limits = limits or FrameLimits()
        self._sending = threading.Lock()
        self._came = b""  # received bytes; those from `_at` on have not been returned yet
        self._at = 0
        self._closed = False

    def send(self, head: dict[str, Any], payload: Bytes = b"") -> None:
        """Send a frame; returns when the system has all of it. ChannelClosed if the connection has ended."""
        frame = encoded(head, len(payload))
        self.send_views([frame + payload] if len(payload) <= _READ_BYTES else [frame, payload])

    def send_views(self, views: Sequence[Bytes]) -> None:
        """Send these bytes one after the other, with no other thread's bytes in between."""
        with self._sending:
            try:
                if len(views) == 1 and len(views[0]) <= _READ_BYTES:
                    self._socket.sendall(views[0])
                    return
                for batch in _batches(views):
                    self._send_some(batch)
            except (OSError, ValueError) as error:
                raise ChannelClosed(self._why(error)) from None

    def send_now(self, frame: bytes) -> int:
        """Send without waiting; returns how many bytes the system took: all if the connection has ended."""
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
        """Return the next frame's head and payload.

        Raises ChannelClosed at the connection's end, ProtocolError for data that is no frame or too long,
        TimeoutError when ``time.monotonic()`` has passed ``deadline_s``, however steadily bytes trickle in
        until then. Long payloads have no deadline: a peer that has not proved the secret may not send any.
        """
        header = self._take(HEADER_BYTES, deadline_s)
        try:
            head_bytes, payload_bytes = lengths(header, self.limits)
            head = head_of(self._take(head_bytes, deadline_s))
        except ProtocolError:
            self.close()  # the beginning of the next frame cannot be found
            raise
        if payload_bytes <= _READ_BYTES:
            return head, self._take(payload_bytes, deadline_s)
        payload = bytearray(payload_bytes)
        self.receive_into([memoryview(payload)])
        return head, bytes(payload)

    def receive_some(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Read from the socket once, without waiting, and yield the frames that are then complete.

        If a long frame has begun, waits for the rest of it. Raises as `receive` does.
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
        """Return the next frame if it is complete; waits for the rest of a long one."""
        begin = self._at + HEADER_BYTES
        head_bytes, payload_bytes = lengths(self._came[self._at : begin], self.limits)
        middle, end = begin + head_bytes, begin + head_bytes + payload_bytes
        if end > len(self._came):
            return self.receive() if end - self._at > _READ_BYTES else None
        came, self._at = self._came, end
        return head_of(came[begin:middle]), came[middle:end]

    def receive_into(self, views: Sequence[memoryview]) -> None:
        """Fill these buffers with the bytes that follow a frame."""
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
        """Whether `receive` would return or raise at once; waits at most ``timeout_s`` for that."""
        return len(self._came) > self._at or self._closed or self.unread(timeout_s)

    def unread(self, timeout_s: float = 0.0) -> bool:
        """Whether the system has bytes that no thread has read yet; any thread may call this."""
        watch = select.poll()
        try:
            watch.register(self._socket, select.POLLIN)
            return bool(watch.poll(timeout_s * 1000))
        except (OSError, ValueError):  # closed meanwhile
            return True

    def fileno(self) -> int:
        """The socket's descriptor, to wait for several connections at once; -1 once it is closed."""
        return self._socket.fileno()

    def set_buffers(self, size_bytes: int) -> None:
        """Set how many bytes the system may buffer in each direction."""
        for which in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, which, size_bytes)

    def send_unpaced_within_host(self) -> None:
        """Within one host, send without pacing: BBR, which a system may use for networks, sends by timers.

        Over loopback 2 MB then took 1 / 1.22 of the time. Connections to other hosts keep the system's way.
        """
        if self._socket.family != socket.AF_INET or not hasattr(socket, "TCP_CONGESTION"):
            return
        with contextlib.suppress(OSError):  # closed meanwhile, or a system without Reno
            if self._socket.getsockname()[0] == self._socket.getpeername()[0]:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)

    def set_timeout(self, silence_s: float | None) -> None:
        """Make a receive without data for ``silence_s`` raise TimeoutError; None waits for ever."""
        self._socket.settimeout(silence_s)

    def close(self) -> None:
        """Close the connection and end other threads' waits for it; calling it twice does no harm."""
        self.hang_up()
        self._socket.close()

    def hang_up(self) -> None:
        """End the connection and other threads' waits for it; one of them still has to `close` it.

        Until then its descriptor stays taken, so that no thread waits for a newer connection of that number.
        """
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send_some(self, views: list[memoryview]) -> None:
        while views:
            sent = self._socket.sendmsg(views) if len(views) > 1 else self._socket.send(views[0])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def _fill_some(self, waiting: list[memoryview]) -> None:
        """Fill buffers by one system call; ``waiting`` is in reverse order."""
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
    """Split the buffers into groups, one for each system call."""
    batch: list[memoryview] = []
    room = SENT_BYTES
    for whole in views:
        view = memoryview(whole)
        while len(view):
            if not room or len(batch) == MOST_VIEWS:
                yield batch
                batch, room = [], SENT_BYTES
            part, view = view[:room], view[room:]
            batch.append(part)
            room -= len(part)
    if batch:
        yield batch
