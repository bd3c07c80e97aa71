"""What rate scaling keeps of a trace's bursts: statistics of the arrivals per 10 s, source and scaled.

    python -m benchmarks.rate_scaling [NAME ...]    # all when no name is given

Above 1 every request gets copies, and the statistics should stay: shown is the worst deviation of five
seeds. Below 1 requests are thinned, and the statistics must change: shown is the value expected, the interval
that 95 of 100 thinnings fall into, and how many of ten seeds are inside, all in the source's 10-s bins. A
recorded trace is left out where its file is not found; a drawn one is of seed 0.
"""

import sys
from dataclasses import dataclass

from benchmarks.command import command
from traces.counts import Expected, arrival_counts, count_statistics, expected_under_thinning
from traces.errors import TraceError
from traces.load import load
from traces.scaling import scale_rate
from traces.workload import Workload

TRACES = ("azure_conv", "azure_code", "azure_conv_like", "azure_code_like")
FACTORS = (2, 2.5, 3, 5, 7.3, 10)
FACTOR_SEEDS = range(5)
MOST_OFF = 0.05
"""How far a replicated trace's statistics may be from its source's, as a share of them."""
MOST_OFF_NEAR_ZERO = 0.02
"""The same as a difference, where a share says nothing: for an autocorrelation within 2 / sqrt(bins) of 0,
which is what independent counts have."""
SHARES = (0.1, 0.3, 0.5, 0.8)
SHARE_SEEDS = range(10)

Statistics = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Thinned:
    """One statistic at one share. own_bins, source_bins: how many seeds are inside, by whose bins."""

    share: float
    statistic: str
    expected: Expected
    inside: int


def statistics_of(workload: Workload, bins_of: Workload | None = None) -> Statistics:
    """The burst statistics of the arrivals per 10 s, by name."""
    return count_statistics(arrival_counts(workload, bins_of=bins_of)).named()


def worst_off(workload: Workload, factor: float) -> dict[str, float]:
    """Statistic -> the largest deviation of any seed from the source, as a share of the source's value."""
    source = statistics_of(workload)
    scaled = [statistics_of(scale_rate(workload, factor, seed), workload) for seed in FACTOR_SEEDS]
    worst = {}
    for name, before in source.items():
        shares = [_off(statistics[name], before) for statistics in scaled]
        worst[name] = max(shares, key=abs)
    return worst


def thinned(workload: Workload, share: float) -> list[Thinned]:
    """What thinning to ``share`` is expected to give, and what it gave, one entry per statistic."""
    statistics = [statistics_of(scale_rate(workload, share, seed), workload) for seed in SHARE_SEEDS]
    return [
        Thinned(share, name, about, _inside(about, name, statistics))
        for name, about in expected_under_thinning(arrival_counts(workload), share).items()
    ]


def _inside(about: Expected, name: str, statistics: list[Statistics]) -> int:
    values = [seed_statistics[name] for seed_statistics in statistics]
    return sum(value is not None and value in about for value in values)


def _off(value: float | None, base: float | None) -> float:
    return float("nan") if value is None or not base else value / base - 1.0


def _too_far(name: str, before: float | None, off: float, bins: int) -> bool:
    if before is None:
        return False
    if name.startswith("autocorrelation") and abs(before) <= 2 / bins**0.5:
        return not abs(off * before) <= MOST_OFF_NEAR_ZERO
    return not abs(off) <= MOST_OFF


def print_replicated(sources: dict[str, Workload]) -> list[str]:
    """Prints the table of factors above 1; returns a sentence per deviation that is too large."""
    print(f"| trace | per 10 s | source | {' | '.join(f'x{factor:g}' for factor in FACTORS)} |")
    print(f"|{'---|' * (3 + len(FACTORS))}")
    failed = []
    for trace, workload in sources.items():
        source, bins = statistics_of(workload), len(arrival_counts(workload))
        off = [worst_off(workload, factor) for factor in FACTORS]
        for name, before in source.items():
            cells = " | ".join(f"{deviation[name]:+.2%}" for deviation in off)
            shown = "-" if before is None else f"{before:.3f}"
            print(f"| `{trace}` | {name} | {shown} | {cells} |", flush=True)
            failed += [
                f"{trace}: {name} at x{factor:g} is off by {deviation[name]:+.2%}"
                for factor, deviation in zip(FACTORS, off, strict=True)
                if _too_far(name, before, deviation[name], bins)
            ]
    return failed


def print_thinned(sources: dict[str, Workload]) -> None:
    """Prints the table of shares below 1."""
    seeds = len(SHARE_SEEDS)
    print(f"| trace | per 10 s | source | share | expected | 95 of 100 | of {seeds} |")
    print(f"|{'---|' * 7}")
    rows = []
    for trace, workload in sources.items():
        source = statistics_of(workload)
        for row in (row for share in SHARES for row in thinned(workload, share)):
            rows.append(row)
            before, about = source[row.statistic], row.expected
            shown = "-" if before is None else f"{before:.3f}"
            print(
                f"| `{trace}` | {row.statistic} | {shown} | {row.share:g} | {about.mean:.3f} |"
                f" {about.low:.3f} to {about.high:.3f} | {row.inside} |",
                flush=True,
            )
    drawn = len(rows) * seeds
    inside = sum(row.inside for row in rows) / drawn
    print(f"inside: {inside:.1%} of {drawn}, where 95 % are expected")


def _sources(words: list[str]) -> dict[str, Workload]:
    sources = {}
    for name in words or TRACES:
        try:
            sources[name] = load(name)
        except TraceError as error:
            if words:
                raise
            print(f"{name} is left out: {error}", file=sys.stderr)
    return sources


def main(words: list[str]) -> int:
    """Prints both tables; 1 when a replicated trace is too far from its source."""
    sources = _sources(words)
    failed = print_replicated(sources)
    print()
    print_thinned(sources)
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    command("benchmarks.rate_scaling", __doc__, main)
