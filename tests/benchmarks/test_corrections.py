"""The table of what each correction of a run is worth, on a made-up profile."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.corrections import CORRECTIONS, METRICS, lines, worth
from hwmodels.profiles.profile import Curve, Lattice, Profile, Stamp
from tests.worlds.toy_profile import toy_profile

WORDS = [
    "model=llama3_8b",
    "cluster=a100_x1",
    "trace=azure_conv_like",
    "trace.requests=12",
    "trace.rate_per_s=20",
    "trace.tokens_scale=0.05",
    "engine.max_num_seqs=8",
    "engine.max_num_batched_tokens=32",
]


def made_up_profile() -> Profile:
    stamp = Stamp(
        gpu="a100_80g",
        llm="llama3_8b",
        tp=1,
        engine="vllm",
        engine_version="0.19.0",
        precision="bf16",
        source="made up",
        licence="CC0",
        files=(),
    )
    skew = Lattice(((0, 16, 64), (2, 8)), np.array([[0.1, 0.3], [0.4, 0.6], [0.8, 0.5]]))
    return replace(toy_profile(skew=skew), stamp=stamp)


def test_less_work_is_less_time_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    found = dict(worth(made_up_profile(), WORDS, tmp_path))
    assert list(found) == [one.name for one in CORRECTIONS]
    assert found["all-reduce of the tables, else declared"] is None
    for name in ("engine overhead, else none", "unequal contexts, else equal ones"):
        errors = found[name]
        assert errors is not None
        assert len(errors) == len(METRICS)
        assert all(error < 0.0 for error in errors), name


def test_a_declared_all_reduce_takes_the_place_of_a_measured_one() -> None:
    profile = made_up_profile()
    slow = Curve((1, 64), (0.5, 0.5))
    profile = replace(
        profile, stamp=replace(profile.stamp, tp=2), tables=replace(profile.tables, all_reduce=slow)
    )
    changed = CORRECTIONS[0].without(profile)
    assert changed is not None
    assert changed.tables.all_reduce is not None
    # 32 layers with two all-reduces of 20 us and 4,096 x 2 bytes at 37.8 GB/s.
    assert changed.tables.all_reduce.seconds[0] == pytest.approx(64 * (20e-6 + 8192 / 37.8e9))


def test_the_table_has_a_line_per_correction(tmp_path: Path) -> None:
    found = list(lines(made_up_profile(), WORDS, tmp_path))
    assert len(found) == 1 + len(CORRECTIONS)
    assert "none of it" in found[1]
