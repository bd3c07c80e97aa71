"""Whether ``servetwin advise`` gives a run again from its metrics (docs/how-to/ADVISE.md).

python -m benchmarks.advise            all scalers
python -m benchmarks.advise kpa apa    some of them

A simulated run of pods that take 20 s to be ready is recorded as Prometheus would have it; advice on the
record simulates its arrivals anew, with other draws. Three runs of each scaler; the mean number of instances
that take requests, of the run and again.
"""

import io
import json
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

from benchmarks.command import among, command
from servetwin.advising.advise_words import SCALERS
from servetwin.cli import main as cli
from tests.worlds.production import record_of_run

SERVICE: Final = ("model=llama3_8b", "cluster=blitz_a_2x8", "system.instances.start_total_s=20")
SYSTEM: Final = (
    "system=serverlessllm", "system.instances.split=false", "system.instances.queue=per_instance",
    "uncertainty=off", "series.period_s=2",
)  # fmt: skip
LOAD: Final = ("trace=poisson", "trace.rates=[4@60s,30@90s,8@150s]", "trace.lengths=1024x128")
SEEDS: Final = (0, 1, 2)
OTHER_SEED: Final = 7


def means_of(scaler: str, seed: int, folder: Path) -> tuple[float, float]:
    """The mean number of instances of a run, and of the one that its record gives."""
    words = (*SYSTEM, *SERVICE, *LOAD, f"system/scaler={scaler}", f"seed={seed}", "overwrite=true")
    asked = (*SERVICE, f"system/scaler={scaler}", "processes=1", f"seed={OTHER_SEED}", "--json")
    with redirect_stdout(io.StringIO()):
        assert cli.run(["simulate", *words, f"out={folder / 'run'}"]) == 0
    log = record_of_run(folder / "run", folder / "log.json")
    with redirect_stdout(io.StringIO()) as told:
        cli.run(["advise", f"log={log}", *asked])
    found = json.loads(told.getvalue())
    return found["recorded_mean"], found["scalers"][scaler]["simulated"]["mean"]


def main(words: list[str]) -> None:
    """Print a line for each scaler, and how many of all are close."""
    among(words, SCALERS, "scaler")
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        for scaler in words or SCALERS:
            means = [means_of(scaler, seed, Path(name)) for seed in SEEDS]
            ratios += [again / mean for mean, again in means]
            print(f"{scaler:18}", "  ".join(f"{mean:6.2f} {again:6.2f}" for mean, again in means), flush=True)
    close = sum(abs(ratio - 1) <= 0.05 for ratio in ratios)
    print(f"{close} of {len(ratios)} within 5 %, from {min(ratios):.2f} to {max(ratios):.2f} times")


if __name__ == "__main__":
    command("benchmarks.advise", __doc__, main)
