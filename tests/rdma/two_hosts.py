"""python -m tests.rdma.two_hosts serve|read IP: reads between two machines until one is switched off.

The address goes through the folder that both share.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from realexec.memory.arena import Arena
from realexec.transports.base import BadSegment, PeerLost, Segment
from realexec.verbs.transport import VerbsTransport
from tests.worlds.arena_peers import fill, known_words, words_at

SIZE = 64 << 20
ADDRESS = Path("/share/address.json")
OFF = Path("/share/switch-off")
MOST_S = 2.0


def serve(ip: str) -> None:
    """Until the machine is switched off, without a word to anybody."""
    with Arena.create(SIZE) as arena:
        fill(arena)
        transport = VerbsTransport(arena, host=ip)
        ADDRESS.with_suffix(".new").write_text(json.dumps(transport.address()))
        ADDRESS.with_suffix(".new").rename(ADDRESS)
        while not OFF.exists():
            time.sleep(0.05)
        Path("/proc/sysrq-trigger").write_text("o")
        time.sleep(60)


def read(ip: str) -> None:
    """Says what was seen; ends by an exception where it was not right."""
    while not ADDRESS.exists():
        time.sleep(0.1)
    address = json.loads(ADDRESS.read_text())
    whole = [Segment(0, 0, SIZE)]
    with Arena.create(SIZE) as arena:
        transport = VerbsTransport(arena, host=ip)
        link = transport.connect(address)
        began_s = time.monotonic()
        link.read(whole)
        took_s = time.monotonic() - began_s
        assert np.array_equal(words_at(arena, 0, SIZE), known_words(0, SIZE))
        print(
            f"{SIZE >> 20} MB between two machines: {SIZE / took_s / 1e6:.0f} MB/s, as they were", flush=True
        )
        wrong = transport.connect({**address, "key": address["key"] ^ 0x5500})
        try:
            wrong.read(whole)
            raise AssertionError("a key that nobody gave was taken")
        except BadSegment as error:
            print(f"a wrong key: {error}", flush=True)
        link.read(whole)
        OFF.touch()
        while True:
            began_s = time.monotonic()
            try:
                link.read([Segment(0, 0, 1 << 20)])
            except PeerLost as error:
                took_s = time.monotonic() - began_s
                print(f"a machine switched off is told after {took_s:.1f} s: {error}", flush=True)
                break
        assert took_s < MOST_S, "told too late"
        transport.close()


if __name__ == "__main__":
    {"serve": serve, "read": read}[sys.argv[1]](sys.argv[2])
