"""Other readings of what QUART's paper leaves open, beside the figures' own. No reading is ever counted."""

from collections.abc import Mapping, Sequence
from functools import partial

from experiments.common.figure import Figure, FigureRow
from experiments.common.outcomes import Outcomes
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, shorter, times
from experiments.quart.judge import CaseOf, MeanJudge, Place
from experiments.quart.metrics import LATENCY, QUEUE
from experiments.quart.set_ups import CVS, QUART, READINGS, SYSTEMS, Reading, system, system_read_as
from experiments.quart.systems_figures import (
    CV_GOODPUT,
    CV_ORDER,
    CV_SHORTER,
    KEY_6,
    KEY_7,
    MAF_ORDER,
    MAF_SHORTER,
    cv_places,
    for_all_models,
    lenient_goodput,
    maf_places,
)

_USUAL = "default"


def _case_of(reading: Reading | None) -> CaseOf:
    return system if reading is None else partial(system_read_as, reading)


def _cases(places: Sequence[Place]) -> list[Case]:
    """Every system at every place by every reading; a system that a reading does not change runs once."""
    cases = [
        _case_of(reading)(name, set_up)
        for reading in (None, *READINGS)
        for _, set_up in places
        for name in SYSTEMS
    ]
    return list(dict.fromkeys(cases))


def maf_cases(requests: int) -> list[Case]:
    """Figure 6 by every reading."""
    return _cases(maf_places(requests))


def cv_cases(requests: int) -> list[Case]:
    """Figures 7 and 8 by every reading."""
    return _cases(cv_places(requests))


def _shown(row: FigureRow) -> str:
    """What was measured and how it compares; the verdict is not counted anywhere."""
    return f"{row.ours}, {row.verdict}" if row.ours else f"{row.verdict}: {row.why}"


def _means(
    judge: MeanJudge, places: Sequence[Place], order: Sequence[str], gains: Mapping[str, float]
) -> dict[str, str]:
    rows = {"order of mean latency": judge.order("", for_all_models(LATENCY), places, order, "ms")}
    for name, gain in gains.items():
        claim = shorter(gain)
        rows[f"mean over {name} ({1 - gain / 100:.3g})"] = judge.ratio(
            "", claim, for_all_models(LATENCY), places, ours=QUART, over=name
        )
    return {column: _shown(row) for column, row in rows.items()}


def _goodputs(judge: MeanJudge, places: Sequence[Place], factors: Mapping[str, float]) -> dict[str, str]:
    return {
        f"goodput over {name} ({factor:g})": _shown(
            judge.ratio("", times(factor), lenient_goodput, places, ours=QUART, over=name)
        )
        for name, factor in factors.items()
    }


def _queue(judge: MeanJudge, places: Sequence[Place], claim: Claim) -> str:
    row = judge.ratio("", claim, for_all_models(QUEUE), places, ours="infless", over=QUART)
    return _shown(row)


def _inputs() -> tuple[str, ...]:
    """What each reading is; columns are QUART over the named system, with the paper's number."""
    about = "columns: QUART over another system, the paper's number in brackets; no cell is counted"
    return (about, *[f"{reading.title}: {reading.source}" for reading in READINGS])


def readings_6(outcomes: Outcomes) -> Figure:
    """Figure 6 by every reading: order and ratios."""
    places = maf_places(outcomes.requests)
    levels = [
        {"reading": reading.title if reading else _USUAL}
        | _means(MeanJudge(outcomes, KEY_6, _case_of(reading)), places, MAF_ORDER, MAF_SHORTER)
        for reading in (None, *READINGS)
    ]
    return Figure(
        "readings6", "Figure 6 by other readings of the paper", (), inputs=_inputs(), levels=tuple(levels)
    )


def readings_7(outcomes: Outcomes) -> Figure:
    """Figures 7 and 8 by every reading, over all CVs and at each: order, ratios, goodput, queue."""
    requests, levels = outcomes.requests, []
    for reading in (None, *READINGS):
        judge = MeanJudge(outcomes, KEY_7, _case_of(reading))
        for at, cvs in (("all", CVS), *[(f"{cv:g}", (cv,)) for cv in CVS]):
            places = cv_places(requests, cvs)
            row = {"reading": reading.title if reading else _USUAL, "CV": at}
            row |= _means(judge, places, CV_ORDER, CV_SHORTER)
            row |= _goodputs(judge, places, CV_GOODPUT)
            row["queue, infless over quart (10.1)"] = _queue(judge, places, times(10.1))
            levels.append(row)
    return Figure(
        "readings7",
        "Figures 7 and 8 by other readings of the paper",
        (),
        inputs=_inputs(),
        levels=tuple(levels),
    )
