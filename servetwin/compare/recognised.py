"""Recognises which tool wrote a measured file, by the outermost keys or the column names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from servetwin.compare import tables
from servetwin.compare.line_readers import OWN_KEYS
from servetwin.compare.values import named
from servetwin.config.overrides import closest, echo
from serving.vocabulary.errors import UserError

# Keys that all are there -> the format, or one of ``REFUSED``; the first that fits.
OBJECT_MARKS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("benchmarks",), "guidellm"),
    (("experiments",), "genai_perf"),
    (("individual_request_metrics",), "genai_bench"),
    (("total_output_tokens_retokenized",), "sglang"),
    (("ttfts",), "vllm_bench"),
    (("first_token_ts",), "llmservingsim"),
    (("successes", "failures"), "inference_perf_summary"),
    (("version", "metrics"), "llm-d"),
    (("version", "results"), "llm-d"),
    (("metadata", "responses"), "aiperf_raw"),
    (("metadata",), "aiperf"),
    (("avg_latency", "percentiles"), "vllm_offline"),
    (("elapsed_time", "requests_per_second"), "vllm_offline"),
    (("results_ttft_s_mean",), "llmperf_summary"),
)
# Keys whose value is a block of statistics with a unit.
STATISTICS_MARKS: Final = ("request_latency", "time_to_first_token", "inter_token_latency")
LIST_MARKS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("end_to_end_latency_s",), "llmperf"),
    (("start_time", "end_time", "info"), "inference_perf"),
)
COLUMN_MARKS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("queuing_delay",), "llmservingsim_csv"),
    (("request_e2e_time",), "vidur"),
    (("Metric", "avg"), "aiperf_csv"),
    (("Metric", "Value"), "aiperf_csv"),
)
# What stands in the first characters of other text, in lower case.
TEXT_MARKS: Final = (
    ("serving benchmark result", "console"),
    ("aiperf | llm metrics", "console"),
    ("<!doctype html", "page"),
    ("<html", "page"),
)
_DETAILED: Final = "run vllm bench serve with --save-result --save-detailed"
# What it is, and what works instead.
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "aiperf_csv": (
        "it is the CSV of statistics that AIPerf and GenAI-Perf write",
        "give profile_export.jsonl of this run, which has a line per request, or profile_export_aiperf.json",
    ),
    "console": (
        "it is what a benchmark printed, which has no single requests",
        "give the file that it writes: vllm bench serve with --save-result --save-detailed, "
        "sglang.bench_serving with --output-details, profile_export.jsonl of AIPerf",
    ),
    "page": ("it is a web page", "give the data beside it, such as benchmarks.json of GuideLLM"),
    "aiperf_raw": (
        "it is AIPerf's record of requests and answers",
        "give profile_export.jsonl beside it, which has their times",
    ),
    "aiperf_aggregate": (
        "it has statistics over several runs of AIPerf",
        "give profile_export.jsonl of one of the runs, which has a line per request",
    ),
    "llm-d": (
        "it is a benchmark report of llm-d, which has statistics and no single requests",
        "give the file of the load generator beside it, such as per_request_lifecycle_metrics.json of "
        "inference-perf (report.request_lifecycle.per_request: true)",
    ),
    "llmperf_summary": (
        "it is a summary of LLMPerf", "give the file beside it whose name ends in _individual_responses.json"
    ),
    "vllm_offline": ("it is a benchmark of vLLM without a server, which times no single request", _DETAILED),
}  # fmt: skip
# Files that tools write into a folder of theirs, the best first.
IN_FOLDERS: Final = (
    "profile_export.jsonl", "per_request_lifecycle_metrics.json", "benchmarks.json", "benchmarks.yaml",
    "request_metrics.csv", "profile_export.json", "profile_export_aiperf.json",
    "summary_lifecycle_metrics.json",
)  # fmt: skip
_YAML_LINE: Final = re.compile(r"(---|-\s|[\w.\"'-]+:)(\s|$)")
_RUNS: Final = "aggregation_type"
_LOOKED_AT: Final = 100  # requests of a list whose keys are looked at
_HEAD: Final = 2000  # characters of a text that is no JSON
_SHOWN: Final = 12  # keys in a refusal


def is_yaml(text: str) -> bool:
    """Return whether the first line that says something is one of YAML and none of a table."""
    lines = (line.strip() for line in text.split("\n", 200)[:200])
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _YAML_LINE.match(first) is not None and "," not in first


def of_text(text: str) -> str | None:
    """Return what kind of text it is that is neither data nor a table; None if no mark is there."""
    head = text[:_HEAD].lower()
    return next((format for mark, format in TEXT_MARKS if mark in head), None)


def of_columns(name: str, columns: Collection[str], known: Collection[str]) -> str:
    """Return the format of a table. UserError unless some column is, or is nearly, one of ours."""
    found = _first(COLUMN_MARKS, columns)
    if found is not None:
        return found
    if columns and not _is_ours(columns, tables.OWN_COLUMNS):
        _unknown(name, f"the columns {named([echo(column) for column in columns], _SHOWN)}", known)
    return "csv"


def of_document(name: str, value: Any, known: Collection[str]) -> str:
    """Return the format of one JSON or YAML document. UserError if it is none that is known."""
    if isinstance(value, list):
        rows = [row for row in value[:_LOOKED_AT] if isinstance(row, dict)]
        if not rows:
            _refuse_document(name, "a list of other things than requests", known)
        found = _first(LIST_MARKS, set().union(*rows))
        return found or of_line(name, rows[0], known)  # what others write as lines
    if not isinstance(value, dict):
        _refuse_document(name, "no object", known)
    found = of_object(value)
    if found is None:
        _refuse_document(name, f"its keys are {named([echo(str(key)) for key in value], _SHOWN)}", known)
    return found


def of_object(keys: Mapping[str, Any]) -> str | None:
    """Return the format by its outermost keys; None if no mark is there."""
    found = _first(OBJECT_MARKS, keys)
    if found == "aiperf" and isinstance(keys["metadata"], dict) and _RUNS in keys["metadata"]:
        return "aiperf_aggregate"
    if found is not None:
        return found
    if any(isinstance(keys.get(mark), dict) and "unit" in keys[mark] for mark in STATISTICS_MARKS):
        return "aiperf_statistics"
    # A serving benchmark of vLLM that was saved without its lists.
    return "vllm_bench" if "request_throughput" in keys or "mean_ttft_ms" in keys else None


def of_line(name: str, row: Any, known: Collection[str]) -> str:
    """Return the format of JSON lines by the first of them."""
    keys = row if isinstance(row, dict) else {}
    found = of_object(keys)
    if found is not None:
        return found
    if keys and not _is_ours(keys, OWN_KEYS):
        _unknown(name, f"the keys {named([echo(str(key)) for key in keys], _SHOWN)}", known)
    return "jsonl"


def check_folder(folder: Path, needed: str) -> None:
    """Raise UserError for the folder of another tool, naming the file in it."""
    if (folder / needed).exists():
        return
    for name in IN_FOLDERS:
        if (folder / name).is_file():
            raise UserError(f"{folder} is a folder of another tool: give its file {folder / name}")


def check_usable(name: str, format: str) -> None:
    """Raise UserError for a file that is recognised and cannot be compared."""
    if format in REFUSED:
        what, remedy = REFUSED[format]
        raise UserError(f"{name}: {what}: {remedy}")


def _first(marks: tuple[tuple[tuple[str, ...], str], ...], keys: Collection[str]) -> str | None:
    return next((format for needed, format in marks if all(key in keys for key in needed)), None)


def _is_ours(names: Collection[str], known: Collection[str]) -> bool:
    """Return whether one of the names is ours, or half of them nearly are."""
    near = sum(closest(str(name), known) is not None for name in names)
    return any(name in known for name in names) or 2 * near >= len(names)


def _refuse_document(name: str, what: str, known: Collection[str]) -> NoReturn:
    raise UserError(
        f"{name} is one document of JSON or YAML and none that is known here ({what}): give "
        f"per-request timings in one of the formats {', '.join(known)}"
    )


def _unknown(name: str, what: str, known: Collection[str]) -> NoReturn:
    raise UserError(
        f"{name} has {what} and is in no format that is known here: give a CSV with the columns "
        f"{', '.join(tables.OWN_COLUMNS)}, or a file in one of the formats {', '.join(known)}"
    )
