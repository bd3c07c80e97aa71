"""Reads answers of Prometheus' /api/v1/query_range: one, several in an array, or by name in an object.

The name is that of a metric, or of a column for an answer without one: ``{"requests_per_s": {...}}``.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from servetwin.advising.time_series import TimeSeries
from serving.vocabulary.errors import UserError

_NAME: Final = "__name__"
_EXAMPLE: Final = (
    'write what /api/v1/query_range answers, {"status":"success","data":{"resultType":"matrix",...}}, '
    "or several of them in an array, or in an object by name"
)


def series_in(path: Path, text: str) -> list[TimeSeries]:
    """Return every series of the file. UserError naming file, answer and sample."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): {_EXAMPLE}") from error
    found = [series for name, answer in _answers(path, data) for series in _series(path, name, answer)]
    if not found:
        raise UserError(f"{path} has no series: ask Prometheus for a time at which the service ran")
    return found


def _answers(path: Path, data: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name or place, answer)."""
    if isinstance(data, dict) and ("status" in data or "resultType" in data):
        yield "", data
    elif isinstance(data, list) and data:
        for place, answer in enumerate(data):
            yield from ((name or f"#{place + 1}", one) for name, one in _answers(path, answer))
    elif isinstance(data, dict) and data and all(isinstance(answer, dict) for answer in data.values()):
        for name, answer in data.items():
            yield from ((str(name), one) for _, one in _answers(path, answer))
    else:
        raise UserError(f"{path} holds no answers of Prometheus: {_EXAMPLE}")


def _series(path: Path, name: str, answer: Any) -> Iterator[TimeSeries]:
    place = f"{path}, answer {name}" if name else str(path)
    if answer.get("status", "success") != "success":
        raise UserError(
            f"{place} is an error of Prometheus ({answer.get('error', 'no reason')}): put the query right "
            "and save its answer"
        )
    data = answer.get("data", answer)
    kind = data.get("resultType") if isinstance(data, dict) else None
    if kind != "matrix" or not isinstance(data.get("result"), list):
        raise UserError(
            f"{place} has resultType {kind}, and must be a matrix: ask /api/v1/query_range with start, end "
            "and step"
        )
    for number, one in enumerate(data["result"]):
        yield _one(f"{place}, result {number}", "" if name.startswith("#") else name, one)


def _one(place: str, name: str, one: Any) -> TimeSeries:
    try:
        labels = {str(key): str(value) for key, value in one["metric"].items()}
        samples = [(float(at_s), float(value)) for at_s, value in one["values"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{place} is no series ({type(error).__name__}: {error}): write metric and values, a list of "
            '[time, "value"]'
        ) from error
    times, values = np.array(samples, dtype=np.float64).reshape(-1, 2).T
    if len(times) > 1 and not (np.diff(times) > 0).all():
        where = int(np.argmin(np.diff(times) > 0)) + 1
        raise UserError(
            f"{place}, sample {where} is not later than the one before it: sort the samples by time"
        )
    own = labels.pop(_NAME, "")
    return TimeSeries(own or name, labels, times, values, place)
