"""One scenario of benchmarks.speed in a process of its own, which benchmarks.speed starts and asks.

python -m benchmarks.speed_child static

Writes a line of JSON when it is ready (which core it uses; what one timeout takes), then one per line that it
reads: a run, and a timeout after it. Or why the scenario cannot run here.
"""

import json
import resource
import sys

from benchmarks.command import among, command
from benchmarks.modes import ran
from benchmarks.raw import raw_timeout_s
from benchmarks.scenarios import ALL, LeftOutError, once, prepared, repeats
from serving.vocabulary.errors import UserError
from traces.errors import TraceError


def main(words: list[str]) -> None:
    """Answer until standard input ends."""
    if len(words) != 1:
        raise UserError("it takes one scenario: write python -m benchmarks.speed_child static")
    among(words, ALL, "scenario")
    (name,) = words
    try:
        work = prepared(name)
    except (LeftOutError, TraceError) as error:
        answer(left_out=str(error))
        return
    answer(ran=ran(), repeats=repeats(len(work.workload)), raw_s=raw_timeout_s())
    for _ in sys.stdin:
        cpu_s, events = once(name, work)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer(cpu_s=cpu_s, events=events, peak_mb=peak_mb, raw_s=raw_timeout_s())


def answer(**fields: object) -> None:
    """One line."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    command("benchmarks.speed_child", __doc__, main)
