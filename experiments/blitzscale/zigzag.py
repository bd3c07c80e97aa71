"""ZigZag against best effort: what one pair can gain, and what the settings of live scaling change.

The paper says "50 % tail latency reduction" and names no baseline; its example is 32 -> 22. AzureCode runs
here on hosts of one GPU, where every load crosses the network and takes longest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp
from typing import Any, Final

from experiments.blitzscale.levels import SHOWN, inputs, levels
from experiments.blitzscale.one_pair import play
from experiments.blitzscale.set_ups import AZURE_CODE_8B, BLITZ, case_of
from experiments.common.compare import joined, pointed, ratio_row
from experiments.common.figure import Figure, FigureRow, Key, Panel, PlotLine
from experiments.common.outcomes import GPU_TIME, MEAN_TTFT, P99_TTFT, Metric, Outcomes
from experiments.common.paired import Estimated, ratio_of
from experiments.common.saved import SEED
from experiments.common.set_up import Case, SetUp, Words
from experiments.common.verdict import at_least, below, judged, judged_over, shorter
from policies.live.zigzag_replay import Schedule, best_effort, ilp_free
from serving.protocols.live import LiveView

# What ZigZag can gain over best effort in one pair with everything queued: closed form, schedules, runs.
# Times are in units of the whole load, a is the queued work of one instance in that unit. With many layers
# and batches, x of them loaded at time x:
# * ZigZag. The old instance takes a batch over at time t with the share t of its layers done at most, so it
# works off the queue at 1/(1-t): -ln(1-t) by time t, and a is through at 1-exp(-a). The new one has run
# -ln(1-t)-t by then, for which it has the time up to 1-exp(-a) = a/2. Beyond, both are busy throughout:
# a/2. * Best effort. The new one is through all batches at once with next to no layers, so the old one has
# all of the work: a. Of what is left when everything is loaded either may run half: 1+(a-1)/2. Batches that
# keep to their quotas even then are not shared: a.
# No division in which a batch changes hands once ends sooner than ZigZag here, and best effort with fewer
# layers ends sooner than here: the least ratio, where both bounds of ZigZag meet, is a bound.

LAYERS: Final = 32
LOAD: Final = 12  # of a layer, in layer times
_BATCHES: Final = (6, 12, 15, 18, 19, 24, 36)


def zigzag_s(work: float) -> float:
    """Return when the last batch ends under ZigZag."""
    return max(1 - exp(-work), work / 2)


def shared_s(work: float) -> float:
    """Return when the last batch ends under best effort, if both run what is left after the load."""
    return work if work <= 1 else (1 + work) / 2


def kept_s(work: float) -> float:
    """Return when the last batch ends under best effort, if quotas stay to the end."""
    return work


def _meeting() -> float:
    """Return the a > 1 with 1-exp(-a) = a/2, by bisection."""
    low, high = 1.0, 2.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - exp(-middle) > middle / 2 else (low, middle)
    return low


BEST_WORK: Final = _meeting()  # 1.594
BOUND: Final = zigzag_s(BEST_WORK) / shared_s(BEST_WORK)  # 0.614


@dataclass(frozen=True, slots=True)
class EndCurve:
    """When the last batch ends as a function of the queued work, both in units of the load's time."""

    work: tuple[float, ...]
    zigzag: tuple[float, ...]
    effort: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """ZigZag over best effort."""
        return tuple([zigzag_end / other for zigzag_end, other in zip(self.zigzag, self.effort, strict=True)])

    def best(self) -> tuple[float, float]:
        """(least ratio, at which work)."""
        return min(zip(self.ratios, self.work, strict=True))


def closed(effort: Callable[[float], float], most: float = 3.0, points: int = 121) -> EndCurve:
    """The closed form."""
    work = tuple([most * (step + 1) / points for step in range(points)])
    return EndCurve(work, tuple(map(zigzag_s, work)), tuple(map(effort, work)))


def scheduled(layers: int = LAYERS, load: int = LOAD) -> EndCurve:
    """The layer-level schedules, quotas kept to the end."""

    def last(schedule: Callable[[LiveView], Schedule], batches: int) -> float:
        return max(schedule(LiveView(layers, load, (1,) * batches)).finish_ns) / (layers * load)

    batches = [count * load // LOAD for count in _BATCHES]
    return EndCurve(
        tuple([count / load for count in batches]),
        tuple([last(ilp_free, count) for count in batches]),
        tuple([last(best_effort, count) for count in batches]),
    )


@cache
def simulated() -> EndCurve:
    """Whole runs; quotas end when everything is loaded."""

    def last(scheduler: str, batches: int) -> float:
        return max(play(LAYERS, LOAD - 0.01, batches, scheduler).finish) / (LAYERS * LOAD)

    return EndCurve(
        tuple([count / LOAD for count in _BATCHES]),
        tuple([last("ilp_free", count) for count in _BATCHES]),
        tuple([last("best_effort", count) for count in _BATCHES]),
    )


CURVE: Final[Key] = ("queued work", "one pair")
_APART: Final = AZURE_CODE_8B.alone
SET_UP: Final[SetUp] = replace(
    AZURE_CODE_8B,
    name="AzureCode/8B/16 hosts",
    words=tuple(_APART if word.startswith("cluster=") else word for word in AZURE_CODE_8B.words),
)
SETTINGS: Final[Key] = ("settings of live scaling", SET_UP.name)
_ZIGZAG, _EFFORT = "ZigZag", "best effort"
_SHORTER: Final = below(1.0, "shorter than best effort (our analysis)", "own_analysis")
_BOUND: Final = at_least(BOUND, f"not below {BOUND:.3f}, what one pair can do (our analysis)", "own_analysis")
_KEPT: Final = at_least(
    0.5, "not below 0.5, the same without sharing at the end (our analysis)", "own_analysis"
)
_ZIGZAG_50: Final = shorter(50)


@dataclass(frozen=True, slots=True)
class Setting:
    """Which instances are live, and what is loaded. slo_ms: None for the run's own objective, 450 ms."""

    tails_only: bool = True
    per_partner: int = 1
    slo_ms: int | None = None
    prescale_by: int = 1

    @property
    def name(self) -> str:
        """``all, 4 per partner, slo 0``: what is not as shipped is said."""
        parts = ["tails" if self.tails_only else "all", f"{self.per_partner} per partner"]
        parts += [] if self.slo_ms is None else [f"slo {self.slo_ms}"]
        return ", ".join(parts + ([] if self.prescale_by == 1 else [f"pre-scale {self.prescale_by}"]))

    def cases(self) -> tuple[Case, Case, Case]:
        """(ZigZag, best effort, stopped while they load); what is stopped depends on pre-scaling alone."""
        scaler = (f"system.scaler.prescale_by={self.prescale_by}",)
        live: Words = (
            f"system.live.tails_only={str(self.tails_only).lower()}",
            f"system.live.targets_per_partner={self.per_partner}",
            *(() if self.slo_ms is None else (f"system.live.slo_ms={self.slo_ms}",)),
        )
        return (
            self._case(_ZIGZAG, self.name, (*scaler, *live)),
            self._case(_EFFORT, self.name, ("system/live=best_effort", *scaler, *live)),
            self._case("stop", f"pre-scale {self.prescale_by}", ("system/live=stop", *scaler)),
        )

    @staticmethod
    def _case(scheduler: str, setting: str, words: Words) -> Case:
        return case_of(SET_UP, BLITZ, f"{scheduler}: {setting}", words)


_ENDS: Final = (Setting(), Setting(tails_only=False, per_partner=4))
POINTS: Final = (
    *(Setting(tails, count) for tails in (True, False) for count in (1, 2, 4)),
    *(replace(setting, slo_ms=limit_ms) for setting in _ENDS for limit_ms in (0, 2000)),
    *(replace(setting, prescale_by=count) for setting in _ENDS for count in (0, 2)),
)


def cases() -> tuple[Case, ...]:
    """All settings with both schedulers, and stopped."""
    return tuple(dict.fromkeys(case for point in POINTS for case in point.cases()))


def zigzag(outcomes: Outcomes) -> Figure:
    """The bound of one pair with its curves, and the sweep."""
    curves = {"scheduled": scheduled(), "simulated": simulated()}
    rows = [*_pair_rows(curves), *_sweep_rows(outcomes)]
    panels = (_finishes(curves), _ratios(curves), *_swept(outcomes))
    notes = (
        f"one pair: {LAYERS} layers, each loaded in {LOAD} layer times, all batches queued before the first",
        "quotas of best effort stay to the end in schedules, and end in runs when everything is loaded",
    )
    return Figure(
        "zigzag",
        "ZigZag against best effort",
        tuple(rows),
        panels=panels,
        inputs=(*notes, *inputs(outcomes, cases())),
        levels=levels(outcomes, cases(), SHOWN),
        sweeps={CURVE: _saved_curves(curves), **_saved_sweep(outcomes)},
    )


def _pair_rows(curves: dict[str, EndCurve]) -> Iterator[FigureRow]:
    shared = f"closed form {BOUND:.3f} at {BEST_WORK:.3f} times"
    for name, claim, comparison in (
        ("simulated", _BOUND, shared),
        ("scheduled, quotas to the end", _KEPT, "closed form 0.5"),
        ("simulated, beside the paper's number", _ZIGZAG_50, f"{shared}; the paper names no baseline"),
    ):
        ratio, work = curves[name.partition(",")[0]].best()
        title = f"one pair, last batch, ZigZag over best effort at its best, {name}"
        why = f"with {work:.2f} times the load's length of queued work; {comparison}"
        yield pointed(judged(title, claim, ratio, f"{ratio:.3f}", why=why), CURVE)


def _sweep_rows(outcomes: Outcomes) -> list[FigureRow]:
    rows, ratios = [], dict[str, Estimated]()
    for point in POINTS:
        ours, effort, _ = point.cases()
        name = f"{SET_UP.name}: {P99_TTFT.label}, ZigZag over best effort, {point.name}"
        rows.append(ratio_row(outcomes, name, _SHORTER, P99_TTFT, ours=ours, other=effort))
        if ratio := _ratio(outcomes, P99_TTFT, ours, effort):
            ratios[point.name] = ratio
    if ratios:
        least = min(ratios, key=lambda name: ratios[name].value)
        title = (
            f"{SET_UP.name}: {P99_TTFT.label}, ZigZag over best effort, the least of {len(ratios)} settings"
        )
        row = judged_over(title, _BOUND, ratios[least], stand_in=SET_UP.stand_in, why=f"with {least}")
        rows.append(pointed(row, (SEED, SET_UP.name), SETTINGS))
    return rows


def _ratio(outcomes: Outcomes, metric: Metric, ours: Case, other: Case) -> Estimated | None:
    values = [metric.of(outcomes.of(case)) for case in (ours, other)]
    return ratio_of(values[0], values[1]) if values[0] and values[1] else None


def _saved_sweep(outcomes: Outcomes) -> dict[Key, Any]:
    """Every setting's ratios with their intervals."""
    points: dict[str, dict[str, str]] = {}
    for point in POINTS:
        ours, *bases = point.cases()
        for name, other in zip((_EFFORT, "stop"), bases, strict=True):
            for metric in (P99_TTFT, MEAN_TTFT, GPU_TIME):
                if ratio := _ratio(outcomes, metric, ours, other):
                    points.setdefault(point.name, {})[f"{metric.label} over {name}"] = ratio.shown(_exact)
    about = "ZigZag over best effort and over stopping, by who is live and what is loaded, all seeds"
    return {SETTINGS: {"told": about, "points": points}} if points else {}


def _exact(value: float) -> str:
    return f"{value:.3f}"


def _saved_curves(curves: dict[str, EndCurve]) -> dict[str, Any]:
    points = {
        name: {"work": curve.work, "zigzag": curve.zigzag, "best_effort": curve.effort, "ratio": curve.ratios}
        for name, curve in curves.items()
    }
    return {
        "told": "end of the last batch over the load's length, by queued work over it",
        "bound": {"ratio": BOUND, "work": BEST_WORK},
        "points": points,
    }


def _finishes(curves: dict[str, EndCurve]) -> Panel:
    shared, with_quotas = closed(shared_s), closed(kept_s)
    lines = [
        PlotLine("ZigZag, closed form", shared.work, shared.zigzag),
        PlotLine("best effort, closed form", shared.work, shared.effort),
        PlotLine("the same, quotas kept", with_quotas.work, with_quotas.effort, "--"),
        *(
            PlotLine(f"ZigZag, {name}", curve.work, curve.zigzag, style)
            for (name, curve), style in _with_markers(curves)
        ),
        *(
            PlotLine(f"best effort, {name}", curve.work, curve.effort, style)
            for (name, curve), style in _with_markers(curves)
        ),
    ]
    return Panel(
        "last batch of one pair", "queued work over the load's length", "end, the same", tuple(lines)
    )


def _ratios(curves: dict[str, EndCurve]) -> Panel:
    shared, with_quotas = closed(shared_s), closed(kept_s)
    lines = [
        PlotLine("closed form", shared.work, shared.ratios),
        PlotLine("the same, quotas kept", with_quotas.work, with_quotas.ratios, "--"),
        *(PlotLine(name, curve.work, curve.ratios, style) for (name, curve), style in _with_markers(curves)),
        PlotLine(f"{BOUND:.3f}", (BEST_WORK,), (BOUND,), "k*"),
    ]
    return Panel("ZigZag over best effort", "queued work over the load's length", "ratio", tuple(lines))


def _with_markers(curves: dict[str, EndCurve]) -> list[tuple[tuple[str, EndCurve], str]]:
    return list(zip(curves.items(), ("x", "o"), strict=True))


def _swept(outcomes: Outcomes) -> list[Panel]:
    """P99 and mean by setting, with their intervals."""
    panels = []
    for metric in (P99_TTFT, MEAN_TTFT):
        ratios = [(x, _ratio(outcomes, metric, *point.cases()[:2])) for x, point in enumerate(POINTS)]
        known = [(float(x), ratio) for x, ratio in ratios if ratio]
        if not known:
            continue
        places = [x for x, _ in known]
        lines = [PlotLine("mean of seeds", places, [ratio.value for _, ratio in known], "o")]
        ends = [end for _, ratio in known for end in (ratio.low, ratio.high) if end is not None]
        if len(ends) == 2 * len(places):
            lines.append(PlotLine("95 % interval", [x for x in places for _ in range(2)], ends, "_"))
        ticks = tuple(joined(point.name.replace(" per partner", "")) for point in POINTS)
        panels.append(
            Panel(f"{metric.label}, ZigZag over best effort", "", "ratio", tuple(lines), ticks=ticks)
        )
    return panels
