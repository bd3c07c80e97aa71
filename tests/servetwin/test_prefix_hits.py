"""Prefix caching as a run reports it: against hits worked out from the texts, and with dispatch by prefix."""

import json
import random
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from servetwin.config.compose.compose import load_config
from servetwin.results import series_table
from servetwin.run.simulate import Simulated, execute, prepare
from traces.load import load

BLOCK = 16
ALONE = ("cluster=a100_x1", "model=llama3_8b")
CHATS = (
    "engine.front_end=none",
    "trace=multi_turn",
    "trace.requests=600",
    "trace.rate_per_s=10",
    "trace.think_s=8",
    "cluster=a100_x4",
)


def done(*words: str) -> Simulated:
    return execute(prepare(load_config([*words, "out=unused"], "simulate")))


def equal_start(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def hits_of(prompts: list[list[int]], stored: list[list[int]]) -> list[int]:
    """What each prompt finds of all that is stored before it, in whole blocks without its last token.

    A block is stored when all its tokens are.
    """
    found = []
    for row, prompt in enumerate(prompts):
        most = max((equal_start(prompt, text) // BLOCK for text in stored[:row]), default=0)
        found.append(min(most, (len(prompt) - 1) // BLOCK) * BLOCK)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_far_apart_requests_hit_all_that_their_ids_say_was_there(tmp_path: Path, seed: int) -> None:
    draw, size = random.Random(seed), 24  # blocks of the trace that are not the engine's
    rows, prompts, ids = [], [], dict[tuple[int, ...], int]()
    for row in range(24):
        blocks = tuple(draw.randrange(2) for _ in range(draw.randrange(1, 9)))
        tokens = (len(blocks) - 1) * size + draw.choice([1, 7, size])
        hashes = [ids.setdefault(blocks[: at + 1], len(ids)) for at in range(len(blocks))]
        if tokens % size:  # no other has the id of its partly filled block
            hashes[-1] = 10_000 + row
        own = [-1 - row] * (tokens % size)
        prompts.append(
            [2 * at + bit for at, bit in enumerate(blocks) for _ in range(size)][: tokens // size * size]
            + own
        )
        rows.append(
            {"timestamp": 60_000 * row, "input_length": tokens, "output_length": 2, "hash_ids": hashes}
        )
    path = tmp_path / "ids.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = done(*ALONE, "trace=file", f"trace.path={path}", f"trace.block_tokens={size}")
    expected = hits_of(prompts, prompts)
    assert run.columns["cached_tokens"].tolist() == expected and max(expected) > 0
    section = run.summary["prefix_cache"]
    assert section["hit_tokens"] == sum(expected) and section["queried_tokens"] == sum(map(len, prompts))
    assert section["hit_rate"] == sum(expected) / sum(map(len, prompts)) <= section["hit_rate_at_most"]
    assert section["requests_with_hits"] == sum(tokens > 0 for tokens in expected)
    assert section["evicted_blocks"] == 0


def test_far_apart_turns_hit_prompt_and_answer_of_the_turn_before() -> None:
    words = ("trace=multi_turn", "trace.requests=60", "trace.rate_per_s=0.02", "trace.think_s=200", "seed=2")
    run = done(*ALONE, *words)
    trace = load("multi_turn", seed=2, requests=60, rate_per_s=0.02, think_s=200.0)
    prompts, stored = [], []
    for stream, prompt, output in zip(
        trace.prefix.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True
    ):  # type: ignore[union-attr]
        text = [-1] * 500 + [stream] * (prompt + output - 500)  # a stream says one word again and again
        prompts.append(text[:prompt])
        stored.append(text[:-1])  # the last token of an answer is never computed
    expected = hits_of(prompts, stored)
    assert run.columns["cached_tokens"].tolist() == expected
    assert sum(expected) > 0.7 * sum(map(len, prompts))


def test_chats_are_found_where_they_were_sent_and_prefix_aware_dispatch_brings_them_there() -> None:
    spread = done(*CHATS).summary
    gathered = done(*CHATS, "system/dispatch=prefix_aware").summary
    assert gathered["prefix_cache"]["hit_rate"] > 1.2 * spread["prefix_cache"]["hit_rate"]
    assert gathered["ttft_ms"]["mean"] < 0.95 * spread["ttft_ms"]["mean"]
    for summary in (spread, gathered):
        assert 0.1 < summary["prefix_cache"]["hit_rate"] < summary["prefix_cache"]["hit_rate_at_most"]


def test_exact_and_coalesced_runs_dispatch_alike_by_prefix() -> None:
    words = (*CHATS, "trace.limit=200", "system/dispatch=prefix_aware", "engine.kv_tokens=20000")
    coalesced, exact = done(*words), done(*words, "engine.exact=true")
    assert coalesced.columns.keys() == exact.columns.keys()
    for name, values in coalesced.columns.items():
        np.testing.assert_array_equal(values, exact.columns[name], err_msg=name)
    assert coalesced.summary["prefix_cache"] == exact.summary["prefix_cache"]
    assert coalesced.summary["prefix_cache"]["evicted_blocks"] > 0


@pytest.mark.parametrize("word", ["trace.identities=false", "engine.prefix_caching=false"])
def test_a_run_that_looks_for_no_prefixes_reports_none(word: str) -> None:
    run = done(*CHATS, "trace.limit=60", word)
    assert "cached_tokens" not in run.columns and "prefix_cache" not in run.summary


def test_series_count_the_same_tokens() -> None:
    run = done(*CHATS, "trace.limit=200", "series.period_s=5")
    assert run.series is not None
    last = run.series[series_table.TIME] == run.series[series_table.TIME].max()
    for name, key in (
        (series_table.PREFIX_QUERIES, "queried_tokens"),
        (series_table.PREFIX_HITS, "hit_tokens"),
    ):
        assert run.series[name][last].sum() == run.summary["prefix_cache"][key]


def test_models_have_numbers_of_their_own(tmp_path: Path) -> None:
    row = (
        '{"timestamp": %d, "input_length": 1100, "output_length": 2, "hash_ids": [0, 1, %d], "model": "%s"}\n'
    )
    path = tmp_path / "two.jsonl"
    path.write_text("".join(row % (60_000 * at, 9 + at, model) for at, model in enumerate("aabaab")))
    run = done(
        "cluster=a100_x2", "trace=file", f"trace.path={path}", "models=of_trace", "models.shapes=llama3_8b",
        "models.count=2",
    )  # fmt: skip
    section = run.summary["prefix_cache"]
    one, other = section["models"].values()
    assert (one["hit_tokens"], other["hit_tokens"]) == (3 * 1024, 1024)
    assert section["hit_tokens"] == 4 * 1024 and section["queried_tokens"] == 6600
