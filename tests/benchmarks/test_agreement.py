"""The comparison with others: that it runs, and that it would notice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.agreement import prefill_decode, vidur_peer
from benchmarks.agreement.__main__ import NO_DISTANCE, ONE, ONE_AND_ONE, PROMISED, TIMELY
from benchmarks.agreement.closed_form import one_at_a_time
from benchmarks.agreement.naive import naive
from benchmarks.agreement.runs import DRAWN, OurRun, RequestTimes, our_run, step_s
from benchmarks.agreement.table import HEAD, ComparisonRow, compare, shown

FEW = (DRAWN[0], "trace.requests=60", "trace.rate_per_s=8")


def shifted(times: RequestTimes, by_s: float) -> RequestTimes:
    return replace(times, finish_s=times.finish_s + by_s)


def test_one_at_a_time_is_a_closed_form() -> None:
    run = our_run(ONE, "engine=vllm_v0", "engine.max_num_seqs=1", *FEW)
    theirs = one_at_a_time(run)
    assert compare("", run, theirs).worst < 1e-6
    assert compare("", run, shifted(theirs, 0.001)).worst > PROMISED


def test_the_naive_engine_agrees_to_the_nanosecond_and_notices_other_settings() -> None:
    words = ("engine.kv_tokens=6000", "engine.max_new_tokens=512")
    run = our_run(ONE, "engine=vllm_v0", *words, *FEW)
    row = compare("naive", run, naive(run))
    assert (row.worst, row.preemptions > 0) == (0, True)
    prepared = run.prepared
    other = replace(prepared.config, engine=replace(prepared.config.engine, decode_spare_block=False))
    changed = replace(run, prepared=replace(prepared, config=other))
    assert compare("", run, naive(changed)).worst > PROMISED


def one_and_one(seats: int) -> OurRun:
    return our_run(*ONE_AND_ONE, f"engine.max_num_seqs={seats}", *FEW, topology=NO_DISTANCE)


def test_one_prefill_and_one_decode_instance_follow_the_rules_of_simdistserve() -> None:
    run = one_and_one(256)
    assert compare("", run, prefill_decode.one_prefill_one_decode(run)).worst < PROMISED


def test_where_seats_are_short_kv_that_moves_to_a_free_seat_comes_a_step_later() -> None:
    run = one_and_one(6)
    with_moves = compare("", run, prefill_decode.one_prefill_one_decode(run, seat_first=True))
    at_once = compare("", run, prefill_decode.one_prefill_one_decode(run))
    assert with_moves.worst < PROMISED < at_once.worst


def test_a_seat_less_is_noticed() -> None:
    run = one_and_one(6)
    engine = replace(run.prepared.config.engine, max_num_seqs=5)
    changed = replace(run, prepared=replace(run.prepared, config=replace(run.prepared.config, engine=engine)))
    assert compare("", run, prefill_decode.one_prefill_one_decode(changed, seat_first=True)).worst > 0.01


@pytest.mark.skipif(not vidur_peer.installed(), reason="vidur is not installed")
def test_vidur_agrees() -> None:
    run = our_run(ONE, "engine=vllm_v1", *TIMELY, *FEW)
    assert compare("", run, vidur_peer.vidur(run, "sarathi")).worst < PROMISED


def test_a_step_is_what_the_step_times_say() -> None:
    rows = our_run(ONE, *FEW).rows
    assert step_s(rows, [100, 300]) == rows.decode_cost(2, 400) / 2**24 / 1e9
    assert step_s(rows, (), [(0, 0, 50)]) == rows.mixed(0, 0, ((0, 0, 50),)) / 2**24 / 1e9


def test_a_row_says_how_far_apart_in_percent() -> None:
    assert [shown(share) for share in (0.0, 3e-9, 0.0123)] == ["0", "3e-07 %", "1.23 %"]
    apart = {name: np.array([0.0, 0.02]) for name in ("TTFT", "TPOT", "E2E")}
    line = ComparisonRow("them", 1000, 3, apart).line()
    assert line == "| them | 1,000 | 3 | 2.00 % | 1.00 % | 2.00 % | 1.00 % | 2.00 % | 1.00 % |"
    assert line.count("|") == HEAD[0].count("|") == HEAD[1].count("|")


def test_the_page_has_the_rows_that_the_command_prints() -> None:
    page = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert HEAD[0] in page and HEAD[1] in page
    for where, _ in (*prefill_decode.FAULTS, *vidur_peer.FAULTS):
        assert where.split(":")[0] in page
