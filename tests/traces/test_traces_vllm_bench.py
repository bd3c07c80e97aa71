"""Benchmark requests: lengths read or estimated, arrivals read or drawn, and labels for what is not read."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.importers.json_lines import Spot
from traces.importers.vllm_bench import measure_of, read_vllm_bench

DRAWN = "no arrivals in the source: drawn at 2/s"
ROWS = [{"prompt": "Why is the sky blue?", "output_tokens": 50}, {"prompt": "x", "output_tokens": 3}]


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "bench.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def refusal(path: Path, **options: Any) -> str:
    return refuses(TraceError, "", read_vllm_bench, path, **({"rate_per_s": 2} | options))


def test_texts_are_estimated_and_arrivals_drawn(tmp_path: Path) -> None:
    path = written(tmp_path, *ROWS)
    workload = read_vllm_bench(path, rate_per_s=2)
    assert workload.prompt_tokens.tolist() == [5, 1]
    assert workload.output_tokens.tolist() == [50, 3]
    assert workload.labels == ("prompt lengths estimated at 4 characters per token", DRAWN)
    assert workload.arrival_ns[0] == 0 and workload.name == "bench"
    halves = read_vllm_bench(path, rate_per_s=2, chars_per_token=2.5)
    assert halves.prompt_tokens.tolist() == [8, 1]
    assert halves.labels[0] == "prompt lengths estimated at 2.5 characters per token"


def test_a_tokenizer_counts_instead(tmp_path: Path) -> None:
    workload = read_vllm_bench(written(tmp_path, *ROWS), rate_per_s=2, count_tokens=len)
    assert workload.prompt_tokens.tolist() == [20, 1]
    assert workload.labels[0] == "prompt lengths counted by len"
    assert "count_tokens returned 0: return" in refusal(written(tmp_path, *ROWS), count_tokens=lambda text: 0)


@given(st.integers(1, 10**6), st.floats(0.2, 50))
def test_estimates_round_up(characters: int, chars_per_token: float) -> None:
    measure = measure_of(None, chars_per_token)
    tokens = measure.tokens(characters, Spot(Path("x"), 1), "prompt")
    assert tokens == math.ceil(characters / chars_per_token) >= 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prompt_len", 7),
        ("input_len", 7),
        ("prompt_tokens", 7),
        ("input_tokens", 7),
        ("prompt_tokens", [5] * 7),
        ("prompt", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_lengths_are_taken_as_they_are(tmp_path: Path, key: str, value: Any) -> None:
    row = {"prompt": "some text", "output_len": 2} | {key: value}
    workload = read_vllm_bench(written(tmp_path, row), rate_per_s=2)
    assert workload.prompt_tokens.tolist() == [7]
    assert workload.output_tokens.tolist() == [2]
    assert workload.labels == (DRAWN,)


def test_labels_count_rows_when_only_some_are_estimated(tmp_path: Path) -> None:
    rows = [{"prompt": "abcde", "max_tokens": 9}, {"prompt_len": 3, "output_len": 4, "max_tokens": 9}]
    workload = read_vllm_bench(written(tmp_path, *rows), rate_per_s=2)
    assert workload.output_tokens.tolist() == [9, 4]
    assert workload.labels == (
        "prompt lengths of 1 of 2 rows estimated at 4 characters per token",
        "output lengths of 1 of 2 rows taken from max_tokens",
        DRAWN,
    )


@pytest.mark.parametrize("key", ["timestamp", "arrival_time"])
def test_recorded_arrivals_are_used(tmp_path: Path, key: str) -> None:
    rows = [{"prompt_len": 3, "output_len": 4, key: at} for at in (1_700_000_000.25, 1_700_000_001)]
    path = written(tmp_path, *rows)
    workload = read_vllm_bench(path, rate_per_s=None)
    assert workload.arrival_ns.tolist() == [0, 750_000_000]
    assert workload.labels == ("times in s",)
    assert f"has arrivals of its own ({key}): leave out trace.rate_per_s=2" in refusal(path)
    back = written(tmp_path, *reversed(rows))
    again = read_vllm_bench(back, rate_per_s=None)
    assert again.arrival_ns.tolist() == [0, 750_000_000]
    assert "rows sorted by arrival: 1 arrived before the row above" in again.labels


def test_draws_are_the_streams_own_and_a_prefix_of_longer_ones(tmp_path: Path) -> None:
    rows = [{"prompt_len": n, "output_len": 1} for n in range(1, 2001)]
    long = read_vllm_bench(written(tmp_path, *rows), rate_per_s=4, seed=3)
    short = read_vllm_bench(written(tmp_path, *rows), rate_per_s=4, seed=3, limit=10)
    assert short.arrival_ns.tolist() == long.arrival_ns[:10].tolist()
    assert short.labels == ("first 10 of 2000 requests", "no arrivals in the source: drawn at 4/s")
    assert np.diff(long.arrival_ns).mean() == pytest.approx(0.25e9, rel=0.1)
    other = read_vllm_bench(written(tmp_path, *rows), rate_per_s=4, seed=4)
    assert other.arrival_ns.tolist() != long.arrival_ns.tolist()
    bursts = read_vllm_bench(written(tmp_path, *rows), rate_per_s=4, seed=3, gap_cv=3)
    assert bursts.labels == ("no arrivals in the source: drawn at 4/s with gap CV 3",)


def test_zero_outputs_are_dropped_and_counted(tmp_path: Path) -> None:
    workload = read_vllm_bench(written(tmp_path, ROWS[0] | {"output_tokens": 0}, ROWS[1]), rate_per_s=2)
    assert workload.dropped == {"zero output tokens": 1}
    assert (len(workload), workload.rows_read) == (1, 2)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"output_tokens": 5}, "line 2, key prompt: the prompt is missing: write its text, or its length"),
        ({"prompt": "", "output_tokens": 5}, "line 2, key prompt: the prompt is missing"),
        ({"prompt": 5, "output_tokens": 5}, "line 2, key prompt: 5 is not a prompt"),
        ({"prompt": {"a": 1}, "output_tokens": 5}, "line 2, key prompt: an object is not a prompt"),
        ({"prompt": [], "output_tokens": 5}, "line 2, key prompt: 0 is out of range"),
        ({"prompt": [1, "a"], "output_tokens": 5}, "line 2, key prompt: 'a' is not a whole number"),
        ({"prompt": [1, True], "output_tokens": 5}, "key prompt: true is not a whole number"),
        ({"prompt_len": 0, "output_tokens": 5}, "line 2, key prompt_len: 0 is out of range"),
        ({"prompt_len": "x", "output_tokens": 5}, "key prompt_len: 'x' is not a whole number"),
        ({"prompt_len": 5, "input_len": 6, "output_len": 5}, "key input_len: it differs from prompt_len"),
        ({"prompt": "a"}, "line 2, key output_tokens: the value is missing"),
        ({"prompt": "a", "output_len": 5.0}, "key output_len: 5.0 is written as a fraction: write 5"),
        (
            {"prompt": "a", "output_len": 5, "timestamp": 3},
            "line 1, key timestamp: the value is missing, but",
        ),
    ],
)
def test_refuses_in_one_sentence(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, ROWS[0], row))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rate_per_s": None}, "has no arrivals: write trace.rate_per_s="),
        ({"rate_per_s": 0}, "trace.rate_per_s=0 must be finite and above 0"),
        ({"gap_cv": -1}, "gap_cv=-1 must be finite and above 0"),
        ({"chars_per_token": 0}, "chars_per_token=0 must be finite and above 0"),
        ({"chars_per_token": 1e-300}, "line 1, key prompt: the text has more than 10000000 tokens"),
        ({"seed": -1}, "seed=-1 is out of range"),
        ({"limit": True}, "trace.limit=True is not a whole number"),
    ],
)
def test_refuses_wrong_options(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(written(tmp_path, *ROWS), **options)
