"""A file of each format is told by its first bytes, and what is no trace is refused in one sentence."""

import gzip
import json
import os
from pathlib import Path

import pytest

from traces.columns import Names
from traces.errors import TraceError
from traces.fetching.sources import SOURCES
from traces.formats import FORMATS, format_of, writer_named
from traces.importers.azure_functions import COLUMNS as FUNCTION_MINUTES
from traces.synthetic.registry import SYNTHETIC
from traces.workload import Workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
TEXTS = {
    "azure": [AZURE, "TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n2025-01-01 00:00:00,374,44,1\n"],
    "burstgpt": [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,4,3,7,API log\n",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,,1.5,ChatGPT,4,3,7,API log\n",
    ],
    "azure_functions_2019": [f"{','.join(FUNCTION_MINUTES)}\nab,cd,ef,http,1{',0' * 1439}\n"],
    "azure_functions_2021": ["app,func,end_timestamp,duration\nab,cd,5.5,0.5\n"],
    "llmservingsim": ["arrival_time_ns,input_toks,output_toks\n5,6,7\n"],
    "servegen_csv": ["request_id,timestamp,input_tokens,output_tokens\n0,0.5,6,7\n"],
    "csv": [
        "arrival_ns,prompt_tokens,output_tokens\n5,6,7\n",
        "model,output_tokens,prompt_tokens,arrival_s\nm,7,6,0.5\n",
    ],
    "mooncake": ['{"timestamp": 0, "input_length": 7, "output_length": 5, "hash_ids": [0]}\n'],
    "bailian": [
        '{"chat_id": 5, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, "output_length": 5,'
        ' "type": "text", "turn": 1, "hash_ids": [0, 1]}\n'
    ],
    "llmservingsim_prefix": [
        '{"arrival_time_ns": 0, "input_length": 20, "output_length": 5, "hash_ids": [0]}\n'
    ],
    "vllm_bench": ['{"prompt": "Hi", "output_tokens": 5}\n', '{"prompt_len": 2, "output_len": 5}\n'],
    "servegen": [
        '{"request_id": 0, "timestamp": 0.5, "data": {"input_tokens": 6, "output_tokens": 7}}\n',
        '{"request_id": 0, "timestamp": 0.5, "input_tokens": 6, "output_tokens": 7}\n',
    ],
    "aibrix": ['{"timestamp": 0, "requests": [{"prompt_length": 6, "output_length": 7}]}\n'],
    "weka": [
        '{"id": "c", "block_size": 64, "requests": [{"t": 0.0, "type": "s", "in": 6, "out": 7,'
        ' "hash_ids": []}]}\n',
    ],
    "openai_batch": ['{"custom_id": "a", "body": {"messages": [{"content": "Hello"}], "max_tokens": 7}}\n'],
    "vllm_result": [
        '{"date": "d", "input_lens": [6], "output_lens": [7], "start_times": [0.5], "ttfts": [0.1]}\n',
        '{\n "input_lens": [6],\n "output_lens": [7],\n "request_rate": 2.0, "mean_ttft_ms": NaN\n}\n',
    ],
    "guidellm": [
        json.dumps(
            {
                "benchmarks": [
                    {
                        "requests": {
                            "successful": [
                                {"request_start_time": 1780000000.5, "prompt_tokens": 6, "output_tokens": 7}
                            ]
                        }
                    }
                ]
            },
            indent=indent,
        )
        + "\n"
        for indent in (None, 1)
    ],
    "jsonl": [
        '{"startTime": "2026-01-01T00:00:00Z", "prompt_tokens": 6, "completion_tokens": 7}\n',
        '[{"ts": 0.5, "usage": {"prompt_tokens": 6, "completion_tokens": 7}}]\n',
    ],
    "sharegpt": [
        json.dumps([{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}])
    ],
}
OPTIONS = {
    "vllm_bench": {"rate_per_s": 1.0},
    "sharegpt": {"rate_per_s": 1.0},
    "openai_batch": {"rate_per_s": 1.0, "chars_per_token": 4.0},
}
TABLES = {"csv", "jsonl"}  # read any file with a time and two lengths
CASES = [(name, text) for name, texts in TEXTS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), CASES)
@pytest.mark.parametrize("dress", ["plain", "crlf", "mark", "gzipped", "gzipped in two"])
def test_a_file_of_each_format_is_told_and_read(tmp_path: Path, name: str, text: str, dress: str) -> None:
    data = text.encode()
    if dress == "crlf":
        data = data.replace(b"\n", b"\r\n")
    if dress == "mark":
        data = b"\xef\xbb\xbf" + data
    path = tmp_path / ("trace.gz" if "gzipped" in dress else "trace")
    parts = (data[:9], data[9:]) if dress == "gzipped in two" else (data,)
    path.write_bytes(b"".join(map(gzip.compress, parts)) if "gzipped" in dress else data)
    assert format_of(path).name == name
    assert len(format_of(path).read(path, options=OPTIONS.get(name))) == 1


def test_every_format_is_in_this_file_and_read_by_some_name() -> None:
    assert {*TEXTS, "parquet"} == set(FORMATS)
    assert {source.format for source in SOURCES.values()} <= set(FORMATS)


@pytest.mark.parametrize("name", ["csv", "parquet", "mooncake"])
def test_what_is_written_is_told_again(tmp_path: Path, name: str) -> None:
    workload = SYNTHETIC["zipf_mix"](seed=1, requests=50)
    path = tmp_path / "made"
    assert isinstance(writer_named(name)(workload, path), tuple)
    again = format_of(path).read(path)
    assert format_of(path).name == name and again.prompt_tokens.tolist() == workload.prompt_tokens.tolist()


@pytest.mark.parametrize(("name", "text"), CASES)
def test_no_other_reader_takes_it_for_its_own(tmp_path: Path, name: str, text: str) -> None:
    """But where two formats are one: a flat ServeGen line is a line for a benchmark, too."""
    path = tmp_path / "trace"
    path.write_text(text)
    right = FORMATS[name].read(path, options=OPTIONS.get(name))
    for other in FORMATS.values():
        if other.name == name:
            continue
        try:
            read = other.read(path, options={} if "timestamp" in text else OPTIONS.get(other.name))
        except TraceError as error:
            assert "\n" not in str(error)
            continue
        assert (name, other.name) == ("servegen", "vllm_bench") or other.name in TABLES
        assert read.prompt_tokens.tolist() == right.prompt_tokens.tolist()
        assert read.output_tokens.tolist() == right.output_tokens.tolist()


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b" \n\n", "is empty"),
        (AZURE.replace("\n", "\r").encode(), "is not in a known format"),
        (AZURE.replace(",", ";").encode(), "is not in a known format"),
        (AZURE.split("\n")[1].encode(), "is not in a known format"),
        (AZURE.encode("utf-16"), "is not UTF-8 text: unpack it, or save it as UTF-8"),
        (AZURE.encode("utf-16-le"), "is not UTF-8 text"),
        (AZURE.encode("utf-32"), "is not UTF-8 text"),
        (b"PK\x03\x04\x14\x00\xff\xff", "is not UTF-8 text"),
        (gzip.compress(AZURE.encode(), mtime=0), "holds gzip data: name it trace.gz"),
        (b"{\n", "not a JSON object"),
        (b'{"a": ' + b"[" * 100_000, "not a JSON object"),
        (b'"a"', "is not in a known format"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_printable_sentence(
    tmp_path: Path, data: bytes, part: str
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        format_of(path)
    assert part in str(caught.value) and str(caught.value).isprintable()
    assert len(str(caught.value)) < 600 + len(str(path))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for reader in (format_of, *(format.read for format in FORMATS.values())):
        drawn = {FORMATS[name].read: options for name, options in OPTIONS.items()}
        options = {"options": drawn[reader]} if reader in drawn else {}
        with pytest.raises(TraceError, match="is not a regular file: save the trace to a file"):
            reader(tmp_path / "pipe", **options)


def test_what_one_format_writes_every_format_could_read(tmp_path: Path) -> None:
    """Values that a file could not hold are refused by the workload itself, whatever it is written to."""
    for columns in ({"max_new_tokens": [10_000_001]}, {"prompt_tokens": [10_000_001]}):
        given = {"arrival_ns": [0], "prompt_tokens": [1], "output_tokens": [1]} | columns
        with pytest.raises(TraceError, match="write at most 10000000"):
            Workload(**given, name="w", source="by hand")
    for word in ("", "\ud800"):
        with pytest.raises(TraceError, match="name"):
            Names.of([word])
