"""Asks every scaler what it would have decided, and runs the record's arrivals for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from shlex import join
from typing import Any, Final

import numpy as np

from servetwin.advising.advice import Advice, advise
from servetwin.advising.advise_words import AdviseWords
from servetwin.advising.as_recorded import AsRecorded, count_of, told_of, words_as_recorded
from servetwin.advising.columns import HITS, KV_USE, OUTPUT, PROMPT, REPLICAS, WAITING
from servetwin.advising.read_record import read_record
from servetwin.advising.record import Record, with_lengths
from servetwin.advising.simulated import (
    ARRIVALS,
    Simulated,
    lacks_for_a_run,
    simulated,
    trace_words,
    write_arrivals,
)
from servetwin.assemble import build
from servetwin.assemble.capabilities import check_capabilities
from servetwin.assemble.elastic import elastic_of
from servetwin.assemble.hardware import hardware_of
from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.library_tables import with_library_tables
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.unread_keys import readers, refuse_if_none_reads
from servetwin.config.config import RunConfig
from servetwin.config.overrides import canonical
from servetwin.report.number_text import duration
from servetwin.run.crew import crew, in_order
from serving.elastic.setup import ElasticParts
from serving.vocabulary.errors import UserError

_CLUSTER: Final = "blitz_a_{hosts}x8"
_ROOM: Final = 2  # times the most instances that were recorded
_FIXED_LENGTHS: Final = re.compile(r"([1-9]\d*)x([1-9]\d*)", re.ASCII)
EXACT: Final = "a controller's exact books, which no metric has"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfScaler:
    """What one scaler would have decided, and its simulated run; None where there was none.

    ``words``: of that run; ``command_of`` has them for ``servetwin simulate``.
    """

    name: str
    advice: Advice
    run: Simulated | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """``told``: what was taken for what. ``no_run``: why nothing was simulated, "" if it was.

    ``as_recorded``: a run of the recorded number of instances; None where nothing was simulated.
    """

    options: AdviseWords
    record: Record
    scalers: tuple[OfScaler, ...]
    told: tuple[str, ...]
    no_run: str
    as_recorded: AsRecorded | None


def answer(options: AdviseWords, scratch: Path, on_done: Callable[[int], None] | None = None) -> Advised:
    """Return everything. ``scratch``: a folder for the arrivals. Raises UserError and TraceError."""
    record = read_record(options.log, options.renamed)
    if fixed := _FIXED_LENGTHS.fullmatch(options.lengths):
        record = with_lengths(record, int(fixed[1]), int(fixed[2]))
    options, engine = _engine(options, record)
    cluster = _cluster(options, record)
    words = [*cluster, *_start(options, record)]
    trace, no_run = list[str](), "simulate=false"
    if options.runs_simulations:
        no_run = lacks_for_a_run(record, bool(options.lengths))
    if not no_run:
        write_arrivals(record, scratch)
        trace = trace_words(record, scratch, options.lengths)
    of_scaler = {name: [*options.words_of(name), *words, *trace] for name in options.scalers}
    configs = {name: _config(options, own) for name, own in of_scaler.items()}
    refuse_if_none_reads(map(canonical, _keys(options)), configs.values(), "this advice", readers())
    advices = {name: _advice(options, record, config) for name, config in configs.items()}
    runs: dict[str, Simulated] = {}
    as_recorded = None
    if not no_run:
        count = count_of(record)
        held = (*words_as_recorded(options, count, cluster), *trace)
        with crew(int(options.own.get("processes", 2))) as submit:
            tasks = [submit(simulated, tuple(own)) for own in (held, *of_scaler.values())]
            first, *rest = in_order(tasks, on_done)
        as_recorded = AsRecorded(count=count, run=first, words=held)
        runs = dict(zip(of_scaler, rest, strict=True))
    return Advised(
        options=options,
        record=record,
        scalers=tuple(
            OfScaler(name=name, advice=advices[name], run=runs.get(name), words=tuple(own))
            for name, own in of_scaler.items()
        ),
        told=(
            *record.told,
            *_told(options, record, next(iter(configs.values())), no_run),
            *_settings(configs, no_run),
            *engine,
            *options.told(),
            *(told_of(record, as_recorded.count) if as_recorded else ()),
        ),
        no_run=no_run,
        as_recorded=as_recorded,
    )


def _config(options: AdviseWords, words: Sequence[str]) -> RunConfig:
    """Return the configuration. UserError, which says so where it is about the system that was assumed."""
    try:
        return load_config([*words, "out=none"], "simulate")
    except UserError as error:
        system = options.assumed_system
        if not system or f"system={system}" not in str(error):
            raise
        raise UserError(
            f"{error} (advise assumed system={system}, as no system= was given, and it needs a cluster with "
            "links: cluster=dgx_h100 is of eight H100s)"
        ) from error


def _keys(options: AdviseWords) -> list[str]:
    """Return the keys that the user may have written in vain."""
    return [key for key in options.runs if key not in ("uncertainty",)]


def _engine(options: AdviseWords, record: Record) -> tuple[AdviseWords, list[str]]:
    """Return the options with the engine whose metrics were recorded, unless one was given, and what to say.

    A system that cannot have it keeps its own.
    """
    if not record.software or {"engine", "engine.software"} & set(options.runs):
        return options, []
    chosen = {"engine": "vllm_v1"}
    if record.software != "vllm":
        chosen["engine.software"] = record.software
    taken = replace(options, runs={**chosen, **options.runs})
    said = " ".join(f"{key}={text}" for key, text in chosen.items())
    because = f"the record has metrics {record.software}:*"
    cluster = [] if "cluster" in options.runs else [f"cluster={_CLUSTER.format(hosts=2)}"]
    try:
        load_config([*taken.words_of(options.scalers[0]), *cluster, "out=none"], "simulate")
    except UserError as error:
        return options, [f"engine: the system's own, though {because}, as {said} does not fit: {error}"]
    return taken, [f"engine: {said}, as {because} and no engine= was given"]


def _cluster(options: AdviseWords, record: Record) -> list[str]:
    """Return the words of a cluster for twice the most instances recorded, unless one was given."""
    if "cluster" in options.runs:
        return []
    most = float(np.nanmax(record.columns[REPLICAS]))
    words = [*options.words_of(options.scalers[0]), f"cluster={_CLUSTER.format(hosts=2)}", "out=none"]
    (model,) = hosted_models(load_config(words, "simulate"))
    return [f"cluster={_CLUSTER.format(hosts=max(2, ceil(_ROOM * most * model.gpus / 8)))}"]


def _start(options: AdviseWords, record: Record) -> list[str]:
    """Return the words with which a run starts with as many instances as the record."""
    if any(key in options.runs for key in ("system.instances.size", "system.instances.both")):
        return []
    return ["system.instances.size=full", f"system.instances.both={max(1, round(float(record.serving[0])))}"]


def _advice(options: AdviseWords, record: Record, config: RunConfig) -> Advice:
    parts = _parts(config)
    scaler = parts.policies.scaler
    if parts.setup.signals is None:
        return Advice(
            period_s=config.system.instances.monitor_period_ms / 1e3, missing=(EXACT,), decisions=()
        )
    (model,) = hosted_models(config)
    _, most = parts.setup.limits[model.name].bounds["both"]
    recorded = round(float(np.nanmax(record.columns[REPLICAS])))
    if recorded > most:
        raise UserError(
            f"{options.log} has up to {recorded} instances, and cluster={config.cluster.name} with "
            f"system.instances.both_max={config.system.instances.both_max} allows {most}: write a larger "
            "cluster, or a larger system.instances.both_max"
        )
    return advise(record, scaler, parts.setup, model.name, float(options.own.get("prefix_hits", 0.0)))


def _parts(config: RunConfig) -> ElasticParts:
    """Return the scaler as a controller has it, with the rates of an instance."""
    if not config.system.elastic:
        raise UserError(
            f"system={config.system.name} has no scaler: leave system= out, or write one that scales, "
            "such as system=serverlessllm"
        )
    check_capabilities(config)
    config = with_library_tables(config)
    hardware: Any = hardware_of(config)
    return elastic_of(config, build.prototypes_of(config, hardware), build.estimates_of(config, hardware))


def _settings(configs: Mapping[str, RunConfig], no_run: str) -> list[str]:
    """Say what each scaler reads and aims at, and which system and engine were simulated."""
    told = []
    for name, config in configs.items():
        params = config.system.scaler.params
        if said := [f"{key}={params[key]}" for key in ("metric", "target", "threshold") if key in params]:
            told.append(f"{name}: {' '.join(said)}")
    config = next(iter(configs.values()))
    if not no_run:
        system, engine = config.system.name, config.engine.name
        other = "" if engine.startswith("vllm") else "; engine=vllm_v1 schedules as vLLM does"
        told.append(f"simulated with: system={system} engine={engine}{other}")
        slo = config.slo
        told.append(
            f"served well: a TTFT of at most {duration(slo.ttft_ms)} and a TPOT of at most "
            f"{duration(slo.tpot_ms)} (slo={slo.name}; slo.ttft_ms= and slo.tpot_ms= set others)"
        )
    return told


def _told(options: AdviseWords, record: Record, config: RunConfig, no_run: str) -> list[str]:
    """Return what was taken that the record does not say."""
    defaults = [name for name in ("model", "cluster") if name not in options.runs]
    said = f"speeds and KV memory of an instance: {config.model.name} on cluster={config.cluster.name}"
    told = [said + (f", as no {' and '.join(f'{name}=' for name in defaults)} was given" if defaults else "")]
    if HITS not in record.columns:
        hits = options.own.get("prefix_hits")
        told.append(
            f"prefix hits: {hits:.0%} of prompt tokens, as prefix_hits= says"
            if hits is not None
            else "prefix hits: none, as the record has none of their metrics (prefix_hits=0.3 sets a share)"
        )
    if WAITING in record.columns and record.mean_length(PROMPT) is not None:
        told.append(
            "prompt tokens in flight: waiting requests times the mean prompt length, as no metric has them"
        )
    shared = [
        name for name in (WAITING, KV_USE) if name in record.columns and name not in record.of_instances
    ]
    if shared:
        told.append(
            f"{' and '.join(shared)}: the same for each instance, as the record has no series of each"
        )
    if not no_run and not options.lengths:
        prompt, output = (round(record.mean_length(tokens) or 0) for tokens in (PROMPT, OUTPUT))
        told.append(
            f"simulated requests: all of {prompt} prompt and {output} output tokens, the record's means "
            "(trace.lengths=azure_conv or such draws them)"
        )
    if not no_run and config.system.instances.start_total_s is None:
        told.append(
            "simulated starts: as long as parameters take to load; system.instances.start_total_s=120 is a "
            "pod that is ready after two minutes"
        )
    return told


def run_words(words: Sequence[str], out: Path | None) -> list[str]:
    """Return the words of a run for ``servetwin simulate``; ``out``: the folder that keeps the arrivals."""
    rates = "trace.rates="
    return [f"{rates}{out / ARRIVALS}" if out and word.startswith(rates) else word for word in words]


def command_of(advised: Advised, run: OfScaler | AsRecorded) -> str:
    """Return the ``servetwin simulate`` with the numbers of this run; "" if its arrivals are not kept."""
    out = advised.options.out
    if out is None or run.run is None or run.run.refused:
        return ""
    return join(["servetwin", "simulate", *run_words(run.words, out)])
