"""The answer of a plan, as data: each layout's answer, the best one's at both ends, its head-room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from experiments.plan.busiest import Busiest, busiest
from experiments.plan.layout import Layout
from experiments.plan.objective import Objective
from experiments.plan.plan_words import CHEAPEST, RATE, PlanWords
from experiments.plan.prices import Price
from experiments.plan.probe import End, prepared_for, probe
from experiments.plan.search import Found, highest_factor, least_gpus
from experiments.results.ranges import Answers
from experiments.run.crew import Submit, crew, in_order
from experiments.sweep.outcome import Outcome
from hwmodels.errors import HardwareError
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

MOST_GPUS: Final = 256
_FEW: Final = 4  # up to so many layouts are all searched on the whole workload
_FIRST: Final = 8  # more layouts start on the first eighth of it
_WINDOW_S: Final = 60.0
S_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout and its requirements: ``cost`` per hour in the currency of the prices, None without a price.

    ``dropped``: why it was not searched on the whole workload; empty if it was.
    """

    found: Found
    cost: float | None = None
    dropped: str = ""

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours that the run held."""
        outcome = self.found.outcome
        return None if outcome is None else outcome.numbers["gpu_seconds"] / S_PER_HOUR


@dataclass(frozen=True, slots=True)
class Plan:
    """``ranked``: best first. ``ends``: the best one's answer at the low end, as modelled, at the high end.

    ``headroom``: factor by which the rate may grow at the answer. With find=rate the answers are factors on
    the trace's rate, and ``rate_per_s`` is that of the factor 1.
    """

    asked: PlanWords
    ranked: tuple[Candidate, ...]
    unable: tuple[Candidate, ...]
    ends: Answers
    headroom: float | None = None
    busiest: Busiest | None = None
    rate_per_s: float | None = None
    runs: int = 0
    details: dict[str, Any] = field(default_factory=dict)


def plan(asked: PlanWords, on_done: Callable[[int, int], None] | None = None) -> Plan:
    """Search for the answer. UserError if no layout runs at all."""
    refuse_moving_rate(asked)
    with crew(int(asked.own.get("processes", 2))) as submit:
        if asked.find == RATE:
            return _highest_rate(asked, submit)
        return _least(asked, submit, on_done)


def guess_gpus(layout: Layout, words: tuple[str, ...]) -> int:
    """Return the GPUs that the workload would keep busy; 0 if unknown."""
    from experiments.build.workload import run_capacity_req_per_s

    try:
        prepared = prepared_for((*words, *layout.words_of(layout.least)))
        each = run_capacity_req_per_s(prepared.config, prepared.estimates, 1, prepared.workload)
        rate = prepared.workload.mean_rate_per_s or 0.0
        return math.ceil(rate / each) * layout.tp * layout.pp
    except Exception:  # only a guess: the run itself reports errors
        return 0


def searched(
    layout: Layout, words: tuple[str, ...], objective: Objective, most_gpus: int, end: End, guess: int
) -> Found:
    """Search a layout's least size; runs in a process of the crew."""
    guess = guess or guess_gpus(layout, words)
    return least_gpus(layout, words, objective, most_gpus, end, guess)


def refuse_moving_rate(asked: PlanWords) -> None:
    """Refuse a rate that depends on the cluster, which would pose a different question for every size.

    Raises TraceError if no layout has its trace: then the trace is at fault, not the layouts.
    """
    unread: list[TraceError] = []
    for layout in asked.layouts:
        try:
            trace = prepared_for((*asked.words, *layout.words_of(layout.least))).config.trace
        except TraceError as error:
            unread.append(error)
            continue
        except (UserError, HardwareError):
            continue
        if trace.utilization is not None or trace.prefill_share is not None:
            raise UserError(
                f"trace={trace.name} follows the cluster: write its rate, such as trace.rate_per_s=10"
            )
        return
    if unread:
        raise unread[0]


def _least(asked: PlanWords, submit: Submit, on_done: Callable[[int, int], None] | None) -> Plan:
    layouts, dropped = _after_halving(asked, submit)
    tell = None if on_done is None else (lambda done: on_done(done, len(layouts) + 2))
    found = _search_all(asked, layouts, asked.words, submit, tell)
    ranked, unable = _ranked(asked, found)
    if not ranked:
        refused = next((one.found.refused for one in unable if one.found.refused), "")
        if refused and all(one.found.refused for one in unable):
            raise UserError(f"no layout runs; {unable[-1].found.layout.name}: {unable[-1].found.refused}")
        return Plan(asked, (), (*unable, *dropped), Answers(None, None, None), runs=_runs(found))
    best = ranked[0].found
    assert best.gpus is not None
    rest = [
        submit(searched, best.layout, asked.words, asked.objective, _most(asked), end, best.gpus)
        for end in ("low", "high")
    ]
    more = (
        submit(headroom_of, best.layout, best.gpus, asked.words, asked.objective) if _wants(asked) else None
    )
    low, high = in_order(rest)
    window = busiest_of(best.layout, best.gpus, asked.words, float(asked.own.get("window_s", _WINDOW_S)))
    factor, runs = (None, 0) if more is None else more.result()
    return Plan(
        asked, tuple(ranked), (*unable, *dropped), Answers(low.gpus, best.gpus, high.gpus), factor, window,
        runs=_runs([*found, low, high]) + runs, details={"low": low, "high": high},
    )  # fmt: skip


def _wants(asked: PlanWords) -> bool:
    return bool(asked.own.get("headroom", True))


def _most(asked: PlanWords) -> int:
    return int(asked.own.get("max_gpus", MOST_GPUS))


def _runs(found: Sequence[Found]) -> int:
    return sum(len(one.tried) for one in found)


def _search_all(
    asked: PlanWords, layouts: Sequence[Layout], words: tuple[str, ...], submit: Submit,
    tell: Callable[[int], None] | None = None,
) -> list[Found]:  # fmt: skip
    futures = [submit(searched, layout, words, asked.objective, _most(asked), "mid", 0) for layout in layouts]
    return in_order(futures, tell)


def _after_halving(asked: PlanWords, submit: Submit) -> tuple[list[Layout], list[Candidate]]:
    """Repeatedly keep the better half of many layouts on the first requests; return kept and dropped."""
    layouts, dropped, share = list(asked.layouts), list[Candidate](), _FIRST
    if len(layouts) <= _FEW or not asked.own.get("halving", True) or _limited(asked.words):
        return layouts, dropped
    total = requests_of(layouts, asked.words)
    while len(layouts) > _FEW and share > 1 and total:
        words = (*asked.words, f"trace.limit={max(1, total // share)}")
        ranked, unable = _ranked(asked, _search_all(asked, layouts, words, submit))
        kept = max(_FEW, len(ranked) // 2)
        first = f"the first {total // share:,} requests"
        why = f"dropped after {first}: others served these better (halving=false searches all)"
        dropped += [replace(one, dropped=why) for one in ranked[kept:]]
        failed = f"dropped after {first}: no size met the objective on these"
        dropped += [replace(one, dropped="" if one.found.refused else failed) for one in unable]
        layouts, share = [one.found.layout for one in ranked[:kept]], share // 2
        if not layouts:
            return [one.found.layout for one in unable], []
    return layouts, dropped


def _limited(words: Sequence[str]) -> bool:
    return any(word.startswith("trace.limit=") for word in words)


def requests_of(layouts: Sequence[Layout], words: tuple[str, ...]) -> int:
    """Return the workload's number of requests, from the first valid layout; 0 if none is valid."""
    for layout in layouts:
        try:
            return len(prepared_for((*words, *layout.words_of(layout.least))).workload)
        except (UserError, HardwareError, TraceError):  # the layout's own search reports why
            continue
    return 0


def _ranked(asked: PlanWords, found: Sequence[Found]) -> tuple[list[Candidate], list[Candidate]]:
    """Return candidates with an answer, best first, and the others."""
    every = [Candidate(one, _cost(asked, one)) for one in found]
    able = [one for one in every if one.found.gpus is not None]
    unpriced = [one for one in able if one.cost is None]
    if asked.find == CHEAPEST and unpriced:
        name = unpriced[0].found.layout.hardware
        raise UserError(
            f"{name} has no price: write price.{name}=NUMBER (per GPU-hour), or add it to prices="
        )
    able.sort(key=lambda one: _rank(asked, one))
    return able, [one for one in every if one.found.gpus is None]


def _rank(asked: PlanWords, one: Candidate) -> tuple[float, float, str]:
    gpus = float(one.found.gpus or 0)
    first = (one.cost or 0.0) if asked.find == CHEAPEST else gpus
    limit = asked.objective.limits[0]
    outcome = one.found.outcome
    second = outcome.numbers.get(limit.metric, 0.0) if outcome else 0.0
    return first, second if limit.at_most else -second, one.found.layout.name


def _cost(asked: PlanWords, one: Found) -> float | None:
    """Return the hourly cost of the GPUs that the run held on average."""
    price = price_of(asked, one.layout)
    if price is None or one.outcome is None:
        return None
    numbers = one.outcome.numbers
    return price.per_gpu_hour * numbers["gpu_seconds"] / numbers["duration_s"]


def price_of(asked: PlanWords, layout: Layout) -> Price | None:
    """Return the price of the layout's hardware."""
    return asked.prices.get(layout.hardware)


def headroom_of(
    layout: Layout, gpus: int, words: tuple[str, ...], objective: Objective
) -> tuple[float | None, int]:
    """Return the highest rate factor that meets the objective at this size, up to 4, and the runs."""
    found, tried = _factor(layout, gpus, words, objective, "mid", least=1.0, most=4.0)
    return found, len(tried)


def _factor(
    layout: Layout, gpus: int, words: tuple[str, ...], objective: Objective, end: End, **bounds: float
) -> tuple[float | None, list[Outcome]]:
    """Return the highest rate factor within ``bounds`` (``highest_factor``), and each trial's outcome."""
    tried = list[Outcome]()

    def meets(factor: float) -> bool:
        tried.append(probe((*scaled(words, factor), *layout.words_of(gpus)), end))
        return objective.met_by(tried[-1].numbers)

    return highest_factor(meets, **bounds), tried


def scaled(words: tuple[str, ...], factor: float) -> tuple[str, ...]:
    """Return the words of the same workload at another rate."""
    if factor == 1.0:
        return words
    key = "trace.rate_scale="
    present = next((float(word.removeprefix(key)) for word in words if word.startswith(key)), 1.0)
    rest = tuple(word for word in words if not word.startswith(key))
    return (*rest, f"{key}{present * factor:.6g}")


def busiest_of(layout: Layout, gpus: int, words: tuple[str, ...], window_s: float) -> Busiest | None:
    """Return the busiest stretch of the arriving workload, at a size that runs."""
    workload = prepared_for((*words, *layout.words_of(gpus))).workload
    return busiest(workload.arrival_ns, window_s)


def rate_at(
    layout: Layout, gpus: int, words: tuple[str, ...], objective: Objective, end: End
) -> tuple[float | None, int]:
    """Return the highest rate factor at one end, and its number of runs. UserError if no run succeeds."""
    found, tried = _factor(layout, gpus, words, objective, end)
    refused = [one.refused for one in tried if one.refused]
    if len(refused) == len(tried):
        raise UserError(f"{layout.name} does not run: {refused[0]}")
    return found, len(tried)


def _highest_rate(asked: PlanWords, submit: Submit) -> Plan:
    gpus = int(asked.own["gpus"])
    ways = [layout for layout in asked.layouts if gpus % layout.step == 0]
    if not ways:
        raise UserError(f"gpus={gpus} is no multiple of {asked.layouts[0].step}: write one that is")
    mids = [submit(rate_of, layout, gpus, asked, "mid") for layout in ways]
    able = [(layout, *one) for layout, one in zip(ways, in_order(mids)) if one[0] is not None]
    if not able:
        return Plan(asked, (), (), Answers(None, None, None), runs=sum(one.result()[1] for one in mids))
    layout, factor, _ = max(able, key=lambda one: one[1])
    (low, more), (high, most) = in_order(
        [submit(rate_of, layout, gpus, asked, end) for end in ("low", "high")]
    )
    rate = prepared_for((*asked.words, *layout.words_of(gpus))).workload.mean_rate_per_s
    others = sorted(able, key=lambda one: -one[1])
    return Plan(
        asked, (), (), Answers(low, factor, high), None,
        busiest_of(layout, gpus, asked.words, _WINDOW_S), rate,
        sum(one.result()[1] for one in mids) + more + most,
        {"layout": layout, "factors": [(one[0].name, one[1]) for one in others]},
    )  # fmt: skip


def rate_of(layout: Layout, gpus: int, asked: PlanWords, end: End) -> tuple[float | None, int]:
    """Return ``rate_at``, or None for a layout that does not run with a tp that the user did not choose."""
    try:
        return rate_at(layout, gpus, asked.words, asked.objective, end)
    except UserError:
        if asked.tp_given:
            raise
        return None, 0
