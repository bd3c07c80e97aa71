"""How near the drawn traces come to what they stand in for: published value, mean and worst of ten seeds.

    python -m benchmarks.synthesis_fidelity [NAME ...]    # all when no name is given

A published value is one of a paper or was measured on the public file; traces/synthetic/length_tables.py
and the module of each trace say which. The worst seed is the one farthest from the published value.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.command import among, command
from traces.synthetic.maf_like import HOURLY_SHARE, MINUTELY_SHARE, POPULAR_INVOCATIONS, popular_invocations
from traces.synthetic.registry import SYNTHETIC
from traces.workload import Workload

SEEDS = range(10)
QUANTILES = (0.5, 0.8, 0.95, 0.99)
Measure = Callable[[Workload], float]


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One number of one trace. published: what it should be.

    off_most: how far off the mean of the seeds may be, as a share of it; None: shown, not promised.
    """

    trace: str
    number: str
    published: float
    off_most: float | None
    measure: Measure


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target and what the seeds gave. mean: over all seeds. worst: the value of the seed farthest away."""

    target: PublishedValue
    mean: float
    worst: float

    @property
    def off(self) -> float:
        """How far the mean is from the published value, as a share of it."""
        return self.mean / self.target.published - 1.0

    @property
    def worst_off(self) -> float:
        """How far the worst seed is."""
        return self.worst / self.target.published - 1.0


def gaps_s(workload: Workload) -> np.ndarray:
    """Seconds between arrivals."""
    return np.diff(workload.arrival_ns) / 1e9


def gap_cv(workload: Workload) -> float:
    """Coefficient of variation of the gaps."""
    gaps = gaps_s(workload)
    return float(gaps.std() / gaps.mean())


def counts(workload: Workload, window_s: int) -> np.ndarray:
    """Arrivals in each window from 0 on."""
    return np.bincount(workload.arrival_ns // (window_s * 1_000_000_000))


def windows_cv(workload: Workload) -> float:
    """Coefficient of variation of the arrivals per 10 s."""
    arrivals = counts(workload, 10)
    return float(arrivals.std() / arrivals.mean())


def windows_lag_1(workload: Workload) -> float:
    """Correlation of the arrivals in one 10 s with those in the next."""
    arrivals = counts(workload, 10)
    return float(np.corrcoef(arrivals[:-1], arrivals[1:])[0, 1])


def seldom_share(workload: Workload, per_s: float, functions: int) -> float:
    """Share of all functions called at most ``per_s`` on average over the trace, never called ones too."""
    assert workload.model is not None
    called = np.bincount(workload.model.codes, minlength=functions)
    return float((called / workload.duration_s <= per_s).mean())


def length_targets(
    trace: str, side: str, mean: float, quantiles: dict[float, float], off_most: float = 0.05
) -> list[PublishedValue]:
    """The targets of one side's lengths; ``off_most``: of its quantiles."""
    column = f"{side}_tokens"
    rows = [PublishedValue(trace, f"{side} mean", mean, 0.03, lambda w: float(getattr(w, column).mean()))]
    for p, value in quantiles.items():
        name = f"{side} P{round(p * 100)}"
        rows.append(
            PublishedValue(
                trace, name, value, off_most, lambda w, p=p: float(np.quantile(getattr(w, column), p))
            )
        )
    return rows


# Mean and P50, P80, P95, P99 of Llumnix (OSDI 2024), Table 1, written again so that a slip in traces shows.
LLUMNIX_TABLE = {
    "sharegpt in": (306, (74, 348, 1484, 3388)),
    "sharegpt out": (500, (487, 781, 988, 1234)),
    "burstgpt in": (830, (582, 1427, 2345, 3549)),
    "burstgpt out": (271, (243, 434, 669, 964)),
    "s": (128, (38, 113, 413, 1464)),
    "m": (256, (32, 173, 1288, 4208)),
    "l": (512, (55, 582, 3113, 5166)),
}


def llumnix_targets() -> list[PublishedValue]:
    """Both sides of all seven traces, the rate and the CV of the gaps."""
    rows: list[PublishedValue] = []
    for trace in (name for name in SYNTHETIC if name.startswith("llumnix_")):
        word = trace.removeprefix("llumnix_")
        sides = tuple(word) if len(word) == 2 else (f"{word} in", f"{word} out")
        for side, key in zip(("prompt", "output"), sides):
            mean, quantiles = LLUMNIX_TABLE[key]
            # S, M, L: Table 1 has one sample of each Zipf distribution, ours is the distribution.
            off_most = 0.16 if len(word) == 2 else 0.05
            rows += length_targets(trace, side, mean, dict(zip(QUANTILES, quantiles)), off_most)
        rows.append(PublishedValue(trace, "gap mean, s", 1.0, 0.03, lambda w: float(gaps_s(w).mean())))
        rows.append(PublishedValue(trace, "gap CV", 1.0, 0.03, gap_cv))
    return rows


def code_targets() -> list[PublishedValue]:
    """What is known of AzureLLMInferenceTrace_code.csv."""
    trace = "azure_code_like"
    return [
        PublishedValue(trace, "duration, s", 3435.9, 0.03, lambda w: w.duration_s),
        PublishedValue(trace, "gap mean, s", 0.38965, 0.03, lambda w: float(gaps_s(w).mean())),
        PublishedValue(trace, "gap CV", 13.15, 0.03, gap_cv),
        PublishedValue(trace, "most in 1 s", 67, 0.10, lambda w: float(counts(w, 1).max())),
        PublishedValue(trace, "seconds with any", 0.266, 0.05, lambda w: float((counts(w, 1) > 0).mean())),
        PublishedValue(trace, "10-s counts CV", 1.668, None, windows_cv),
        PublishedValue(
            trace,
            "10-s peak to mean",
            12.76,
            None,
            lambda w: float(counts(w, 10).max() / counts(w, 10).mean()),
        ),
        PublishedValue(trace, "10-s lag-1 correlation", 0.472, None, windows_lag_1),
        *length_targets(trace, "prompt", 2047.8, {0.5: 1469, 0.99: 7436}),
        *length_targets(trace, "output", 27.9, {0.5: 13, 0.99: 251}),
    ]


def conv_targets() -> list[PublishedValue]:
    """What is known of AzureLLMInferenceTrace_conv.csv."""
    trace = "azure_conv_like"
    return [
        PublishedValue(trace, "gap mean, s", 1 / 5.53, 0.03, lambda w: float(gaps_s(w).mean())),
        PublishedValue(trace, "gap CV", 1.09, 0.03, gap_cv),
        *length_targets(trace, "prompt", 1154.7, {0.5: 1020, 0.99: 4142}),
        *length_targets(trace, "output", 211.1, {0.5: 129, 0.99: 601}),
    ]


def burst_targets() -> list[PublishedValue]:
    """The rate on the heights of the five bursts by that between them, and the requests of the window."""
    onsets_s = (5, 65, 125, 185, 245)

    def rise(workload: Workload) -> float:
        arrivals = counts(workload, 1)
        high = sum(arrivals[onset + 2 : onset + 22].sum() for onset in onsets_s) / 20
        low = sum(arrivals[onset + 42 : onset + 60].sum() for onset in onsets_s[:4]) / 18
        return float(high / 5 / (low / 4))

    # Each onset adds 4 times the base of 2 per second for 20 s and half of that during 22 s of ramps.
    expected = 2 * (300 + 5 * (4 * 20 + 2 * 22))
    return [
        PublishedValue("burstgpt_like", "rise, fold", 5, 0.10, rise),
        PublishedValue("burstgpt_like", "requests in 300 s", expected, 0.03, lambda w: float(len(w))),
        *length_targets("burstgpt_like", "prompt", 830, {0.5: 582, 0.99: 3549}),
        *length_targets("burstgpt_like", "output", 271, {0.5: 243, 0.99: 964}),
    ]


def maf_targets() -> list[PublishedValue]:
    """Shares published in Serverless in the Wild, counted in the drawn trace."""

    def popular(workload: Workload) -> float:
        assert workload.model is not None
        return popular_invocations(np.bincount(workload.model.codes, minlength=100).astype(float))

    return [
        PublishedValue(
            "maf_like", "at most hourly", HOURLY_SHARE, 0.05, lambda w: seldom_share(w, 1 / 3600, 100)
        ),
        PublishedValue(
            "maf_like", "at most each minute", MINUTELY_SHARE, 0.05, lambda w: seldom_share(w, 1 / 60, 100)
        ),
        PublishedValue("maf_like", "calls of the top 18.6 %", POPULAR_INVOCATIONS, 0.05, popular),
    ]


OPTIONS: dict[str, dict[str, float]] = {"maf_like": {"requests": 2_000_000, "duration_s": 43_200}}
"""Options other than the defaults: twelve hours show which function is called at most once per hour."""


def targets() -> list[PublishedValue]:
    """Every target of every trace, traces together."""
    return [*conv_targets(), *code_targets(), *llumnix_targets(), *burst_targets(), *maf_targets()]


def measured(wanted: list[PublishedValue]) -> list[TargetRow]:
    """A row per target; every trace is drawn once per seed."""
    values: dict[int, list[float]] = {place: [] for place in range(len(wanted))}
    for trace in dict.fromkeys(target.trace for target in wanted):
        for seed in SEEDS:
            workload = SYNTHETIC[trace](seed=seed, **OPTIONS.get(trace, {}))
            for place, target in enumerate(wanted):
                if target.trace == trace:
                    values[place].append(target.measure(workload))
    return [_row(target, values[place]) for place, target in enumerate(wanted)]


def _row(target: PublishedValue, values: list[float]) -> TargetRow:
    worst = max(values, key=lambda value: abs(value - target.published))
    return TargetRow(target, float(np.mean(values)), worst)


def main(words: list[str]) -> int:
    """Prints the table of the traces named; 1 when a promised number is too far off."""
    among(words, sorted({target.trace for target in targets()}), "trace with targets called")
    rows = measured([target for target in targets() if not words or target.trace in words])
    print(f"| trace | number | published | mean of {len(SEEDS)} seeds | off | worst seed | off |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        target = row.target
        print(
            f"| `{target.trace}` | {target.number} | {target.published:.5g} | {row.mean:.5g} |"
            f" {row.off:+.1%} | {row.worst:.5g} | {row.worst_off:+.1%} |"
        )
    failed = [row for row in rows if row.target.off_most is not None and abs(row.off) > row.target.off_most]
    for row in failed:
        print(f"{row.target.trace}: {row.target.number} is off by {row.off:+.1%}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    command("benchmarks.synthesis_fidelity", __doc__, main)
