"""Our schedules against those of vLLM 0.6.0's own v0 scheduler, step by step.

The cases in ``tests/data`` were recorded from that scheduler (``vllm/core/scheduler.py:Scheduler`` with
``BlockSpaceManagerV1``, preemption by recomputation, no chunked prefill) with a stand-in for the model that
returns one token for every sequence of a step. vLLM 0.6.6 gives the same schedules when it has one block
more, for it keeps one to itself. The form is that of ``tests/policies/test_vllm_schedules.py``. In a step
without a batch the only sequence gave way to itself: nothing runs, and the scheduler is asked again at once.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from policies.batching import PrefillFirst
from serving.engine.engine import Engine
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from tests.worlds.vllm_schedule import Schedule, in_any_order

DATA = Path(__file__).parents[1] / "data"
HAND_MADE = json.loads((DATA / "vllm_v0_schedules_hand_made.json").read_text(encoding="ascii"))
RANDOM = json.loads(gzip.decompress((DATA / "vllm_v0_schedules_random.json.gz").read_bytes()))


def ours(case: dict[str, Any], decode_spare_block: bool = True, watermark_blocks: int = 0) -> list[list[Any]]:
    """Our steps; ``watermark_blocks``: more than the case says."""
    settings = case["settings"]
    watermark = settings["watermark_blocks"] + watermark_blocks
    blocks, block_tokens = settings["num_gpu_blocks"], settings["block_tokens"]
    batcher = PrefillFirst(
        settings["max_num_seqs"], settings["max_num_batched_tokens"], decode_spare_block=decode_spare_block
    )
    replica = Replica(
        id=0,
        model="m",
        layers=LayerRange(0, 1),
        gpus=(0,),
        kv_blocks=blocks,
        block_tokens=block_tokens,
        watermark_blocks=watermark,
    )
    return in_any_order(Schedule(case, Engine(replica, batcher, coalesce=False)).steps())


def recorded(case: dict[str, Any]) -> list[list[Any]]:
    """vLLM's steps, those without a batch together with the next."""
    steps, victims = list[list[Any]](), list[int]()
    for batch, preempted, finished in case["steps"]:
        victims += preempted
        if batch:
            steps.append([batch, victims, finished])
            victims = []
    return in_any_order(steps)


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case["name"])
def test_hand_made_case_is_scheduled_as_by_vllm_v0(case: dict[str, Any]) -> None:
    assert case["about"] and case["reference"]
    assert ours(case) == recorded(case)


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["name"])
def test_random_case_is_scheduled_as_by_vllm_v0(case: dict[str, Any]) -> None:
    assert ours(case) == recorded(case)


def test_the_recorded_cases_reach_the_corners() -> None:
    """Preemption with and without a watermark, of several at once, and of the last one by itself."""
    for watermark in (False, True):
        cases = [one for one in RANDOM if bool(one["settings"]["watermark_blocks"]) is watermark]
        assert sum(bool(preempted) for case in cases for _, preempted, _ in case["steps"]) > 50
    steps = [step for case in (*HAND_MADE, *RANDOM) for step in case["steps"]]
    assert sum(len(preempted) > 1 for _, preempted, _ in steps) > 3
    assert sum(not batch for batch, _, _ in steps) > 5


def test_other_settings_are_noticed() -> None:
    """The comparison bites: with the exact blocks only, or a larger watermark, schedules differ."""
    exact = sum(ours(case, decode_spare_block=False) != recorded(case) for case in (*HAND_MADE, *RANDOM))
    assert exact > 50
    larger = 0
    for case in HAND_MADE:
        try:
            larger += ours(case, watermark_blocks=1) != recorded(case)
        except PolicyError:
            larger += 1  # a request that does not fit any more
    assert larger > 5
