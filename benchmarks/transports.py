"""python -m benchmarks.transports [MB]: how fast each transport pulls, beside what the machine can do.

Pulls MB (256) from a process that serves an arena, and in turn with it measures raw rates by programs that
use nothing of ours, on as many bytes (`benchmarks.raw_copies`). For transports over TCP: a process that
sends so many bytes of its memory over loopback to one that receives them into its own, and beside it
("cached") the same 1 MB again and again into the same 1 MB, which never leaves the processor's cache; NIXL
stands beside the same two. For transports that copy memory: a copy of the same bytes, from the peer's memory,
mapped here, to where the pull brings them. All have real-time priority where the user may.

Exit status 1 where a transport pulls at less than 80 % of the raw rate, by the medians; each says so.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.command import command, count
from benchmarks.priority import ahead_of_other_work
from benchmarks.raw_copies import SENT_BYTES, Bound, Loopback, MemoryCopy, one_torch_thread
from realexec.memory.arena import Arena
from realexec.transport_registry import TRANSPORTS, missing
from realexec.transports.base import Link, Segment
from serving.vocabulary.errors import UserError

TURNS = 15
LEAST_OF_RAW = 0.8
MB = 1_000_000
# Transports that copy from memory to memory on one host; the others use sockets, or choose by themselves.
COPIES = ("shared_memory", "peer_copy")

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


def bounds_of(size: int, address: dict[str, Any], arena: Arena) -> dict[str, Bound]:
    """What the transport with this address is compared with, by its name in the output."""
    if address["transport"] in COPIES:
        with Arena.attach(address["arena"], touched=True) as theirs:
            return {"raw": MemoryCopy([size], (theirs.buffer, arena.buffer))}
    return {"raw": Loopback(size, size), "cached": Loopback(size, SENT_BYTES)}


def turns(kind: str, size: int) -> dict[str, list[float]]:
    """Seconds of each pull, and of the raw ways beside it, in turn."""
    words = [sys.executable, "-c", PEER, kind, str(size)]
    with (
        ahead_of_other_work([]),  # the peer inherits it
        one_torch_thread(),
        ExitStack() as stack,
        subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as peer,
        Arena.create(size) as arena,
    ):
        assert peer.stdin is not None and peer.stdout is not None
        address = json.loads(peer.stdout.readline())
        link = TRANSPORTS[kind](arena).connect(address)
        pull(link, size)
        if bytes(arena.buffer[-256:]) != bytes(range(256)):
            raise RuntimeError(f"{kind} brought other bytes")
        bounds = bounds_of(size, address, arena)
        for bound in bounds.values():
            if isinstance(bound, Loopback):
                stack.callback(bound.close)
        taken: dict[str, list[float]] = {"pull": [], **{name: [] for name in bounds}}
        for _ in range(TURNS):
            taken["pull"].append(pull(link, size))
            for name, bound in bounds.items():
                taken[name].append(size / bound.rate())
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
