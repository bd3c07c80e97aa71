"""python -m benchmarks.transports [MB]: how fast each transport pulls, beside what the machine can do.

Pulls MB (256) from a process that serves an arena, and in turn with it measures the raw rate by a program
that uses nothing of ours: a process that sends one buffer of 1 MB over loopback again and again to one that
receives into another (TCP), and a copy between two blocks that are already mapped (shared memory).
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
from realexec.transports.base import Segment
from realexec.transports.registry import TRANSPORTS
from serving.vocabulary.errors import UserError

TURNS = 15
MB = 1_000_000

PEER = """
import json, sys
from realexec.memory.arena import Arena
from realexec.transports.registry import TRANSPORTS
arena = Arena.create(int(sys.argv[2]))
arena.buffer[:] = bytes(range(256)) * (arena.size_bytes // 256)
transport = TRANSPORTS[sys.argv[1]](arena)
print(json.dumps(transport.address()), flush=True)
sys.stdin.readline()
"""
RAW_SENDER = """
import socket, sys
total, buffer = int(sys.argv[2]), bytes(1 << 20)
out = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
left = total
while left:
    left -= out.send(memoryview(buffer)[:left])
out.recv(1)
"""
RAW_RECEIVER = """
import socket, subprocess, sys, time
total, buffer = int(sys.argv[1]), memoryview(bytearray(1 << 20))
door = socket.create_server(("127.0.0.1", 0))
sender = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(door.getsockname()[1]), str(total)])
come, _ = door.accept()
left = total - come.recv_into(buffer[:1], 1)
began = time.perf_counter()
while left:
    left -= come.recv_into(buffer, min(left, len(buffer)))
print(time.perf_counter() - began)
come.close()
sender.wait()
"""


def raw_loopback_s(size: int) -> float:
    words = [sys.executable, "-c", RAW_RECEIVER, str(size), RAW_SENDER]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def raw_copy_s(ours: np.ndarray, other: np.ndarray) -> float:
    began = time.perf_counter()
    np.copyto(ours, other)
    return time.perf_counter() - began


def pulls(kind: str, size: int) -> tuple[list[float], list[float]]:
    """Seconds of each pull, and of the raw way, in turn."""
    words = [sys.executable, "-c", PEER, kind, str(size)]
    with (
        subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as peer,
        Arena.create(size) as arena,
        Arena.create(size) as other,
    ):
        assert peer.stdout is not None
        link = TRANSPORTS[kind](arena).connect(json.loads(peer.stdout.readline()))
        mine, theirs = np.frombuffer(arena.buffer, np.uint8), np.frombuffer(other.buffer, np.uint8)
        link.read([Segment(0, 0, size)])
        if bytes(arena.buffer[-256:]) != bytes(range(256)):
            raise RuntimeError(f"{kind} brought other bytes")
        taken: list[float] = []
        beside: list[float] = []
        for _ in range(TURNS):
            beside.append(raw_loopback_s(size) if kind == "tcp" else raw_copy_s(mine, theirs))
            began = time.perf_counter()
            link.read([Segment(0, 0, size)])
            taken.append(time.perf_counter() - began)
        assert peer.stdin is not None
        peer.stdin.close()
        return taken, beside


def main(words: list[str]) -> None:
    if len(words) > 1:
        raise UserError(f"it takes one number of MB and {words[1]!r} was given too: leave it out")
    size = (count(words[0], "number of MB", "256") if words else 256) * MB // 4096 * 4096
    print(f"{size / MB:.0f} MB, {TURNS} turns, {os.cpu_count()} cores; MB/s of the median turn (of the best)")
    for kind in TRANSPORTS:
        taken, raw = pulls(kind, size)
        rate, best = size / MB / statistics.median(taken), size / MB / min(taken)
        raw_rate, raw_best = size / MB / statistics.median(raw), size / MB / min(raw)
        print(
            f"{kind:13s} pull {rate:6.0f} ({best:6.0f})   raw {raw_rate:6.0f} ({raw_best:6.0f})   "
            f"pull over raw {rate / raw_rate:.2f} ({best / raw_best:.2f})"
        )


if __name__ == "__main__":
    command("benchmarks.transports", __doc__, main)
