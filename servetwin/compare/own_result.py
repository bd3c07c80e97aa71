"""Reads ServeTwin's result folders: the simulated run, and the real one that it is compared with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hwmodels.reading import open_regular
from servetwin.compare.measured import NS_PER_MS, NS_PER_S, QUEUE, TIMES, MeasuredRun
from servetwin.config.folder_kind import another_kind
from servetwin.config.read_file import json_in
from servetwin.results.parquet_file import table_of
from servetwin.results.series_table import ENGINE, TIME, WAITING_GAUGE
from servetwin.run.write_results import SERIES_NAME
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]

OWN_RESULT: Final = "servetwin"  # the name of its format
REQUESTS: Final = "requests.parquet"
SIMULATED_TOO: Final = "the measured side is a simulated run too: the numbers tell two simulations apart"
SCHEDULED: Final = "scheduled_ns"
NEEDED: Final = (
    "request", "arrival_ns", "prompt_tokens", "output_tokens", "first_token_ns", "finish_ns", "ttft_ms",
    "tpot_ms", "e2e_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """A result folder; ``series`` is None if it has none."""

    folder: Path
    summary: dict[str, Any]
    columns: Columns
    series: Columns | None

    @property
    def handed_over(self) -> int:
        """Number of requests that the controller received."""
        requests = self.summary["requests"]
        return int(requests["arrived"] - requests["dropped"])


def read_result(folder: Path) -> Result:
    """Read a result folder. UserError for another folder."""
    if not os.path.isdir(folder):  # noqa: PTH112 (Path.is_dir raises for a name that is too long)
        raise UserError(
            f"{folder} is not a folder: write servetwin compare DIR MEASURED with the out= of a run"
        )
    try:
        summary = json_in(folder / "summary.json")
        counts = summary["requests"]
        assert all(type(counts[name]) is int for name in ("arrived", "dropped", "finished"))
        assert isinstance(summary["itl_ms"], dict)
    except (OSError, ValueError, LookupError, TypeError, AssertionError):
        raise UserError(
            another_kind(folder)
            or f"{folder} has no summary.json of a run: write servetwin compare DIR MEASURED with the "
            "out= of a run"
        ) from None
    series = folder / SERIES_NAME
    return Result(
        folder,
        summary,
        columns_of(folder / REQUESTS, NEEDED),
        columns_of(series, (TIME, ENGINE, WAITING_GAUGE)) if series.exists() else None,
    )


def columns_of(path: Path, needed: tuple[str, ...] = ()) -> Columns:
    """Return columns of a Parquet file by name. Raises UserError for another kind of file."""
    import pyarrow as pa

    try:
        table = table_of(path)
        existing_names = table.column_names
        missing = [name for name in needed if name not in existing_names]
        if missing:
            raise ValueError(f"it has no column {missing[0]}")
        names = [*(needed or existing_names), *(name for name in (SCHEDULED,) if name in existing_names)]
        columns = {name: table.column(name).to_numpy() for name in names}
        words = [name for name in needed if columns[name].dtype.kind not in "iuf"]
        if words:
            raise ValueError(f"{words[0]} has no numbers")
        return columns
    except OSError as error:
        reason = error.strerror or "it is damaged"
    except pa.ArrowException:
        reason = "it is no Parquet file"
    except ValueError as error:
        reason = str(error)
    raise UserError(f"{path} cannot be used ({reason}): give the out= of a run of this version") from None


def own_result(path: Path, format: str) -> MeasuredRun:
    """Return the requests of another result folder as measured ones."""
    import numpy as np

    from servetwin.compare.unknown_times import known_times

    columns = columns_of(path, NEEDED)
    count = len(columns["request"])
    if not count:
        raise UserError(f"{path} holds no requests: give a run in which some finished")
    times = {name: columns[name].astype(np.float64) for name in TIMES if name != QUEUE}
    times[QUEUE] = np.full(count, np.nan)
    if SCHEDULED in columns:
        times[QUEUE] = (columns[SCHEDULED] - columns["arrival_ns"]) / NS_PER_MS
    output, failed = columns["output_tokens"].astype(np.int64), np.zeros(count, dtype=bool)
    names = [f"request {number}" for number in columns["request"].tolist()]
    known = known_times(times, output, failed, names=names)
    return MeasuredRun(
        path=path,
        format=format,
        sha256=_digest(path),
        request=columns["request"].astype(np.int64),
        arrival_s=columns["arrival_ns"] / NS_PER_S,
        prompt_tokens=columns["prompt_tokens"].astype(np.int64),
        output_tokens=output,
        times=known.times,
        gaps_ms=np.array([], dtype=np.float64),
        failed=failed,
        remarks=(*((SIMULATED_TOO,) if _is_simulated(path.parent) else ()), *known.remarks),
    )


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return file_digest(file, "sha256").hexdigest()


def _is_simulated(folder: Path) -> bool:
    """Return whether the requests are simulated. The summary of a real run has ``real`` instead."""
    try:
        return "sim" in json_in(folder / "summary.json")
    except (OSError, ValueError, TypeError):
        return False


def noise_of(result: Result) -> list[str]:
    """Return why the simulated run's profile declares itself unreliable."""
    step_time = result.summary.get("step_time")
    use = step_time.get("profile") if isinstance(step_time, dict) else None
    noisy = use.get("noisy") if isinstance(use, dict) else None
    return [str(cause) for cause in noisy] if isinstance(noisy, list) else []
