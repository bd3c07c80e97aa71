"""Our schedules against those of vLLM 0.19.0's own v1 scheduler, step by step.

The cases in ``tests/data`` were recorded from that scheduler (``Scheduler`` and ``AsyncScheduler`` behind
``EngineCore.step`` and ``step_with_batch_queue``, queue depth 2) with a stand-in for the model that returns
one token for every sequence of a step. No two requests share a prefix. Each hand-made case names the place in
vLLM's source that it shows; the random ones have 3 to 12 requests on 8 to 24 blocks.

A case: settings (one of ``num_gpu_blocks`` is vLLM's null block), requests as (arrival, prompt, max_tokens)
where arrival a means while step a - 1 runs, and steps as (batch, preempted, finished), a batch of (request,
first position, tokens) in the order of the running list.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from policies.batching import ChunkedPrefill
from serving.engine.engine import Engine
from serving.engine.progress import EngineState, Progress
from serving.vocabulary.actions import Action, Preempt, Run
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.events import Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request

DATA = Path(__file__).parent / "data"
HAND_MADE = json.loads((DATA / "vllm_schedules_hand_made.json").read_text(encoding="ascii"))
RANDOM = json.loads(gzip.decompress((DATA / "vllm_schedules_random.json.gz").read_bytes()))
STEP_NS = 10


def v1_engine(settings: dict[str, Any]) -> Engine:
    """Ours with these settings."""
    blocks, block_tokens = settings["num_gpu_blocks"] - 1, settings["block_tokens"]
    replica = Replica(0, "m", LayerRange(0, 1), (0,), blocks, block_tokens, 0, settings["prefix_caching"])
    batcher = ChunkedPrefill(
        settings["max_num_seqs"], settings["max_num_batched_tokens"], settings["reserve_full_isl"]
    )
    return Engine(replica, batcher, coalesce=False, asynchronous=settings["asynchronous"])


class Schedule:
    """An engine in exact mode, and a world that gives every sequence of a step one token."""

    def __init__(self, case: dict[str, Any], engine: Engine | None = None) -> None:
        self.engine = v1_engine(case["settings"]) if engine is None else engine
        self.requests = case["requests"]
        self.to_come = list(range(len(self.requests)))
        self.missing = [max_tokens for _, _, max_tokens in self.requests]

    def steps(self) -> list[list[Any]]:
        """(batch, preempted, finished) of every step."""
        steps, number = [], 0
        actions = self.arrive(0)
        while self.to_come or self.engine.state is not EngineState.IDLE:
            if self.engine.state is EngineState.IDLE:
                number = max(number, self.requests[self.to_come[0]][0])
                actions = self.arrive(number)
            victims = [action.request for action in actions if isinstance(action, Preempt)]
            batch, finished = self.compute(actions)
            steps.append([batch, victims, finished])
            actions = self.arrive(number + 1)
            self.engine.ran(Ran(0, 0, 1, tuple(sorted(finished)), False, number * STEP_NS), actions)
            number += 1
        return steps

    def arrive(self, number: int) -> list[Action]:
        """Hand over everybody who came before step ``number`` is chosen; an idle engine sees them at once."""
        actions: list[Action] = []
        coming = [id for id in self.to_come if self.requests[id][0] <= number]
        del self.to_come[: len(coming)]
        for id in coming:
            arrival, prompt_tokens, max_tokens = self.requests[id]
            arrival_ns = max(0, arrival * STEP_NS - STEP_NS // 2)
            request = Request(id, arrival_ns, prompt_tokens, max_tokens, "m")
            if self.engine.state is EngineState.IDLE and id != coming[-1]:
                self.engine.waiting.append(Progress(request))
            else:
                self.engine.enqueue(request, actions)
        return actions

    def compute(self, actions: list[Action]) -> tuple[list[list[int]], list[int]]:
        """One step: what it computes, and who has all tokens after it."""
        (run,) = [action for action in actions if isinstance(action, Run)]
        engine, chunks = self.engine, {chunk[0]: list(chunk) for chunk in run.chunks}
        batch, finished = [], []
        for id, progress in engine.running.items():
            if id in chunks:
                batch.append(chunks[id])
                samples = sum(chunks[id][1:]) == progress.known_tokens
            elif run.decode and engine.ledger.decodes(id):
                batch.append([id, engine.ledger.context_tokens(id) - 1, 1])
                samples = True
            else:
                continue  # it has finished, and still holds its seat
            self.missing[id] -= samples
            if samples and not self.missing[id]:
                finished.append(id)
        return batch, finished


def recorded(case: dict[str, Any]) -> list[list[Any]]:
    """vLLM's steps. A victim that had its last token in flight is none to us: it lost nothing."""
    steps = []
    ended: set[int] = set()
    for batch, preempted, finished in case["steps"]:
        steps.append([batch, [id for id in preempted if id not in ended], finished])
        ended |= set(finished)
    return steps


def in_any_order(steps: list[list[Any]]) -> list[list[Any]]:
    """The order in which several requests finish in one step is not compared."""
    return [[batch, preempted, sorted(finished)] for batch, preempted, finished in steps]


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case["name"])
def test_hand_made_case_is_scheduled_as_by_vllm(case: dict[str, Any]) -> None:
    assert case["about"] and case["reference"]
    assert in_any_order(Schedule(case).steps()) == in_any_order(recorded(case))


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["name"])
def test_random_case_is_scheduled_as_by_vllm(case: dict[str, Any]) -> None:
    assert in_any_order(Schedule(case).steps()) == in_any_order(recorded(case))


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
