"""How fast a trace file is read, in raw SimPy timeouts per row (see benchmarks/README.md).

python -m benchmarks.traces           a file of the size and format of BurstGPT_1 (1.43 million rows)
python -m benchmarks.traces 100000    one of so many rows

Each reading is a process of its own; counted is all it does, from its start: importing, hashing, reading. The
aim is at most 3 s of CPU and 200 MB for 1.43 million rows. The file is drawn from a fixed seed and not kept.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.command import command, count
from benchmarks.raw import measured
from serving.vocabulary.errors import UserError
from traces.streams import stream

ROWS = 1_430_000
REPEATS = 3
_ROWS_AT_A_TIME = 50_000
_MEAN_GAP_S = 3.6  # whole seconds up to about 5.2 million, the first two months of BurstGPT
_READ = """
import resource, sys
from traces.importers.burstgpt import read_burstgpt
workload = read_burstgpt(sys.argv[1])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(workload.rows_read, len(workload), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def write_file(path: Path, rows: int) -> None:
    """A file in the format of BurstGPT_1, from a fixed seed: whole seconds, some requests failed."""
    draw = stream(0, "benchmarks/traces")
    clock_s = 5.0
    with path.open("w", encoding="utf-8") as file:
        file.write("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
        for start in range(0, rows, _ROWS_AT_A_TIME):
            count = min(_ROWS_AT_A_TIME, rows - start)
            times_s = clock_s + np.cumsum(draw.exponential(_MEAN_GAP_S, count))
            clock_s = float(times_s[-1])
            prompt = draw.geometric(1 / 600, count)
            output = draw.geometric(1 / 200, count) * (draw.random(count) > 0.02)
            model = np.where(draw.random(count) < 0.8, "ChatGPT", "GPT-4").tolist()
            log = np.where(draw.random(count) < 0.3, "API log", "Conversation log").tolist()
            numbers = zip(times_s.astype(int).tolist(), model, prompt.tolist(), output.tolist(), log)
            file.writelines(f"{t},{m},{p},{o},{p + o},{kind}\n" for t, m, p, o, kind in numbers)


def read_once(path: Path) -> tuple[int, float, float]:
    """(rows, CPU seconds, peak resident MB) of a fresh process that reads the file."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True
    )
    rows, _, cpu_s, peak_kb = done.stdout.split()
    return int(rows), float(cpu_s), float(peak_kb) / 1024


def main(words: list[str]) -> None:
    """Print the best and the median of several readings."""
    if len(words) > 1:
        raise UserError(f"it takes one number of rows and {words[1]!r} was given too: leave it out")
    rows = count(words[0], "number of rows", "python -m benchmarks.traces 100000") if words else ROWS
    with TemporaryDirectory() as folder:
        path = Path(folder) / "BurstGPT_like.csv"
        write_file(path, rows)
        size_mb = path.stat().st_size / 1e6
        peaks_mb = []

        def once() -> float:
            read, cpu_s, peak_mb = read_once(path)
            peaks_mb.append(peak_mb)
            return cpu_s / read

        runs = measured(once, REPEATS)
        print(
            f"{rows:9d} rows, {size_mb:5.1f} MB: {runs.text('row', 2)}   "
            f"{runs.best_cpu_s * rows:5.2f} s CPU, peak {max(peaks_mb):4.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    command("benchmarks.traces", __doc__, main)
