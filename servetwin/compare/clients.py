"""Compares two clients that measure the same requests several times: do they differ more than repeats?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from servetwin.compare.distance import distance
from servetwin.compare.errors import METRICS, statistics
from servetwin.compare.formats import read_measured
from servetwin.compare.measured import TPOT, MeasuredRun
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STATISTICS: Final = ("mean", "p50", "p90", "p99")
LEAST_RUNS, MOST_RUNS = 2, 10
# Clients differ if at most this share of all divisions of the runs in two separates the groups as much.
LEAST_CHANCE: Final = 0.05
SAME, DIFFER, TOO_FEW = "no difference", "differ", "too few runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """One metric. ``first``, ``second``: statistics by client, the mean over its runs, in ms.

    ``between``: the Kolmogorov-Smirnov distance from a run of one client to a run of the other, ``within``:
    between two runs of one client; means over all pairs. A distance below that of one request counts as that
    of one. ``chance``: the share of all ways to divide the runs in two such groups with at least this ratio;
    ``least_chance``: its smallest possible value. ``left_out``: requests whose time a run does not know.
    """

    requests: int
    first: Mapping[str, float]
    second: Mapping[str, float]
    between: float
    within: float
    ratio: float
    chance: float
    least_chance: float
    left_out: int = 0

    @property
    def verdict(self) -> str:
        """Whether the clients differ more than random divisions of the runs."""
        if self.chance > LEAST_CHANCE:
            return TOO_FEW if self.least_chance > LEAST_CHANCE else SAME
        return DIFFER


def apart(first: Sequence[Path], second: Sequence[Path]) -> dict[str, Apart]:
    """Compare by metric. Each path is one run: a result folder, or a file that `read_measured` takes.

    UserError for fewer than two runs of a client and for runs of other requests.
    """
    for name, paths in (("first", first), ("second", second)):
        if not LEAST_RUNS <= len(paths) <= MOST_RUNS:
            raise UserError(
                f"the {name} client has {len(paths)} of {LEAST_RUNS} to {MOST_RUNS} runs: write servetwin "
                "compare RUN RUN ... against RUN RUN ..."
            )
    runs = [read_measured(path) for path in (*first, *second)]
    rows = [_in_order(run) for run in runs]
    _refuse_others(runs, rows)
    metrics = {}
    for metric in METRICS:
        columns = [run.times[metric][at] for run, at in zip(runs, rows, strict=True)]
        known: NDArray[np.bool_] = ~np.any(np.isnan(columns), axis=0)
        if known.any():
            of_known = _of_metric([column[known] for column in columns], len(first))
            metrics[metric] = replace(of_known, left_out=_left_out(known, runs[0], rows[0], metric))
    if not metrics:
        raise UserError(f"{first[0]} and {second[0]} have no time in common: give runs with TTFT or E2E")
    return metrics


def _left_out(known: NDArray[np.bool_], run: MeasuredRun, at: NDArray[np.int64], metric: str) -> int:
    """Count the requests that were not compared; an answer of one token has no TPOT to compare."""
    due = run.output_tokens[at] != 1 if metric == TPOT else np.ones(len(known), dtype=bool)
    return int((due & ~known).sum())


def _in_order(run: MeasuredRun) -> NDArray[np.int64]:
    """Return rows by number in the workload, otherwise by arrival, otherwise in the file's order."""
    if run.failed.any():
        raise UserError(f"{run.path}: {int(run.failed.sum())} requests failed; measure again without them")
    order: NDArray[np.int64] = np.arange(len(run))
    if run.request is not None:
        order = np.argsort(run.request, kind="stable")
    elif not np.isnan(run.arrival_s).any():
        order = np.argsort(run.arrival_s, kind="stable")
    return order


def _refuse_others(runs: Sequence[MeasuredRun], rows: Sequence[NDArray[np.int64]]) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        lengths = [getattr(run, name)[at] for run, at in zip(runs, rows, strict=True)]
        for run, column in zip(runs, lengths, strict=True):
            if not np.array_equal(column, lengths[0]):
                raise UserError(
                    f"{run.path} has requests of other lengths ({name}) than {runs[0].path}: let both "
                    "clients send the same workload"
                )


def _of_metric(columns: Sequence[Floats], split: int) -> Apart:
    count = len(columns)
    distances = np.zeros((count, count))
    for first, other in combinations(range(count), 2):
        distances[first, other] = distances[other, first] = distance(columns[first], columns[other])
    least = 1 / len(columns[0])
    between, within, ratio = _ratio(distances, range(split), least)
    ratios = np.array([_ratio(distances, group, least)[2] for group in combinations(range(count), split)])
    return Apart(
        requests=len(columns[0]),
        first=_mean_statistics(columns[:split]),
        second=_mean_statistics(columns[split:]),
        between=between,
        within=within,
        ratio=ratio,
        chance=float(np.mean(ratios >= ratio - 1e-12)),
        # If both groups have the same size, each division is counted twice.
        least_chance=(2 if 2 * split == count else 1) / len(ratios),
    )


def _ratio(distances: Floats, group: Sequence[int], least: float) -> tuple[float, float, float]:
    """Return mean distance between the group and the rest, mean distance within each, and their ratio."""
    in_group = np.zeros(len(distances), dtype=bool)
    in_group[list(group)] = True
    pairs = np.triu_indices(len(distances), 1)
    same = in_group[pairs[0]] == in_group[pairs[1]]
    between, within = float(distances[pairs][~same].mean()), float(distances[pairs][same].mean())
    return between, within, between / max(within, least)


def _mean_statistics(columns: Sequence[Floats]) -> dict[str, float]:
    each = [statistics(column) for column in columns]
    return {name: float(np.mean([run[name] for run in each])) for name in STATISTICS}
