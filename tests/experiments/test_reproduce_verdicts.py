"""Which rows count: what they are held against, and what the interval over the seeds shows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from experiments.blitzscale import cluster_b, fig04
from experiments.blitzscale.registry import BLITZSCALE
from experiments.common import run_store, runs
from experiments.common.compare import order_row, ratio_row
from experiments.common.figure import Figure, FigureRow, Verdict
from experiments.common.outcomes import MEAN_TTFT, NIC_SHARE, Outcomes, RunOutcome
from experiments.common.page import as_page
from experiments.common.paired import Estimated, mean_of
from experiments.common.rates import rate_of
from experiments.common.run_store import RunStore
from experiments.common.runs import carry_out, run_once
from experiments.common.saved import as_saved
from experiments.common.set_up import Case, SetUp
from experiments.common.shown import counts, explained, heading
from experiments.common.sweep import SetUpSweep
from experiments.common.verdict import (
    Claim,
    about,
    at_least,
    at_most,
    below,
    in_order,
    judged_over,
    shorter,
    within,
)

DRAWN = SetUp(
    "drawn",
    ("model=llama3_8b", "cluster=blitz_b", "engine=blitz_native"),
    ("trace=burstgpt_like", "trace.duration_s=12"),
    full=(10, 6),
    prefill=(2, 14),
    decode=(2, 14),
    stand_in="drawn",
)
SHORTER = below(1.0, "shorter", "paper_direction")
NOT_LONGER = at_most(1.0, "not longer", "paper_direction")
CLOSE = about(1.0, "close", "paper_direction")


@pytest.mark.parametrize(
    ("claim", "low", "high", "verdict"),
    [
        (SHORTER, 0.80, 0.99, "in band"),
        (SHORTER, 0.90, 1.02, "not shown"),  # the mean alone would say shorter
        (SHORTER, 0.98, 1.10, "not shown"),  # and here longer
        (SHORTER, 1.01, 1.10, "out"),
        (SHORTER, 1.0, 1.0, "out"),  # equal is not shorter
        (NOT_LONGER, 1.0, 1.0, "in band"),  # and not longer
        (NOT_LONGER, 0.99, 1.01, "not shown"),
        (at_least(2.0, "a spike"), 2.1, 9.0, "in band"),
        (at_least(2.0, "a spike"), 1.2, 9.0, "not shown"),
        (CLOSE, 0.7, 1.4, "in band"),
        (CLOSE, 0.7, 1.6, "not shown"),
        (CLOSE, 1.51, 1.6, "out"),
        (at_most(0.6, "at most 60 %", "paper_number"), 0.5, 0.7, "not shown"),
        (within(0.2, 0.46, "20 to 46 %"), 0.40, 0.50, "in band"),  # a size: by its mean
        (about(1.2, "1.2 s"), 0.7, 1.2, "in band"),
        (shorter(30), 0.6, 0.9, "in band"),
        (shorter(40), 0.4, 1.01, "not shown"),
        (shorter(60), 0.95, 1.03, "out"),  # its size is out whatever the direction
        (shorter(2), 0.95, 1.03, "direction not shown"),
        (shorter(2), 0.30, 0.99, "direction held"),  # of any size
        (shorter(2), 0.97, 1.05, "direction not held"),  # its mean is longer
    ],
)
def test_a_direction_counts_when_the_whole_interval_shows_it(
    claim: Claim, low: float, high: float, verdict: str
) -> None:
    row = judged_over("a", claim, Estimated((low + high) / 2, low, high), stand_in="", why="measured")
    assert (row.verdict, row.kind) == (verdict, claim.kind)
    assert ("interval" in row.why) == verdict.endswith("not shown")


def test_one_seed_shows_no_direction() -> None:
    row = judged_over("a", SHORTER, mean_of([0.5]), stand_in="", why="measured")
    assert (row.verdict, row.why) == ("not shown", "one seed has no interval; measured")
    assert (
        judged_over("a", shorter(50), mean_of([0.5]), stand_in="", why="measured").verdict == "in band"
    )  # a size


@pytest.mark.parametrize(
    ("y", "verdict"),
    [
        ([2.0, 2.1, 2.2], "in band"),
        ([0.9, 2.0, 3.0], "not shown"),
        ([0.5, 0.6, 0.4], "out"),
        ([2.0], "not shown"),
    ],
)
def test_an_order_counts_when_every_pair_is_shown(y: Sequence[float], verdict: str) -> None:
    found = {"x": [1.0, 1.1, 1.2][: len(y)], "y": y, "z": [9.0, 8.0, 9.5][: len(y)]}
    row = in_order("a", ("x", "y", "z"), found, unit="s", stand_in="", kind="own_analysis")
    assert (row.verdict, row.kind) == (verdict, "own_analysis")
    assert ("no interval shows x < y" in row.why) == (verdict == "not shown")


def test_values_of_zero_are_ordered_by_their_differences() -> None:
    found = {"none": [0.0, 0.0], "some": [2.0, 3.0]}
    assert (
        in_order("a", ("none", "some"), found, unit="", stand_in="", kind="own_analysis").verdict
        == "not shown"
    )  # t of one degree
    found = {"none": [0.0] * 4, "some": [2.0, 3.0, 2.5, 2.6]}
    assert (
        in_order("a", ("none", "some"), found, unit="", stand_in="", kind="own_analysis").verdict == "in band"
    )


_COLUMNS = ("arrival_s", "ttft_ms", "tpot_ms")
_ROW = ("name", "paper", "ours", "ratio", "verdict", "stand_in", "why", "saved", "kind")


def rows(*parts: Any) -> Figure:
    return Figure("fig", "Figure", tuple(FigureRow(**dict(zip(_ROW, part, strict=True))) for part in parts))


def test_counts_keep_numbers_of_the_paper_apart_and_are_told_everywhere() -> None:
    seed, window = ("seed", "s"), ("window", "s")
    figure = rows(
        ("a", "2 s", "2 s", 1.0, "in band", "", "", (), "paper_number"),
        ("b", "2 s", "9 s", 4.5, "out", "", "why", (seed, window), "paper_number"),
        ("c", "less", "0.9", 0.9, "not shown", "", "why", (seed,), "paper_direction"),
        ("d", "", "", None, "not comparable", "", "why", (), "own_analysis"),
        ("e", "2 % less", "0.9", 0.92, "direction held", "", "", (), "paper_number"),
    )
    none = dict.fromkeys(get_args(Verdict), 0)
    assert counts([figure]) == {
        "paper_number": none | {"in band": 1, "out": 1, "direction held": 1},
        "paper_direction": none | {"not shown": 1},
        "own_analysis": none | {"not comparable": 1},
    }
    assert explained([figure]) == (2, 1)
    said = (
        "3 held against a number of the paper: 1 in band, 1 out, 0 not shown, 0 not comparable; "
        "direction 1 held, 0 not held, 0 not shown"
    )
    for text in (heading([figure]), as_page([figure], "", None)):
        assert said in text and "1 of them name a sweep beside their seeds" in text
    assert "| c | paper direction | not shown | 0.9 | less | why |" in as_page([figure], "", None)
    short = heading([figure, rows()]).splitlines()[-2]
    assert "paper number: 1 in band, 1 out; direction 1 held; paper direction: 1 not shown" in short


def test_every_row_of_words_says_that_it_is_no_number() -> None:
    """Rows whose text has no digit are not counted as numbers of the paper."""
    for name, recipe in BLITZSCALE.items():
        figure = recipe.make(Outcomes({}, dict.fromkeys(recipe.cases(1), "not run")))
        for row in figure.rows:
            if row.kind == "paper_number":
                assert any(char.isdigit() for char in row.paper) or row.paper == "at most one copy", (
                    name,
                    row,
                )
            assert "our analysis" not in row.paper or row.kind == "own_analysis", (name, row)


def test_on_hosts_of_one_gpu_every_loaded_byte_crosses_nics() -> None:
    """And on cluster B as it stands few do, for PCIe between GPUs is a scale-up domain."""
    shares = {}
    for way in (one for one in cluster_b.WAYS if one.name in ("", "RDMA alone")):
        live = way.cases()[0]
        tiny = replace(live, set_up=DRAWN, words=tuple(w for w in live.words if not w.startswith("trace")))
        (share,) = NIC_SHARE.of([run_once(tiny, 0)]) or [math.nan]
        shares[way.name] = share
    assert shares["RDMA alone"] == pytest.approx(1.0, abs=0.01)
    assert shares[""] < 0.3


def test_rows_of_cluster_b_are_our_analysis_and_say_what_crossed_nics() -> None:
    found = {
        one: tuple(
            RunOutcome(words=(), summary=summary, inputs="", **dict.fromkeys(_COLUMNS, np.ones(1)))
            for summary in 2 * [{
                "ttft_ms": {"mean": 90.0 if "stop" not in one.label else 110.0},
                "loads": {"bytes_by_tier": {"gpu": 100}},
                "network": {"nic": {"bytes": {"parameters": 50.0}}},
            }]
        )
        for one in cluster_b.cases()
    }  # fmt: skip
    outcomes = Outcomes(found, {})
    rows = cluster_b.rows(outcomes)
    assert len(rows) == 8 and {row.kind for row in rows} == {"own_analysis"}
    assert all("(our analysis)" in row.paper and "25% of the bytes" in row.why for row in rows)
    assert all(cluster_b.KEY in row.saved for row in rows)
    assert list(cluster_b.saved(outcomes)[cluster_b.KEY]["points"]) == [
        "as the cluster is", "each by itself", "RDMA alone", "shared PCIe",
    ]  # fmt: skip


# What the rate rule calls capacity, and sweeps under every seed.


def test_capacity_is_what_kv_memory_lets_decode_where_that_is_less() -> None:
    """Llama2-7B has four times the KV per token of Llama3-8B on as much memory."""
    of_7b = replace(DRAWN, name="7b", words=("model=llama2_7b", *DRAWN.words[1:]))
    prefill = replace(of_7b, name="7b prefill", capacity="prefill")
    less, more = (
        float(rate_of(one, 0).words[0].removeprefix("trace.rate_scale=")) for one in (of_7b, prefill)
    )
    assert less < 0.5 * more
    told = rate_of(of_7b, 0).rule
    assert "of decode" in told and "of prefill 10 x" in told
    few = replace(of_7b, name="7b half", full=(10, 3))
    half = float(rate_of(few, 0).words[0].removeprefix("trace.rate_scale="))
    assert half == pytest.approx(less / 2, rel=1e-4)  # half of the decode instances hold half of it


def test_a_sweep_under_every_seed_is_saved_and_told_with_all_of_them() -> None:
    fast, slow = (Case(name, DRAWN, ("system=vllm", f"seed={name}")) for name in ("fast", "slow"))
    other = replace(slow, set_up=replace(DRAWN, name="drawn, b"))
    found = {
        one: tuple(
            RunOutcome(
                words=(),
                summary={"ttft_ms": {"mean": ms}},
                arrival_s=np.zeros(1),
                ttft_ms=np.ones(1),
                tpot_ms=np.ones(1),
                inputs="",
            )
            for ms in levels
        )
        for one, levels in ((fast, (10.0, 40.0)), (slow, (100.0, 100.0)), (other, (40.0, 40.0)))
    }
    sweep = SetUpSweep("life", "drawn", "made up", (("a", (fast, slow)), ("b", (fast, other))))
    outcomes = Outcomes(found, {}, (sweep,))
    row = ratio_row(outcomes, "a", shorter(95), MEAN_TTFT, ours=fast, other=slow)
    assert sweep.seeded and row.verdict == "out"
    assert "by life 0.200 (a) to 0.500 (b), 0 of 2 in band" in row.why  # geometric means of both seeds
    points = as_saved(outcomes, [Figure("fig", "Figure", (row,))])["life"]["drawn"]["points"]
    assert points["b"]["slow"]["ttft_ms_mean"] == [40.0, 40.0]
    order = order_row(outcomes, "b", MEAN_TTFT, (slow, fast))
    assert order.verdict == "not shown" and "by life the order holds at 0 of 2" in order.why
    assert ("life", "drawn") in order.saved


def test_figure_4_names_its_loads() -> None:
    rates = dict(zip(fig04.SHARES, (0.1, 0.2, 0.4, 0.8), strict=True))
    found = {}
    for one in fig04.cases():
        share = next((share for share in rates if one.label.endswith(f" {share:g} C")), 0.25)
        cache = {"hits": 1 - rates[share], "misses": rates[share]}
        run = RunOutcome(
            words=(),
            summary={"cache": cache},
            arrival_s=np.zeros(1),
            ttft_ms=np.ones(1),
            tpot_ms=np.ones(1),
            inputs="",
        )
        found[one] = (run, run)
    figure = fig04.fig4(Outcomes(found, {}))
    rows = {row.name: row for row in figure.rows}
    assert rows["host-cache miss rate, 2 cached, 300 s, 0.5 C"].verdict == "out"
    assert rows["host-cache miss rate, 2 cached, 300 s, 0.25 C"].verdict == "in band"
    assert rows["misses by load"].verdict == "in band"
    assert all(fig04.KEY in row.saved for row in figure.rows)
    assert figure.sweeps[fig04.KEY]["points"]["0.15 C"]["mean"] == pytest.approx(0.2)


# Runs that are kept.


def test_a_reproduction_goes_on_where_it_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(DRAWN, trace=("trace=burstgpt_like", "trace.duration_s=6"), rate="scaled", share=0.05)
    one, two = (Case(name, short, ("system=vllm", f"engine.max_num_seqs={seats}")) for name, seats in
                (("one", 64), ("two", 8)))  # fmt: skip
    store = RunStore(tmp_path / "runs")
    first = carry_out([one], 2, processes=1, store=store)
    made: list[str] = []
    monkeypatch.setattr(runs, "run_once", lambda case, seed: made.append(case.label) or run_once(case, seed))
    again = carry_out([one, two], 2, processes=1, store=store)
    assert made == ["two", "two"]
    for kept, run in zip(again.of(one), first.of(one), strict=True):
        assert kept.words == run.words and kept.summary == run.summary and kept.inputs == run.inputs
        assert kept.ttft_ms.tolist() == run.ttft_ms.tolist()
        assert kept.timelines["kv_tokens"][1].tolist() == run.timelines["kv_tokens"][1].tolist()
    assert store.load(two, 5) is None
    for path in store.folder.iterdir():
        path.write_bytes(path.read_bytes()[:100])  # a broken file is no run
    assert store.load(one, 0) is None
    store.clear()
    assert not store.folder.exists()


def test_a_kept_run_of_other_code_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunOutcome(
        words=("a=b",),
        summary={"x": np.float64(1.5)},
        arrival_s=np.zeros(2),
        ttft_ms=np.ones(2),
        tpot_ms=np.ones(2),
        inputs="told",
    )
    store = RunStore(tmp_path)
    store.keep(Case("a", DRAWN, ()), 0, run)
    found = store.load(Case("a", DRAWN, ()), 0)
    assert found is not None and found.at("x") == 1.5
    assert store.load(Case("a", DRAWN, (), links="other"), 0) is None
    monkeypatch.setattr(run_store, "_code", lambda: "other code")
    assert store.load(Case("a", DRAWN, ()), 0) is None
