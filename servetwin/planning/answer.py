"""Finds the answer of a plan: each layout's, the best one's at both ends, its head-room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hwmodels.errors import HardwareError
from servetwin.planning.busiest import Busiest, busiest
from servetwin.planning.candidate import Candidate, NoLayoutError, PlanAnswer
from servetwin.planning.deploy import Deploy, deploy_of
from servetwin.planning.identical import same_lengths
from servetwin.planning.layout import Layout
from servetwin.planning.missed import run_to_the_end
from servetwin.planning.plan_words import RATE, PlanWords
from servetwin.planning.probe import End, prepared_for, probe
from servetwin.planning.ranking import equal_to, ranked_layouts
from servetwin.planning.rounds import search_all
from servetwin.planning.search import LayoutSearch, highest_factor, least_gpus
from servetwin.results.hosted_summary import shown_precision
from servetwin.results.ranges import Answers
from servetwin.run.crew import Submit, crew, in_order
from servetwin.sweeps.outcome import PointOutcome
from serving.vocabulary.errors import UserError
from traces.errors import TraceError

MOST_GPUS: Final = 256
_FEW: Final = 4  # so few layouts, or fewer, are all searched with the whole workload
_FIRST: Final = 8  # more layouts start on the first eighth of it
_WINDOW_S: Final = 60.0
EMPTY: Final[Mapping[float, PointOutcome]] = {}


def plan(
    options: PlanWords,
    on_done: Callable[[int, int], None] | None = None,
    on_task: Callable[[object], None] | None = None,
) -> PlanAnswer:
    """Search for the answer. UserError if no layout runs at all. ``on_task``: called as each task ends."""
    refuse_moving_rate(options)
    with crew(int(options.own.get("processes", 2))) as hired:
        submit = hired if on_task is None else _telling(hired, on_task)
        if options.find == RATE:
            return _highest_rate(options, submit)
        return _least(options, submit, on_done)


def _telling(submit: Submit, on_task: Callable[[object], None]) -> Submit:
    def submitted(*arguments: Any, **named: Any) -> Any:
        future = submit(*arguments, **named)
        future.add_done_callback(on_task)
        return future

    return submitted


def refuse_moving_rate(options: PlanWords) -> None:
    """Refuse a rate that depends on the cluster, which would pose a different question for every size.

    Raises TraceError if no layout has its trace: then the trace is at fault, not the layouts.
    """
    unread: list[TraceError] = []
    for layout in options.layouts:
        try:
            trace = prepared_for((*options.words, *layout.words_of(layout.least))).config.trace
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


def _least(options: PlanWords, submit: Submit, on_done: Callable[[int, int], None] | None) -> PlanAnswer:
    layouts, dropped = _after_halving(options, submit)
    tell = None if on_done is None else (lambda done: on_done(done, len(layouts) + 2))
    searches = search_all(
        options, layouts, options.words, submit, most_gpus=_most_gpus(options),
        best_alone=not options.runs_whole, tell=tell,
    )  # fmt: skip
    searches, more = run_to_the_end(searches, options.words, submit)
    ranked, unable = ranked_layouts(options, searches)
    if not ranked:
        if unable and all(candidate.search.refused for candidate in unable):
            tried = [*unable, *(candidate for candidate in dropped if candidate.search.refused)]
            raise NoLayoutError([(one.search.layout.name, one.search.refused) for one in tried])
        return PlanAnswer(
            options=options,
            ranked=(),
            unable=(*unable, *dropped),
            ends=Answers(None, None, None),
            runs=_count_runs(searches) + more,
        )
    best = ranked[0].search
    assert best.gpus is not None
    rest = [
        submit(
            least_gpus,
            layout=best.layout,
            words=options.words,
            objective=options.objective,
            most_gpus=_most_gpus(options),
            end=end,
            guess=best.gpus,
            whole=options.runs_whole,
        )
        for end in ("low", "high")
    ]
    headroom = (
        submit(headroom_of, best.layout, best.gpus, options, best.outcome)
        if _wants_headroom(options)
        else None
    )
    (low, high), again = run_to_the_end(in_order(rest), options.words, submit)
    window = busiest_of(best.layout, best.gpus, options.words, float(options.own.get("window_s", _WINDOW_S)))
    factor, runs = (None, 0) if headroom is None else headroom.result()
    return PlanAnswer(
        options=options,
        ranked=tuple(ranked),
        unable=(*unable, *dropped),
        ends=Answers(low.gpus, best.gpus, high.gpus),
        headroom=factor,
        busiest=window,
        runs=_count_runs([*searches, low, high]) + runs + more + again,
        precision=_precision(best.layout, best.gpus, options.words),
        deploy=_deploy(best.layout, best.gpus, options.words),
        same_lengths=same_lengths(best.layout, best.gpus, options.words),
        details={"low": low, "high": high},
    )


def _precision(layout: Layout, gpus: int, words: tuple[str, ...]) -> str:
    """Return how quantised models and their KV are stored; empty if none is."""
    from servetwin.config.compose.compose import load_config

    config = load_config([*words, *layout.words_of(gpus), "out=none"], "simulate")
    return shown_precision(config).get("precision", "")


def _deploy(layout: Layout, gpus: int, words: tuple[str, ...]) -> Deploy:
    """Return how the answer is deployed."""
    all_words = (*words, *layout.words_of(gpus))
    prepared = prepared_for(all_words)
    return deploy_of(prepared.config, prepared.replicas, all_words)


def _wants_headroom(options: PlanWords) -> bool:
    return bool(options.own.get("headroom", True))


def _most_gpus(options: PlanWords) -> int:
    return int(options.own.get("max_gpus", MOST_GPUS))


def _count_runs(searches: Sequence[LayoutSearch]) -> int:
    return sum(not outcome.refused for search in searches for outcome in search.tried.values())


def _after_halving(options: PlanWords, submit: Submit) -> tuple[list[Layout], list[Candidate]]:
    """Repeatedly keep the better half of many layouts on the first requests; return kept and dropped."""
    layouts, dropped, share = list(options.layouts), list[Candidate](), _FIRST
    if (
        len(layouts) <= _FEW
        or not options.own.get("halving", not options.own.get("all", False))
        or _has_limit(options.words)
    ):
        return layouts, dropped
    total = requests_of(layouts, options.words)
    while len(layouts) > _FEW and share > 1 and total:
        words = (*options.words, f"trace.limit={max(1, total // share)}")
        found = search_all(options, layouts, words, submit, most_gpus=_most_gpus(options), best_alone=False)
        ranked, unable = ranked_layouts(options, found)
        most = max(_FEW, len(ranked) // 2)
        first = f"the first {total // share:,} requests"
        why = f"dropped after {first}: others served these better (halving=false searches all)"
        for candidate in ranked[most:]:
            same = equal_to(options, candidate, ranked[:most])
            equal = f"dropped after {first}: there in every number as {same[0]}" if same else ""
            dropped.append(replace(candidate, dropped=equal or why))
        failed = f"dropped after {first}: no size met the objective on these"
        dropped += [
            replace(candidate, dropped="" if candidate.search.refused else failed) for candidate in unable
        ]
        layouts, share = [candidate.search.layout for candidate in ranked[:most]], share // 2
        if not layouts:
            return [candidate.search.layout for candidate in unable], []
    return layouts, dropped


def _has_limit(words: Sequence[str]) -> bool:
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
    layout: Layout, gpus: int, options: PlanWords, answered: PointOutcome
) -> tuple[float | None, int]:
    """Return the highest rate factor that meets the objective at this size, up to 4, and the runs.

    ``answered``: the outcome at the trace's own rate, which needs no other run.
    """
    factor, tried = _search_factor(layout, gpus, options, "mid", {1.0: answered}, least=1.0, most=4.0)
    return factor, len(tried)


def _search_factor(
    layout: Layout, gpus: int, options: PlanWords, end: End, known: Mapping[float, PointOutcome] = EMPTY,
    **bounds: float,
) -> tuple[float | None, list[PointOutcome]]:  # fmt: skip
    """Return the highest rate factor within ``bounds`` (``highest_factor``), and each trial's outcome.

    ``known``: outcomes by factor that need no run.
    """
    tried, objective = list[PointOutcome](), options.objective

    def meets(factor: float) -> bool:
        if factor in known:
            return objective.met_by(known[factor].numbers)
        words = (*scaled(options.words, factor), *layout.words_of(gpus))
        tried.append(probe(words, end, None if options.runs_whole else objective))
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


def _highest_rate(options: PlanWords, submit: Submit) -> PlanAnswer:
    gpus = int(options.own["gpus"])
    ways = [layout for layout in options.layouts if gpus % layout.step == 0]
    if not ways:
        raise UserError(f"gpus={gpus} is no multiple of {options.layouts[0].step}: write one that is")
    mids = [submit(rate_of, layout, gpus, options, "mid") for layout in ways]
    found = in_order(mids)
    refused = [(layout, why) for layout, (_, _, why) in zip(ways, found) if why]
    if len(refused) == len(ways):
        raise NoLayoutError([(layout.name, why) for layout, why in refused])
    unable = tuple(
        Candidate(LayoutSearch(layout, "mid", None, {gpus: PointOutcome({}, why)})) for layout, why in refused
    )
    able = [(layout, factor, tried) for layout, (factor, tried, _) in zip(ways, found) if factor is not None]
    if not able:
        return PlanAnswer(
            options=options,
            ranked=(),
            unable=unable,
            ends=Answers(None, None, None),
            runs=sum(tried for _, tried, _ in found),
        )
    layout, factor, _ = max(able, key=lambda pair: pair[1])
    (low, more, _), (high, most, _) = in_order(
        [submit(rate_of, layout, gpus, options, end) for end in ("low", "high")]
    )
    rate = prepared_for((*options.words, *layout.words_of(gpus))).workload.mean_rate_per_s
    runners_up = sorted(able, key=lambda pair: -pair[1])
    return PlanAnswer(
        options=options, ranked=(), unable=unable, ends=Answers(low, factor, high), headroom=None,
        busiest=busiest_of(layout, gpus, options.words, _WINDOW_S), rate_per_s=rate,
        runs=sum(tried for _, tried, _ in found) + more + most,
        precision=_precision(layout, gpus, options.words), deploy=_deploy(layout, gpus, options.words),
        same_lengths=same_lengths(layout, gpus, options.words),
        details={"layout": layout, "factors": [(pair[0].name, pair[1]) for pair in runners_up]},
    )  # fmt: skip


def rate_of(layout: Layout, gpus: int, options: PlanWords, end: End) -> tuple[float | None, int, str]:
    """Return the highest rate factor at one end, its number of runs, and why the layout does not run."""
    factor, tried = _search_factor(layout, gpus, options, end)
    refused = [outcome.refused for outcome in tried if outcome.refused]
    return factor, len(tried), refused[0] if len(refused) == len(tried) else ""
