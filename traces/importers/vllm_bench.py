"""Requests for a serving benchmark as JSON lines: a prompt (text or length) and an output length.

Source of the format: docs.vllm.ai/en/latest/benchmarking/cli (custom dataset: prompt, output_tokens); other
tools write lengths as prompt_len, input_len or prompt_tokens, and arrivals as timestamp or arrival_time (s).
"""

from array import array
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.importers.drawn_arrivals import checked_rate_per_s, with_drawn_arrivals
from traces.importers.json_lines import (
    JsonTimes,
    Spot,
    all_or_none,
    first_row,
    int64,
    json_rows,
    not_whole,
    shown,
    whole,
)
from traces.importers.requests import check_limit, requests_of
from traces.importers.texts import CHARS_PER_TOKEN, Measure, measure_of
from traces.reading import Origin
from traces.times import KEY, Clock, read_in_unit
from traces.workload import MAX_TOKENS, Workload

EXAMPLE: Final = '{"prompt": "Why is the sky blue?", "output_tokens": 50}'
TEXT: Final = "prompt"
TIME_KEYS: Final = ("timestamp", "arrival_time")
PROMPT_KEYS: Final = ("prompt_len", "input_len", "prompt_tokens", "input_tokens")
OUTPUT_KEYS: Final = ("output_tokens", "output_len")
CAP: Final = "max_tokens"


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The columns while they grow, one entry per line."""

    times: list[int | None] = field(default_factory=list)
    time_key: str = TIME_KEYS[0]
    prompt: MutableSequence[int] = field(default_factory=lambda: array("q"))
    output: MutableSequence[int] = field(default_factory=lambda: array("q"))
    texts: list[bool] = field(default_factory=list)
    capped: list[bool] = field(default_factory=list)


def read_vllm_bench(
    path: str | Path,
    *,
    rate_per_s: float | None,
    name: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    gap_cv: float = 1.0,
    chars_per_token: float = CHARS_PER_TOKEN,
    count_tokens: Callable[[str], int] | None = None,
    time_unit: str | None = None,
) -> Workload:
    """The requests of one file; arrivals are those of the file, from its first on, or else drawn.

    rate_per_s: mean arrivals per second where the file has none (None where it has). seed, gap_cv: of the
    drawn Gamma gaps (1 is Poisson). chars_per_token: a prompt that is text counts as its characters divided
    by this, rounded up. count_tokens: counts its tokens instead. A list of token ids counts as its length.
    The output is output_tokens or output_len or, failing both, max_tokens. What was drawn or estimated is
    said in ``labels``.
    time_unit: of the file's arrivals, see ``traces.times``; None: s, or ms by the rules there.
    limit: only the first rows, those to be dropped included; the whole file is still judged.
    Rows with 0 output tokens are left out and counted in ``dropped``.
    Raises TraceError naming file, line, key and remedy for anything else that is not a request.
    """
    check_limit(limit)
    measure = measure_of(count_tokens, chars_per_token)
    file = Path(path)
    origin = Origin.of(file)
    first = first_row(file, EXAMPLE)
    key = _one_key(first, TIME_KEYS, Spot(file, 1))
    rows, times = read_in_unit(
        Clock("s", other="ms"),
        time_unit,
        None if key is None else first[key],
        lambda unit: _read(file, measure, unit),
        from_first=True,
    )
    timed = rows.times[0] is not None
    columns: dict[str, Any] = {"prompt_tokens": int64(rows.prompt), "output_tokens": int64(rows.output)}
    if timed and rate_per_s is not None:
        raise TraceError(
            f"{file} has arrivals of its own ({rows.time_key}): leave out trace.rate_per_s={rate_per_s!r}"
        )
    if time_unit is not None and not timed:
        raise TraceError(f"{file} has no arrivals of its own: leave out {KEY}={time_unit}")
    rate = None if timed else checked_rate_per_s(rate_per_s, file)
    columns["arrival_ns"] = times.arrival_ns
    labels = times.labels if timed else ()
    workload = requests_of(origin, columns, name=name, limit=limit, labels=labels)
    workload = _explained(workload, rows, measure)
    return (
        workload
        if rate is None
        else with_drawn_arrivals(workload, rate_per_s=rate, seed=seed, gap_cv=gap_cv, reader="vllm_bench")
    )


def _read(file: Path, measure: Measure, unit: str) -> tuple[_Rows, NDArray[np.int64]]:
    """All rows, and their times in ns as written; zeros where the file has none."""
    rows, stamps = _Rows(), JsonTimes(TIME_KEYS[0], unit)
    for spot, row in json_rows(file, EXAMPLE):
        _add(rows, row, measure, stamps, spot)
    if not all_or_none(rows.times, rows.time_key, file):
        return rows, np.zeros(len(rows.times), np.int64)
    times_ns = int64([time for time in rows.times if time is not None])
    return rows, times_ns


def _add(rows: _Rows, row: dict[str, Any], measure: Measure, stamps: JsonTimes, spot: Spot) -> None:
    time_key = _one_key(row, TIME_KEYS, spot)
    rows.times.append(None if time_key is None else stamps.ns(row, spot, time_key))
    rows.time_key = time_key or rows.time_key
    tokens, text = _prompt_tokens(row, measure, spot)
    rows.prompt.append(tokens)
    rows.texts.append(text)
    output_key = _one_key(row, OUTPUT_KEYS, spot)
    capped = output_key is None and row.get(CAP) is not None
    rows.output.append(whole(row, CAP if capped else output_key or OUTPUT_KEYS[0], spot))
    rows.capped.append(capped)


def _one_key(row: dict[str, Any], keys: tuple[str, ...], spot: Spot) -> str | None:
    """The key of ``keys`` that the row has, if any; TraceError when two disagree."""
    keys_there = [key for key in keys if row.get(key) is not None]
    for other in keys_there[1:]:
        if row[other] != row[keys_there[0]]:
            raise spot.error(f"it differs from {keys_there[0]}", "keep one of the two", other)
    return keys_there[0] if keys_there else None


def _prompt_tokens(row: dict[str, Any], measure: Measure, spot: Spot) -> tuple[int, bool]:
    """(tokens, whether they are those of a text)."""
    key = _one_key(row, PROMPT_KEYS, spot) or TEXT
    value = row.get(key)
    if isinstance(value, list):
        return _ids(value, key, spot), False
    if key != TEXT:
        return whole(row, key, spot, least=1), False
    if not isinstance(value, str) or not value:
        problem = "the prompt is missing" if value in (None, "") else f"{shown(value)} is not a prompt"
        raise spot.error(problem, "write its text, or its length as prompt_len", key)
    return measure.tokens(measure.size(value, spot), spot, key), True


def _ids(ids: list[Any], key: str, spot: Spot) -> int:
    for at in ids:
        if type(at) is not int or at < 0:
            raise not_whole(at, key, spot, 0, MAX_TOKENS)
    return whole({key: len(ids)}, key, spot, least=1)


def _explained(workload: Workload, rows: _Rows, measure: Measure) -> Workload:
    """The workload with labels about lengths that the file does not hold."""
    read = workload.rows_read
    texts, capped = sum(rows.texts[:read]), sum(rows.capped[:read])
    if texts:
        which = "" if texts == read else f" of {texts} of {read} rows"
        workload = workload.labelled(f"prompt lengths{which} {measure.label()}")
    if capped:
        which = "" if capped == read else f" of {capped} of {read} rows"
        workload = workload.labelled(f"output lengths{which} taken from {CAP}")
    return workload
