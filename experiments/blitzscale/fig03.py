"""Figure 3: objectives against the time an instance stops to load; and how much of the network serving takes.

A stop is made of an SSD whose rate makes every load last that long, as the paper delays its scaling by hand;
instances are started by the same load monitor, and no copy in host memory is used.
"""

from typing import Any, Final

from experiments.blitzscale.levels import inputs, levels, percent
from experiments.blitzscale.more_set_ups import full_loads, required_gbps, stop_8b, stop_72b, stopped
from experiments.blitzscale.set_ups import case_of, three
from experiments.common.compare import judged_row, measured, order_row, pointed, values_of
from experiments.common.figure import Figure, FigureRow, Key, Kind, Panel, PlotLine
from experiments.common.outcomes import LOAD_TIME, NETWORK_MEAN, Metric, Outcomes, RunOutcome, violations
from experiments.common.paired import mean_of
from experiments.common.set_up import Case
from experiments.common.verdict import Claim, about, at_least, at_most, judged
from servetwin.report.number_text import number

# BlitzScale (OSDI 2025), section 3: 72B is below 60 % from 220 Gbps a GPU on, at 40 % with 500 ms.
_GBPS: Final = 220.0
_NUMBER: Final[Kind] = "paper_number"
_USE: Final = "use of NICs"  # in sweeps.json
STOPS_72B_S: Final = (0.25, 0.5, 1.32, 2.0, 4.0, 8.0)  # 1.32 s: 36.35 GB of a GPU at 220 Gbps
STOPS_8B_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


def _violations_beyond(ttft_ms: float, tbt_ms: float) -> Metric:
    def read(run: RunOutcome) -> float:
        return violations(run, ttft_ms, tbt_ms)

    return Metric(f"requests beyond {ttft_ms:g}/{tbt_ms:g} ms", "", "requests", read)


_72B: Final = _violations_beyond(1250, 200)
_8B: Final = _violations_beyond(450, 150)


def cases() -> tuple[Case, ...]:
    """Both models with every stop; all GPUs at full load."""
    return (*_stops_72b(), *_stops_72b(2), *_stops_8b(), *full_loads(), *_at_half())


def _at_half() -> tuple[Case, ...]:
    """The same systems under the mean load of all other figures, to show how use of NICs rises with load."""
    return tuple(case_of(set_up, "distserve_full") for set_up in three())


def _stops_72b(least: int = 1) -> tuple[Case, ...]:
    return tuple(stopped(stop_72b(least), stop_s) for stop_s in STOPS_72B_S)


def _stops_8b() -> tuple[Case, ...]:
    return tuple(stopped(stop_8b(), stop_s) for stop_s in STOPS_8B_S)


def fig3(outcomes: Outcomes) -> Figure:
    """Arithmetic, shares of requests by stop, the order of stops, and network use."""
    of_72b = dict(zip(STOPS_72B_S, _stops_72b(), strict=True))
    rows = [
        _required_row(),
        _share(outcomes, at_most(0.60, f"below 60 % from {_GBPS:g} Gbps a GPU on", _NUMBER), of_72b[1.32]),
        _share(outcomes, at_least(0.60, f"60 % and more below {_GBPS:g} Gbps a GPU", _NUMBER), of_72b[2.0]),
        _share(outcomes, at_most(0.40, "40 % at most with a stop of 500 ms", _NUMBER), of_72b[0.5]),
        order_row(outcomes, "72B: the longer the stop, the more beyond", _72B, _stops_72b()),
        order_row(outcomes, "72B, at least 2: the longer the stop, the more beyond", _72B, _stops_72b(2)),
        order_row(outcomes, "8B: the longer the stop, the more beyond", _8B, _stops_8b()),
    ]
    for full, half in zip(full_loads(), _at_half(), strict=True):
        rows += _in_use(outcomes, full, half)
    panels = (
        _panel(outcomes, "72B", STOPS_72B_S, _stops_72b(), _72B),
        _panel(outcomes, "8B", STOPS_8B_S, _stops_8b(), _8B),
    )
    sentences = (
        *inputs(outcomes, cases()),
        "a stop: loads from an SSD of that rate, PCIe four times as fast at least",
    )
    return Figure(
        "fig3",
        "Figure 3: objectives by stop, and network use",
        tuple(rows),
        panels=panels,
        inputs=sentences,
        levels=levels(outcomes, cases()),
        sweeps=_saved(outcomes),
    )


def _required_row() -> FigureRow:
    gbps = required_gbps("qwen2_5_72b", 4, 0.5)
    why = "the catalogue's 72B has 145.4 GB, the paper counts 144"
    return judged("72B: rate per GPU for 500 ms", about(576, "576 Gbps"), gbps, f"{gbps:,.0f} Gbps", why=why)


def _share(outcomes: Outcomes, claim: Claim, case: Case) -> FigureRow:
    """Compare the share of requests beyond 1250 ms TTFT or 200 ms TBT with the claim."""
    load_s = LOAD_TIME.of(outcomes.of(case))
    why = f"loads took {number(mean_of(load_s).value if load_s else None)} s"
    name, read = f"72B: {_72B.label}, {case.label}", values_of(_72B, lacks="no run")
    return judged_row(outcomes, name, claim, (case,), read, why=why, write=percent)


def _in_use(outcomes: Outcomes, full: Case, half: Case) -> list[FigureRow]:
    """The paper contradicts itself, so each of its numbers has a row."""
    claims = (
        at_most(0.60, "more than 40 % free", _NUMBER),
        at_most(0.074, "at most 7.4 % in use", _NUMBER),
        at_most(0.144, "version 1: at most 14.4 %", _NUMBER),
    )
    why, rows = measured(outcomes, NETWORK_MEAN, full), []
    for claim in claims:
        name = f"{full.set_up.name}: mean use of NICs, {claim.text}"
        row = judged_row(
            outcomes, name, claim, (full,), values_of(NETWORK_MEAN), why=why, write=percent, moves=False
        )
        swept = row.verdict != "not comparable" and NETWORK_MEAN.of(outcomes.of(half))
        rows.append(pointed(row, (_USE, full.set_up.name)) if swept else row)
    return rows


def _saved(outcomes: Outcomes) -> dict[Key, Any]:
    """Mean use of the NICs under two mean loads, all seeds."""
    saved: dict[Key, Any] = {}
    for full, half in zip(full_loads(), _at_half(), strict=True):
        values = [NETWORK_MEAN.of(outcomes.of(case)) for case in (half, full)]
        if values[0] and values[1]:
            points = {"0.5 C": values[0], "1 C": values[1]}
            sentence = "mean use of the NICs by mean load, one value for every seed"
            saved[_USE, full.set_up.name] = {"told": sentence, "points": points}
    return saved


def _panel(
    outcomes: Outcomes, name: str, stops_s: tuple[float, ...], ours: tuple[Case, ...], metric: Metric
) -> Panel:
    points = [(stop_s, metric.of(outcomes.of(case))) for stop_s, case in zip(stops_s, ours, strict=True)]
    known = [(stop_s, 100 * sum(values) / len(values)) for stop_s, values in points if values]
    line = PlotLine(metric.label, [x for x, _ in known], [y for _, y in known], "o-")
    return Panel(name, "stop (s)", "% of requests", (line,))
