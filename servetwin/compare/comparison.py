"""Compares a run with a measured one, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from servetwin.compare.at_the_engine import FORMATS, REMARK, at_the_engine
from servetwin.compare.errors import ITL, METRICS, decomposition_of, errors_of, gap_errors
from servetwin.compare.measured import NS_PER_S, MeasuredRun, MeasuredStatistics
from servetwin.compare.own_result import OWN_RESULT, Result, noise_of
from servetwin.compare.pairs import pairs_of
from servetwin.compare.run_names import name_of, what_ran
from servetwin.results.ranges import LATENCIES, Answers, range_in, value_of
from servetwin.results.series_sink import NO_ENGINE
from servetwin.results.series_table import ENGINE, TIME, WAITING_GAUGE
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from servetwin.compare.own_result import Columns


from hwmodels.errors import HardwareError
from hwmodels.profiles.profile_file import load_profile

# Checks whether a measured file was used to fit the step times of the run it is compared with.

_SHOWN: Final = 12  # hexadecimal digits of a digest


def check_provenance(result: Result, measured: MeasuredRun | MeasuredStatistics) -> list[str]:
    """Raise UserError for data that the step times were fitted on; return remarks on unknown cases."""
    step_time = result.summary.get("step_time")
    step_time = step_time if isinstance(step_time, dict) else {}
    use = step_time.get("profile")
    if measured.sha256[:_SHOWN] in str(step_time.get("source", "")):
        _refuse(result, measured, "the step times")
    if not isinstance(use, dict):
        return []
    files, remarks = _files_of(use)
    for name, digest in files:
        if digest == measured.sha256 or _is_same_place(name, measured.path):
            _refuse(result, measured, f"the profile {use.get('path')} (as {name})")
    return remarks


def _refuse(result: Result, measured: MeasuredRun | MeasuredStatistics, of: str) -> None:
    raise UserError(
        f"{measured.path} went into {of} that {result.folder} was simulated with, so it cannot judge them: "
        "compare with data that was kept aside"
    )


def _files_of(use: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (name, sha256) of the profile's source files: from the summary, otherwise from the profile."""
    files = use.get("files")
    if isinstance(files, list):
        return [(str(file["name"]), str(file["sha256"])) for file in files], []
    path = use.get("path")
    try:
        loaded = load_profile(Path(str(path)), force=True)
    except HardwareError:
        return [], [
            f"the profile {path} is not there any more, so whether it was fitted on this data was not checked"
        ]
    if loaded.digest != use.get("sha256"):
        return [], [
            f"the profile {path} was changed since, so whether it was fitted on this data was not checked"
        ]
    return list(loaded.profile.stamp.files), []


def _is_same_place(name: str, path: Path) -> bool:
    """Compare the last parts if a stamp's name has a folder, such as ``llama/attention.csv``."""
    parts = Path(name).parts
    return len(parts) > 1 and path.resolve().parts[-len(parts) :] == parts


# The load of the simulated system when a request arrived: light, knee or overload.

REGIMES: Final = ("light", "knee", "overload")
# ServeTwin's own definition: how often requests wait, within this time around an arrival.
# docs/contributing/lab/COMPARE.md has the runs from which the two bounds were read.
WINDOW_S: Final = 30.0
KNEE_FROM: Final = 0.4
OVERLOAD_FROM: Final = 0.8
DEFINITION: Final = (
    f"by how often requests wait at an engine of the simulated run, or in a queue before all engines, over "
    f"{WINDOW_S:g} s around an arrival: light below {KNEE_FROM:.0%} of the time, knee below "
    f"{OVERLOAD_FROM:.0%}, overload from there on"
)


def regimes_of(series: Columns, arrival_ns: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return an index into ``REGIMES`` for every arrival; engines that never have a queue are ignored."""
    engine_ids = np.unique(series[ENGINE])
    engines = len(engine_ids)
    times_s = series[TIME].reshape(-1, engines)[:, 0].astype(np.float64)
    waits = series[WAITING_GAUGE].reshape(-1, engines).astype(bool)
    common = waits[:, engine_ids == NO_ENGINE].any(axis=1)  # if requests wait there, every engine is full
    waits = waits[:, waits.any(axis=0) & (engine_ids != NO_ENGINE)]
    period_s = float(times_s[1] - times_s[0]) if len(times_s) > 1 else WINDOW_S
    waiting = waits.mean(axis=1) if waits.size else np.zeros(len(times_s))
    share = _around(np.maximum(waiting, common), round(WINDOW_S / 2 / period_s))
    regime = np.searchsorted([KNEE_FROM, OVERLOAD_FROM], share, side="right")
    at = np.searchsorted(times_s, arrival_ns.astype(np.float64) / NS_PER_S, side="right") - 1
    rows: NDArray[np.int64] = regime[np.clip(at, 0, len(regime) - 1)]
    return rows


def _around(values: NDArray[np.float64], half: int) -> NDArray[np.float64]:
    """Return the mean of each value with up to ``half`` values before and after it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, after = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    means: NDArray[np.float64] = (sums[after] - sums[first]) / (after - first)
    return means


# Whether a measured number is below, inside or above a run's range, by metric and statistic.

_JUDGED: Final = ("mean", "p50", "p90", "p99")


def inside(summary: Mapping[str, Any], errors: Mapping[str, Any]) -> dict[str, Any]:
    """Map metric to ``range``, ``measured``, ``verdict``: the run's answer to "too fast or too slow?".

    The answer is certain if both ends give the same; it is not if the measured number is inside the range.
    ``errors``: the errors over all requests that both sides have. The result is empty for a run without a
    range.
    """
    return dict(_verdicts(summary, errors))


def _verdicts(summary: Mapping[str, Any], errors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for latency in LATENCIES:
        for statistic in _JUDGED if latency in errors else ():
            metric = f"{latency}.{statistic}"
            pair, mid = range_in(summary, metric), value_of(summary, metric)
            measured = errors[latency]["measured"].get(statistic)
            if pair is None or mid is None or measured is None:
                continue
            answers = Answers(*(_side(value, measured) for value in (pair[0], mid, pair[1])))
            verdict = f"{answers.mid} at both ends of its range"
            if answers.flips:
                verdict = f"{answers.mid}, and measured lies inside its range"
            yield metric, {"range": list(pair), "measured": measured, "verdict": verdict}


def _side(simulated: float, measured: float) -> str:
    return "too fast" if simulated < measured else "too slow"


ALL: Final = "all"
NO_SERIES: Final = (
    "no load regimes, and queueing and prefill in one: the run has no series.parquet; simulate again with "
    "series.period_s=1"
)
NOT_ALL: Final = "no word on the run's range, which is that of all its requests: some were not measured"


def compare(result: Result, measured: MeasuredRun) -> dict[str, Any]:
    """Compare. UserError for another workload's data, or data that the step times were fitted on."""
    remarks = [*check_provenance(result, measured), *measured.remarks]
    if measured.format in FORMATS and (engine := at_the_engine(result)) is not result:
        result, remarks = engine, [*remarks, REMARK]
    pairs = pairs_of(result, measured)
    remarks += pairs.remarks
    groups = {ALL: np.ones(len(pairs), dtype=bool)}
    if result.series is None:
        remarks.append(NO_SERIES)
    else:
        regime = regimes_of(result.series, result.columns["arrival_ns"][pairs.simulated])
        groups |= {name: regime == code for code, name in enumerate(REGIMES) if (regime == code).any()}
    errors = {name: errors_of(result, measured, pairs, rows) for name, rows in groups.items()}
    if not errors[ALL]:
        why = f" ({'; '.join(measured.remarks)})" if measured.remarks else ""
        raise UserError(
            f"{measured.path} has no time of a request that finished in {result.folder}{why}: write one of "
            f"{', '.join(METRICS)}"
        )
    gaps = gap_errors(result, measured)
    if gaps is not None:
        errors[ALL][ITL] = gaps
    whole = len(pairs) == result.summary["requests"]["finished"]
    judged = {name: entry for name, entry in errors[ALL].items() if entry["count"] >= _due(result, name)}
    if result.summary.get("range") and (not whole or len(judged) < len(errors[ALL])):
        lacking = [] if not whole else [name for name in errors[ALL] if name not in judged]
        remarks.append(f"{', '.join(lacking)}: {NOT_ALL}" if lacking else NOT_ALL)
    return {
        "simulated": simulated_section(result),
        "measured": _file(measured),
        "matched": {"requests": len(pairs), "by": pairs.by},
        "regimes": None if result.series is None else DEFINITION,
        "requests": {name: int(rows.sum()) for name, rows in groups.items()},
        "errors": errors,
        **({"range": inside(result.summary, judged)} if whole and result.summary.get("range") else {}),
        "decomposition": {
            name: decomposition_of(result, measured, pairs, rows) for name, rows in groups.items()
        },
        "remarks": remarks,
    }


def _due(result: Result, metric: str) -> int:
    """Return how many values of a metric the run has."""
    if metric == ITL:
        return int(np.maximum(result.columns["output_tokens"].astype(np.int64) - 1, 0).sum())
    return int((~np.isnan(result.columns[metric].astype(np.float64))).sum())


def simulated_section(result: Result) -> dict[str, Any]:
    """Return what the document says of the first run."""
    summary = result.summary
    names = {key: summary.get(key) for key in ("system", "model", "cluster", "engine", "imitates")}
    step_time = summary.get("step_time")
    known = step_time if isinstance(step_time, dict) else {}
    return {
        "folder": str(result.folder), "name": what_ran(summary), **names, "requests": summary["requests"],
        "step_time": {name: known.get(name) for name in ("kind", "error_band")} | {"noisy": noise_of(result)},
    }  # fmt: skip


def _file(measured: MeasuredRun) -> dict[str, Any]:
    return {
        "path": str(Path(measured.path)),
        "name": _name(measured),
        "format": measured.format,
        "sha256": measured.sha256,
        "requests": len(measured),
        "failed": int(measured.failed.sum()),
    }


def _name(measured: MeasuredRun) -> str:
    """Return what the measured side is: another result folder's run, or a file."""
    name = name_of(Path(measured.path).parent) if measured.format == OWN_RESULT else None
    return name or "measured"
