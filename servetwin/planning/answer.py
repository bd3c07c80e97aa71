"""Finds the answer of a plan: each layout's, the best one's at both ends, its head-room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hwmodels.errors import HardwareError
from servetwin.planning.busiest import Busiest, busiest
from servetwin.planning.candidate import Candidate, Plan
from servetwin.planning.layout import Layout
from servetwin.planning.objective import Objective
from servetwin.planning.plan_words import RATE, PlanWords
from servetwin.planning.probe import End, prepared_for, probe
from servetwin.planning.ranking import equal_to, ranked_layouts
from servetwin.planning.search import Found, highest_factor, least_gpus
from servetwin.results.ranges import Answers
from servetwin.run.crew import Submit, crew, in_order
from servetwin.sweeps.outcome import Outcome
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

MOST_GPUS: Final = 256
_FEW: Final = 4  # up to so many layouts are all searched on the whole workload
_FIRST: Final = 8  # more layouts start on the first eighth of it
_WINDOW_S: Final = 60.0


def plan(asked: PlanWords, on_done: Callable[[int, int], None] | None = None) -> Plan:
    """Search for the answer. UserError if no layout runs at all."""
    refuse_moving_rate(asked)
    with crew(int(asked.own.get("processes", 2))) as submit:
        if asked.find == RATE:
            return _highest_rate(asked, submit)
        return _least(asked, submit, on_done)


def guess_gpus(layout: Layout, words: tuple[str, ...]) -> int:
    """Return the GPUs that the workload would keep busy; 0 if unknown."""
    from servetwin.assemble.workload import run_capacity_req_per_s

    try:
        prepared = prepared_for((*words, *layout.words_of(layout.least)))
        each = run_capacity_req_per_s(prepared.config, prepared.estimates, 1, prepared.workload)
        rate = prepared.workload.mean_rate_per_s or 0.0
        return math.ceil(rate / each) * layout.tp * layout.pp
    except Exception:  # only a guess: the run itself reports errors
        return 0


def searched(
    *, layout: Layout, words: tuple[str, ...], objective: Objective, most_gpus: int, end: End, guess: int
) -> Found:
    """Search a layout's least size; runs in a process of the crew."""
    guess = guess or guess_gpus(layout, words)
    return least_gpus(
        layout=layout, words=words, objective=objective, most_gpus=most_gpus, end=end, guess=guess
    )


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
    ranked, unable = ranked_layouts(asked, found)
    if not ranked:
        refused = next((one.found.refused for one in unable if one.found.refused), "")
        if refused and all(one.found.refused for one in unable):
            raise UserError(f"no layout runs; {unable[-1].found.layout.name}: {unable[-1].found.refused}")
        return Plan(
            asked=asked,
            ranked=(),
            unable=(*unable, *dropped),
            ends=Answers(None, None, None),
            runs=_runs(found),
        )
    best = ranked[0].found
    assert best.gpus is not None
    rest = [
        submit(
            searched,
            layout=best.layout,
            words=asked.words,
            objective=asked.objective,
            most_gpus=_most(asked),
            end=end,
            guess=best.gpus,
        )
        for end in ("low", "high")
    ]
    more = (
        submit(headroom_of, best.layout, best.gpus, asked.words, asked.objective) if _wants(asked) else None
    )
    low, high = in_order(rest)
    window = busiest_of(best.layout, best.gpus, asked.words, float(asked.own.get("window_s", _WINDOW_S)))
    factor, runs = (None, 0) if more is None else more.result()
    return Plan(
        asked=asked,
        ranked=tuple(ranked),
        unable=(*unable, *dropped),
        ends=Answers(low.gpus, best.gpus, high.gpus),
        headroom=factor,
        busiest=window,
        runs=_runs([*found, low, high]) + runs,
        details={"low": low, "high": high},
    )


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
    futures = [
        submit(
            searched,
            layout=layout,
            words=words,
            objective=asked.objective,
            most_gpus=_most(asked),
            end="mid",
            guess=0,
        )
        for layout in layouts
    ]
    return in_order(futures, tell)


def _after_halving(asked: PlanWords, submit: Submit) -> tuple[list[Layout], list[Candidate]]:
    """Repeatedly keep the better half of many layouts on the first requests; return kept and dropped."""
    layouts, dropped, share = list(asked.layouts), list[Candidate](), _FIRST
    if len(layouts) <= _FEW or not asked.own.get("halving", True) or _limited(asked.words):
        return layouts, dropped
    total = requests_of(layouts, asked.words)
    while len(layouts) > _FEW and share > 1 and total:
        words = (*asked.words, f"trace.limit={max(1, total // share)}")
        ranked, unable = ranked_layouts(asked, _search_all(asked, layouts, words, submit))
        kept = max(_FEW, len(ranked) // 2)
        first = f"the first {total // share:,} requests"
        why = f"dropped after {first}: others served these better (halving=false searches all)"
        for one in ranked[kept:]:
            same = equal_to(asked, one, ranked[:kept])
            equal = f"dropped after {first}: there in every number as {same[0]}" if same else ""
            dropped.append(replace(one, dropped=equal or why))
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
        return Plan(
            asked=asked,
            ranked=(),
            unable=(),
            ends=Answers(None, None, None),
            runs=sum(one.result()[1] for one in mids),
        )
    layout, factor, _ = max(able, key=lambda one: one[1])
    (low, more), (high, most) = in_order(
        [submit(rate_of, layout, gpus, asked, end) for end in ("low", "high")]
    )
    rate = prepared_for((*asked.words, *layout.words_of(gpus))).workload.mean_rate_per_s
    others = sorted(able, key=lambda one: -one[1])
    return Plan(
        asked=asked, ranked=(), unable=(), ends=Answers(low, factor, high), headroom=None,
        busiest=busiest_of(layout, gpus, asked.words, _WINDOW_S), rate_per_s=rate,
        runs=sum(one.result()[1] for one in mids) + more + most,
        details={"layout": layout, "factors": [(one[0].name, one[1]) for one in others]},
    )  # fmt: skip


def rate_of(layout: Layout, gpus: int, asked: PlanWords, end: End) -> tuple[float | None, int]:
    """Return ``rate_at``, or None for a layout that does not run with a tp that the user did not choose."""
    try:
        return rate_at(layout, gpus, asked.words, asked.objective, end)
    except UserError:
        if asked.tp_given:
            raise
        return None, 0
