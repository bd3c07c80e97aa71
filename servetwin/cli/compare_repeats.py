"""``servetwin compare SIM REAL REAL ...``: does a simulated run differ more from real ones than they do?"""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from servetwin.cli.process import telling
from servetwin.compare.agreement import (
    STATISTICS,
    Agreement,
    TimingAgreement,
    agreement_of,
    journals_of,
)
from servetwin.compare.decisions import KINDS, Decision, Matched, Parting, matched
from servetwin.compare.repeated import AGREES, FAR, MOST_RATIO, Distances
from servetwin.compare.run_names import SIMULATED, name_of, two_names
from servetwin.compare.step_times import WorkRow, send_rows, step_rows
from servetwin.report.number_text import NOTHING, duration
from servetwin.report.table import LATENCIES
from servetwin.report.text_table import text_table
from serving.vocabulary.errors import UserError

# Steps and sends, real and simulated.

_STEPS: Final = "the same steps, real and as the simulation takes them (means of a step)"
_SENDS: Final = "sends, real and simulated (means of a send)"


def work_lines(simulated: Path, real: Sequence[Path]) -> Iterator[str]:
    """Return two tables, the second only if anything was sent."""
    steps, sends = step_rows(simulated, real), send_rows(simulated, real)
    if isinstance(steps, str):
        yield steps
    elif steps:
        yield _STEPS
        yield from text_table([["", "steps", "simulated", "real", "simulated / real"], *map(_cells, steps)])
    if sends:
        yield _SENDS
        yield from text_table([["", "bytes", "simulated", "real", "simulated / real"], *map(_cells, sends)])
    if steps or sends:
        yield ""


def _cells(row: WorkRow) -> list[str]:
    simulated = NOTHING if row.simulated_ms is None else duration(row.simulated_ms)
    ratio = NOTHING if row.ratio is None else f"{row.ratio:.2f}"
    return [row.kind, f"{row.amount:,}", simulated, duration(row.real_ms), ratio]


def work_data(simulated: Path, real: Sequence[Path]) -> dict[str, Any]:
    """Return data for programs: ``steps`` is null if their times are not available."""
    steps = step_rows(simulated, real)
    return {
        "steps": None if isinstance(steps, str) else [_data(row) for row in steps],
        "sends": [_data(row) for row in send_rows(simulated, real)],
    }


def _data(row: WorkRow) -> dict[str, Any]:
    return {
        "kind": row.kind, "count": row.count, "amount": row.amount, "real_ms": row.real_ms,
        "simulated_ms": row.simulated_ms, "ratio": row.ratio,
    }  # fmt: skip


RED: Final = 1
REAL: Final = "real"
_WIDTH: Final = 110
_LEGEND: Final = (
    "ratios: simulated / real, medians over the real runs. D_sim: Kolmogorov-Smirnov distance to a real run, "
    "D_repeat: between two real runs, medians. ratio: D_sim / D_repeat with its 95 % interval (blocks "
    "of arrival time, halves of the runs), a rerun: that of an unusual real run to the others. Differs where "
    f"all of the interval is above it and above {MOST_RATIO:g}"
)


def answer(places: Sequence[Path], options: Mapping[str, Any]) -> int:
    """Exit status 0 if every metric agrees, else 1. UserError unless all are results of one workload."""
    if unknown := [key for key in options if key != "json"]:
        raise UserError(f"{unknown[0]}= is not for a simulated run and repeats of a real one: leave it out")
    agreement = agreement_of(places[0], places[1:])
    with telling():
        if options.get("json"):
            print(json.dumps(as_data(agreement), indent=2, allow_nan=False))
        else:
            print("\n".join(lines_of(agreement)))
    return 0 if agreement.agrees else RED


def lines_of(agreement: Agreement) -> Iterator[str]:
    """Return the verdict as readable lines."""
    names = names_of(agreement.folders)
    wide = max(map(len, names))
    yield f"{names[0]:{wide}}  {agreement.folders[0]}"
    yield f"{names[1]:{wide}}  {', '.join(str(folder) for folder in agreement.folders[1:])}"
    yield ""
    head = ["timing", "requests", *names, *STATISTICS, "D_sim", "D_repeat", "ratio", "95 %", "a rerun", ""]
    labels = dict(LATENCIES)
    rows = [[labels[metric], *_timing_cells(timing)] for metric, timing in agreement.timing.items()]
    yield from text_table([head, *rows])
    yield from textwrap.wrap(_LEGEND, _WIDTH)
    yield ""
    yield from _disturbed_lines(agreement)
    yield from decision_lines(agreement.decisions, agreement.repeated, names)
    yield from work_lines(agreement.folders[0], agreement.folders[1:])
    for cause in agreement.refused:
        yield f"no agreement is claimed: {cause}"
    if not agreement.refused:
        yield f"verdict: {AGREES if agreement.agrees else _where_not(agreement)}"


def names_of(folders: Sequence[Path]) -> tuple[str, str]:
    """Return what the first run is, and what the others are."""
    others = dict.fromkeys(name_of(folder) or REAL for folder in folders[1:])
    return two_names(name_of(folders[0]) or SIMULATED, " and ".join(others))


def _timing_cells(timing: TimingAgreement) -> list[str]:
    ratios = [NOTHING if value is None else f"{value:.2f}" for value in timing.ratios.values()]
    means = [duration(side["mean"]) for side in (timing.simulated, timing.real)]
    kept = timing.kept
    distances = [f"{value:.3f}" for value in (kept.to_real, kept.to_repeat)]
    interval = [f"{kept.low:.2f} to {kept.high:.2f}", f"{kept.unusual:.2f}"]
    verdict = timing.verdict if kept.decides else NOTHING
    return [f"{timing.requests:,}", *means, *ratios, *distances, f"{kept.ratio:.2f}", *interval, verdict]


def _disturbed_lines(agreement: Agreement) -> Iterator[str]:
    """Return which run was left out, and the verdicts with it."""
    if agreement.disturbed is None:
        return
    labels = dict(LATENCIES)
    with_it = ", ".join(
        f"{labels[metric]} {timing.whole.ratio:.2f} {_decided(timing)}"
        for metric, timing in agreement.timing.items()
    )
    yield (
        f"{agreement.disturbed} was disturbed (its mean is more than {FAR:.0%} from the median of the other "
        f"runs) and is left out; with it: {with_it}"
    )
    yield ""


def _decided(timing: TimingAgreement) -> str:
    return timing.whole.verdict if timing.whole.decides else "decides nothing"


def _where_not(agreement: Agreement) -> str:
    labels = dict(LATENCIES)
    apart = [labels[metric] for metric, timing in agreement.timing.items() if timing.verdict != AGREES]
    return f"differs in {', '.join(apart)}: more than one real run from another"


def decision_lines(
    against: Sequence[Matched],
    repeated: Sequence[Matched] = (),
    names: tuple[str, str] = (SIMULATED, REAL),
) -> Iterator[str]:
    """Return match rates by kind, and the first difference of the first run to the second.

    ``names``: what these runs are.
    """
    if not against:
        yield "decisions were not compared: write journal=true in all runs"
        return
    yield f"decisions in common with {names[1]}, at whatever time they were taken"
    head = ["", *KINDS, "all", "median apart"]
    rows = [[names[0], *_rates(against)], *([["rerun", *_rates(repeated)]] if repeated else [])]
    yield from text_table([head, *rows])
    parting = against[0].parting
    if parting is None:
        yield "all decisions are the same"
    else:
        yield from parting_lines(parting, names)
    yield ""


def parting_lines(parting: Parting, names: tuple[str, str]) -> Iterator[str]:
    """Return the first decision that only one run took, with the event before it."""
    why = {
        "observation": "their controllers received different events",
        "timing": "their controllers received the same event, but earlier events at other times",
    }[parting.cause]
    yield f"first decision that only one of them took ({parting.kind}): {why}"
    for name, side in zip(names, (parting.first, parting.second), strict=True):
        yield f"  {name}: {'no such decision' if side is None else side.text()}"


def of_two(simulated: Path, real: Path) -> tuple[Matched, ...]:
    """Match decisions of a simulated run with a real one's; empty if a journal is missing."""
    ours, theirs = journals_of((simulated, real))
    return () if ours is None or theirs is None else (matched(ours, theirs),)


def _rates(several: Sequence[Matched]) -> list[str]:
    """Return the mean over several by kind, with the number of shared decisions in the first of them."""
    cells = []
    for kinds in (*((kind,) for kind in KINDS), KINDS):
        rates = [rate for match in several if (rate := match.rate(*kinds)) is not None]
        ours, theirs = (sum(several[0].counts[kind][side] for kind in kinds) for side in (0, 1))
        cells.append(f"{sum(rates) / len(rates):.1%} of {ours:,} and {theirs:,}" if rates else NOTHING)
    apart = [match.apart_ms for match in several if match.apart_ms is not None]
    return [*cells, duration(sum(apart) / len(apart)) if apart else NOTHING]


def as_data(agreement: Agreement) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {
        "simulated": str(agreement.folders[0]),
        "real": [str(folder) for folder in agreement.folders[1:]],
        "timing": {
            metric: {
                "requests": timing.requests, "simulated": dict(timing.simulated), "real": dict(timing.real),
                "ratio": timing.ratios, **_distance_data(timing.kept),
                "with_all": _distance_data(timing.whole),
            }
            for metric, timing in agreement.timing.items()
        },
        "disturbed": None if agreement.disturbed is None else str(agreement.disturbed),
        "refused": list(agreement.refused),
        "agrees": agreement.agrees,
        "decisions": [matched_data(match) for match in agreement.decisions],
        "repeated_decisions": [matched_data(match) for match in agreement.repeated],
        "work": work_data(agreement.folders[0], agreement.folders[1:]),
    }  # fmt: skip


def agreement_data(twin: Path, reals: Sequence[Path]) -> dict[str, Any]:
    """Return the agreement with folders by their names alone."""
    data = as_data(agreement_of(twin, reals))
    disturbed = data["disturbed"]
    return data | {
        "simulated": twin.name,
        "real": [real.name for real in reals],
        "disturbed": None if disturbed is None else Path(disturbed).name,
    }


def _distance_data(one: Distances) -> dict[str, Any]:
    return {
        "d_sim": one.to_real, "d_repeat": one.to_repeat, "d_sim_over_d_repeat": one.ratio,
        "interval": [one.low, one.high], "unusual_run": one.unusual,
        "real_means_apart": one.apart, "verdict": one.verdict,
        "decides": one.decides,
    }  # fmt: skip


def matched_data(match: Matched) -> dict[str, Any]:
    """Return counts, rates and the first difference of two runs."""
    parting = match.parting
    return {
        "counts": {kind: list(counts) for kind, counts in match.counts.items()},
        "rate": {kind: match.rate(kind) for kind in KINDS} | {"all": match.rate()},
        "apart_ms": match.apart_ms,
        "parting": None if parting is None else {
            "kind": parting.kind, "cause": parting.cause,
            "first": _side(parting.first), "second": _side(parting.second),
        },
    }  # fmt: skip


def _side(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {
        "at_ns": decision.at_ns,
        "event": json.loads(decision.event),
        "action": json.loads(decision.action),
    }
