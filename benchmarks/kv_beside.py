"""python -m benchmarks.kv_beside [MB]: how long reads of KV take while parameters come from the same peer.

One thread reads units of 16 MB without a pause, as a load does; another reads MB (1) of KV a hundred times.
Nothing is held to a rate. For each transport that this machine has.
"""

import json
import statistics
import subprocess
import sys
import threading
import time

from benchmarks.command import command, count
from benchmarks.transports import MB, PEER
from realexec.memory.arena import Arena
from realexec.transport_registry import TRANSPORTS, missing
from realexec.transports.base import Link, Segment
from serving.vocabulary.errors import UserError

UNIT_BYTES = 16 * MB
READS = 100
PAUSE_S = 0.005


def reads_beside_units(link: Link, size: int) -> tuple[list[float], float]:
    """Seconds of each read of KV, and the bytes/s of parameters meanwhile."""
    enough, units = threading.Event(), [0]

    def load() -> None:
        while not enough.is_set():
            link.read([Segment(0, 0, UNIT_BYTES)])
            units[0] += 1

    loading = threading.Thread(target=load, daemon=True)
    loading.start()
    taken, began = [], time.perf_counter()
    for _ in range(READS):
        before = time.perf_counter()
        link.read([Segment(UNIT_BYTES, UNIT_BYTES, size)])
        taken.append(time.perf_counter() - before)
        time.sleep(PAUSE_S)
    rate = units[0] * UNIT_BYTES / (time.perf_counter() - began)
    enough.set()
    loading.join()
    return taken, rate


def main(words: list[str]) -> None:
    if len(words) > 1:
        raise UserError(f"it takes one number of MB and {words[1]!r} was given too: leave it out")
    size = (count(words[0], "number of MB", "1") if words else 1) * MB
    whole = (UNIT_BYTES + size) // 4096 * 4096 + 4096
    for kind in (transport for transport, lack in missing().items() if not lack):
        peer_words = [sys.executable, "-c", PEER, kind, str(whole)]
        with (
            subprocess.Popen(peer_words, stdin=-1, stdout=-1, text=True) as peer,
            Arena.create(whole) as arena,
        ):
            assert peer.stdin is not None and peer.stdout is not None
            link = TRANSPORTS[kind](arena).connect(json.loads(peer.stdout.readline()))
            taken, rate = reads_beside_units(link, size)
            peer.stdin.close()
        ms = [1e3 * read_s for read_s in sorted(taken)]
        print(
            f"{kind:13s} {size / MB:.0f} MB of KV: median {statistics.median(ms):5.1f} ms, "
            f"p90 {ms[int(0.9 * READS)]:5.1f} ms; parameters {rate / MB:.0f} MB/s"
        )


if __name__ == "__main__":
    command("benchmarks.kv_beside", __doc__, main)
