"""``make draw``: what tests draw, drawn anew until the time is up or a test fails.

Pass after pass over all hypothesis tests and those marked ``drawn``, each from a seed of its own. With SEED
and without MINUTES one pass, the same every time.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.worlds.needed import needed_packages

with needed_packages("python -m tests.draw"):
    from tests.worlds.drawing import SEED_VARIABLE, UNTIL_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 5.0
LIGHT = "not real and not laws and not simgrid and not ray"


def options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.draw", description=__doc__)
    parser.add_argument("--minutes", type=float, help=f"for how long ({MINUTES:g}; with --seed one pass)")
    parser.add_argument("--seed", type=int, help="of the first pass; the next ones count up")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, or file::test")
    return parser.parse_args(words)


def status_of_pass(seed: int, until_s: float | None, tests: Sequence[str]) -> int:
    """Runs all that is drawn, from this seed; what pytest ends with."""
    environment = {**os.environ, SEED_VARIABLE: str(seed)}
    environment |= {UNTIL_VARIABLE: str(until_s)} if until_s is not None else {}
    words = ["-m", LIGHT, "-x", f"--hypothesis-seed={seed}", *tests]
    return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment).returncode


def main(words: Sequence[str] | None = None) -> int:
    chosen = options(words)
    seed = SystemRandom().getrandbits(31) if chosen.seed is None else chosen.seed
    until_s = None
    if chosen.seed is None or chosen.minutes is not None:
        until_s = time.time() + 60 * (MINUTES if chosen.minutes is None else chosen.minutes)
    while True:
        print(f"draw: seed {seed}", flush=True)
        status = status_of_pass(seed, until_s, chosen.tests)
        if status or until_s is None or time.time() > until_s:
            return status
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
