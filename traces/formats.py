"""The file formats a workload is read from and written to, by name, and how a file's format is recognised."""

import codecs
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traces.csv.line import shown
from traces.errors import TraceError
from traces.reading import head_of
from traces.workload import Workload

_OWN_PARAMETERS: Final = ("path", "name", "limit", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """reader, writer: ``module:function`` of traces.importers, imported when used; writer None: read only.

    shape: csv, jsonl, json or parquet. marks: column names or keys of which one whole set tells the format.
    """

    name: str
    what: str
    shape: str
    marks: tuple[frozenset[str], ...]
    reader: str
    writer: str | None = None

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
    ),
    Format(
        name="burstgpt",
        what="BurstGPT releases 1 to 3: failures, sessions, elapsed times",
        shape="csv",
        marks=_marks("Timestamp|Model|Request tokens|Response tokens"),
        reader="burstgpt:read_burstgpt",
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
    ),
    Format(
        name="servegen_csv",
        what="requests saved by ServeGen as CSV",
        shape="csv",
        marks=_marks("request_id|timestamp|input_tokens|output_tokens"),
        reader="servegen:read_servegen_csv",
    ),
    Format(
        name="csv",
        what="plain CSV: arrival_ns (or arrival_s, arrival_ms), prompt_tokens, output_tokens, ...",
        shape="csv",
        marks=_marks("prompt_tokens|output_tokens"),
        reader="plain_csv:read_plain_csv",
        writer="plain_csv:write_plain_csv",
    ),
    Format(
        name="parquet",
        what="Parquet with the columns of the plain CSV",
        shape="parquet",
        marks=(frozenset(),),
        reader="parquet:read_parquet",
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
        name="mooncake",
        what="Mooncake JSONL: timestamp, input_length, output_length, hash_ids",
        shape="jsonl",
        marks=_marks("timestamp|input_length|output_length"),
        reader="mooncake:read_mooncake",
        writer="mooncake:write_mooncake",
    ),
    Format(
        name="llmservingsim_prefix",
        what="workloads of LLMServingSim, with ids of full blocks of 16 tokens",
        shape="jsonl",
        marks=_marks("arrival_time_ns|input_length|output_length"),
        reader="llmservingsim:read_llmservingsim_prefix",
    ),
    Format(
        name="vllm_bench",
        what="vLLM benchmark JSONL: prompt or prompt length, output length",
        shape="jsonl",
        marks=_marks("prompt", "prompt_len", "input_len", "prompt_tokens"),
        reader="vllm_bench:read_vllm_bench",
    ),
    Format(
        name="servegen",
        what="requests of ServeGen as JSONL",
        shape="jsonl",
        marks=_marks("timestamp|data", "timestamp|input_tokens"),
        reader="servegen:read_servegen",
    ),
    Format(
        name="sharegpt",
        what="ShareGPT conversations (one JSON array): lengths only, arrivals are drawn",
        shape="json",
        marks=(frozenset(),),
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


def format_of(path: str | Path) -> Format:
    """The format of a file, told by its first bytes; TraceError when none fits."""
    file = Path(path)
    shape, fields = _shape_and_fields(head_of(file), file)
    for format in _ALL:
        if format.shape == shape and any(marks <= fields for marks in format.marks):
            return format
    known = ", ".join(shown(field, 24) for field in sorted(fields)[:8]) or "missing"
    raise TraceError(
        f"{file} is not in a known format (its {'keys' if shape == 'jsonl' else 'columns'} are {known}):"
        f" write trace.format= with one of {', '.join(FORMATS)}, or convert it to plain CSV"
    )


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


def _shape_and_fields(head: bytes, file: Path) -> tuple[str, frozenset[str]]:
    if head.startswith(b"PAR1"):
        return "parquet", frozenset()
    first = head.lstrip()
    if not first:
        raise TraceError(f"{file} is empty: name a file with at least one request")
    line = _text(first.partition(b"\n")[0], file)
    if first.startswith(b"["):
        return "json", frozenset()
    if not first.startswith(b"{"):
        return "csv", frozenset(field.strip().strip('"') for field in line.split(","))
    try:
        keys = json.loads(line)
    except (ValueError, RecursionError):
        raise TraceError(f"{file}, line 1: not a JSON object: write one object per line") from None
    return "jsonl", frozenset(keys)


def _text(line: bytes, file: Path) -> str:
    """The first line; TraceError when it is no text of the kind that readers take."""
    try:
        if b"\0" not in line:
            return codecs.getincrementaldecoder("utf-8")().decode(line).strip()  # it may be cut
    except UnicodeDecodeError:
        pass
    raise TraceError(f"{file} is not UTF-8 text: unpack it, or save it as UTF-8")
