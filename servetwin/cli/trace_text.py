"""Output of ``servetwin traces``: descriptions, lists, and comparison of a sample with its source."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from servetwin.report.number_text import NOTHING, count, number
from traces.counts import BIN_S, CountStatistics, Expected
from traces.description import QUANTILES, Description, Sharing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_NAMES: Final = 8


def print_description(description: Description) -> None:
    """Print one trace: its origin, rates and bursts, lengths, and the senders of its requests."""
    console = _console()
    console.print(f"[bold]{_safe(description.name)}[/bold]  {_safe(description.source)}", soft_wrap=True)
    for label in description.labels:
        console.print(f"  note: {_safe(label)}", style="yellow", soft_wrap=True)
    for reason, rows in description.dropped.items():
        console.print(f"  left out: {count(rows)} rows, {_safe(reason)}", style="yellow", soft_wrap=True)
    console.print(_rates(description))
    console.print(_lengths(description))
    for line in _senders(description):
        console.print(line, soft_wrap=True)


def print_comparison(
    source: CountStatistics, sample: CountStatistics, expected: Mapping[str, Expected], share: float | None
) -> None:
    """Print burst statistics of a sample and its source, and those expected of thinning to ``share``."""
    table = _table(f"counts per {BIN_S:g} s", "source", "sample", "ratio")
    for title in ("expected", "95 % within", "is it") if expected else ():
        table.add_column(title, justify="right")
    after = sample.named()
    for name, before in source.named().items():
        row = [
            name.replace("autocorrelation", "autocorr."),
            number(before, 4),
            number(after[name], 4),
            _ratio(after[name], before),
        ]
        table.add_row(*row, *(_against(expected[name], after[name]) if expected else ()))
    console = _console()
    console.print(table)
    if expected:
        console.print(
            f"expected: what keeping each request with probability {share} does to the source's counts;"
            " one value in twenty lies outside by chance"
        )


def _against(about: Expected, value: float | None) -> tuple[str, str, str]:
    within = NOTHING if value is None else "yes" if value in about else "NO"
    return number(about.mean, 4), f"{number(about.low, 4)} to {number(about.high, 4)}", within


def _ratio(value: float | None, base: float | None) -> str:
    return NOTHING if value is None or not base else f"{value / base:.3f}"


def _rates(description: Description) -> "Table":
    counts = description.counts
    table = _table("arrivals", "value")
    lags = {f"autocorrelation of these counts, lag {lag}": r for lag, r in counts.autocorrelation.items()}
    rows: dict[str, float | int | None] = {
        "requests": description.requests,
        "seconds": round(description.duration_s, 3),
        "mean rate, requests/s": description.mean_rate_per_s,
        "most in one second": description.peak_per_s,
        "gaps, coefficient of variation": description.gap_cv,
        f"burst index (variance/mean of counts per {BIN_S:g} s; Poisson 1)": description.burst_index,
        f"counts per {BIN_S:g} s, coefficient of variation": counts.cv,
        f"counts per {BIN_S:g} s, peak/mean": counts.peak_to_mean,
        **lags,
        "prompt tokens/s, mean": description.mean_prompt_tokens_per_s,
        "prompt tokens/s, busiest 5 s": description.peak_prompt_tokens_per_s,
        "correlation of prompt and output length": description.length_correlation,
    }
    for name, value in rows.items():
        table.add_row(name, number(value, 4))
    return table


def _lengths(description: Description) -> "Table":
    table = _table("lengths", "mean", "CV", *QUANTILES, "largest")
    for name, length in description.lengths.items():
        quantiles = [number(getattr(length, quantile), 4) for quantile in QUANTILES]
        table.add_row(name, number(length.mean, 4), number(length.cv), *quantiles, count(length.largest))
    return table


def _senders(description: Description) -> list[str]:
    lines = []
    if description.models:
        shown = [f"{_safe(name)} {count(rows)}" for name, rows in description.models.items()]
        more = f", and {len(shown) - _MOST_NAMES:,} more" if len(shown) > _MOST_NAMES else ""
        lines.append(f"models ({len(shown):,}): {', '.join(shown[:_MOST_NAMES])}{more}")
    if description.sessions:
        lines.append(f"sessions: {description.sessions:,}")
    if description.sharing is not None:
        lines += _sharing_lines(description.sharing)
    return lines


def _sharing_lines(sharing: Sharing) -> list[str]:
    lines = []
    if sharing.blocks:
        lines.append(
            f"prefix blocks: {sharing.blocks:,}, of which {sharing.repeated:.1%} repeat an earlier one"
        )
    lines.append(
        f"prompt tokens that repeat the start of an earlier request: {sharing.repeated_tokens:.2%}, what a"
        " prefix cache hits at most"
    )
    return lines


def _table(*titles: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(titles[0])
    for title in titles[1:]:
        table.add_column(title, justify="right")
    return table


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _safe(text: str) -> str:
    """Escape a trace's own text, which rich could take for a colour."""
    from rich.markup import escape

    return escape("".join(char if char.isprintable() else repr(char)[1:-1] for char in text))
