"""Processes that let others read an arena of known bytes, on this host or on another.

Another one is a network namespace: SERVETWIN_TESTS_PEERS=NAMESPACE=ADDRESS starts peers there, and then
SERVETWIN_TESTS_HERE is at which address they reach this process.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from subprocess import Popen
from typing import Any

import numpy as np

from realexec.memory.arena import Arena
from realexec.transport_registry import TRANSPORTS, opened
from realexec.transports.base import Transport
from realexec.wire.listener import LOOPBACK
from tests.worlds.processes import started

WORD_BYTES = 8
HERE = os.environ.get("SERVETWIN_TESTS_HERE", LOOPBACK)
NAMESPACE, _, THERE = os.environ.get("SERVETWIN_TESTS_PEERS", "").partition("=")


def transport_of(kind: str, arena: Arena) -> Transport:
    """That of this process."""
    return TRANSPORTS[kind](arena) if HERE == LOOPBACK else TRANSPORTS[kind](arena, HERE)


def known_words(offset: int, size_bytes: int) -> np.ndarray:
    """The bytes at this offset, in words that no other offset has."""
    first = offset // WORD_BYTES
    return np.arange(first, first + size_bytes // WORD_BYTES, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def fill(arena: Arena) -> None:
    words = np.frombuffer(arena.buffer, dtype=np.uint64)
    words[:] = known_words(0, arena.size_bytes)


def words_at(arena: Arena, offset: int, size_bytes: int) -> np.ndarray:
    return np.frombuffer(arena.buffer[offset : offset + size_bytes], dtype=np.uint64)


def serve(kind: str, size_bytes: int, host: str) -> None:
    """Says the address, and serves until standard input has a line or ends."""
    with Arena.create(size_bytes) as arena:
        fill(arena)
        transport = opened(kind, arena, host)
        print(json.dumps(transport.address()), flush=True)
        sys.stdin.readline()
        transport.close()
        print("closed", flush=True)
        sys.stdin.readline()


def serve_device(kind: str, device: str, size_bytes: int, first: int) -> None:
    """As `serve`, for those who copy between devices' memories: the arena has the known bytes up to
    ``first``, the device those behind it, which the arena has not."""
    from realexec.memory.device import device_of
    from realexec.memory.tensor_memory import ArenaMemory

    with Arena.create(size_bytes) as arena:
        fill(arena)
        memory = ArenaMemory(arena, device_of(device), first, direct=True)
        memory.to_device([(first, size_bytes - first)])
        arena.buffer[first:] = bytes(size_bytes - first)
        transport = opened(kind, arena, memory=memory)
        print(json.dumps(transport.address()), flush=True)
        sys.stdin.readline()
        transport.close()
        print("closed", flush=True)
        sys.stdin.readline()


@dataclass(frozen=True)
class Peer:
    process: "Popen[str]"
    address: dict[str, Any]

    def close_transport(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "closed\n"


def serving(kind: str, size_bytes: int) -> AbstractContextManager[Peer]:
    code = (
        "import sys; from tests.worlds.arena_peers import serve; "
        "serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])"
    )
    return _serving(code, kind, str(size_bytes), THERE or LOOPBACK)


def serving_device(kind: str, device: str, size_bytes: int, first: int) -> AbstractContextManager[Peer]:
    code = (
        "import sys; from tests.worlds.arena_peers import serve_device; "
        "serve_device(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]))"
    )
    return _serving(code, kind, device, str(size_bytes), str(first))


@contextmanager
def _serving(code: str, *words: str) -> Iterator[Peer]:
    inside = ["ip", "netns", "exec", NAMESPACE] if NAMESPACE else []
    with started(code, *words, inside=inside, stdin=-1) as process:
        assert process.stdout is not None
        yield Peer(process, json.loads(process.stdout.readline()))
