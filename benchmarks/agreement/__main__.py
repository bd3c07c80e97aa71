"""The same requests and step times in ServeTwin and elsewhere, and how far each request's times are apart.

python -m benchmarks.agreement

The first 1,000 requests of the Azure conversation trace (``SERVETWIN_TRACES`` or ``data/``), else 1,000 that
resemble it. All are given our step times, so that what differs are rules and arithmetic. Vidur is run
where its package is installed, and left out elsewhere. Exit status 1 when a promised row is more than 0.01 %
off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.agreement import prefill_decode, vidur_peer
from benchmarks.agreement.closed_form import one_at_a_time
from benchmarks.agreement.naive import naive
from benchmarks.agreement.runs import SLOWLY, our_run, trace_words
from benchmarks.agreement.table import HEAD, ComparisonRow, compare
from benchmarks.command import command, no_words

PROMISED: Final = 1e-4
NO_DISTANCE: Final = Path(__file__).parent / "no_distance.yaml"
ONE: Final = "cluster=a100_x1"
TIGHT: Final = ("engine.kv_tokens=24000", "engine.max_new_tokens=1024")
ONE_AND_ONE: Final = (
    "system=distserve_full", "system.instances.prefill=1", "system.instances.decode=1", "cluster=blitz_a_1x2",
    "engine.kv_tokens=436544",
)  # fmt: skip
TIMELY: Final = ("engine.asynchronous=false", "engine.prefix_caching=false")
WHOLE: Final = "engine.max_num_batched_tokens=16384"  # Vidur takes no prompt that is longer than that


def main(arguments: list[str]) -> int:
    """Print the table as it grows; 1 when a promise is broken."""
    no_words(arguments)
    words = trace_words()
    print(f"{' '.join(words)}, Llama-3-8B; relative difference of a request's times\n")
    print("\n".join(HEAD), flush=True)
    broken = []
    for row, promised in rows(words):
        print(row.line(), flush=True)
        if promised and row.worst > PROMISED:
            broken.append(row.name)
    if not vidur_peer.installed():
        print("\nVidur is not installed: left out")
    print("\nFaults of others that the comparison goes round:")
    for peer, faults in (("simdistserve", prefill_decode.FAULTS), ("Vidur", vidur_peer.FAULTS)):
        for where, fault in faults:
            print(f"* {peer}, {where}: {fault}")
    for name in broken:
        print(f"{name} is more than {PROMISED:.2%} off", file=sys.stderr)
    return 1 if broken else 0


def rows(words: tuple[str, ...]) -> Iterator[tuple[ComparisonRow, bool]]:
    """Each comparison, and whether agreement is promised."""
    run = our_run(ONE, "engine=vllm_v0", "engine.max_num_seqs=1", SLOWLY[words], *words)
    yield compare("closed form, one request at a time", run, one_at_a_time(run)), True
    for engine in ("vllm_v0", "vllm_v1"):
        run = our_run(ONE, f"engine={engine}", *TIGHT, *words)
        yield compare(f"naive engine, {engine}, memory short", run, naive(run)), True
    for seats in (256, 24):
        run = our_run(*ONE_AND_ONE, f"engine.max_num_seqs={seats}", *words, topology=NO_DISTANCE)
        name = f"rules of simdistserve, 1P1D, {seats} seats"
        theirs = prefill_decode.one_prefill_one_decode(run)
        yield compare(name, run, theirs), seats == 256
        if seats == 24:
            theirs = prefill_decode.one_prefill_one_decode(run, seat_first=True)
            yield compare(f"{name}, KV moves to a free seat", run, theirs), True
    if vidur_peer.installed():
        run = our_run(ONE, "engine=vllm_v1", *TIMELY, *words)
        yield compare("Vidur, sarathi", run, vidur_peer.vidur(run, "sarathi")), True
        run = our_run(ONE, "engine=vllm_v0", WHOLE, *TIGHT, *words)
        yield compare("Vidur, vllm, memory short", run, vidur_peer.vidur(run, "vllm")), True


if __name__ == "__main__":
    command("benchmarks.agreement", __doc__, main)
