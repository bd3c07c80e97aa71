"""Compares several runs: numbers, paired differences against the first, other differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from servetwin.compare.bootstrap import Difference, differences
from servetwin.compare.divergence import Divergence, changed_keys, divergence_of
from servetwin.compare.own_result import Result, read_result
from servetwin.config.read_file import yaml_in
from serving.vocabulary.errors import UserError

LATENCIES: Final = ("ttft_ms", "tpot_ms", "e2e_ms")
PERCENTS: Final = {"p50": 0.50, "p99": 0.99}
# Metrics of whole runs: requests are not paired here, so their random error is unknown.
WHOLE: Final = (
    "requests.finished", "slo.attainment", "slo.goodput_req_per_s", "gpu_seconds", "gpu_busy_share",
    "preemptions",
)  # fmt: skip
_FEW: Final = 20


@dataclass(frozen=True, slots=True)
class Beside:
    """A run against the first run. ``paired``: the number of requests that finished in both.

    ``differences``: metric -> difference. ``why_not``: the reason if no requests are paired. ``changed``: key
    -> its values in both runs. ``divergence``: where the two journals begin to differ.
    """

    paired: int
    differences: dict[str, Difference]
    why_not: str
    changed: dict[str, tuple[Any, Any]]
    divergence: Divergence | None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Compared runs. ``names``: the shortest unambiguous names of their folders.

    ``against``: the comparison of each further run with the first.
    """

    names: tuple[str, ...]
    results: tuple[Result, ...]
    against: tuple[Beside, ...]


def side_by_side(folders: Sequence[Path]) -> SideBySide:
    """Compare at least two result folders. UserError for other folders."""
    results = tuple(map(read_result, folders))
    configs = [_config(folder) for folder in folders]
    compared = [
        _beside(results[0], result, changed_keys(configs[0], config))
        for result, config in zip(results[1:], configs[1:], strict=True)
    ]
    return SideBySide(tuple(short_names(folders)), results, tuple(compared))


def _config(folder: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml_in(folder / "config.yaml")
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{folder} has no config.yaml of a run: give the out= of a run") from error
    return data if isinstance(data, dict) else {}


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path if these differ."""
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _beside(first: Result, second: Result, changed: dict[str, tuple[Any, Any]]) -> Beside:
    divergence = divergence_of(first.folder, second.folder)
    shared, at, other_at = np.intersect1d(
        first.columns["request"], second.columns["request"], return_indices=True
    )
    why_not = _why_not(first, second, at, other_at)
    if why_not:
        return Beside(0, {}, why_not, changed, divergence)
    return Beside(len(shared), _of_latencies(first, second, at, other_at), "", changed, divergence)


def _why_not(first: Result, second: Result, at: Any, other_at: Any) -> str:
    if len(at) < _FEW:
        return f"{len(at)} requests finished in both, too few to say what is chance"
    for column in ("arrival_ns", "prompt_tokens"):
        if not np.array_equal(first.columns[column][at], second.columns[column][other_at]):
            return "the requests are not the same ones: other arrivals or prompts"
    return ""


def _of_latencies(first: Result, second: Result, at: Any, other_at: Any) -> dict[str, Difference]:
    by_metric: dict[str, Difference] = {}
    order = np.argsort(first.columns["arrival_ns"][at], kind="stable")
    for latency in LATENCIES:
        ours = first.columns[latency][at][order].astype(np.float64)
        other = second.columns[latency][other_at][order].astype(np.float64)
        known = ~(np.isnan(ours) | np.isnan(other))
        if known.sum() >= _FEW:
            paired = differences(ours[known], other[known], tuple(PERCENTS.values()))
            by_metric |= {
                f"{latency}.{name}": difference
                for name, difference in zip(("mean", *PERCENTS), paired, strict=True)
            }
    return by_metric
