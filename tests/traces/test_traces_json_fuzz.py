"""The JSON readers on damaged files: one sentence, or the rows that a plain reading of the bytes finds."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.refusals import refuses
from traces.errors import TraceError
from traces.importers.mooncake import read_mooncake
from traces.importers.servegen import read_servegen
from traces.importers.sharegpt import read_sharegpt
from traces.importers.vllm_bench import read_vllm_bench
from traces.workload import Workload

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Format:
    """A reader of JSON lines, sound lines of its format, and what a plain reading makes of one object."""

    read: Callable[[Path], Workload]
    lines: tuple[str, ...]
    plain: Callable[[dict[str, Any]], Row]  # (time in ns, prompt, output, ...)
    from_first: bool


def plain_mooncake(row: dict[str, Any]) -> Row:
    row_3 = round(Fraction(row["timestamp"]) * 10**6), row["input_length"], row["output_length"]
    return row_3 if row.get("hash_ids") is None else (*row_3, tuple(row["hash_ids"]))


def plain_servegen(row: dict[str, Any]) -> Row:
    row = row | row.get("data", {})
    output = row.get("output_tokens")
    if output is None:
        output = row["reason_tokens"] + row["answer_tokens"]
    return round(Fraction(row["timestamp"]) * 10**9), row["input_tokens"], output


def plain_vllm(row: dict[str, Any]) -> Row:
    prompt = next((row[key] for key in ("prompt_len", "input_len") if row.get(key) is not None), None)
    if prompt is None:
        prompt = len(row["prompt"]) if isinstance(row["prompt"], list) else -(-len(row["prompt"]) // 4)
    output = row["output_tokens"] if row.get("output_tokens") is not None else row["output_len"]
    at = row["timestamp"] if row.get("timestamp") is not None else row["arrival_time"]
    return round(Fraction(at) * 10**9), prompt, output


FORMATS = {
    "mooncake": Format(
        lambda path: read_mooncake(path, time_unit="ms"),
        (
            '{"timestamp": 0, "input_length": 700, "output_length": 50, "hash_ids": [0, 1]}',
            '{"timestamp": 5, "input_length": 513, "output_length": 0, "hash_ids": [0, 2]}',
            '{"timestamp": 7.25, "input_length": 9, "output_length": 4, "hash_ids": [3]}',
            '{"timestamp": 1e1, "input_length": 512, "output_length": 1, "hash_ids": [3]}',
        ),
        plain_mooncake,
        False,
    ),
    "servegen": Format(
        lambda path: read_servegen(path, time_unit="s"),
        (
            '{"request_id": 0, "timestamp": 0.125, "data": {"input_tokens": 10, "output_tokens": 20}}',
            '{"request_id": 1, "timestamp": 1, "input_tokens": 3, "output_tokens": 4}',
            '{"request_id": 2, "timestamp": 1.5, "input_tokens": 3, "reason_tokens": 4, "answer_tokens": 5}',
        ),
        plain_servegen,
        True,
    ),
    "vllm_bench": Format(
        lambda path: read_vllm_bench(path, rate_per_s=None, time_unit="s"),
        (
            '{"prompt": "Why is it so?", "output_tokens": 5, "timestamp": 1}',
            '{"prompt": [1, 2, 3], "output_len": 6, "timestamp": 1.25}',
            '{"prompt_len": 12, "output_tokens": 7, "timestamp": 2e0}',
        ),
        plain_vllm,
        True,
    ),
}
each_format = pytest.mark.parametrize("name", FORMATS)


def plain_rows(data: bytes, form: Format) -> list[Row]:
    """Rows with output in order of arrival, by the standard library alone."""
    texts = data.decode("utf-8-sig").split("\n")
    found = [json.loads(text, parse_float=Fraction) for text in texts if text.strip()]
    rows = [form.plain(row) for row in found]
    first = min((row[0] for row in rows), default=0) if form.from_first else 0
    kept = [(row[0] - first, *row[1:]) for row in rows if row[2] > 0]
    return sorted(kept, key=lambda row: row[0])


def rows_of(workload: Workload) -> list[Row]:
    columns = [workload.arrival_ns, workload.prompt_tokens, workload.output_tokens]
    rows = [tuple(row) for row in zip(*(column.tolist() for column in columns))]
    if workload.prefix is None:
        return rows
    return [(*row, workload.prefix[at]) for at, row in enumerate(rows)]


PIECES = [
    b"",
    b"0",
    b"-",
    b".5",
    b"e9",
    b",",
    b":",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\n",
    b"\r\n",
    b" ",
]
PIECES += [
    b"null",
    b"true",
    b"NaN",
    b"Infinity",
    b'"timestamp": 0, ',
    b"\xff",
    b"\xef\xbb\xbf",
    b"\x00",
    b"12.0",
]
PIECES += [b"9" * 19, b"9" * 5000, b"\xc3\xa9", b"\\ud800", b'"data": {}, ']


DIGITS = [b"%d" % digit for digit in range(10)] + [b"", b"12", b"2.0", b"0.5", b"-1", b"1e1", b"null"]


@st.composite
def damaged(draw: st.DrawFn, lines: tuple[str, ...]) -> bytes:
    """Some lines (in order, some twice) with a few digits changed and a few bytes put in or taken out."""
    order = sorted(draw(st.lists(st.sampled_from(range(len(lines))), min_size=1, max_size=5)))
    order = draw(st.sampled_from([order, order, order[::-1]]))
    data = "\n".join(lines[at] for at in order).encode()
    for _ in range(draw(st.integers(0, 2))):
        digit = draw(st.sampled_from([at for at, byte in enumerate(data) if 48 <= byte <= 57] or [0]))
        data = data[:digit] + draw(st.sampled_from(DIGITS)) + data[digit + 1 :]
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(PIECES) | st.binary(min_size=1, max_size=2))
        data = data[:at] + piece + data[at + draw(st.integers(0, 3)) :]
    return data


@each_format
@given(data=st.data())
@settings(max_examples=40)
def test_damaged_files_are_refused_or_read_as_they_stand(name: str, data: st.DataObject) -> None:
    form = FORMATS[name]
    content = data.draw(damaged(form.lines))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_bytes(content)
        try:
            workload = form.read(path)
        except TraceError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            return
    rows = plain_rows(content, form)
    assert rows_of(workload) == rows
    assert workload.rows_read == len(rows) + sum(workload.dropped.values())


@given(data=st.data())
@settings(max_examples=40)
def test_damaged_conversations_are_refused_or_read_as_they_stand(data: st.DataObject) -> None:
    turns = '[{"from": "human", "value": "Hi \\u00e9"}, {"from": "gpt", "value": "Hello"}]'
    whole = f'{{"id": "a", "conversations": {turns}}}'
    content = b"[" + data.draw(damaged((whole, whole + ",", f" , {whole}"))) + b"]"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.json"
        path.write_bytes(content)
        try:
            workload = read_sharegpt(path, rate_per_s=1, count_tokens=len)
        except TraceError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            return
    found = json.loads(content.decode("utf-8-sig"))
    pairs = [[turn["value"] for turn in each["conversations"]] for each in found]
    kept = [(0, len(pair[0]), len(pair[1])) for pair in pairs if len(pair) >= 2]
    assert workload.rows_read == len(found)
    if not workload.dropped:
        assert rows_of(workload) == [(at, *row[1:]) for at, row in zip(workload.arrival_ns.tolist(), kept)]


@each_format
def test_the_undamaged_lines_are_read(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    content = "\n".join(form.lines).encode()
    for number, data in enumerate(
        (content, content + b"\n", content + b"\r\n\n \t\n", b"\xef\xbb\xbf" + content)
    ):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(data)
        assert rows_of(form.read(path)) == plain_rows(data, form) != []
    path = tmp_path / "crlf.jsonl.gz"
    path.write_bytes(gzip.compress(content.replace(b"\n", b"\r\n")))
    assert rows_of(form.read(path)) == plain_rows(content, form)


@each_format
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "line 2: the line is empty: delete it, or write {"),
        (b"5", "line 2: 5 is not a JSON object: write {"),
        (b'"x"', "line 2: 'x' is not a JSON object"),
        (b"[{}]", "line 2: a list is not a JSON object"),
        (b"null", "line 2: null is not a JSON object"),
        (b"{} {}", "line 2: it is not JSON: extra data, character 4: write one JSON object"),
        (b'{"timestamp": NaN}', "line 2: NaN is not a JSON number"),
        (b'{"timestamp": -Infinity}', "line 2: -Infinity is not a JSON number"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "line 2: the key 'c' occurs twice"),
        (b'{"a": 1e9999999999999999999999}', "is out of range"),
        (b'{"a": ' + b"7" * 5000 + b"}", "line 2: a number has too many digits"),
        (b'{"a": ' + b"[" * 200_000 + b"}", "line 2: it is nested too deep"),
        (b'{"a": ' + b'{"a": ' * 200_000 + b"}", "line 2: it is nested too deep"),
        (b'{"a": "\xe9"}', "line 2: byte 8 is not UTF-8 text"),
        (b'{"a": "\x00"}', "line 2: it is not JSON: invalid control character at, character 8"),
        (b"{'a': 1}", "line 2: it is not JSON: expecting property name enclosed in double quotes"),
        (b'{"timestamp": {"a": [1]}}', "line 2, key timestamp: an object is not a number"),
        (b'{"timestamp": 1e99999}', "line 2, key timestamp: 1E+99999"),
        (b'{"timestamp": ' + b"7" * 4000 + b"}", "777... "),
    ],
)
def test_json_is_strict(name: str, text: bytes, sentence: str, tmp_path: Path) -> None:
    lines = [line.encode() for line in FORMATS[name].lines]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join([lines[0], text, *lines[1:]]))
    with pytest.raises(TraceError) as caught:
        FORMATS[name].read(path)
    assert sentence in str(caught.value) and len(str(caught.value)) < 400


@each_format
@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf"])
def test_nothing_is_no_trace(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    refuses(TraceError, "has no requests: write one line for each, such as ", FORMATS[name].read, path)


@each_format
def test_files_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    read = FORMATS[name].read
    refuses(TraceError, "does not exist", read, tmp_path / "none.jsonl")
    refuses(TraceError, "is a directory", read, tmp_path)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(FORMATS[name].lines).encode())[:-5])
    refuses(TraceError, "truncated gzip", read, path)
