"""What this machine moves without any of this project's code: upper bounds of loads and pulls.

A bound is measured in turn with what it bounds, on as many bytes in pieces of the same sizes: memory copies
run several times as fast where source and target stay in the processor's cache (16 MB) as where they do not
(64 MB). Each has several ways to move the bytes, and takes the fastest of a turn. Its memory is mapped and
has been used before.
"""

import mmap
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from realexec.memory.arena import Arena

# Larger than any cache of a processor; larger models are copied by going through such a block again.
MOST_BLOCK_BYTES = 1 << 30
FILE_BYTES = 16 << 20
SENT_BYTES = 1 << 20
RECEIVED_BYTES = (256 << 10, 1 << 20)

SENDER = """
import contextlib, mmap, os, socket, sys
port, total, own, most = map(int, sys.argv[1:])
memory = os.memfd_create("raw")
os.ftruncate(memory, own)
buffer = memoryview(mmap.mmap(memory, own))
buffer[:] = bytes(own)
out = socket.create_connection(("127.0.0.1", port))
out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, most)
with contextlib.suppress(OSError):  # Linux only
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
while out.recv(1):
    done = 0
    while done < total:
        at = done % own
        done += out.send(buffer[at : at + min(most, own - at, total - done)])
"""


class Bound(Protocol):
    """Moves bytes by the machine's own means."""

    def rate(self) -> float:
        """Move all bytes by each way; returns bytes/s of the fastest."""


class MemoryCopy:
    """One thread copies pieces from one block of memory to another: C's memcpy, or torch's copy.

    ``between``: the source and the target; None: two blocks of shared memory of its own.
    """

    def __init__(self, pieces: Sequence[int], between: tuple[memoryview, memoryview] | None = None) -> None:
        import torch

        self._pieces, size_bytes = placed(pieces)
        if between is None:
            with Arena.create(size_bytes) as one, Arena.create(size_bytes) as other:
                between = one.buffer, other.buffer  # these keep both mapped
        self._arrays = [np.frombuffer(buffer, dtype=np.uint8) for buffer in between]
        self._tensors = [torch.frombuffer(buffer, dtype=torch.uint8) for buffer in between]

    def rate(self) -> float:
        (source, target), (tensor, copied) = self._arrays, self._tensors
        return fastest(
            self._pieces,
            lambda part: np.copyto(target[part], source[part]),
            lambda part: copied[part].copy_(tensor[part]),
        )


class DeviceCopy:
    """Pieces go from pinned memory to a GPU, or stay ``within`` it."""

    def __init__(self, pieces: Sequence[int], device: str, within: bool) -> None:
        import torch

        self._pieces, size_bytes = placed(pieces)
        self._target = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
        self._source = (
            torch.zeros_like(self._target) if within
            else torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)
        )  # fmt: skip
        self._wait = lambda: torch.cuda.synchronize(self._target.device)

    def rate(self) -> float:
        def copy(part: slice) -> None:
            self._target[part].copy_(self._source[part], non_blocking=True)

        self._wait()
        return fastest(self._pieces, copy, wait=self._wait)


class Loopback:
    """Another process sends its memory over a TCP connection of loopback, which stays open.

    ``own``: bytes of shared memory that each side goes through again and again. Private memory would be
    faster where the system gives it huge pages, but no other process could read it.
    """

    def __init__(self, size_bytes: int, own: int) -> None:
        self._size_bytes, self._own = size_bytes, own
        with Arena.create(own) as arena:
            self._buffer = arena.buffer
        with closing(socket.create_server(("127.0.0.1", 0))) as door:
            numbers = [str(number) for number in (door.getsockname()[1], size_bytes, own, SENT_BYTES)]
            self._sender = subprocess.Popen([sys.executable, "-c", SENDER, *numbers])
            self._come, _ = door.accept()
        self._come.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SENT_BYTES)

    def rate(self) -> float:
        """Bytes/s of the faster of two ways to receive them."""
        return max(self._received(most) for most in RECEIVED_BYTES)

    def _received(self, most: int) -> float:
        began_s, done = time.perf_counter(), 0
        self._come.send(b"1")
        while done < self._size_bytes:
            at = done % self._own
            done += self._come.recv_into(self._buffer[at : at + most])
        return self._size_bytes / (time.perf_counter() - began_s)

    def close(self) -> None:
        """End the other process."""
        self._come.close()
        self._sender.wait()


class FileRead:
    """One thread reads a checkpoint's files into a block: by read(2), or from where they are mapped."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.safetensors"))
        largest = max(file.stat().st_size for file in self._files)
        with Arena.create(min(largest, MOST_BLOCK_BYTES)) as arena:
            self._block = arena.buffer

    def rate(self) -> float:
        return max(self._read(), self._mapped())

    def _read(self) -> float:
        began_s, done = time.perf_counter(), 0
        for file in self._files:
            with file.open("rb", buffering=0) as opened:
                while got := opened.readinto(self._part(done)):
                    done += got
        return done / (time.perf_counter() - began_s)

    def _mapped(self) -> float:
        began_s, done = time.perf_counter(), 0
        for file in self._files:
            with (
                file.open("rb") as opened,
                mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped,
                memoryview(mapped) as whole,
            ):
                for begin in range(0, len(whole), FILE_BYTES):
                    part = self._part(begin)[: len(whole) - begin]
                    part[:] = whole[begin : begin + len(part)]
                    done += len(part)
        return done / (time.perf_counter() - began_s)

    def _part(self, done: int) -> memoryview:
        begin = done % max(len(self._block) - FILE_BYTES, 1)
        return self._block[begin : begin + FILE_BYTES]


def placed(pieces: Sequence[int]) -> tuple[list[slice], int]:
    """(place of each piece in a block, bytes of the block); what exceeds the block begins at 0 again."""
    block = max(min(sum(pieces), MOST_BLOCK_BYTES), max(pieces))
    places, at = [], 0
    for piece in pieces:
        at = at if at + piece <= block else 0
        places.append(slice(at, at + piece))
        at += piece
    return places, block


def fastest(
    pieces: Sequence[slice], *ways: Callable[[slice], Any], wait: Callable[[], None] = lambda: None
) -> float:
    """Bytes/s of the fastest of these ways to copy all pieces."""
    took_s = []
    for way in ways:
        began_s = time.perf_counter()
        for piece in pieces:
            way(piece)
        wait()
        took_s.append(time.perf_counter() - began_s)
    return sum(piece.stop - piece.start for piece in pieces) / min(took_s)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Copies of torch in one thread, as in workers."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
