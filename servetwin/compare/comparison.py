"""Compares a run with a measured one, as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from servetwin.compare.errors import ITL, METRICS, decomposition_of, errors_of, gap_errors
from servetwin.compare.inside import inside
from servetwin.compare.measured import Measured
from servetwin.compare.own_result import Result
from servetwin.compare.pairs import pairs_of
from servetwin.compare.provenance import check_provenance
from servetwin.compare.regimes import DEFINITION, REGIMES, regimes_of
from serving.vocabulary.errors import UserError

ALL: Final = "all"
NO_SERIES: Final = (
    "no load regimes, and queueing and prefill in one: the run has no series.parquet; simulate again with "
    "series.period_s=1"
)
NOT_ALL: Final = "no word on the run's range, which is that of all its requests: some were not measured"


def compare(result: Result, measured: Measured) -> dict[str, Any]:
    """Compare. UserError for another workload's data, or data that the step times were fitted on."""
    remarks = [*check_provenance(result, measured), *measured.remarks]
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
        said = f" ({'; '.join(measured.remarks)})" if measured.remarks else ""
        raise UserError(
            f"{measured.path} has no time of a request that finished in {result.folder}{said}: write one of "
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
        "simulated": _simulated(result),
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


def _simulated(result: Result) -> dict[str, Any]:
    summary = result.summary
    names = {key: summary.get(key) for key in ("system", "model", "cluster", "engine", "imitates")}
    return {"folder": str(result.folder), **names, "requests": summary["requests"]}


def _file(measured: Measured) -> dict[str, Any]:
    return {
        "path": str(Path(measured.path)),
        "format": measured.format,
        "sha256": measured.sha256,
        "requests": len(measured),
        "failed": int(measured.failed.sum()),
    }
