"""Schedules of the two vLLM schedulers, step by step, in cases small enough to work out by hand.

Each test names the documented vLLM behaviour it mirrors: v1 is ``vllm.v1.core.sched.scheduler``, v0
``vllm.core.scheduler`` (releases before 0.11). A step is written as a line of who takes part:

    d:0,1     requests that decode one token, in running order
    c:2[0+5]  a prompt chunk: request 2, from position 0, 5 tokens
    p:3       a request preempted before the step
"""

from dataclasses import dataclass

import pytest

from policies.batching import ChunkedPrefill, PrefillFirst
from serving.engine.engine import Engine
from serving.protocols.batch import Batcher
from serving.vocabulary.actions import Action, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


@dataclass(frozen=True)
class Memory:
    blocks: int = 64
    block_tokens: int = 4
    watermark: int = 0


Arrival = tuple[int, int, int]  # during which step (0: before the first), prompt tokens, output tokens
ROOMY = Memory()


def schedule(batcher: Batcher, arrivals: list[Arrival], memory: Memory = ROOMY) -> list[str]:
    """One line per step until everyone has finished. Requests are numbered in order of arrival."""
    replica = Replica(0, "m", LayerRange(0, 2), (0,), memory.blocks, memory.block_tokens, memory.watermark)
    engine = Engine(replica, batcher, coalesce=False)
    left = [output for _, _, output in arrivals]
    actions: list[Action] = []
    arrive(engine, arrivals, 0, actions)
    steps: list[str] = []
    while actions:
        run = actions[-1]
        assert isinstance(run, Run) and run.max_steps == 1
        samplers = decoding_in(engine, run)
        steps.append(written(actions, samplers))
        arrive(engine, arrivals, len(steps), actions := [])
        assert not actions, "nothing interrupts a single step"
        samplers += prompts_completed(engine, run)
        for request in samplers:
            left[request] -= 1
        engine.ran(Ran(0, 0, 1, tuple(sorted(r for r in samplers if not left[r]))), actions)
        assert len(steps) < 200, "the schedule does not come to an end"
    assert not any(left), "somebody was forgotten"
    return steps


def arrive(engine: Engine, arrivals: list[Arrival], step: int, actions: list[Action]) -> None:
    for id, (during, prompt, output) in enumerate(arrivals):
        if during == step:
            engine.enqueue(Request(id, 0, prompt, output, "m"), actions)


def decoding_in(engine: Engine, run: Run) -> list[int]:
    return [id for id in engine.running if id not in engine.prefilling] if run.decode else []


def prompts_completed(engine: Engine, run: Run) -> list[int]:
    return [id for id, start, tokens in run.chunks if start + tokens == engine.running[id].known_tokens]


def written(actions: list[Action], decodes: list[int]) -> str:
    run = actions[-1]
    assert isinstance(run, Run)
    words = [f"p:{action.request}" for action in actions if isinstance(action, Preempt)]
    words += [f"d:{','.join(map(str, decodes))}"] if decodes else []
    words += [f"c:{request}[{start}+{tokens}]" for request, start, tokens in run.chunks]
    return " ".join(words)


# --- vLLM v1: chunked prefill ---


def test_v1_running_requests_are_served_before_the_waiting_queue() -> None:
    """`Scheduler.schedule` goes through `running` first; `waiting` gets what is left of the step."""
    assert schedule(ChunkedPrefill(4, 8), [(0, 4, 3), (1, 10, 2)]) == [
        "c:0[0+4]",
        "d:0 c:1[0+7]",
        "d:0 c:1[7+3]",
        "d:1",
    ]


def test_v1_budget_counts_one_token_per_decode() -> None:
    """Every scheduled token, decode or prompt, comes off `max_num_batched_tokens`."""
    assert schedule(ChunkedPrefill(4, 4), [(0, 1, 5), (1, 1, 4), (1, 1, 4), (2, 9, 1)]) == [
        "c:0[0+1]",
        "d:0 c:1[0+1] c:2[0+1]",
        "d:0,1,2 c:3[0+1]",
        "d:0,1,2 c:3[1+1]",
        "d:0,1,2 c:3[2+1]",
        "c:3[3+4]",
        "c:3[7+2]",
    ]


def test_v1_prompts_share_a_step_in_order_of_arrival() -> None:
    """`waiting` is first come, first served; the prompt at which the budget ends is cut (chunked prefill)."""
    assert schedule(ChunkedPrefill(4, 8), [(0, 8, 1), (1, 3, 1), (1, 4, 1), (1, 3, 1)]) == [
        "c:0[0+8]",
        "c:1[0+3] c:2[0+4] c:3[0+1]",
        "c:3[1+2]",
    ]


def test_v1_a_prompt_in_progress_goes_on_before_newer_ones() -> None:
    """A partly computed prompt is in `running`, so it comes before everyone in `waiting`."""
    assert schedule(ChunkedPrefill(4, 4), [(0, 9, 1), (1, 2, 1)]) == [
        "c:0[0+4]",
        "c:0[4+4]",
        "c:0[8+1] c:1[0+2]",
    ]


def test_v1_max_num_seqs_bounds_the_running_set() -> None:
    """Admission stops when `running` has `max_num_seqs` requests, however much budget is left."""
    assert schedule(ChunkedPrefill(2, 8), [(0, 1, 2), (1, 1, 2), (1, 1, 1)]) == [
        "c:0[0+1]",
        "d:0 c:1[0+1]",
        "d:1 c:2[0+1]",
    ]


def test_v1_admission_stops_at_the_first_request_without_memory() -> None:
    """When `allocate_slots` finds no blocks for the head of `waiting`, nobody behind it is tried."""
    assert schedule(ChunkedPrefill(4, 32), [(0, 12, 3), (1, 8, 1), (1, 1, 1)], Memory(blocks=4)) == [
        "c:0[0+12]",
        "d:0",
        "d:0",
        "c:1[0+8] c:2[0+1]",
    ]


def test_v1_preempts_the_last_of_the_running_set_and_admits_nobody_in_that_step() -> None:
    """Without a block for a running request the last of `running` is preempted; after a preemption `waiting`
    is left alone for the rest of the step."""
    steps = schedule(ChunkedPrefill(4, 16), [(0, 4, 3), (1, 4, 3), (1, 4, 3), (2, 1, 1)], Memory(blocks=5))
    assert steps[:4] == [
        "c:0[0+4]",
        "d:0 c:1[0+4] c:2[0+4]",
        "p:2 d:0,1",  # request 3 waits behind 2 and would have fitted
        "d:1 c:2[0+5] c:3[0+1]",
    ]


def test_v1_a_preempted_request_is_recomputed_with_what_it_had_generated() -> None:
    """Preemption drops the KV cache and puts the request at the head of `waiting`: prompt and output tokens
    are computed again, as a prompt."""
    assert schedule(ChunkedPrefill(4, 8), [(0, 2, 6), (1, 2, 5)], Memory(4, 2)) == [
        "c:0[0+2]",
        "d:0 c:1[0+2]",
        "d:0,1",
        "p:1 d:0",  # 0 takes the block, 1 had sampled 2 tokens
        "d:0",
        "d:0",
        "c:1[0+4]",
        "d:1",
        "d:1",
    ]


def test_v1_recomputation_is_chunked_too() -> None:
    """A request that comes back is scheduled like any other in `waiting`: up to the budget of the step."""
    assert schedule(ChunkedPrefill(2, 3), [(0, 3, 4), (1, 2, 6)], Memory(4, 2)) == [
        "c:0[0+3]",
        "d:0 c:1[0+2]",
        "p:1 d:0",
        "d:0 c:1[0+2]",
        "c:1[2+1]",
        *["d:1"] * 4,
    ]


# --- vLLM v0: whole prompts first ---


def test_v0_prompts_come_before_decodes() -> None:
    """`_schedule_default` tries `_schedule_prefills` first; a step with prompts decodes nobody."""
    assert schedule(PrefillFirst(4, 8), [(0, 4, 3), (1, 8, 2), (2, 1, 2)]) == [
        "c:0[0+4]",
        "c:1[0+8]",
        "c:2[0+1]",
        "d:0,1,2",
        "d:0",
    ]


def test_v0_a_batch_of_prompts_ends_where_the_next_does_not_fit_the_token_limit() -> None:
    """Prompts are never cut: `SchedulingBudget.can_schedule` refuses one beyond `max_num_batched_tokens`, and
    `_schedule_prefills` stops there, although a later one would fit."""
    assert schedule(PrefillFirst(4, 8), [(0, 1, 1), (1, 5, 1), (1, 4, 1), (1, 3, 1)]) == [
        "c:0[0+1]",
        "c:1[0+5]",
        "c:2[0+4] c:3[0+3]",
    ]


def test_v0_max_num_seqs_counts_running_and_new_requests() -> None:
    """`SchedulingBudget` starts from the running sequences, so a full running set lets no prompt in."""
    assert schedule(PrefillFirst(2, 8), [(0, 1, 3), (1, 1, 2), (1, 1, 1)]) == [
        "c:0[0+1]",
        "c:1[0+1]",
        "d:0,1",
        "c:2[0+1]",
        "d:0",
    ]


@pytest.mark.parametrize(
    ("prompt_tokens", "steps"),
    [
        (4, ["c:0[0+4]", "c:1[0+4]", "d:0", "d:0"]),
        (5, ["c:0[0+4]", "d:0", "d:0", "c:1[0+5]"]),
    ],
)
def test_v0_admission_leaves_the_watermark_free(prompt_tokens: int, steps: list[str]) -> None:
    """`BlockSpaceManager.can_allocate` answers LATER when fewer than `watermark` blocks would be left."""
    memory = Memory(blocks=5, watermark=3)
    assert schedule(PrefillFirst(4, 16), [(0, 4, 3), (1, prompt_tokens, 1)], memory) == steps


def test_v0_decodes_may_use_the_watermark() -> None:
    """`can_append_slots` asks for free blocks only: the watermark holds new prompts back, not decodes."""
    assert schedule(PrefillFirst(4, 16), [(0, 4, 5)], Memory(blocks=5, watermark=3)) == [
        "c:0[0+4]",
        *["d:0"] * 4,
    ]


def test_v0_preempts_the_last_and_recomputes_it_before_it_decodes_again() -> None:
    """`_schedule_running` preempts from the tail (`_preempt_by_recompute`); the request comes back as a
    prompt, before the others decode on, once there is memory."""
    arrivals = [(0, 4, 2), (1, 4, 4), (1, 4, 3)]
    assert schedule(PrefillFirst(4, 16), arrivals, Memory(blocks=5)) == [
        "c:0[0+4]",
        "c:1[0+4] c:2[0+4]",
        "p:2 d:0,1",
        "c:2[0+5]",
        "d:1,2",
        "d:1",
    ]


def test_v0_a_preempted_request_waits_for_memory_while_the_others_decode() -> None:
    """`can_allocate` is asked for all its tokens at once, prompt and output."""
    assert schedule(PrefillFirst(4, 16), [(0, 4, 4), (1, 4, 3)], Memory(blocks=3)) == [
        "c:0[0+4]",
        "c:1[0+4]",
        "p:1 d:0",
        "d:0",
        "d:0",
        "c:1[0+5]",
        "d:1",
    ]


def test_constructors_refuse_limits_that_cannot_work() -> None:
    for seqs, tokens in [(0, 8), (9, 8), (-1, 8)]:
        with pytest.raises(ValueError, match="max_num_seqs"):
            ChunkedPrefill(seqs, tokens)
    for seqs, tokens in [(0, 8), (8, 0)]:
        with pytest.raises(ValueError, match="max_num_seqs"):
            PrefillFirst(seqs, tokens)
