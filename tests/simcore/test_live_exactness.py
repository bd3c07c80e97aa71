"""Live scaling in virtual time: invariants after every event, coalesced = step by step to the nanosecond, the
same journal whatever the hash seed, a replay without differences.
"""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.drawn_elastic import (
    assert_repeats_and_replays,
    assert_same_times,
)
from tests.worlds.drawn_live import counts_of, live_case, simulate
from tests.worlds.processes import patience_s

SEEDS = st.integers(0, 1 << 48)  # of cases: a failure names its seed, not forty requests


@given(seed=SEEDS)
@settings(max_examples=40)
def test_coalesced_equals_step_by_step_while_instances_are_live(seed: int) -> None:
    case = live_case(Random(seed))
    coalesced, stepped = simulate(case), simulate(case, coalesce=False)
    assert counts_of(coalesced[2]) == counts_of(stepped[2])
    assert_same_times(coalesced, stepped, len(case.drawn.requests))


@given(seed=SEEDS)
@settings(max_examples=25)
def test_the_same_live_case_gives_the_same_journal_and_replays(seed: int) -> None:
    case = live_case(Random(seed))
    lines, again = simulate(case)[2].lines, simulate(case)[2].lines
    assert_repeats_and_replays(lines, again, case.drawn.setting.controller())


def test_the_drawn_cases_are_live() -> None:
    """Else the properties above would hold of nothing: many of 60 cases have passes, at several layer
    counts, with plans, late ones among them, embedded prompts, and decode instances that help.
    """
    found = Counter[str]()
    for seed in range(60):
        case = live_case(Random(seed))
        checked = simulate(case)[2]
        for one in counts_of(checked):
            found["live"] += one.passes > 0
            found["several counts"] += len(one.layer_counts) > 1
            found["planned"] += one.plans_used > 0
            found["late"] += one.plans_late > 0
        text = "\n".join(checked.lines)
        found["embedded"] += '"embedded prompts"' in text
        found["pulled"] += "layers done" in text
        found["claimed"] += '"claimed from' in text
        found["nobody prefilled"] += found["live"] > 0 and not case.drawn.setting.start["prefill"]
    assert found["live"] >= 15 and found["late"] >= 1, found
    wanted = ("several counts", "planned", "embedded", "pulled", "claimed", "nobody prefilled")
    assert min(found[what] for what in wanted) >= 3, found


def digest() -> str:
    """Of the journals of some cases."""
    found = hashlib.sha256()
    for seed in range(8):
        found.update("\n".join(simulate(live_case(Random(seed)))[2].lines).encode())
    return found.hexdigest()


def test_no_order_comes_from_hashes() -> None:
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        [sys.executable, "-c", "from tests.simcore.test_live_exactness import digest; print(digest())"],
        cwd=root, env={**os.environ, "PYTHONHASHSEED": "4321", "PYTHONPATH": str(root)}, check=True,
        capture_output=True, text=True, timeout=patience_s(),
    )  # fmt: skip
    assert told.stdout.strip() == digest()
