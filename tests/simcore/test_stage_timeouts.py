"""Time-outs of requests that wait for a stage: which requests fail, when, and that all others are served."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.services.pipeline.setup import PipelineSetup
from serving.services.stages.stage import NEVER_NS, StageQueues
from serving.vocabulary.layers import Part
from tests.worlds.stage_world import MS, StageCase, run


def test_the_limits_of_eight_stages_are_those_of_the_released_code() -> None:
    """(8 - k) x 1.25 s at stage k, 10 s in all."""
    parts = tuple(Part("m", at, at + 1) for at in range(8))
    setup = PipelineSetup(parts=parts, activation_bytes=0, timeout_ns=10_000 * MS)
    assert [setup.until_ns(stage, 0) // MS for stage in range(8)] == [
        10_000, 8_750, 7_500, 6_250, 5_000, 3_750, 2_500, 1_250,
    ]  # fmt: skip
    assert PipelineSetup(parts=parts, activation_bytes=0).until_ns(3, 0) == NEVER_NS


@pytest.mark.parametrize("queues", ["stage", "replica"])
def test_a_request_fails_by_the_limit_of_its_stage_or_of_an_earlier_one(queues: StageQueues) -> None:
    """Six at once, 10 ms at stage 0, 15 ms at stage 1, 40 ms in all, so 20 ms from stage 1 on.

    At 40 ms two requests still wait for stage 0. Two wait for stage 1: the third by its limit there would
    have until 50 ms, but it arrived 40 ms ago.
    """
    times = [[10 * MS] * 6, [15 * MS] * 6]
    case = StageCase([0] * 6, times, gpus=((0,), (1,)), queues=queues, timeout_ns=40 * MS)
    found = run(case)
    assert sorted(found.recorder.done) == [0, 1]
    assert found.recorder.refusals == {
        2: "timed out at stage 1",
        3: "timed out at stage 1",
        4: "timed out at stage 0",
        5: "timed out at stage 0",
    }
    fails = [
        (now_ns, action[1])
        for now_ns, _, actions in map(json.loads, found.lines)
        for action in actions
        if action[0] == "fail"
    ]
    assert sorted(fails) == [(40 * MS, 2), (40 * MS, 3), (40 * MS, 4), (40 * MS, 5)]


@given(
    st.lists(st.integers(0, 80), min_size=1, max_size=25),
    st.lists(st.integers(1, 30), min_size=1, max_size=3),
    st.integers(1, 90),
)
def test_nobody_who_is_served_has_waited_beyond_the_limits(
    arrivals_ms: list[int], pass_ms: list[int], timeout_ms: int
) -> None:
    arrivals = sorted(arrivals_ms)
    times = [[own * MS] * len(arrivals) for own in pass_ms]
    gpus = [(stage,) for stage in range(len(pass_ms))]
    case = StageCase([at * MS for at in arrivals], times, gpus, timeout_ns=timeout_ms * MS)
    found = run(case)
    assert len(found.recorder.done) + len(found.recorder.refusals) == len(arrivals)
    for row in found.log():
        until_ns = arrivals[row["request"]] * MS + timeout_ms * MS
        share_ns = timeout_ms * MS * (len(pass_ms) - row["stage"]) // len(pass_ms)
        assert row["began_ns"] < min(until_ns, row["arrived_ns"] + share_ns)
    slow = run(StageCase([at * MS for at in arrivals], times, gpus))
    assert len(slow.recorder.done) == len(arrivals)
