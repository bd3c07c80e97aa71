"""Interface of transports: one-sided reads from a peer's arena into the arena of this process."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class Segment(NamedTuple):
    """A range of bytes to read: its offset in the peer's arena, and the one in the local arena."""

    remote_offset: int
    local_offset: int
    size_bytes: int


class PeerLost(ConnectionError):
    """The peer has ended or the link was closed. How much of the segments was read is not known."""


class BadSegment(ValueError):
    """A segment lies outside an arena. Nothing was read, and the link stays usable."""


class Link(Protocol):
    """Reads one peer's arena. Several threads may read at once."""

    def check(self, segments: Sequence[Segment]) -> None:
        """Raise BadSegment if `read` would."""
        ...

    def read(self, segments: Sequence[Segment]) -> None:
        """Return when the bytes are in the local arena. Raises PeerLost or BadSegment."""
        ...

    def close(self) -> None:
        """Make reads under way raise PeerLost. Any thread may call it, also twice."""
        ...


class Transport(Protocol):
    """Lets peers read the arena it was made with, and connects to the peers' arenas."""

    def address(self) -> dict[str, Any]:
        """Return what a peer passes to `connect`, in JSON types. Give it only to peers of this run."""
        ...

    def connect(self, address: dict[str, Any]) -> Link:
        """Return a link to the peer with this address; PeerLost if nothing answers there."""
        ...

    def close(self) -> None:
        """Stop serving the arena to peers, and close the links that this transport made."""
        ...


def check_segments(segments: Iterable[Segment], local_bytes: int, remote_bytes: int) -> None:
    """Raise BadSegment for the first segment that lies outside the local or the remote arena."""
    for remote, local, size in segments:
        if size < 1:
            raise BadSegment(f"a segment has at least 1 byte, not {size}")
        for owner, offset, limit in (("the peer's", remote, remote_bytes), ("the local", local, local_bytes)):
            if offset < 0 or offset + size > limit:
                raise BadSegment(
                    f"bytes {offset} to {offset + size} lie outside {owner} arena of {limit} bytes"
                )


def cut(segments: Iterable[Segment], most_bytes: int) -> Iterator[Segment]:
    """Yield the same bytes as segments of at most ``most_bytes``."""
    for remote, local, size in segments:
        for begin in range(0, size, most_bytes):
            yield Segment(remote + begin, local + begin, min(most_bytes, size - begin))


def batches(segments: Sequence[Segment], most_bytes: int) -> Iterator[list[Segment]]:
    """Yield batches of at most ``most_bytes``: small segments together, large ones in parts."""
    batch: list[Segment] = []
    room = most_bytes
    for segment in cut(segments, most_bytes):
        if segment.size_bytes > room:
            yield batch
            batch, room = [], most_bytes
        batch.append(segment)
        room -= segment.size_bytes
    if batch:
        yield batch
