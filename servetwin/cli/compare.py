"""``servetwin compare``: its arguments and its output."""

import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from servetwin.cli import compare_clients, compare_repeats, compare_runs, compare_sweeps
from servetwin.cli.compare_runs import are_runs
from servetwin.cli.own_keys import only_own
from servetwin.cli.process import telling
from servetwin.compare.agreement import are_repeats
from servetwin.compare.comparison import compare as with_measured
from servetwin.compare.errors import STATISTICS
from servetwin.compare.formats import FORMATS, read_any
from servetwin.compare.measured import MeasuredRun, MeasuredStatistics
from servetwin.compare.own_result import Result, read_result
from servetwin.compare.run_names import SIMULATED, two_names
from servetwin.compare.statistics_file import BY_STATISTICS, compare_statistics
from servetwin.config.overrides import Wanted, echo
from servetwin.report.number_text import NOTHING, duration
from servetwin.report.table import LATENCIES
from serving.vocabulary.errors import UserError

KEYS: Final = {
    "json": Wanted(bool),
    "format": Wanted(str, choices=FORMATS),
    "run": Wanted(int),
    "page": Wanted(str),
    "overwrite": Wanted(bool),
}
_WIDTH: Final = 110
_LEGEND: Final = (
    "{0} and {1} are means, the errors {0} / {1} - 1; each: the differences of single requests, summed / the "
    "sum of {1}"
)
_LEAST_CELL: Final = 11
_USE: Final = "write servetwin compare DIR MEASURED"


def compare(words: Sequence[str]) -> int:
    """Print a comparison and return its exit status. UserError for inputs that cannot be compared."""
    places = list(itertools.takewhile(lambda word: "=" not in word, words))
    if len(places) < 2:
        raise UserError(
            "compare takes at least two places: write servetwin compare DIR DIR ... with runs or sweeps, or "
            "servetwin compare DIR MEASURED"
        )
    options = _options(words[len(places) :])
    if compare_clients.AGAINST in places:
        first, second = ([_path(place) for place in some] for some in compare_clients.sides(places))
        return compare_clients.answer(first, second, options)
    paths = [_path(place) for place in places]
    if compare_sweeps.are_sweeps(paths):
        return compare_sweeps.answer(paths, options)
    if are_runs(paths, options):
        return compare_runs.answer(paths, options)
    if are_repeats(paths):
        return compare_repeats.answer(paths, options)
    _refuse_more(paths)
    options = _options_of_measured(words[2:])
    result = read_result(_path(places[0]))
    measured = read_any(_path(places[1]), options.get("format"), options.get("run"))
    comparison, decided = _compared(result, measured), compare_repeats.of_two(*paths)
    with telling():
        if options.get("json", False):
            data = {"decisions": compare_repeats.matched_data(decided[0])} if decided else {}
            print(json.dumps(comparison | data, indent=2, allow_nan=False))
        else:
            decision_text = (
                ["", *compare_repeats.decision_lines(decided, names=_names(comparison))] if decided else []
            )
            print("\n".join([*lines_of(comparison), *decision_text]))
    return 0


def _compared(result: Result, measured: MeasuredRun | MeasuredStatistics) -> dict[str, Any]:
    """Return the comparison with single requests, or with statistics alone."""
    if isinstance(measured, MeasuredStatistics):
        return compare_statistics(result, measured)
    return with_measured(result, measured)


def _refuse_more(paths: Sequence[Path]) -> None:
    """Raise UserError naming the first of several places that is not a run's folder."""
    for path in paths if len(paths) > 2 else ():
        if not (path / "summary.json").is_file():
            raise UserError(
                f"{path} has no summary.json of a run: more than two places are the out= of runs, and of a "
                f"measured file {_USE}"
            )


def _path(word: str) -> Path:
    try:
        return Path(word).expanduser()
    except RuntimeError:
        raise UserError(f"{word} names a home that does not exist: {_USE}") from None


def _options_of_measured(words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments for a run and a measured file."""
    for word in words:
        if "=" not in word:
            raise UserError(
                f"'{echo(word)}' is one word too many: {_USE}, and json=true, format=NAME or run=N behind"
            )
    options = _options(words)
    if "page" in options:
        raise UserError(
            "page= is for several runs: leave it out, or write servetwin compare DIR DIR page=FILE"
        )
    return options


def _options(words: Sequence[str]) -> dict[str, Any]:
    return only_own(words, KEYS, "servetwin compare", "json=true, format=NAME or run=N")


def lines_of(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Return the comparison as readable lines."""
    simulated, measured, matched = comparison["simulated"], comparison["measured"], comparison["matched"]
    finished, names = simulated["requests"]["finished"], _names(comparison)
    wide = max(len("compared"), *map(len, names))
    like = f"{simulated['imitates']}, " if simulated["name"] == SIMULATED else ""
    yield f"{names[0]:{wide}}  {simulated['folder']}: {like}{finished:,} requests finished"
    if simulated["name"] == SIMULATED:
        yield from _step_times(simulated["step_time"], wide)
    requests, failed = (_counted(measured[name]) for name in ("requests", "failed"))
    where = f"{measured['path']} ({measured['format']})"
    yield f"{names[1]:{wide}}  {where}: {requests} requests, {failed} failed"
    if matched["by"] == BY_STATISTICS:
        yield f"{'compared':{wide}}  {matched['by']}, of which none is paired"
    else:
        yield f"{'matched':{wide}}  {matched['requests']:,} requests by {matched['by']}"
    yield ""
    yield from _error_table(comparison)
    yield from _range_table(comparison)
    yield from _part_table(comparison)
    remarks = [
        *([f"regimes: {comparison['regimes']}"] if comparison["regimes"] else []),
        *comparison["remarks"],
    ]
    for remark in remarks:
        yield from textwrap.wrap(_plain(remark), _WIDTH, subsequent_indent="  ")


def _step_times(known: Mapping[str, Any], wide: int) -> Iterator[str]:
    """Return what the simulated step times are worth, before any error is read."""
    worth = [str(known["error_band"]).partition(";")[0]] if known["error_band"] else []
    worth += [f"noisy: {cause}" for cause in known["noisy"]]
    for line in worth:
        yield from textwrap.wrap(
            f"{'step times':{wide}}  {known['kind']}, {line}", _WIDTH, subsequent_indent=" " * (wide + 2)
        )


def _names(comparison: Mapping[str, Any]) -> tuple[str, str]:
    """Return what both sides are."""
    return two_names(comparison["simulated"]["name"], comparison["measured"].get("name", "measured"))


def _widths(names: Sequence[str]) -> list[int]:
    return [max(_LEAST_CELL, len(name) + 2) for name in names]


def _counted(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def _error_table(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Return one row per regime and metric."""
    names = _names(comparison)
    widths = _widths(names)
    head = "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    head += "".join(f"{name:>9}" for name in STATISTICS)
    yield f"{'error':10}{'requests':>9}  {'metric':7}{head}{'each':>9}"
    for regime, metrics in comparison["errors"].items():
        for key, label in LATENCIES:
            entry = metrics.get(key)
            if entry is None:
                continue
            sides = zip(("simulated", "measured"), widths, strict=True)
            means = "".join(f"{duration(entry[side]['mean']):>{width}}" for side, width in sides)
            errors = "".join(f"{_signed(entry['error'][name]):>9}" for name in STATISTICS)
            each = NOTHING if entry["per_request"] is None else f"{entry['per_request']:.1%}"
            yield f"{regime:10}{entry['count']:>9,}  {label:7}{means}{errors}{each:>9}"
    yield from textwrap.wrap(_LEGEND.format(*names), _WIDTH)
    yield ""


def _range_table(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Return whether the run is too fast or too slow, and whether its range holds the measured number."""
    entries = comparison.get("range")
    if not entries:
        return
    yield f"{'range':10}{'measured':>12}{'lowest':>11}{'highest':>11}  the run is"
    labels = dict(LATENCIES)
    for metric, entry in entries.items():
        latency, _, statistic = metric.partition(".")
        numbers = (duration(value) for value in (entry["measured"], *entry["range"]))
        cells = "".join(f"{text:>{width}}" for text, width in zip(numbers, (12, 11, 11), strict=True))
        yield f"{f'{labels[latency]} {statistic}':10}{cells}  {entry['verdict']}"
    yield ""


def _part_table(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Return the parts of the difference of the mean end-to-end time."""
    if not any(comparison["decomposition"].values()):
        return
    names = _names(comparison)
    widths = _widths(names)
    columns = zip((*names, "difference", "share of error"), (*widths, 13, 16), strict=True)
    heads = "".join(f"{head:>{width}}" for head, width in columns)
    yield f"{'where':10}  {'part':21}{heads}"
    for regime, entries in comparison["decomposition"].items():
        for entry in entries:
            both = zip(("simulated_ms", "measured_ms"), widths, strict=True)
            sides = "".join(f"{duration(entry[side]):>{width}}" for side, width in both)
            share = NOTHING if entry["share_of_error"] is None else f"{entry['share_of_error']:.0%}"
            difference = f"{entry['difference_ms']:+,.1f} ms"
            yield f"{regime:10}  {entry['part']:21}{sides}{difference:>13}{share:>16}"
    yield ""


def _signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.1%}"


def _plain(text: str) -> str:
    """Return the text without control characters, which a file's name may contain."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
