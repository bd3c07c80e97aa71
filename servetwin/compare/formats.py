"""Detects the format of a measured file and reads it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hwmodels.reading import read_limited
from hwmodels.yaml_text import users_yaml
from servetwin.compare import line_readers, recognised, reports, request_lists, statistics_file, tables
from servetwin.compare.collected import collected
from servetwin.compare.line_readers import Line
from servetwin.compare.measured import MeasuredRun, MeasuredStatistics, RequestTiming
from servetwin.compare.own_result import OWN_RESULT, REQUESTS, own_result
from servetwin.compare.values import FilePlace, Overlooked
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

MOST_BYTES: Final = 512 << 20  # a run of some 100,000 requests with the time of every token
MOST_YAML_VALUES: Final = 10_000_000
CSV: Final[dict[str, Callable[[FilePlace, str], list[RequestTiming]]]] = {
    "csv": tables.own_csv,
    "llmservingsim_csv": tables.llmservingsim_csv,
    "vidur": tables.vidur,
}
LINES: Final[dict[str, Callable[[Iterable[Line]], list[RequestTiming]]]] = {
    "jsonl": line_readers.own_lines,
    "llmservingsim": line_readers.llmservingsim_bench,
    "aiperf": line_readers.aiperf,
}
REPORTS: Final[dict[str, Callable[[FilePlace, Any], tuple[list[RequestTiming], list[str]]]]] = {
    "vllm_bench": reports.vllm_bench,
    "sglang": reports.sglang,
    "guidellm": reports.guidellm,
    "inference_perf": request_lists.inference_perf,
    "llmperf": request_lists.llmperf,
    "genai_perf": request_lists.genai_perf,
    "genai_bench": request_lists.genai_bench,
}
# A document of these holds its runs in a list.
RUNS_IN: Final[dict[str, Callable[[FilePlace, Any], Sequence[Any]]]] = {
    "guidellm": reports.guidellm_runs,
    "genai_perf": request_lists.genai_perf_runs,
}
LISTS: Final = ("inference_perf", "llmperf")  # one run is a list of requests
STRICT: Final = ("csv", "jsonl")  # ours: what is unknown in them is a slip
PER_REQUEST: Final = (*CSV, *LINES, *REPORTS, OWN_RESULT)
FORMATS: Final = (*PER_REQUEST, *statistics_file.READERS)


@dataclass(frozen=True, slots=True)
class _Content:
    """A file as text. ``document``: what it says if it is one document of JSON or YAML, else None."""

    name: str
    text: str
    sha256: str
    document: Any


def read_measured(path: Path, format: str | None = None, run: int | None = None) -> MeasuredRun:
    """Read the timings in ``path``, as ``read_any`` does. UserError for a file of statistics alone."""
    measured = read_any(path, format, run)
    if isinstance(measured, MeasuredStatistics):
        raise UserError(
            f"{path} has statistics and no single requests: give a file in one of {', '.join(PER_REQUEST)}"
        )
    return measured


def read_any(
    path: Path, format: str | None = None, run: int | None = None
) -> MeasuredRun | MeasuredStatistics:
    """Read the timings in ``path``. ``format``: its format; if it is None, the format is detected.

    ``run``: the index of the run in the file.
    A folder is a result of ServeTwin, such as that of ``realexec run``. Raises UserError.
    """
    if path.is_dir() or format == OWN_RESULT or path.suffix == ".parquet":
        if run is not None:
            raise UserError(f"{path} holds one run: leave run={run} out")
        if path.is_dir():
            recognised.check_folder(path, REQUESTS)
        return own_result(path / REQUESTS if path.is_dir() else path, OWN_RESULT)
    content = _content(path)
    name = format or _format_of(content)
    recognised.check_usable(content.name, name)
    overlooked = None if name in STRICT else Overlooked()
    place = FilePlace(content.name, overlooked=overlooked)
    if name in statistics_file.READERS:
        _check_one_run(content.name, run)
        found = statistics_file.READERS[name](place, content.document)
        return MeasuredStatistics(path=path, format=name, sha256=content.sha256, **found)
    rows, remarks = _rows(place, content, name, run)
    if not rows:
        raise UserError(f"{path} holds no requests: give a file with one row per request")
    rows = [replace(row, gaps_ms=()) if row.failed else row for row in rows]
    passed_over = overlooked.remarks() if overlooked else ()
    return collected(path, name, content.sha256, rows, [*remarks, *passed_over])


def _content(path: Path) -> _Content:
    try:
        content = read_limited(path, MOST_BYTES)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): write servetwin compare DIR MEASURED with a file of "
            "per-request timings, or the out= of another run"
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text ({error.reason}): give one of {', '.join(FORMATS)}") from None
    return _Content(str(path), text, sha256(content).hexdigest(), _document(str(path), content, text))


def _document(name: str, content: bytes, text: str) -> Any:
    """Parse the whole text; None if it is not one document of JSON or YAML."""
    if _is_json(text):
        try:
            return json_data(text)
        except ValueError:
            return None
    if not recognised.is_yaml(text):
        return None
    import yaml  # type: ignore[import-untyped, unused-ignore]

    try:
        return users_yaml(content, most_values=MOST_YAML_VALUES)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{name} looks like YAML and is none ({reason}): give the file as it was written"
        ) from None


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def _format_of(content: _Content) -> str:
    """Detect the format by the outermost keys or the column names."""
    name, text, document = content.name, content.text, content.document
    if document is None and not _is_json(text):
        kind = recognised.of_text(text)
        return kind or recognised.of_columns(name, tables.header_of(text), PER_REQUEST)
    if document is None:
        return recognised.of_line(name, next(_lines(FilePlace(name), content))[1], PER_REQUEST)
    if isinstance(document, dict) and _is_json(text) and len(text.strip().splitlines()) == 1:
        return recognised.of_line(name, document, PER_REQUEST)
    return recognised.of_document(name, document, PER_REQUEST)


def _rows(
    place: FilePlace, content: _Content, format: str, run: int | None
) -> tuple[list[RequestTiming], list[str]]:
    if format in REPORTS:
        runs = _runs(place, content, format)
        if run is None and len(runs) != 1:
            raise UserError(
                f"{content.name} holds {len(runs)} runs: write run=0 for the first of them, or another number"
            )
        if run is not None and not 0 <= run < len(runs):
            raise UserError(f"{content.name} holds {len(runs)} runs: write run= from 0 to {len(runs) - 1}")
        number = run or 0
        remarks = [f"run {number} of {len(runs)} in the file"] if len(runs) > 1 else []
        rows, more = REPORTS[format](place, runs[number])
        return rows, [*remarks, *more]
    _check_one_run(content.name, run)
    if format in CSV:
        return CSV[format](place, content.text), []
    return LINES[format](_lines(place, content)), []


def _check_one_run(name: str, run: int | None) -> None:
    if run is not None:
        raise UserError(f"{name} holds one run: leave run={run} out")


def _runs(place: FilePlace, content: _Content, format: str) -> Sequence[Any]:
    """Return the report's runs: one or a list; ``--append-result`` writes one run per line."""
    if format in RUNS_IN:
        if content.document is None:
            place.refuse("it is no document of JSON or YAML", "give the file as it was written")
        return RUNS_IN[format](place, content.document)
    if format in LISTS:
        return [content.document]
    return [value for _, value in _lines(place, content)]


def _lines(place: FilePlace, content: _Content) -> Iterator[Line]:
    """Yield the object of each line, or those of a document that is a list or one of them."""
    if content.document is not None:
        rows = content.document if isinstance(content.document, list) else [content.document]
        yield from ((place.at(f"request {at}"), row) for at, row in enumerate(rows))
        return
    for number, line in enumerate(content.text.split("\n"), start=1):
        if line.strip():
            here = place.at(f"line {number}")
            try:
                yield here, json_data(line)
            except ValueError:
                here.refuse("it is no JSON", "write one object per line")
