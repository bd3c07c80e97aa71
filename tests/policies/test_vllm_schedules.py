"""Our schedules against those of vLLM 0.19.0's own v1 scheduler, step by step.

The cases in ``tests/data`` were recorded from that scheduler (``Scheduler`` and ``AsyncScheduler`` behind
``EngineCore.step`` and ``step_with_batch_queue``, queue depth 2) with a stand-in for the model that returns
one token for every sequence of a step. No two requests share a prefix; ``test_vllm_prefix_schedules`` has
such that do. Each hand-made case names the place in vLLM's source that it shows; the random ones have 3 to 12
requests on 8 to 24 blocks.

A case: settings (one of ``num_gpu_blocks`` is vLLM's null block), requests as (arrival, prompt, max_tokens)
where arrival a means while step a - 1 runs, and steps as (batch, preempted, finished), a batch of (request,
first position, tokens) in the order of the running list.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from policies.batching import ChunkedPrefill, PrefillFirst
from serving.vocabulary.errors import PolicyError
from tests.worlds.refusals import refuses
from tests.worlds.vllm_schedule import Schedule, in_any_order, recorded, v1_engine

DATA = Path(__file__).parents[1] / "data"
HAND_MADE = json.loads((DATA / "vllm_schedules_hand_made.json").read_text(encoding="ascii"))
RANDOM = json.loads(gzip.decompress((DATA / "vllm_schedules_random.json.gz").read_bytes()))


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case["name"])
def test_hand_made_case_is_scheduled_as_by_vllm(case: dict[str, Any]) -> None:
    assert case["about"] and case["reference"]
    assert in_any_order(Schedule(case).steps()) == in_any_order(recorded(case))


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["name"])
def test_random_case_is_scheduled_as_by_vllm(case: dict[str, Any]) -> None:
    assert in_any_order(Schedule(case).steps()) == in_any_order(recorded(case))


def test_where_nobody_shares_only_what_victims_leave_need_be_kept_track_of() -> None:
    for case in (*HAND_MADE, *RANDOM):
        schedule = Schedule(case, v1_engine(case["settings"], named=b""))
        assert in_any_order(schedule.steps()) == in_any_order(recorded(case)), case["name"]


def test_the_recorded_cases_reach_the_corners() -> None:
    """Preemption in both modes, and recomputation that begins behind cached blocks."""
    for asynchronous in (False, True):
        for prefix_caching in (False, True):
            cases = [
                case
                for case in (*HAND_MADE, *RANDOM)
                if case["settings"]["asynchronous"] is asynchronous
                and case["settings"]["prefix_caching"] is prefix_caching
            ]
            assert sum(bool(preempted) for case in cases for _, preempted, _ in case["steps"]) > 30


def test_other_settings_are_noticed() -> None:
    """The comparison bites: with one block fewer, or caching turned over, schedules differ."""
    for key, value in (("num_gpu_blocks", lambda n: n - 1), ("prefix_caching", lambda on: not on)):
        different = 0
        for case in HAND_MADE:
            changed = {**case, "settings": {**case["settings"], key: value(case["settings"][key])}}
            try:
                different += in_any_order(Schedule(changed).steps()) != in_any_order(recorded(case))
            except PolicyError:
                different += 1  # a request that does not fit any more
        assert different > 5


def test_constructors_refuse_limits_that_cannot_work() -> None:
    for seqs, tokens in [(0, 8), (9, 8), (-1, 8)]:
        refuses(ValueError, "max_num_seqs", ChunkedPrefill, seqs, tokens)
    for seqs, tokens in [(0, 8), (8, 0)]:
        refuses(ValueError, "max_num_seqs", PrefillFirst, seqs, tokens)
