"""``servetwin compare RUN RUN ... against RUN RUN ...``: the same requests, measured by two clients."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from servetwin.cli.process import telling
from servetwin.compare.clients import DIFFER, LEAST_CHANCE, STATISTICS, TOO_FEW, Apart, apart
from servetwin.report.number_text import NOTHING, duration
from servetwin.report.table import LATENCIES
from servetwin.report.text_table import text_table
from serving.vocabulary.errors import UserError

AGAINST: Final = "against"
RED: Final = 1
_LEGEND: Final = (
    "first, second: means of all requests and runs of a client; mean to p99: second / first. D_clients: "
    "Kolmogorov-Smirnov distance from a run of one client to a run of the other, D_repeat: between two runs "
    "of one client, means; ratio: D_clients / D_repeat. chance: of all ways to divide these runs in two "
    f"groups, the share with at least this ratio; clients differ where it is at most {LEAST_CHANCE:g}"
)


def sides(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split into the runs of the first client and those of the second one."""
    if words.count(AGAINST) > 1:
        raise UserError(f"{AGAINST} stands there twice: two clients can be compared, so write it once")
    at = words.index(AGAINST)
    return words[:at], words[at + 1 :]


def answer(places: Sequence[Path], second: Sequence[Path], options: Mapping[str, Any]) -> int:
    """Exit status 1 if the clients differ in a metric, else 0. UserError for runs of other requests."""
    if unknown := [key for key in options if key != "json"]:
        raise UserError(f"{unknown[0]}= is not for runs of two clients: leave it out")
    metrics = apart(places, second)
    with telling():
        if options.get("json"):
            print(json.dumps(as_data(places, second, metrics), indent=2, allow_nan=False))
        else:
            print("\n".join(lines_of(places, second, metrics)))
    return RED if any(row.verdict == DIFFER for row in metrics.values()) else 0


def lines_of(places: Sequence[Path], second: Sequence[Path], metrics: Mapping[str, Apart]) -> Iterator[str]:
    """Return the table as readable lines."""
    yield f"first   {', '.join(map(str, places))}"
    yield f"second  {', '.join(map(str, second))}"
    yield ""
    labels = dict(LATENCIES)
    head = ["", "requests", "first", "second", *STATISTICS, "D_clients", "D_repeat", "ratio", "chance", ""]
    yield from text_table([head, *([labels[metric], *_cells(row)] for metric, row in metrics.items())])
    yield _LEGEND
    for metric, row in metrics.items():
        if row.left_out:
            yield f"{labels[metric]} is without {row.left_out:,} requests: a run does not know theirs"
    if any(row.verdict == TOO_FEW for row in metrics.values()):
        yield "no verdict: so few runs can be divided in too few ways; measure four times with each client"


def _cells(row: Apart) -> list[str]:
    ratios = [
        NOTHING if not row.first[name] else f"{row.second[name] / row.first[name]:.3f}" for name in STATISTICS
    ]
    means = [duration(side["mean"]) for side in (row.first, row.second)]
    numbers = [f"{row.between:.3f}", f"{row.within:.3f}", f"{row.ratio:.2f}", f"{row.chance:.2f}"]
    return [f"{row.requests:,}", *means, *ratios, *numbers, row.verdict]


def as_data(places: Sequence[Path], second: Sequence[Path], metrics: Mapping[str, Apart]) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {
        "first": [str(path) for path in places],
        "second": [str(path) for path in second],
        "timing": {metric: {**asdict(row), "verdict": row.verdict} for metric, row in metrics.items()},
    }
