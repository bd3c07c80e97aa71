"""Results of load generators read as workloads: the requests they sent, without what became of them.

Sources of the formats: ``vllm bench serve --save-result --save-detailed`` (lists input_lens, output_lens and,
in newer versions, start_times in s); GuideLLM's JSON (benchmarks, each with requests: successful, errored and
incomplete; request_start_time in s since 1970).
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError
from traces.importers.drawn_arrivals import Draw
from traces.importers.json_lines import Spot, shown
from traces.importers.json_table import JsonTable, workload_of_table
from traces.importers.other_tools import NO_DRAW, named
from traces.importers.whole_document import document_of
from traces.times import Clock
from traces.workload import Workload

DETAILS: Final = (
    "with all requests (vllm bench serve --save-result --save-detailed, SGLang's --output-details)"
)
STARTS: Final = "start_times"
_TIMES: Final = ("request_start_time", "start_time")


def read_vllm_result(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    rate_per_s: float | None = None,
    gap_cv: float = 1.0,
    seed: int = 0,
) -> Workload:
    """The requests of one result, those without output left out and counted.

    Arrivals are start_times, from the first one on; without these they are drawn at ``rate_per_s``, or at the
    request_rate of the file. gap_cv, seed: of drawn gaps. Raises TraceError.
    """
    file = Path(path)
    found = document_of(file)
    lists = {key: _list(found, key, file) for key in ("input_lens", "output_lens")}
    timed = found.get(STARTS) is not None
    if timed:
        lists[STARTS] = _list(found, STARTS, file)
    counts = {key: len(values) for key, values in lists.items()}
    if len(set(counts.values())) > 1:
        shown_counts = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise TraceError(f"{file} has lists of different lengths ({shown_counts}): write the result again")
    rate: Any = found.get("request_rate")
    said: tuple[str, ...] = ()
    if not timed and rate_per_s is None and type(rate) in (int, Decimal) and rate > 0:
        rate_per_s, said = float(rate), ("arrivals drawn at the file's request_rate",)
    start = min((at for at in lists[STARTS] if type(at) in (int, Decimal)), default=0) if timed else 0
    keys = {"prompt_tokens": "input_lens", "output_tokens": "output_lens"}
    table = JsonTable(
        rows=lambda: _numbered(file, lists, start),
        columns=named(**keys, arrival_s=STARTS) if timed else named(**keys),
        clock=Clock("s", stated=True),
        labels=(*said, *(("times count from the first request",) if timed else ())),
    )
    draw = Draw(rate_per_s, gap_cv, seed, "vllm_result")
    return workload_of_table(file, table, draw, name=name, limit=limit, time_unit=None)


def _numbered(file: Path, lists: dict[str, list[Any]], start: Any) -> Iterator[tuple[Spot, dict[str, Any]]]:
    for number, values in enumerate(zip(*lists.values(), strict=True), start=1):
        row = dict(zip(lists, values, strict=True))
        if type(row.get(STARTS)) in (int, Decimal):
            row[STARTS] -= start
        yield Spot(file, number, "request"), row


def read_guidellm(path: str | Path, *, name: str | None = None, limit: int | None = None) -> Workload:
    """The successful requests of all benchmarks of one result, from the first one on; a label counts others.

    Raises TraceError.
    """
    file = Path(path)
    benchmarks = _list(document_of(file), "benchmarks", file)
    rows = [row for number, one in enumerate(benchmarks, 1) for row in _answered(file, one, number)]
    if not rows:
        raise TraceError(f"{file} has no successful requests: name a result with requests")
    key = next((key for key in _TIMES if rows[0][1].get(key) is not None), _TIMES[0])
    others = sum(len(_of(one, kind)) for one in benchmarks for kind in ("errored", "incomplete"))
    labels = (f"{others} requests that failed or did not end are not read",) if others else ()
    if len(benchmarks) > 1:
        labels = (*labels, f"{len(benchmarks)} benchmarks, as they followed each other")
    table = JsonTable(
        rows=lambda: rows,
        columns=named(arrival_s=key, prompt_tokens="prompt_tokens", output_tokens="output_tokens"),
        clock=Clock("s", stated=True),
        labels=labels,
    )
    return workload_of_table(file, table, NO_DRAW, name=name, limit=limit, time_unit=None)


def _answered(file: Path, benchmark: Any, number: int) -> Iterator[tuple[Spot, dict[str, Any]]]:
    for at, request in enumerate(_of(benchmark, "successful"), start=1):
        spot = Spot(file, at, f"benchmark {number}, request")
        if not isinstance(request, dict):
            raise spot.error(f"{shown(request)} is not an object", "write the result again")
        yield spot, request


def _of(benchmark: Any, kind: str) -> list[Any]:
    """The requests of one kind; none where the file has none."""
    requests = benchmark.get("requests") if isinstance(benchmark, dict) else None
    listed = requests.get(kind) if isinstance(requests, dict) else None
    return listed if isinstance(listed, list) else []


def _list(found: dict[str, Any], key: str, file: Path) -> list[Any]:
    value = found.get(key)
    if not isinstance(value, list):
        problem = "is missing" if value is None else f"is {shown(value)} and not a list"
        raise TraceError(f"{file}: {key} {problem}: write the result again, {DETAILS}")
    return value
