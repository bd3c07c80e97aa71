"""One attention call for all rows of a decode batch gives the bits of one call for each row."""

import random
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from realexec.model import batched_attention
from realexec.model.batched_attention import Agreement, Plan, agreement
from realexec.model.chunk_cuts import KEY_BLOCK
from realexec.model.kv import RequestKV
from realexec.model.model_runner import DecodeRow, ModelRunner
from realexec.model.reference_worker import ReferenceWorker
from realexec.worker.step_engine import StepEngine
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real

SEED = 3
ROWS = 4
HEADS = (TINY["num_attention_heads"], TINY["num_key_value_heads"])

FOUND = agreement(*HEADS, TINY["hidden_size"] // HEADS[0])
needs_agreement = pytest.mark.skipif(
    FOUND is None,
    reason="on this processor each row attends by a call of its own",
)


class EachAlone:
    """Plans a call for each row."""

    def plan(self, batch: Any) -> Plan:
        return Plan([], list(range(len(batch))))


def prompt(tokens: int, seed: int = 0) -> list[int]:
    draw = random.Random(tokens + 10_000 * seed)
    return [draw.randrange(TINY["vocab_size"]) for _ in range(tokens)]


def filled(runner: ModelRunner, keys: int, room: int) -> RequestKV:
    """KV of a request of which ``keys`` positions are computed."""
    kv = runner.new_kv(keys + room)
    runner.prefill(prompt(keys), 0, keys, kv)
    return kv


def bits(kv: RequestKV) -> list[torch.Tensor]:
    return [
        kv.pairs(layer, kv.whole_positions).clone()
        for layer in range(kv.shape.layers.first, kv.shape.layers.last)
    ]


def calls_of(plan: Plan) -> list[int]:
    return sorted([len(call.rows) for call in plan.calls])


@needs_agreement
@settings(max_examples=20)
@given(st.lists(st.integers(1, 2 * KEY_BLOCK + 40), min_size=2, max_size=ROWS), st.integers(1, 40))
def test_bits_of_kv_and_hidden_states_are_those_of_single_calls(lengths: list[int], steps: int) -> None:
    runner = ModelRunner(TINY, SEED, ROWS)
    together, alone = runner.attention, EachAlone()
    kvs = [[filled(runner, keys, steps) for keys in lengths] for _ in range(2)]
    for step in range(steps):
        left = []
        for attention, held in zip((together, alone), kvs):
            runner.attention = attention
            rows = [DecodeRow(step % 7, keys + step, kv) for keys, kv in zip(lengths, held)]
            hidden = runner.embed([step % 7] * ROWS)
            with torch.inference_mode():
                left.append(runner.decode_layers(hidden, rows, runner.layers)[: len(rows)])
        assert torch.equal(*left), f"step {step} of rows with {lengths} keys"
    for mine, other in zip(*kvs):
        assert all(map(torch.equal, bits(mine), bits(other)))


@needs_agreement
def test_rows_within_one_block_of_keys_take_one_call_and_whole_blocks_none() -> None:
    runner = ModelRunner(TINY, SEED, ROWS)
    lengths = [5, KEY_BLOCK - 1, KEY_BLOCK + 3, KEY_BLOCK + 50]
    rows = [DecodeRow(1, keys, filled(runner, keys, 2)) for keys in lengths]
    plan = runner.attention.plan(rows)
    assert (calls_of(plan), plan.alone) == ([2], [1, 0]), "the row of 512 keys, and the one left in its block"
    assert FOUND is not None
    short = [DecodeRow(1, keys, filled(runner, keys, 2)) for keys in (1, 30, 40, FOUND.most_keys - 2)]
    assert (calls_of(runner.attention.plan(short)), runner.attention.plan(short).alone) == ([4], [])


@needs_agreement
def test_rows_wider_than_those_whose_bits_agree_attend_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FOUND is not None
    monkeypatch.setattr(batched_attention, "agreement", lambda *_: Agreement(FOUND.lanes, 64))
    runner = ModelRunner(TINY, SEED, ROWS)
    rows = [DecodeRow(1, keys, filled(runner, keys, 2)) for keys in (10, 63, 64, KEY_BLOCK + 64)]
    plan = runner.attention.plan(rows)
    assert (calls_of(plan), plan.alone) == ([2], [2, 3])


@needs_agreement
def test_blocks_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ModelRunner(TINY, SEED, ROWS)
    rows = [DecodeRow(1, keys, filled(runner, keys, 2)) for keys in (30, 40, 50)]
    monkeypatch.setattr(batched_attention, "MOST_BYTES", 1000)
    plan = runner.attention.plan(rows)
    assert (plan.calls, plan.alone) == ([], [0, 1, 2])


def test_bfloat16_and_batches_of_one_row_keep_single_calls() -> None:
    for keys, rows in (({"dtype": "bfloat16"}, ROWS), ({}, 1)):
        runner = ModelRunner({**TINY, **keys}, SEED, rows)
        batch = [DecodeRow(1, 20, filled(runner, 20, 2)) for _ in range(rows)]
        assert runner.attention.plan(batch).calls == []


@needs_agreement
def test_rows_come_and_go_between_steps_of_two_batches_in_turn() -> None:
    """Requests that join, leave, come back and change batches: the copies of their KV stay right."""
    draw = random.Random(1)
    runner = ModelRunner(TINY, SEED, ROWS)
    together, alone = runner.attention, EachAlone()
    lengths = [draw.randrange(1, 100) for _ in range(7)]
    kvs = [[filled(runner, keys, 200) for keys in lengths] for _ in range(2)]
    shared = 0
    for _ in range(120):
        chosen = draw.sample(range(7), draw.randint(1, ROWS))
        left = []
        for attention, held in zip((together, alone), kvs):
            runner.attention = attention
            rows = [DecodeRow(one, lengths[one], held[one]) for one in chosen]
            shared += len(attention.plan(rows).calls) if attention is together else 0
            left.append(runner.decode(rows))
        assert left[0] == left[1]
        for one in chosen:
            lengths[one] += 1
            assert all(map(torch.equal, bits(kvs[0][one]), bits(kvs[1][one])))
    assert shared > 60


def test_tokens_are_those_of_a_worker_that_runs_one_request_at_a_time() -> None:
    """Chunks of prompts, preemptions of neighbours, and requests that come and go change no token."""
    engine, sizes = StepEngine(ModelRunner(TINY, SEED, ROWS)), [3, 40, 130, 505, 61, 17, 300]
    prompts = [prompt(size, seed=1) for size in sizes]
    tokens: dict[int, list[int]] = {request: [] for request in range(len(sizes))}
    waiting, progress = list(range(len(sizes))), dict.fromkeys(range(len(sizes)), 0)
    for request, ids in enumerate(prompts):
        engine.assign(request, ids, (), 12 + request)
    while waiting or engine.has_residents():
        chunks = []
        if waiting and len(engine.residents()) < ROWS:
            request = waiting[0]
            chunk = min(100, sizes[request] - progress[request])
            chunks = [(request, progress[request], chunk)]
            progress[request] += chunk
            if progress[request] == sizes[request]:
                waiting.pop(0)
        for request, token in engine.step(chunks, True)[0].items():
            tokens[request].append(token)
    reference = ReferenceWorker(ModelRunner(TINY, SEED, ROWS))
    for request, ids in enumerate(prompts):
        assert len(tokens[request]) == 12 + request
        assert reference.judge(ids, tokens[request]) == (tuple(tokens[request]), {})


def test_where_bits_do_not_agree_each_row_attends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    agreement.cache_clear()
    monkeypatch.setattr(batched_attention, "LANES", (4,))  # another kernel than this machine's
    try:
        assert agreement(*HEADS, TINY["hidden_size"] // HEADS[0]) is None
        runner = ModelRunner(TINY, SEED, ROWS)
        rows = [DecodeRow(1, keys, filled(runner, keys, 2)) for keys in (30, 40, 50)]
        assert runner.attention.plan(rows).alone == [0, 1, 2]
    finally:
        agreement.cache_clear()
