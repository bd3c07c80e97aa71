"""What every transport promises: one-sided reads from a peer's arena into the arena of this process."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class Segment(NamedTuple):
    """Bytes to read: where they lie at the peer, where they go here."""

    remote_offset: int
    local_offset: int
    size_bytes: int


class PeerLost(ConnectionError):
    """The peer is gone, or the link was closed; what was read of the segments by then is not known."""


class BadSegment(ValueError):
    """A segment lies outside an arena. Nothing was read, and the link goes on."""


class Link(Protocol):
    """A way to read one peer's arena. Several threads may read at once."""

    def check(self, segments: Sequence[Segment]) -> None:
        """Raises BadSegment where `read` would."""
        ...

    def read(self, segments: Sequence[Segment]) -> None:
        """Returns when the bytes lie in the local arena; raises PeerLost or BadSegment."""
        ...

    def close(self) -> None:
        """Ends reads under way with PeerLost; may be called by any thread, and twice."""
        ...


class Transport(Protocol):
    """Lets peers read the arena it was made with, and connects to theirs."""

    def address(self) -> dict[str, Any]:
        """What a peer hands to `connect`; it can be written as JSON. Hand it to peers of this run only."""
        ...

    def connect(self, address: dict[str, Any]) -> Link:
        """A link to the peer with this address; PeerLost when nobody answers there."""
        ...

    def close(self) -> None:
        """Nobody reads this arena through it any more; links that it made are closed too."""
        ...


def check_segments(segments: Iterable[Segment], local_bytes: int, remote_bytes: int) -> None:
    """Raise BadSegment for the first one that lies outside the local or the remote arena."""
    for remote, local, size in segments:
        if size < 1:
            raise BadSegment(f"a segment has at least 1 byte, not {size}")
        for whose, offset, limit in (("the peer's", remote, remote_bytes), ("the local", local, local_bytes)):
            if offset < 0 or offset + size > limit:
                raise BadSegment(
                    f"bytes {offset} to {offset + size} lie outside {whose} arena of {limit} bytes"
                )


def cut(segments: Iterable[Segment], most_bytes: int) -> Iterator[Segment]:
    """The same bytes in segments of at most so many."""
    for remote, local, size in segments:
        for begin in range(0, size, most_bytes):
            yield Segment(remote + begin, local + begin, min(most_bytes, size - begin))


def batches(segments: Sequence[Segment], most_bytes: int) -> Iterator[list[Segment]]:
    """Small segments go together, large ones in parts."""
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
