"""ServeGen requests: nested or flat, exact to the nearest nanosecond, refused in one sentence."""

import json
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.importers.servegen import read_servegen


def written(folder: Path, *rows: dict[str, Any] | str, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def request(timestamp: Any, **data: Any) -> dict[str, Any]:
    return {"request_id": 0, "timestamp": timestamp, "data": {"input_tokens": 10, "output_tokens": 20} | data}


def test_nested_and_flat_rows_are_the_same(tmp_path: Path) -> None:
    flat = {"request_id": 1, "timestamp": 0.375, "input_tokens": 11, "output_tokens": 21, "client_id": 4}
    workload = read_servegen(written(tmp_path, request(0.125), flat))
    assert workload.arrival_ns.tolist() == [0, 250_000_000]
    assert workload.prompt_tokens.tolist() == [10, 11]
    assert workload.output_tokens.tolist() == [20, 21]
    assert workload.session is not None and workload.session.tolist() == [None, "4"]
    assert workload.model is workload.images is None
    assert (workload.name, workload.rows_read, workload.labels) == ("trace", 2, ("times in s",))


def test_reasoning_output_is_the_sum_of_its_parts_unless_it_is_given(tmp_path: Path) -> None:
    parts = {"request_id": 0, "timestamp": 1, "input_tokens": 5, "reason_tokens": 30, "answer_tokens": 4}
    whole = parts | {"output_tokens": 33, "reason_ratio": 0.9}
    assert read_servegen(written(tmp_path, parts, whole)).output_tokens.tolist() == [34, 33]


def test_multimodal_prompts_count_pictures_sounds_and_films(tmp_path: Path) -> None:
    media = {"text_tokens": 10, "image_tokens": [64, 100], "audio_tokens": [7], "video_tokens": []}
    rows = [{"timestamp": at, "data": media | {"output_tokens": 2}} for at in (0, 1)]
    rows[1]["data"] = media | {"image_tokens": [], "output_tokens": 2}
    workload = read_servegen(written(tmp_path, *rows))
    assert workload.prompt_tokens.tolist() == [181, 17]
    assert workload.images is not None and workload.images.tolist() == [2, 0]
    whole = read_servegen(written(tmp_path, request(0, image_tokens=[4])))
    assert whole.prompt_tokens.tolist() == [10] and whole.images is not None
    with pytest.raises(TraceError, match="input_tokens: 10 tokens are fewer than the 64 of its parts"):
        read_servegen(written(tmp_path, request(0, image_tokens=[64])))


def test_zero_output_is_dropped_and_limit_takes_the_first_rows(tmp_path: Path) -> None:
    path = written(tmp_path, request(0), request(1, output_tokens=0), request(2), request(3))
    assert read_servegen(path).dropped == {"zero output tokens": 1}
    first = read_servegen(path, limit=3, name="n")
    assert (len(first), first.rows_read, first.labels) == (2, 3, ("first 3 of 4 requests", "times in s"))


@given(st.lists(st.floats(0, 9e9, allow_subnormal=True), min_size=1, max_size=8), st.booleans())
@settings(max_examples=30)
def test_times_are_the_nearest_nanosecond_of_what_is_written(times_s: list[float], from_zero: bool) -> None:
    times_s = sorted([0.0, *times_s] if from_zero else times_s)
    with TemporaryDirectory() as folder:
        workload = read_servegen(written(Path(folder), *(request(at) for at in times_s)))
    exact = [round(Fraction(repr(at)) * 10**9) for at in times_s]
    assert workload.arrival_ns.tolist() == [at - exact[0] for at in exact]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (request(None), "line 2, key timestamp: the value is missing: write the arrival in s, such as 1.5"),
        (request(1e300), "is negative or too late"),
        (request(9, output_tokens=None), "line 2, key output_tokens: the value is missing"),
        (request(9, input_tokens=0), "line 2, key input_tokens: 0 is out of range"),
        (request(9, input_tokens="10"), "line 2, key input_tokens: '10' is not a whole number"),
        (request(9, image_tokens=5), "line 2, key image_tokens: 5 is not a list: write the tokens of each"),
        (request(9, image_tokens=[0.5]), "line 2, key image_tokens: 0.5 is not a whole number"),
        (
            request(9) | {"input_tokens": 8},
            "key 'input_tokens': the key occurs both inside and outside data: keep one",
        ),
        (request(9, image_tokens=[1]), "line 1, key image_tokens: the value is missing, but line 2 has one"),
        (request(9, model="m"), "line 1, key model: the value is missing, but line 2 has one"),
        ({"timestamp": 9, "data": [1]}, "line 2, key data: a list is not an object: write"),
        ({"timestamp": 9, "input_tokens": 5, "reason_tokens": 5}, "key answer_tokens: the value is missing"),
        ({"timestamp": 9, "text_tokens": 0, "output_tokens": 5}, "key input_tokens: 0 is out of range"),
        (
            {"timestamp": 9, "text_tokens": 1, "image_tokens": [10**7], "output_tokens": 5},
            "key input_tokens: 10000001 is out of range",
        ),
        (
            {"timestamp": 9, "input_tokens": 1, "reason_tokens": 10**7, "answer_tokens": 1},
            "key output_tokens: 10000001 is out of range",
        ),
    ],
)
def test_refuses_in_one_sentence(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_servegen(written(tmp_path, request(1), row))
    assert sentence in str(caught.value) and "trace.jsonl" in str(caught.value)
