"""Schedules in which requests share prefixes, against those of vLLM 0.19.0's own v1 scheduler, step by step.

Recorded as those of ``test_vllm_schedules`` (whose 287 cases the same recorder gives again): ``Scheduler``
and ``AsyncScheduler`` with one group of full attention, without GPU, model or configuration, driven as by
``EngineCore.step`` and ``step_with_batch_queue`` of depth 2, a stand-in answering every sequence of a step
with its next token. The token at position p of a request is a number made of p and the request in which that
content occurs first, so vLLM's own hashes find what our names of content (``Request.shared_prefix``) say is
the same. 365 random cases are of 7,000 that agreed: the shortest that notice each of ten faults put into our
code, and others; blocks of 4 or 16 tokens, 7 to 63 of them, 3 to 14 requests, of which many repeat earlier
prompts, with or without their outputs, in whole or in part. Hand-made ones name the place in vLLM's source.

A case: settings (one of ``num_gpu_blocks`` is vLLM's null block), requests as (arrival, prompt, max_tokens,
shared prefix), steps as (batch, preempted, finished), by request the tokens found at its first admission
(``Request.num_cached_tokens``), and the free blocks after each step was chosen.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from serving.engine.kv_ledger import KvLedger
from serving.vocabulary.errors import PolicyError
from tests.worlds.vllm_schedule import Schedule, in_any_order, recorded

DATA = Path(__file__).parents[1] / "data"
HAND_MADE = json.loads((DATA / "vllm_prefix_schedules_hand_made.json").read_text(encoding="ascii"))
RANDOM = json.loads(gzip.decompress((DATA / "vllm_prefix_schedules_random.json.gz").read_bytes()))
ALL = (*HAND_MADE, *RANDOM)


def as_recorded(case: dict[str, Any], schedule: Schedule) -> bool:
    steps = in_any_order(schedule.steps())
    hits = [schedule.hits[request] for request in range(len(case["requests"]))]
    told = steps, hits, schedule.free_blocks
    return told == (in_any_order(recorded(case)), case["hits"], case["free"])


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case["name"])
def test_hand_made_case_is_scheduled_as_by_vllm(case: dict[str, Any]) -> None:
    assert case["about"] and case["reference"].startswith("vllm/v1/core/")
    schedule = Schedule(case)
    assert in_any_order(schedule.steps()) == in_any_order(recorded(case))
    assert [schedule.hits[request] for request in range(len(case["requests"]))] == case["hits"]
    assert schedule.free_blocks == case["free"]


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["name"])
def test_random_case_is_scheduled_as_by_vllm(case: dict[str, Any]) -> None:
    schedule = Schedule(case)
    assert in_any_order(schedule.steps()) == in_any_order(recorded(case))
    assert [schedule.hits[request] for request in range(len(case["requests"]))] == case["hits"]
    assert schedule.free_blocks == case["free"]


def cache_after(case: dict[str, Any]) -> tuple[KvLedger, int]:
    """The ledger at the end, and how many tokens of prompts were found at first admissions."""
    schedule = Schedule(case)
    schedule.steps()
    return schedule.engine.ledger, sum(schedule.hits.values())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_recorded_cases_reach_the_corners(asynchronous: bool) -> None:
    cases = [case for case in ALL if case["settings"]["asynchronous"] is asynchronous]
    assert sum(sum(case["hits"]) > 0 for case in cases) > 150
    assert sum(any(preempted for _, preempted, _ in case["steps"]) for case in cases) > 50
    chunked = sessions = evicting = 0
    for case in cases:
        ends = {request: prompt + more for request, (_, prompt, more, _) in enumerate(case["requests"])}
        prompts = [prompt for _, prompt, _, _ in case["requests"]]
        generated = [
            prompts[owner] < end <= ends[owner] for *_, shared in case["requests"] for owner, end in shared
        ]
        sessions += any(generated)
        begun = [
            start + tokens < prompts[one] for batch, _, _ in case["steps"] for one, start, tokens in batch
        ]
        chunked += any(begun)
        ledger, _ = cache_after(case)
        assert ledger.cache is not None
        evicting += ledger.cache.evicted_blocks > 0
    assert (min(chunked, 60), min(sessions, 60), min(evicting, 60)) == (60, 60, 60)


def test_what_the_ledger_counts_is_what_vllm_found() -> None:
    """Queries and hits at first admissions; in the end nobody holds a block, and every one is free."""
    for case in RANDOM[:60]:
        ledger, found = cache_after(case)
        cache = ledger.cache
        assert cache is not None
        assert (cache.hit_tokens, found) == (sum(case["hits"]), sum(case["hits"]))
        assert cache.queried_tokens == sum(prompt for _, prompt, _, _ in case["requests"])
        assert not cache.tables and cache.shared_blocks == 0
        assert ledger.free_blocks == ledger.total_blocks


@pytest.mark.parametrize(
    "change",
    [
        lambda case: case["settings"].update(prefix_caching=False),
        lambda case: case["settings"].update(num_gpu_blocks=case["settings"]["num_gpu_blocks"] - 1),
        lambda case: case["requests"].__setitem__(
            slice(None), [(*request[:3], []) for request in case["requests"]]
        ),
        lambda case: case["settings"].update(asynchronous=not case["settings"]["asynchronous"]),
    ],
    ids=["caching off", "a block fewer", "nothing shared", "other mode"],
)
def test_other_settings_are_noticed(change: Any) -> None:
    """The comparison bites."""
    different = 0
    for case in HAND_MADE:
        changed = {**case, "settings": dict(case["settings"]), "requests": list(case["requests"])}
        change(changed)
        try:
            different += not as_recorded(case, Schedule(changed))
        except PolicyError:
            different += 1  # a request that does not fit any more
    assert different > 20
