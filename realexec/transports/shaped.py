"""Links slowed down to a configured rate, so that a small model loads as slowly as a large one.

A path is a resource that bytes pass, with a name, a rate and a latency: an adapter, a disk, a host's memory.
Transfers over a path, in any process, take turns on it. Each chunk books the time that it takes on the path,
after the bookings of other transfers, and waits until its booked time has passed.
"""

import contextlib
import fcntl
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from realexec.memory.arena import Arena
from realexec.transports.base import Link, Segment, batches

# Length of a turn of one reader on a path; sleeps are late by a twentieth of it or less. In a worker that
# reads at 25 MB/s during decode steps of 3.9 ms, steps take 8 % longer with turns of 2 ms, 3 % with 5 ms.
TURN_S: Final = 0.005
_LEAST_CHUNK_BYTES: Final = 4 << 10
_MOST_CHUNK_BYTES: Final = 8 << 20
_CELL: Final = struct.Struct("q")  # until when a path is booked, in ns of time.monotonic_ns


@dataclass(frozen=True, slots=True)
class Shape:
    """Rate and latency of a path."""

    rate_bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.rate_bytes_per_s <= 0 or self.latency_s < 0:
            raise ValueError("a path has a rate above 0 bytes/s and a latency of at least 0 s")


class Paths:
    """The paths of a run, in shared memory. One process creates them, the others attach."""

    def __init__(self, arena: Arena, shapes: Mapping[str, Shape]) -> None:
        self._arena = arena
        self._cells = arena.buffer
        self._shapes = dict(shapes)
        self._place = {name: number for number, name in enumerate(sorted(shapes))}
        self._lock = threading.Lock()  # the file's lock is between processes

    @classmethod
    def create(cls, shapes: Mapping[str, Shape]) -> "Paths":
        """Create paths on which nothing is booked yet."""
        return cls(Arena.create(max(1, len(shapes)) * _CELL.size), shapes)

    @classmethod
    def attach(cls, handle: dict[str, Any]) -> "Paths":
        """Attach to the paths that another process of this host created."""
        shapes = {name: Shape(*shape) for name, shape in handle["shapes"].items()}
        return cls(Arena.attach(handle["arena"]), shapes)

    @property
    def handle(self) -> dict[str, Any]:
        """The argument for `attach`, in JSON types."""
        shapes = {name: [shape.rate_bytes_per_s, shape.latency_s] for name, shape in self._shapes.items()}
        return {"arena": self._arena.handle, "shapes": shapes}

    def passage(self, names: Sequence[str]) -> "Passage":
        """Combine these paths: the rate of the slowest, the sum of their latencies."""
        unknown = [name for name in names if name not in self._shapes]
        if unknown:
            raise ValueError(f"there is no path {unknown[0]!r}, only {', '.join(sorted(self._shapes))}")
        return Passage(self, {name: self._shapes[name] for name in names})

    def link(self, link: Link, names: Sequence[str]) -> "ShapedLink":
        """Return the link, slowed down by these paths."""
        return ShapedLink(link, self.passage(names))

    def wait_s(self, names: Sequence[str], size_bytes: int) -> float:
        """Return how long a read of ``size_bytes`` over these paths would take, given present bookings."""
        now_ns, latency_s, longest_s = time.monotonic_ns(), 0.0, 0.0
        for name in names:
            shape = self._shapes[name]
            (booked_ns,) = _CELL.unpack_from(self._cells, self._place[name] * _CELL.size)
            behind_s = max((booked_ns - now_ns) / 1e9, 0.0)
            longest_s = max(longest_s, behind_s + size_bytes / shape.rate_bytes_per_s)
            latency_s += shape.latency_s
        return latency_s + longest_s

    def book(self, name: str, from_ns: int, for_ns: int) -> int:
        """Book ``for_ns`` on the path, after ``from_ns`` and all earlier bookings; return when it ends."""
        place = self._place[name] * _CELL.size
        with self._exclusive():
            (booked_ns,) = _CELL.unpack_from(self._cells, place)
            ends_ns = max(int(booked_ns), from_ns) + for_ns
            _CELL.pack_into(self._cells, place, ends_ns)
        return ends_ns

    def close(self) -> None:
        """Unmap the paths in this process."""
        self._cells.release()
        self._arena.close()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock of the paths. The kernel releases it if the process is killed."""
        with self._lock:
            fcntl.flock(self._arena.descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._arena.descriptor, fcntl.LOCK_UN)


class Passage:
    """Several paths that the same bytes pass."""

    def __init__(self, paths: Paths, shapes: Mapping[str, Shape]) -> None:
        self._paths = paths
        self._shapes = shapes
        rate = min((shape.rate_bytes_per_s for shape in shapes.values()), default=float("inf"))
        turn_bytes = int(min(rate * TURN_S, _MOST_CHUNK_BYTES))
        self.chunk_bytes: int = max(turn_bytes, _LEAST_CHUNK_BYTES)
        self.latency_s: float = sum(shape.latency_s for shape in shapes.values())

    def begin(self) -> "Crossing":
        """Start a read now; its first byte arrives after the latency."""
        return Crossing(self._paths, self._shapes, time.monotonic_ns() + round(self.latency_s * 1e9))


class Crossing:
    """One read in progress. A delay, by a sleep or the read itself, is made up for within the same read."""

    def __init__(self, paths: Paths, shapes: Mapping[str, Shape], begins_ns: int) -> None:
        self._paths = paths
        self._shapes = shapes
        self._due_ns = begins_ns

    def book(self, size_bytes: int) -> int:
        """Book ``size_bytes`` more; return the time in ns at which the last of them has passed."""
        ends_ns = [
            self._paths.book(name, self._due_ns, round(size_bytes / shape.rate_bytes_per_s * 1e9))
            for name, shape in self._shapes.items()
        ]
        self._due_ns = max(ends_ns, default=self._due_ns)
        return self._due_ns

    def wait(self) -> None:
        """Sleep until all booked bytes have passed."""
        left_ns = self._due_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)

    def carry(self, size_bytes: int) -> None:
        """Book and wait, for bytes that do not come over a link but, for example, from a disk."""
        self.book(size_bytes)
        self.wait()


class ShapedLink:
    """A link that reads chunk by chunk: no read is faster than latency + bytes / rate."""

    def __init__(self, link: Link, passage: Passage) -> None:
        self._link = link
        self._passage = passage

    def check(self, segments: Sequence[Segment]) -> None:
        """Check by the underlying link."""
        self._link.check(segments)

    def read(self, segments: Sequence[Segment]) -> None:
        """Read by the underlying link. Chunks after a failed one are not booked."""
        self.check(segments)  # before the first chunk is read
        crossing = self._passage.begin()
        for batch in batches(segments, self._passage.chunk_bytes):
            crossing.book(sum(segment.size_bytes for segment in batch))
            self._link.read(batch)
            crossing.wait()

    def close(self) -> None:
        """Close the underlying link."""
        self._link.close()
