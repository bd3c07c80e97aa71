"""python -m benchmarks.transports [MB]: how fast each transport pulls, beside what the machine can do.

Pulls MB (256) from a process that serves an arena, and in turn with it measures raw rates by programs that
use nothing of ours. For TCP: a process that sends so many bytes of its memory over loopback to one that
receives them into its own, and beside it ("cached") one that sends the same 1 MB again and again into the
same 1 MB, which never leaves the processor's cache; NIXL stands beside the same two. For shared memory: a
copy between two mapped blocks.

Exit status 1 where a transport pulls at less than 80 % of the raw rate, by the medians; each says so.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks.command import command, count
from realexec.memory.arena import Arena
from realexec.transport_registry import TRANSPORTS, missing
from realexec.transports.base import Link, Segment
from serving.vocabulary.errors import UserError

TURNS = 15
LEAST_OF_RAW = 0.8
MB = 1_000_000

PEER = """
import json, sys
from realexec.memory.arena import Arena
from realexec.transport_registry import opened
arena = Arena.create(int(sys.argv[2]))
arena.buffer[:] = bytes(range(256)) * (arena.size_bytes // 256)
transport = opened(sys.argv[1], arena)
print(json.dumps(transport.address()), flush=True)
sys.stdin.readline()
"""
RAW_SENDER = """
import socket, sys
total, own = int(sys.argv[2]), int(sys.argv[3])
buffer = memoryview(bytearray(own))
buffer[:] = bytes(own)
out = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
done = 0
while done < total:
    at = done % own
    done += out.send(buffer[at : at + min(1 << 20, total - done)])
out.recv(1)
"""
RAW_RECEIVER = """
import socket, subprocess, sys, time
total, own = int(sys.argv[1]), int(sys.argv[2])
buffer = memoryview(bytearray(own))
buffer[:] = bytes(own)
door = socket.create_server(("127.0.0.1", 0))
words = [sys.argv[3], str(door.getsockname()[1]), str(total), str(own)]
sender = subprocess.Popen([sys.executable, "-c", *words])
come, _ = door.accept()
done = come.recv_into(buffer[:1])
began = time.perf_counter()
while done < total:
    at = done % own
    done += come.recv_into(buffer[at : at + min(1 << 20, total - done)])
print(time.perf_counter() - began)
come.close()
sender.wait()
"""


def raw_loopback_s(size: int, own: int) -> float:
    """Both sides have ``own`` bytes of memory, which they go through again and again."""
    words = [sys.executable, "-c", RAW_RECEIVER, str(size), str(own), RAW_SENDER]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def raw_copy_s(ours: np.ndarray, other: np.ndarray) -> float:
    began = time.perf_counter()
    np.copyto(ours, other)
    return time.perf_counter() - began


def turns(kind: str, size: int) -> dict[str, list[float]]:
    """Seconds of each pull, and of the raw ways beside it, in turn."""
    words = [sys.executable, "-c", PEER, kind, str(size)]
    with (
        subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as peer,
        Arena.create(size) as arena,
        Arena.create(size) as other,
    ):
        assert peer.stdin is not None and peer.stdout is not None
        link = TRANSPORTS[kind](arena).connect(json.loads(peer.stdout.readline()))
        mine, theirs = np.frombuffer(arena.buffer, np.uint8), np.frombuffer(other.buffer, np.uint8)
        pull(link, size)
        if bytes(arena.buffer[-256:]) != bytes(range(256)):
            raise RuntimeError(f"{kind} brought other bytes")
        ways = {"pull": lambda: pull(link, size), "raw": lambda: raw_copy_s(mine, theirs)}
        if kind != "shared_memory":
            ways["raw"] = lambda: raw_loopback_s(size, size)
            ways["cached"] = lambda: raw_loopback_s(size, 1 << 20)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(TURNS):
            for name, way in ways.items():
                taken[name].append(way())
        peer.stdin.close()
        return taken


def pull(link: Link, size: int) -> float:
    began = time.perf_counter()
    link.read([Segment(0, 0, size)])
    return time.perf_counter() - began


def print_line(kind: str, size: int, taken: dict[str, list[float]]) -> bool:
    """Print a transport's line; whether it pulls at `LEAST_OF_RAW` of the raw rate at least."""
    median = {name: statistics.median(each) for name, each in taken.items()}
    parts = [
        f"{name} {size / MB / median[name]:6.0f} ({size / MB / min(taken[name]):6.0f})" for name in taken
    ]
    shares = [
        f"over {name} {median[name] / median['pull']:.2f} ({min(taken[name]) / min(taken['pull']):.2f})"
        for name in taken
        if name != "pull"
    ]
    enough = median["raw"] / median["pull"] >= LEAST_OF_RAW
    print(f"{kind:13s} {'  '.join(parts)}  pull {', '.join(shares)}")
    if not enough:
        print(f"{kind:13s} pulls at less than {LEAST_OF_RAW:.0%} of the raw rate")
    return enough


def main(words: list[str]) -> int:
    if len(words) > 1:
        raise UserError(f"it takes one number of MB and {words[1]!r} was given too: leave it out")
    size = (count(words[0], "number of MB", "256") if words else 256) * MB // 4096 * 4096
    print(f"{size / MB:.0f} MB, {TURNS} turns, {os.cpu_count()} cores; MB/s of the median turn (of the best)")
    lacks, slow = missing(), 0
    for kind in TRANSPORTS:
        if lacks[kind]:
            print(f"{kind:13s} {lacks[kind]}")
        else:
            slow += not print_line(kind, size, turns(kind, size))
    return min(slow, 1)


if __name__ == "__main__":
    command("benchmarks.transports", __doc__, main)
