"""The file formats a workload is read from and written to, by name, and how a file's format is recognised."""

import codecs
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traces.column_names import ARRIVAL, ARRIVALS, MARK, NEEDED, OUTPUT, PROMPT, known_columns, listed
from traces.errors import TraceError
from traces.reading import head_of
from traces.workload import Workload

_OWN_PARAMETERS: Final = ("path", "name", "limit", "seed")
_NEEDED: Final = tuple(MARK + ours for ours in NEEDED)
_MOST_KEYS: Final = 12
_SPACE: Final = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """reader, writer: ``module:function`` of traces.importers, imported when used; writer None: read only.

    shape: csv, jsonl (an object per line), json (an array), document (one object) or parquet, or several with
    ``|`` between. marks: column names or keys of which one whole set tells the format; after ``MARK`` a
    column of ours that is there under a common name. columns: a pattern of all columns that its reader takes;
    a file with others is none of this format; None: any.
    """

    name: str
    what: str
    shape: str
    marks: tuple[frozenset[str], ...]
    reader: str
    writer: str | None = None
    columns: str | None = None

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What its reader may be told beside path, name, limit and seed."""
        parameters = inspect.signature(_imported(self.reader), eval_str=True).parameters
        return {name: value for name, value in parameters.items() if name not in _OWN_PARAMETERS}

    def read(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> Workload:
        """The requests of a file of this format. Raises TraceError, for options that do not apply too."""
        options_given = {key: value for key, value in (options or {}).items() if value is not None}
        reader = _imported(self.reader)
        for key, value in options_given.items():
            if key not in self.options:
                known = ", ".join(f"trace.{option}" for option in self.options) or "no options"
                raise TraceError(
                    f"trace.{key}={value} does not apply to {name or path}, which is read as {self.name}:"
                    f" leave it out ({self.name} takes {known})"
                )
        for key, parameter in self.options.items():
            if parameter.default is parameter.empty:
                options_given.setdefault(key, None)  # the reader says when it cannot do without
        if "seed" in inspect.signature(reader).parameters:
            options_given["seed"] = seed
        workload: Workload = reader(path, name=name, **options_given)
        return workload


def _marks(*sets: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split("|")) for words in sets)


# In the order in which a file is asked: a format whose marks contain another's comes before it.
_ALL: Final = (
    Format(
        name="azure",
        what="Azure LLM inference traces of 2023 and 2024, and the multimodal one of 2025",
        shape="csv",
        marks=_marks("TIMESTAMP|ContextTokens|GeneratedTokens"),
        reader="azure:read_azure",
        columns="TIMESTAMP|ContextTokens|GeneratedTokens|NumImages",
    ),
    Format(
        name="burstgpt",
        what="BurstGPT releases 1 to 3: failures, sessions, elapsed times",
        shape="csv",
        marks=_marks("Timestamp|Model|Request tokens|Response tokens|Total tokens|Log Type"),
        reader="burstgpt:read_burstgpt",
        columns="Timestamp|Model|(Request|Response|Total) tokens|Log Type|Session ID|Elapsed time",
    ),
    Format(
        name="azure_functions_2019",
        what="Azure Functions 2019: invocations per minute of one day",
        shape="csv",
        marks=_marks("HashOwner|HashApp|HashFunction|Trigger"),
        reader="azure_functions:read_azure_functions_2019",
    ),
    Format(
        name="azure_functions_2021",
        what="Azure Functions 2021: one line per invocation",
        shape="csv",
        marks=_marks("app|func|end_timestamp|duration"),
        reader="azure_functions:read_azure_functions_2021",
    ),
    Format(
        name="llmservingsim",
        what="workloads of LLMServingSim",
        shape="csv",
        marks=_marks("arrival_time_ns|input_toks|output_toks"),
        reader="llmservingsim:read_llmservingsim",
        columns="arrival_time_ns|input_toks|output_toks",
    ),
    Format(
        name="servegen_csv",
        what="requests saved by ServeGen as CSV",
        shape="csv",
        marks=_marks("request_id|timestamp|input_tokens|output_tokens"),
        reader="servegen:read_servegen_csv",
        columns="request_id|timestamp|.*_tokens",
    ),
    Format(
        name="csv",
        what="CSV with a time and two lengths per request, under our names, common ones or those you name",
        shape="csv",
        marks=_marks("prompt_tokens|output_tokens", "=prompt_tokens|=output_tokens"),
        reader="plain_csv:read_plain_csv",
        writer="plain_csv:write_plain_csv",
    ),
    Format(
        name="parquet",
        what="Parquet with the columns of the plain CSV",
        shape="parquet",
        marks=(frozenset(),),
        reader="parquet_table:read_parquet_table",
        writer="parquet:write_parquet",
    ),
    Format(
        name="bailian",
        what="Bailian JSONL: Mooncake's keys and chats, in seconds, with blocks of 16 tokens",
        shape="jsonl",
        marks=_marks("chat_id|parent_chat_id|timestamp|input_length|output_length"),
        reader="bailian:read_bailian",
    ),
    Format(
        name="llmservingsim_prefix",
        what="workloads of LLMServingSim, with ids of full blocks of 16 tokens",
        shape="jsonl",
        marks=_marks("arrival_time_ns|input_length|output_length"),
        reader="llmservingsim:read_llmservingsim_prefix",
    ),
    Format(
        name="mooncake",
        what="Mooncake JSONL, AIPerf's too: timestamp, input_length, output_length, hash_ids",
        shape="jsonl",
        marks=_marks(
            "timestamp|input_length", "input_length|hash_ids", "input_length|output_length", "text_input"
        ),
        reader="mooncake:read_mooncake",
        writer="mooncake:write_mooncake",
    ),
    Format(
        name="aibrix",
        what="AIBrix workloads: requests that arrive together, per line",
        shape="jsonl",
        marks=_marks("timestamp|requests"),
        reader="other_tools:read_aibrix",
    ),
    Format(
        name="weka",
        what="Weka's conversations of coding agents: turns in each, with block ids",
        shape="jsonl|document|json",
        marks=_marks("requests|block_size"),
        reader="other_tools:read_weka",
    ),
    Format(
        name="openai_batch",
        what="input of OpenAI's Batch API: texts, arrivals are drawn",
        shape="jsonl",
        marks=_marks("custom_id|body"),
        reader="other_tools:read_openai_batch",
    ),
    Format(
        name="vllm_result",
        what="result of vllm bench serve --save-result --save-detailed",
        shape="jsonl|document",
        marks=_marks("input_lens|output_lens", "total_input_tokens|request_throughput"),
        reader="results:read_vllm_result",
    ),
    Format(
        name="guidellm",
        what="result of GuideLLM as JSON",
        shape="jsonl|document",
        marks=_marks("benchmarks"),
        reader="results:read_guidellm",
    ),
    Format(
        name="servegen",
        what="requests of ServeGen as JSONL",
        shape="jsonl",
        marks=_marks(
            "timestamp|data", "timestamp|input_tokens|output_tokens", "timestamp|input_tokens|reason_tokens"
        ),
        reader="servegen:read_servegen",
    ),
    Format(
        name="jsonl",
        what="objects with a time and two lengths, under our names, common ones or those you name",
        shape="jsonl|json",
        marks=(
            *_marks("=arrival!|=prompt_tokens|=output_tokens", "=arrival|=prompt_tokens!|=output_tokens"),
            *_marks("=arrival|=prompt_tokens|=output_tokens!", "=prompt_tokens!|=output_tokens!"),
            *(frozenset({PROMPT, OUTPUT, arrival}) for arrival in ARRIVALS),
        ),
        reader="json_table:read_json_table",
    ),
    Format(
        name="vllm_bench",
        what="vLLM benchmark JSONL: prompt or prompt length, output length",
        shape="jsonl",
        marks=_marks("prompt", "prompt_len", "input_len", "prompt_tokens"),
        reader="vllm_bench:read_vllm_bench",
    ),
    Format(
        name="sharegpt",
        what="ShareGPT conversations (one JSON array): lengths only, arrivals are drawn",
        shape="json",
        marks=_marks("conversations"),
        reader="sharegpt:read_sharegpt",
    ),
)
FORMATS: Final[dict[str, Format]] = {format.name: format for format in _ALL}
WRITABLE: Final = tuple(format.name for format in _ALL if format.writer is not None)


def format_named(name: str) -> Format:
    """The format of that name, or TraceError."""
    if name not in FORMATS:
        raise TraceError(f"trace.format={name} is unknown: write one of {', '.join(FORMATS)}")
    return FORMATS[name]


def format_of(path: str | Path, columns: str | None = None) -> Format:
    """The format of a file, told by its first bytes; TraceError when none fits.

    columns: ``trace.columns``; with it any table of that shape is read by its columns.
    """
    file = Path(path)
    shape, names = _shape_and_names(head_of(file), file)
    if columns is not None:
        return FORMATS[shape if shape in ("csv", "parquet") else "jsonl"]
    fields = frozenset(names) | known_columns(names)
    for format in _ALL:
        told = shape in format.shape.split("|") and any(marks <= fields for marks in format.marks)
        if told and (format.columns is None or all(re.fullmatch(format.columns, name) for name in names)):
            return format
    raise _unknown(shape, names, fields, file)


def _unknown(shape: str, names: tuple[str, ...], fields: frozenset[str], file: Path) -> TraceError:
    """The sentence about a file of no known format: the closest one and what it lacks."""
    if shape == "document":
        keys = f", and the file is no known document (its keys are {_some(names)})" if names else ""
        return TraceError(f"{file}, line 1: not a JSON object{keys}: write one object per line")
    kind = f"header is {listed(names)}" if shape == "csv" else f"keys are {_some(names)}"
    what = f"{file} is not in a known format (its {kind})"
    if shape == "csv" and len(names) == 1 and (mark := next((m for m in ";\t|" if m in names[0]), None)):
        return TraceError(f"{what}: separate its columns by commas, not by {mark!r}")
    table = FORMATS["csv" if shape == "csv" else "jsonl"]
    fits = [
        (len(marks & fields) / len(marks), format is table, -at, format, marks)
        for at, format in enumerate(_ALL)
        if shape in format.shape.split("|")
        for marks in format.marks
    ]
    _, _, _, closest, marks = max(fits, key=lambda fit: fit[:3])
    missing = [ours for ours in NEEDED if MARK + ours not in fields]
    lacks = missing if closest is table else sorted(marks - fields)
    pairs = ",".join(f"{ours}:THEIRS" for ours in missing or [ARRIVAL])
    return TraceError(
        f"{what}; the closest format, {closest.name}, also needs {', '.join(lacks)}: write"
        f" trace.columns=[{pairs}] with names of the file" + ("" if closest is table else ", or add that")
    )


def _some(keys: tuple[str, ...]) -> str:
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return (listed(keys[:_MOST_KEYS]) or "missing") + more


def writer_named(name: str) -> Callable[..., tuple[str, ...]]:
    """The function that writes a workload in the format ``name``; TraceError when none does."""
    writer = FORMATS[name].writer if name in FORMATS else None
    if writer is None:
        raise TraceError(f"format={name} cannot be written: write one of {', '.join(WRITABLE)}")
    return _imported(writer)


def _imported(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    imported: Callable[..., Any] = getattr(importlib.import_module(f"traces.importers.{module}"), name)
    return imported


def _shape_and_names(head: bytes, file: Path) -> tuple[str, tuple[str, ...]]:
    """The shape of a file, and its columns or the keys of its first object, those inside joined by dots."""
    if head.startswith(b"PAR1"):
        return "parquet", ()
    first = head.lstrip()
    if not first:
        raise TraceError(f"{file} is empty: name a file with at least one request")
    line = _text(first.partition(b"\n")[0], file)
    if first.startswith(b"["):
        keys = _keys_of(first[1:].lstrip().decode("utf-8", "replace"))
        return "json", tuple(keys) or ("conversations",)  # the oldest reader of arrays says what is wrong
    if not first.startswith(b"{"):
        return "csv", tuple(field.strip().strip('"') for field in line.split(","))
    try:
        return "jsonl", tuple(_flat_keys(json.loads(line)))
    except (ValueError, RecursionError):
        return "document", tuple(_keys_of(first.decode("utf-8", "replace")))


def _flat_keys(value: dict[str, Any], before: str = "", depth: int = 2) -> Iterator[str]:
    for key, inner in value.items():
        yield before + key
        if isinstance(inner, dict) and depth:
            yield from _flat_keys(inner, f"{before}{key}.", depth - 1)


def _keys_of(text: str) -> list[str]:
    """The keys of the object that ``text`` begins with, as far as it goes; none if it begins with none."""
    keys: list[str] = []
    if not text.startswith("{"):
        return keys
    decoder, at = json.JSONDecoder(), 1
    try:
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            key, at = decoder.raw_decode(text, at)
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if not isinstance(key, str) or text[at : at + 1] != ":":
                return keys
            keys.append(key)
            value, at = decoder.raw_decode(text, _SPACE.match(text, at + 1).end())  # type: ignore[union-attr]
            if isinstance(value, dict):
                keys.extend(_flat_keys(value, f"{key}."))
    except (ValueError, RecursionError):
        return keys


def _text(line: bytes, file: Path) -> str:
    """The first line; TraceError when it is no text of the kind that readers take."""
    try:
        if b"\0" not in line:
            return codecs.getincrementaldecoder("utf-8")().decode(line).strip()  # it may be cut
    except UnicodeDecodeError:
        pass
    raise TraceError(f"{file} is not UTF-8 text: unpack it, or save it as UTF-8")
