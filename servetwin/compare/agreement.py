"""Compares a simulated run with repeats on real workers: does it differ more than they do?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from servetwin.compare.decisions import BATCHED, Decision, Matched, decisions_of, matched
from servetwin.compare.errors import METRICS, statistics
from servetwin.compare.measured import NS_PER_S
from servetwin.compare.own_result import Result, noise_of, read_result
from servetwin.compare.repeated import AGREES, MOST_APART, Distances, distances, disturbed_run
from servetwin.compare.run_names import OVER_HTTP, name_of
from servetwin.compare.summary_kind import is_real
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STATISTICS: Final = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingAgreement:
    """One metric. ``real``: medians over the real runs that were not disturbed, of each statistic.

    ``kept``: distances to and among these runs; ``whole``: to and among all.
    """

    requests: int
    simulated: Mapping[str, float]
    real: Mapping[str, float]
    kept: Distances
    whole: Distances

    @property
    def ratios(self) -> dict[str, float | None]:
        """Simulated over real, by statistic."""
        return {
            name: self.simulated[name] / self.real[name] if self.real[name] else None for name in STATISTICS
        }

    @property
    def verdict(self) -> str:
        """Whether the simulated run differs at most as much as a rerun."""
        return self.kept.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """``refused``: reasons that rule out a claim of agreement for any numbers; empty if there are none.

    ``decisions``: the decisions that the simulated run shares with each real one. ``repeated``: those that
    each pair of real runs shares. Both are empty if a journal is missing. ``disturbed``: the real run that is
    left out of the timing, if any.
    """

    folders: tuple[Path, ...]
    timing: Mapping[str, TimingAgreement]
    refused: tuple[str, ...]
    decisions: tuple[Matched, ...]
    repeated: tuple[Matched, ...]
    disturbed: Path | None

    @property
    def agrees(self) -> bool:
        """Whether every metric agrees and no reason rules out the claim."""
        return not self.refused and all(timing.verdict == AGREES for timing in self.timing.values())


def agreement_of(simulated: Path, real: Sequence[Path]) -> Agreement:
    """Compare result folders, at least two of them real. UserError for other folders or other requests."""
    results = [read_result(folder) for folder in (simulated, *real)]
    timing, disturbed = _timing(results)
    journals = journals_of((simulated, *real))
    ours, reals = journals[0], [journal for journal in journals[1:] if journal is not None]
    against = [] if ours is None else [matched(ours, journal) for journal in reals]
    repeated = [matched(first, other) for first, other in combinations(reals, 2)]
    return Agreement(
        folders=(simulated, *real),
        timing=timing,
        refused=tuple(_refusals(results[0], timing)),
        decisions=tuple(against),
        repeated=tuple(repeated),
        disturbed=None if disturbed is None else real[disturbed],
    )


def journals_of(folders: Sequence[Path]) -> list[list[Decision] | None]:
    """Return the decisions of each run; without batches if one is of servers, which batch by themselves."""
    journals = [decisions_of(folder) for folder in folders]
    if not any((name_of(folder) or "").endswith(OVER_HTTP) for folder in folders):
        return journals
    return [
        None if journal is None else [one for one in journal if one.kind != BATCHED] for journal in journals
    ]


def _timing(results: Sequence[Result]) -> tuple[dict[str, TimingAgreement], int | None]:
    """Return the agreement of each metric, and the number of the real run that was disturbed, if any."""
    rows = _of_all(results)
    arrival_s = results[0].columns["arrival_ns"][rows[0]].astype(np.float64) / NS_PER_S
    known_columns: dict[str, tuple[list[Floats], Floats]] = {}
    for metric in METRICS:
        columns = [
            result.columns[metric][at].astype(np.float64) for result, at in zip(results, rows, strict=True)
        ]
        known = ~np.isnan(columns).any(axis=0)
        if known.any():
            known_columns[metric] = [column[known] for column in columns], arrival_s[known]
    disturbed = disturbed_run(
        {metric: [float(run.mean()) for run in runs[1:]] for metric, (runs, _) in known_columns.items()}
    )
    timings = {
        metric: _of_metric(columns, arrivals, disturbed)
        for metric, (columns, arrivals) in known_columns.items()
    }
    return timings, disturbed


def _of_all(results: Sequence[Result]) -> list[Any]:
    """Return, per result, the rows of requests that finished in all; UserError for other workloads."""
    shared = results[0].columns["request"]
    for result in results[1:]:
        shared = np.intersect1d(shared, result.columns["request"])
    if not len(shared):
        raise UserError("no request finished in all of these runs: compare runs of one workload")
    rows = [np.intersect1d(result.columns["request"], shared, return_indices=True)[1] for result in results]
    for result, at in zip(results[1:], rows[1:], strict=True):
        for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
            if not np.array_equal(result.columns[column][at], results[0].columns[column][rows[0]]):
                raise UserError(
                    f"{result.folder} is a run of other requests than {results[0].folder}: give both the "
                    "same trace keys, seed and rate"
                )
    return rows


def _of_metric(columns: Sequence[Floats], arrival_s: Floats, disturbed: int | None) -> TimingAgreement:
    ours, reals = columns[0], columns[1:]
    kept = [real for number, real in enumerate(reals) if number != disturbed]
    each = [statistics(column) for column in kept]
    whole = distances(ours, reals, arrival_s)
    return TimingAgreement(
        requests=len(ours),
        simulated=statistics(ours),
        real={name: float(np.median([run[name] for run in each])) for name in STATISTICS},
        kept=whole if disturbed is None else distances(ours, kept, arrival_s),
        whole=whole,
    )


def _refusals(simulated: Result, timing: Mapping[str, TimingAgreement]) -> list[str]:
    """Return the reasons that rule out a verdict."""
    causes = [f"the profile of its step times is noisy: {cause}" for cause in noise_of(simulated)]
    for metric, entry in timing.items():
        if not entry.kept.decides:
            causes.append(
                f"the real runs differ too much among themselves: the mean {metric} by "
                f"{entry.kept.apart:.0%}, at most {MOST_APART:.0%} where anything can be told"
            )
    return causes


def are_repeats(places: Sequence[Path]) -> bool:
    """Return whether the places are one simulated run and at least two real runs, in this order."""
    are_results = all((place / "summary.json").is_file() for place in places)
    return are_results and len(places) > 2 and not is_real(places[0]) and all(map(is_real, places[1:]))
