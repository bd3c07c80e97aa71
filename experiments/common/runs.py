"""Carrying a reproduction's cases out: every case under every seed, in a few processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from experiments.common.outcomes import Outcomes, RunOutcome
from experiments.common.rates import NOWHERE, rate_of
from experiments.common.run_store import RunStore
from experiments.common.scale_times import freeing_s, times_to_capacity
from experiments.common.set_up import Case, Words
from experiments.common.sweep import SetUpSweep
from experiments.common.timelines import kv_shares_of, replica_changes_of, timelines_of
from hwmodels.topology.cluster_file import parse_cluster
from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from servetwin.config.options import option_groups
from servetwin.config.overrides import parse_words
from servetwin.run.end_with_parent import end_with_parent, tie
from servetwin.run.prepared import Prepared, Simulated
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.errors import UserError
from traces.columns import numbers

Progress = Callable[[int, int], None]

PROCESSES: Final = 2
_FEW: Final = 16  # cases that one process checks sooner than others start
_PLAIN_KEYS: Final = ("estimates", "uncertainty")
# Groups whose options may be made on request, or are files of the user.
_OPEN_GROUPS: Final = ("cluster", "model", "trace")


@dataclass(frozen=True, slots=True)
class Plan:
    """Checked cases. counts: case -> its number of seeds; missing: case -> why it cannot run."""

    counts: Mapping[Case, int]
    missing: Mapping[Case, str]
    sweeps: tuple[SetUpSweep, ...]

    def jobs(self) -> list[tuple[Case, int]]:
        """Each run: its case and its seed."""
        return [(case, seed) for case, count in self.counts.items() for seed in range(count)]


def carry_out(
    cases: Iterable[Case],
    seeds: int,
    *,
    processes: int = PROCESSES,
    on_progress: Progress | None = None,
    sweeps: Sequence[SetUpSweep] = (),
    store: RunStore | None = None,
) -> Outcomes:
    """Run each case under the seeds 0, 1, ..., after ``planned`` has checked them all.

    store: where finished runs are kept.
    """
    plan = planned(cases, seeds, processes=processes, sweeps=sweeps)
    return carried_out(plan, processes=processes, on_progress=on_progress, store=store)


def planned(
    cases: Iterable[Case], seeds: int, *, processes: int = PROCESSES, sweeps: Sequence[SetUpSweep] = ()
) -> Plan:
    """Check each case; a case twice in ``cases`` or in a sweep is planned once.

    A case that needs an option which this version lacks is reported as missing, and so is an optional case
    whose configuration is refused; any other refusal raises UserError.
    """
    wanted = list(dict.fromkeys((*cases, *(case for sweep in sweeps for case in sweep.cases()))))
    # No trace is missed after the checks of a hundred cases, or after hours of runs.
    for one_of_trace in {case.set_up.trace: case for case in wanted if not case.optional}.values():
        _refusal(one_of_trace, prepared=True)
    refusals = _in_order(_refusal, wanted, processes)
    missing = {case: why for case, why in zip(wanted, refusals, strict=True) if why}
    counts = {case: 1 if case.once else seeds for case in wanted if case not in missing}
    return Plan(counts, missing, tuple(sweeps))


def carried_out(
    plan: Plan,
    *,
    processes: int = PROCESSES,
    on_progress: Progress | None = None,
    store: RunStore | None = None,
) -> Outcomes:
    """Make the runs of the plan that are not in the store, and keep each there when it is finished."""
    jobs = plan.jobs()
    outcome_of = {job: stored for job in jobs if store and (stored := store.load(*job))}
    for job, outcome in _each([job for job in jobs if job not in outcome_of], processes):
        outcome_of[job] = outcome
        if store:
            store.keep(*job, outcome)
        if on_progress is not None:
            on_progress(len(outcome_of), len(jobs))
    runs = {
        case: tuple(outcome_of[case, seed] for seed in range(count)) for case, count in plan.counts.items()
    }
    return Outcomes(runs, plan.missing, plan.sweeps)


def lacking(words: Words) -> str:
    """Which option or group this version does not have; empty when it has all of them."""
    groups = option_groups()
    for word in parse_words(words):
        if word.key in groups:
            is_class = ":" in word.text  # module:Class
            known = is_class or word.text in groups[word.key] or word.key in _OPEN_GROUPS
        else:
            known = ("." in word.key or word.key in _PLAIN_KEYS) and "/" not in word.key
        if not known:
            return f"this version has no {word}"
    return ""


def run_once(case: Case, seed: int) -> RunOutcome:
    """One case under one seed; the same seed has the same requests in every system of a set-up."""
    began_s = perf_counter()
    rate = rate_of(case.set_up, seed)
    words = case.all_words(*rate.words, f"seed={seed}")
    prepared, done = _execute(case, words)
    columns = numbers(done.columns)
    scaled = "scale_events" in done.summary
    assert scaled or not prepared.config.system.elastic, (
        f"{case.label} ran as a static system: it was not compared"
    )
    return RunOutcome(
        words=words,
        summary=_plain(done.summary),
        arrival_s=columns["arrival_ns"] / 1e9,
        ttft_ms=columns["ttft_ms"],
        tpot_ms=columns["tpot_ms"],
        inputs=f"{rate.rule}; step times: {prepared.hardware.step.source.partition(';')[0]}",
        timelines=timelines_of(columns, done.summary)
        | replica_changes_of(done.summary)
        | kv_shares_of(done.series),
        columns={name: _column(columns, name) for name in case.columns},
        wall_s=perf_counter() - began_s,
    )


def _column(columns: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """Return a column of the finished requests.

    It is 0 for each if the run lacks the column, as a run without preemptions lacks that of their losses.
    """
    column = columns.get(name)
    return np.zeros(len(columns["ttft_ms"])) if column is None else np.asarray(column, dtype=np.float64)


def _execute(case: Case, words: Words) -> tuple[Prepared, Simulated]:
    """Run the case with its own files; return its preparation and its result."""
    with _config_with_files(case, words) as config:
        prepared = prepare(config)
        return prepared, execute(prepared)


@contextmanager
def _config_with_files(case: Case, words: Words) -> Iterator[RunConfig]:
    """Yield the configuration with the case's own links and requests, whose files are deleted afterwards."""
    config = load_config((*words, NOWHERE), "simulate")
    with TemporaryDirectory() as folder:
        if case.links:
            file = Path(folder, "links.yaml")
            file.write_text(case.links, encoding="utf-8")
            config = replace(config, cluster=replace(config.cluster, topology=str(file)))
        if case.rows:
            file = Path(folder, "requests.csv")
            file.write_text(case.rows, encoding="utf-8")
            config = replace(config, trace=replace(config.trace, path=str(file)))
        yield config


def _refusal(case: Case, prepared: bool = False) -> str:
    """Why a case cannot run; a UserError of one that must, before hours of other runs.

    prepared: everything of the run but the run is tried, as it is for an optional case.
    """
    if lacks := lacking(case.all_words()):
        return lacks
    try:
        if case.links:
            parse_cluster("links", links_file(case), case.links)
        with _config_with_files(case, case.all_words()) as config:
            if case.optional or prepared:
                prepare(config)
    except UserError as error:
        if case.optional:
            return f"refused: {error}"
        raise UserError(f"{case.set_up.name}, {case.label}: {error}") from error
    return ""


def _each(jobs: list[tuple[Case, int]], processes: int) -> Iterable[tuple[tuple[Case, int], RunOutcome]]:
    """Jobs with their outcomes as they come."""
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, run_once(*job)
        return
    pool = _pool(min(processes, len(jobs)))
    try:
        waiting = {pool.submit(run_once, *job): job for job in jobs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _in_order(function: Callable[[Case], str], cases: list[Case], processes: int) -> list[str]:
    """The answer for each case."""
    if processes == 1 or len(cases) < _FEW:
        return [function(case) for case in cases]
    with _pool(processes) as pool:
        return list(pool.map(function, cases, chunksize=8))


def _pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of spawned processes; forked ones would copy the state of the caller's threads."""
    spawn = get_context("spawn")
    return ProcessPoolExecutor(processes, spawn, initializer=end_with_parent, initargs=tie())


def _plain(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without long lists, which no figure reads and which would travel between processes."""
    lists = ("scale_events", "replica_busy_share")
    plain = {key: value for key, value in summary.items() if key not in lists}
    seconds = {"freeing_s": freeing_s(summary), "capacity_s": times_to_capacity(summary)}
    return plain | {
        name: {"mean": fmean(times), "max": max(times)} for name, times in seconds.items() if times
    }


def command_of(outcome: RunOutcome, case: Case | None = None) -> str:
    """Return the command that repeats the run; a comment behind # names links that no word can set."""
    command = " ".join(("servetwin simulate", *outcome.words, "out=FOLDER"))
    return f"{command}  # over the links of clusters/{links_file(case)}" if case and case.links else command


def links_file(case: Case) -> str:
    """The name under which a case's own cluster file is written beside the figures."""
    return f"{file_name(f'{case.set_up.name}, {case.label}')}.yaml"


def rows_file(case: Case) -> str:
    """The file of a case's own requests, beside the figures; its words name it."""
    return f"traces/{file_name(case.set_up.name)}.csv"


def file_name(text: str) -> str:
    """Return the name without slashes, commas and spaces."""
    return text.replace("/", "-").replace(", ", "-").replace(" ", "_")
