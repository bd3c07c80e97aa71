"""Live scaling in virtual time: invariants after every event, coalesced = step by step to the nanosecond, the
same journal whatever the hash seed, a replay without differences.
"""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.llm_shape import LlmShape
from hwmodels.loading.startup import load_start_up
from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, Ilp, IlpFree
from serving.protocols.live import LivePolicy, LiveScheduler
from serving.record.replay import replay
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.simulation import SimReport, Simulation
from tests.elastic_world import MS
from tests.processes import patience_s
from tests.test_elastic_exactness import (
    ROWS,
    SHAPE,
    Drawn,
    but_for_steps,
    draw_requests,
    draw_setting,
    journal_of,
    topology,
)
from tests.toy_rows import ToyRows
from tests.world import Checked, Collected

# Width of the feed-forward layers: a layer is then loaded in about 0.3, 4 and 40 ms over one NIC.
WIDTHS = (688, 14_000, 140_000)


@dataclass(frozen=True)
class LiveCase:
    """A case, and the shape whose parameters it moves."""

    drawn: Drawn
    shape: LlmShape


def policy(random: Random) -> LivePolicy:
    """A policy by chance, most of the time one that is live whenever somebody waits."""
    solver = Ilp(ahead=random.choice([2, 4]), solve_ns=random.choice([0, 5 * MS, 50 * MS]))
    kinds: list[LiveScheduler] = [IlpFree(), IlpFree(), BestEffort(), solver]
    return LiveScaling(
        random.choice(kinds),
        random.choice([0, 0, 20]),
        tails_only=random.random() < 0.3,
        targets_per_partner=random.choice([1, 3]),
        embedding=random.choice(["target", "source"]),
    )


def live_case(random: Random) -> LiveCase:
    """Split systems with loads long enough, and few enough instances at first, that new ones are live."""
    shape, seed = replace(SHAPE, intermediate=random.choice(WIDTHS)), random.getrandbits(32)
    start: Any = {"prefill": int(random.random() < 0.7), "decode": 1}
    setting = replace(
        draw_setting(random),
        start=start,
        bounds={role: (count, 6) for role, count in start.items()},
        provision=random.choice(["multicast", "naive", "one_to_one"]),
        copies="pool",
        prefill_tokens_per_s=random.choice([20.0, 100.0]),
        live=lambda: policy(Random(seed)),
        queue=None,
        topology=topology(),
        size_bytes=shape.weight_bytes,
        kv_bytes_per_token=shape.kv_bytes_per_token,
    )
    return LiveCase(Drawn(setting, draw_requests(random, setting)), shape)


SEEDS = st.integers(0, 1 << 48)  # of cases: a failure names its seed, not forty requests


def simulate(
    case: LiveCase, coalesce: bool = True, rows: ToyRows = ROWS
) -> tuple[Collected, SimReport, Checked]:
    """One run; the invariants are checked after every event of it."""
    setting = replace(case.drawn.setting, coalesce=coalesce)
    checked, recorder = Checked(setting.controller()), Collected()
    placed = setting.placed()
    shapes = dict.fromkeys(setting.models, case.shape)
    data_plane = DataPlane(
        DataPlaneSetup(
            setting.topology or topology(), shapes, [one.model for one in placed],
            [one.gpus for one in placed], "direct", load_start_up("none"),
        )
    )  # fmt: skip
    driven: Any = checked
    simulation = Simulation(
        driven, case.drawn.requests, [rows] * len(placed), recorder, None, data_plane,
        dict.fromkeys(setting.models, rows),
    )  # fmt: skip
    return recorder, simulation.run(), checked


def counts_of(checked: Checked) -> list[Any]:
    """What the live parts of all models counted."""
    return [one.live.counts for one in checked.controller.services.values() if one.live is not None]


@given(seed=SEEDS)
@settings(max_examples=40)
def test_coalesced_equals_step_by_step_while_instances_are_live(seed: int) -> None:
    case = live_case(Random(seed))
    (ran, _, checked), (exact, _, stepped) = simulate(case), simulate(case, coalesce=False)
    assert ran.done == exact.done and len(ran.done) == len(case.drawn.requests)
    assert sorted(ran.all_gaps) == sorted(exact.all_gaps)
    assert ran.busy_ns == exact.busy_ns
    assert counts_of(checked) == counts_of(stepped)
    assert but_for_steps(checked.lines) == but_for_steps(stepped.lines)


@given(seed=SEEDS)
@settings(max_examples=25)
def test_the_same_live_case_gives_the_same_journal_and_replays(seed: int) -> None:
    case = live_case(Random(seed))
    lines = simulate(case)[2].lines
    assert simulate(case)[2].lines == lines
    report = replay(journal_of(lines), case.drawn.setting.controller())
    assert (report.different, report.first_difference) == (0, None)
    assert report.events == len(lines)


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
    for seed in range(25):
        found.update("\n".join(simulate(live_case(Random(seed)))[2].lines).encode())
    return found.hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "4321"])
def test_no_order_comes_from_hashes(hash_seed: str) -> None:
    root = Path(__file__).resolve().parents[1]
    told = subprocess.run(
        [sys.executable, "-c", "from tests.test_live_exactness import digest; print(digest())"],
        cwd=root, env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}, check=True,
        capture_output=True, text=True, timeout=patience_s(),
    )  # fmt: skip
    assert told.stdout.strip() == digest()
