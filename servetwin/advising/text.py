"""Formats what scalers would have decided: for the console, the page, programs and spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from servetwin.advising.answer import Advised, OfScaler, command_of, run_words
from servetwin.advising.as_recorded import NAME, AsRecorded
from servetwin.advising.columns import REPLICAS, RUNNING, WAITING
from servetwin.advising.simulated import Simulated
from servetwin.advising.steps import Steps, advised_steps, at, mean, recorded_steps, simulated_steps
from servetwin.report.number_text import NOTHING, counted, duration, is_known, number, share, whole
from servetwin.run.heartbeat import left_text

ADVISED: Final = "advised: from the recorded instances, each time anew; those that start are counted"
SIMULATED: Final = (
    "simulated: a run of its own with the record's arrivals; those that take requests are counted"
)
_SINCE_1970: Final = 1e9
"""Times from here on are seconds since 1970, and not since a start of the file's own."""


def sentence(advised: Advised) -> str:
    """Return what was recorded, how many scalers decided, and which agrees most."""
    record = advised.record
    steps, span = recorded_steps(record), left_text(record.end_s)
    decided = {one.name: _agrees(one) for one in advised.scalers if one.advice.decisions}
    text = (
        f"{number(mean(steps, record.end_s) or 0.0)} instances took requests on average over {span} "
        f"({_count(np.nanmin(steps[1]))} to {_count(np.nanmax(steps[1]))}). "
    )
    if not decided:
        return f"{text}No scaler could be asked."
    nearest = nearest_of(advised)
    if len(advised.scalers) == 1:
        return f"{text}{nearest} wants as many at {share(decided[nearest])} of its decisions."
    of_all = f"{len(decided)} of {counted(len(advised.scalers), 'scaler')} could be asked"
    return f"{text}{of_all}; {nearest} agrees most with it, at {share(decided[nearest])} of its decisions."


def nearest_of(advised: Advised) -> str:
    """Return the scaler that agrees most with the record, the first of equal ones; "" if none was asked."""
    decided = [one for one in advised.scalers if one.advice.decisions]
    return max(decided, key=_agrees).name if decided else ""


def commands(advised: Advised) -> list[tuple[str, str]]:
    """Return (row, its ``servetwin simulate``) of each simulated run whose arrivals are kept."""
    held = advised.as_recorded
    runs = [(NAME, command_of(advised, held))] if held is not None else []
    runs += [(one.name, command_of(advised, one)) for one in advised.scalers]
    return [(name, command) for name, command in runs if command]


def repeated(advised: Advised) -> list[str]:
    """Return lines for the console: the command of the nearest scaler's run, or how to get commands."""
    if advised.no_run:
        return []
    if advised.options.out is None:
        return ["out=DIR keeps the arrivals, and the servetwin simulate command of every simulated row"]
    if command := dict(commands(advised)).get(nearest_of(advised)):
        of = f"simulated row of {nearest_of(advised)}; advise.json and report.html have every row's command"
        return [f"{of}:", f"  {command}"]
    return []


def _agrees(one: OfScaler) -> float:
    """Return the share of the decisions that want what was recorded."""
    decisions = one.advice.decisions
    return sum(decision.wanted == decision.recorded for decision in decisions) / len(decisions)


def head(advised: Advised) -> list[str]:
    """Return the names of the table's columns."""
    names = ["scaler", "decides every", "advised mean", "most", "as recorded"]
    if not advised.no_run:
        names += ["simulated mean", "most ", "turns", "served well", "TTFT P99"]
    return names


def rows(advised: Advised) -> list[list[str]]:
    """Return a row for each scaler that could be asked or ran, after those of the record."""
    record, table = advised.record, list[list[str]]()
    steps = recorded_steps(record)
    created = record.since_s, record.columns[REPLICAS]
    first = ["recorded", NOTHING, *_mean_and_most(created, record.end_s), NOTHING]
    measured = record.measured.get("ttft_p99_ms")
    ttft = NOTHING if measured is None else duration(measured)
    ran = [*_mean_and_most(steps, record.end_s), NOTHING, NOTHING, ttft]
    table.append(first + ([] if advised.no_run else ran))
    if (held := advised.as_recorded) is not None:
        table.append([NAME, *[NOTHING] * 4, *_simulated(held.run, record.end_s)])
    for one in advised.scalers:
        run = one.run
        if one.advice.missing and (run is None or run.refused):
            continue
        line = [one.name, duration(1000 * one.advice.period_s), *_advised(one, record.end_s)]
        table.append(line if advised.no_run else line + _simulated(run, record.end_s))
    return table


def _mean_and_most(steps: Steps, end_s: float) -> list[str]:
    return [number(mean(steps, end_s)), _count(np.nanmax(steps[1]))]


def _advised(one: OfScaler, end_s: float) -> list[str]:
    decisions = one.advice.decisions
    if not decisions:
        return [NOTHING] * 3
    steps = advised_steps(one.advice)
    return [*_mean_and_most(steps, end_s), share(_agrees(one))]


def _simulated(run: Simulated | None, end_s: float) -> list[str]:
    if run is None or run.refused:
        return [NOTHING] * 5
    steps, numbers = simulated_steps(run, end_s), run.numbers
    control = numbers.get("control", {})
    return [
        *_mean_and_most(steps, end_s),
        number(control.get("reversals")),
        share(numbers["slo"]["attainment"]),
        duration(numbers["ttft_ms"]["p99"]),
    ]


def _count(value: float) -> str:
    return number(whole(float(value)))


def lacking(advised: Advised) -> list[tuple[str, str]]:
    """Return (scaler, why it could not be asked), and those whose run was refused."""
    lines = [(one.name, why) for one in advised.scalers if (why := _unasked(one, advised.record.end_s))]
    runs = [(one.name, one.run) for one in advised.scalers]
    if advised.as_recorded is not None:
        runs.append((NAME, advised.as_recorded.run))
    return lines + [
        (name, f"has no simulated run: {run.refused}")
        for name, run in runs
        if run is not None and run.refused
    ]


def _unasked(one: OfScaler, end_s: float) -> str:
    if one.advice.missing:
        return f"needs {', '.join(one.advice.missing)}, which the record lacks"
    if one.advice.decisions:
        return ""
    period, span = duration(1000 * one.advice.period_s), left_text(end_s)
    return f"decides every {period}, and had no metrics at any such time of the {span} recorded"


def remarks(advised: Advised) -> list[str]:
    """Return what was taken for what, and why nothing was simulated."""
    no_run = [f"nothing was simulated: {advised.no_run}"] if advised.no_run else []
    return [*advised.told, *no_run]


def changes(one: OfScaler) -> Iterator[tuple[float, int, int, str]]:
    """Yield (time in s, recorded, wanted, reason) of each decision that says something new."""
    before = None
    for decision in one.advice.decisions:
        says = decision.recorded, decision.wanted
        if decision.wanted != decision.recorded and says != before:
            yield decision.at_s, decision.recorded, decision.wanted, decision.reason
        before = says


def clock(advised: Advised, at_s: float) -> str:
    """Return a time of the record as a date (UTC); "" if the record's times are no dates."""
    begun_s = float(advised.record.at_s[0])
    if begun_s < _SINCE_1970:
        return ""
    return datetime.fromtimestamp(begun_s + at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _columns(advised: Advised) -> dict[str, Steps]:
    columns = {"recorded": recorded_steps(advised.record)}
    for one in advised.scalers:
        if one.advice.decisions:
            columns[f"advised_{one.name}"] = advised_steps(one.advice)
        if one.run is not None and one.run.serving:
            columns[f"simulated_{one.name}"] = simulated_steps(one.run, advised.record.end_s)
    return columns


def as_csv(advised: Advised) -> str:
    """Return a row for every recorded instant: the recorded load, and all numbers of instances."""
    record, since_s = advised.record, advised.record.since_s
    steps = _columns(advised)
    values = {name: at(own, since_s) for name, own in steps.items()}
    values |= {name: record.columns[name] for name in (WAITING, RUNNING) if name in record.columns}
    lines = [",".join(["time_s", "time", *values])]
    for place, at_s in enumerate(since_s):
        cells = [_cell(column[place]) for column in values.values()]
        lines.append(",".join([f"{at_s:.10g}", clock(advised, float(at_s)), *cells]))
    return "\n".join([*lines, ""])


def _cell(value: float) -> str:
    return f"{value:.10g}" if is_known(float(value)) else ""


def as_data(advised: Advised) -> dict[str, Any]:
    """Return the same as data for programs."""
    record, held = advised.record, advised.as_recorded
    return {
        "sentence": sentence(advised),
        "log": str(advised.options.log),
        "start": clock(advised, 0.0) or None,
        "seconds": record.end_s,
        "columns": list(record.columns),
        "recorded_mean": mean(recorded_steps(record), record.end_s),
        "assumed": remarks(advised),
        "measured": dict(record.measured),
        "as_recorded": held and {"instances": held.count, **_data_of_run(advised, held)},
        "scalers": {one.name: _data_of(advised, one) for one in advised.scalers},
    }


def _data_of(advised: Advised, one: OfScaler) -> dict[str, Any]:
    data: dict[str, Any] = {
        "period_s": one.advice.period_s,
        "lacks": list(one.advice.missing),
        "advised_mean": mean(advised_steps(one.advice), advised.record.end_s),
        "decisions": len(one.advice.decisions),
        "changes": [
            {"t_s": at_s, "recorded": recorded, "wanted": wanted, "reason": reason}
            for at_s, recorded, wanted, reason in changes(one)
        ],
    }
    if one.run is not None:
        data["simulated"] = _data_of_run(advised, one)
    return data


def _data_of_run(advised: Advised, one: OfScaler | AsRecorded) -> Mapping[str, Any]:
    assert one.run is not None
    if one.run.refused:
        return {"refused": one.run.refused}
    end_s = advised.record.end_s
    return {
        "mean": mean(simulated_steps(one.run, end_s), end_s),
        "serving": [[at_s, count] for at_s, count in one.run.serving],
        "words": run_words(one.words, advised.options.out),
        "command": command_of(advised, one) or None,
        **one.run.numbers,
    }
