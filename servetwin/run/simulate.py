"""servetwin simulate: one run in virtual time, from configuration to result folder."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, process_time, thread_time_ns
from typing import TYPE_CHECKING, Any

import nativecore
from servetwin.assemble import build
from servetwin.assemble.capabilities import check_capabilities, driver_actions, is_masked, masked_words
from servetwin.assemble.clients import client_plan, requests_of
from servetwin.assemble.data_plane import data_plane_of
from servetwin.assemble.energy import use_of_gpus
from servetwin.assemble.faults import fault_plan_of
from servetwin.assemble.front_end import FrontDoor, front_end_of
from servetwin.assemble.gpu_load import CACHED_TOKENS
from servetwin.assemble.groups import group_plans
from servetwin.assemble.hardware import hardware_of
from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.language_stages import chains
from servetwin.assemble.lengths import check_lengths, limits_of
from servetwin.assemble.library_tables import with_library_tables
from servetwin.assemble.pipeline_plans import pipeline_plans
from servetwin.assemble.shared_prefixes import named_requests, shares_prefixes
from servetwin.assemble.sizes import seat_count, start_of
from servetwin.assemble.stage_cut import decodes_in_stages
from servetwin.assemble.stages import capacity_per_s, one_pass, stage_plan, used_gpus
from servetwin.assemble.workload import run_capacity_req_per_s, run_workload
from servetwin.assemble.world_rows import rows_of_replicas, world_rows
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.config import ON, RunConfig
from servetwin.config.policy.watch import PolicyWatch
from servetwin.config.version import code_version
from servetwin.results.client_timeouts import (
    add_attempts,
    attempts_of,
    client_timeouts_section,
    repeated,
)
from servetwin.results.data_plane_summary import data_plane_summary
from servetwin.results.elastic_summary import elastic_summary
from servetwin.results.faults_summary import RecoveryWatch, faults_section
from servetwin.results.groups_summary import groups_section
from servetwin.results.hosted_summary import add_models, shown_estimates, shown_model, shown_precision
from servetwin.results.journal_file import NAME as JOURNAL_NAME
from servetwin.results.journal_file import JournalFile, header_fields
from servetwin.results.language_summary import language_section
from servetwin.results.metrics import RunMetrics, per_s, summarize
from servetwin.results.migration_summary import migration_summary
from servetwin.results.parallelism import gpus_of_an_instance
from servetwin.results.pipelines_summary import pipelines_section
from servetwin.results.preemption_loss import add_preemption_loss, swaps_section
from servetwin.results.prefix_hits import cached_tokens, prefix_section
from servetwin.results.priorities import add_priorities
from servetwin.results.series_sink import SeriesSink, series_sink
from servetwin.results.stage_scaling_summary import stage_scaling_summary
from servetwin.results.stages_summary import stage_rows, stages_section
from servetwin.results.start_summary import start_summary
from servetwin.results.step_times import step_time_section
from servetwin.results.trace_section import clients_section, trace_section
from servetwin.results.warmup import counted_from_s, recorder_of, scheduled_of, warmup_section, with_warmup
from servetwin.run.ends import RUNS, range_section
from servetwin.run.prepared import Parts, Prepared, Progress, Simulated
from servetwin.run.scaling_cost import scaling_cost
from servetwin.run.use_series import use_series, watched
from servetwin.run.write_results import SERIES_NAME, STAGES_NAME, write_parquet, write_results
from serving.controller import Controller
from serving.vocabulary.action_mask import Masked
from serving.vocabulary.closed_loop import Requests
from serving.vocabulary.driver import Control, JournalSink
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request
from simcore.chunk_starts import ChunkStarts
from simcore.client_timeouts import ClientTimeouts
from simcore.simulation import Simulation
from simcore.stopping import StoppingRecorder
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np

    from simcore.data_plane.data_plane import DataPlane
    from simcore.faults.plan import FaultPlan
    from simcore.sim_report import SimReport
    from traces.columns import Names


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable garbage collection: the event loop makes no reference cycles, and scanning costs 5 % of it.

    Collect the young generations first: they hold what the previous run left. The old generation is not
    scanned.
    """
    gc.collect(1)
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def simulate(config: RunConfig, folder: Path, on_progress: Progress | None = None) -> dict[str, Any]:
    """Run, write every file into ``folder``, and return the summary."""
    prepared = prepare(config)
    config_yaml = resolved_yaml(prepared.config)
    with ExitStack() as stack:
        journal = None
        if config.journal:
            able = driver_actions(config)
            header = header_fields("simulated", config.seed, config_yaml, prepared.estimates, able)
            header |= prepared.journal_header()
            journal = stack.enter_context(JournalFile(folder / JOURNAL_NAME, header))
        part = Parts(on_progress, RUNS if _has_ends(config) else 1)
        simulated = execute(prepared, journal, part.progress(0))
    summary = simulated.summary | provenance(prepared)
    cpu_s = process_time()
    if _has_ends(config):
        summary |= range_section(
            prepared, simulated.summary, lambda end, place: execute(end, None, part.progress(place)).summary
        )
    cpu_s = process_time() - cpu_s
    summary["sim"] = {
        "wall_s": simulated.wall_s,
        "cpu_s": simulated.cpu_s,
        "process_cpu_s": process_time(),
        "requests_per_cpu_s": per_s(len(prepared.workload), simulated.cpu_s),
        "events": simulated.events,
        **({"range_cpu_s": cpu_s} if _has_ends(config) else {}),
        "policies": simulated.policies,
        **nativecore.section(),
    }
    write_results(
        folder,
        summary=summary,
        columns=simulated.columns,
        config_yaml=config_yaml,
        unserved=simulated.unserved,
        stage_load=simulated.stage_load,
        use=simulated.use,
    )
    if simulated.series is not None:
        write_parquet(folder / SERIES_NAME, simulated.series)
    if simulated.stages is not None:
        write_parquet(folder / STAGES_NAME, simulated.stages)
    return summary


def _has_ends(config: RunConfig) -> bool:
    """Return whether to evaluate both ends of the step times. Models in stages have no known ends."""
    return config.uncertainty == ON and not config.system.in_stages


def evaluated(config: RunConfig) -> dict[str, Any]:
    """Return a run's summary, with its range if any, without a folder: for loops over configurations."""
    prepared = prepare(config)
    summary = execute(prepared).summary
    if not _has_ends(config):
        return summary
    return summary | range_section(prepared, summary, lambda end, _: execute(end).summary)


def prepare(config: RunConfig) -> Prepared:
    """Read the trace and build what all worlds need. Raises UserError, TraceError, HardwareError."""
    check_capabilities(config)
    config = with_library_tables(config)
    hardware = hardware_of(config)
    hosted = hosted_models(config)
    estimates = build.estimates_of(config, hardware)
    start = None
    if config.system.in_stages and not decodes_in_stages(config):
        replicas = build.replicas_of(config, hardware)
        workload = one_pass(config, run_workload(config, estimates, len(replicas), capacity_per_s(config)))
        limits = limits_of(config, workload, {})
    else:
        seats = chains(config) if decodes_in_stages(config) else seat_count(config, hosted)
        workload = run_workload(config, estimates, seats)
        prototypes = build.prototypes_of(config, hardware)
        limits = limits_of(config, workload, prototypes)
        check_lengths(config, workload, hardware, prototypes, limits)
        start = start_of(config, hosted, estimates.models[0], workload)
        replicas = build.replicas_of(config, hardware, start)
    # Checked here, so that an impossible fault is refused before any file is written.
    fault_plan_of(config, replicas)
    return Prepared(
        config=config,
        hardware_of_model=hardware,
        replicas=replicas,
        estimates=estimates,
        workload=workload,
        limits=limits,
        start=start,
        front_end=front_end_of(config),
    )


def execute(
    prepared: Prepared, journal: JournalSink | None = None, on_progress: Progress | None = None
) -> Simulated:
    """Run the event loop and compute the metrics, timed from the first event to the last metric."""
    config, workload, door = prepared.config, prepared.workload, _door_of(prepared)
    metrics, recorder, warmup = _recorders(prepared, door)
    controller = _controller_of(prepared, named_requests(config, workload))
    data_plane = data_plane_of(config, prepared.replicas)
    stages = stage_plan(config, workload, prepared.hardware_of_model)
    rows = stages.times if stages is not None and stages.times else world_rows(prepared.hardware_of_model)
    hits = ChunkStarts(journal) if shares_prefixes(config, workload) else None
    sink = series_sink(config.series.period_s, controller.engines, hits or journal)
    faults, plan = fault_plan_of(config, prepared.replicas), client_plan(config, len(workload), door)
    recovery = None if faults is None else RecoveryWatch(controller)
    simulation = Simulation(
        controller=_mask_actions(config, recovery or controller),
        arrivals=_arrivals(prepared, on_progress, door),
        rows=rows_of_replicas(prepared.replicas, prepared.hardware_of_model, rows),
        recorder=recorder,
        journal=watched(sink, controller, data_plane) or hits or journal,
        data_plane=data_plane,
        rows_of=rows,
        cpu_ns=thread_time_ns,
        faults=faults,
        groups=group_plans(config, prepared.replicas, prepared.hardware_of_model),
        stages=stages,
        pipelines=pipeline_plans(config, prepared.replicas, prepared.hardware_of_model),
        clients=None if plan is None else (plan, metrics),
    )
    with undisturbed():
        wall_s, cpu_s = perf_counter(), process_time()
        with PolicyWatch(simulation.now_ns) as watch:
            report = simulation.run()
        if report.stopped:
            return _stopped(report, wall_s=perf_counter() - wall_s, cpu_s=process_time() - cpu_s)
        columns = _columns_of(metrics, door, clients := simulation.clients)
        summary = _summary_of(prepared, metrics, columns, warmup)
        every = with_warmup(columns, warmup)
        series = _series_of(sink, every, summary)
        cpu_s, wall_s = process_time() - cpu_s, perf_counter() - wall_s
    _check_conserved(summary, controller.arrived - repeated(clients), len(workload))
    names = add_models(summary, columns, config, prepared.hardware_of_model, workload)
    summary |= _cached(prepared, columns, hits, attempts := attempts_of(columns, len(workload)), controller)
    add_preemption_loss(summary, columns, simulation.preemption_losses_ns(), attempts)
    summary |= swaps_section(controller.engines.values()) | clients_section(config.trace, metrics, columns)
    summary |= client_timeouts_section(config.trace, clients, columns)
    add_priorities(summary, columns, workload, config.trace.warmup_requests)
    if data_plane is not None:
        summary |= _moved(prepared, controller, data_plane, summary, report)
    summary |= groups_section(simulation.groups.groups) | pipelines_section(config, simulation.pipelines)
    summary |= _of_faults(simulation, recovery, faults, summary["duration_s"])
    summary |= _of_stages(config, controller, (stage_columns := stage_rows(controller)), summary)
    summary |= use_of_gpus(config, prepared.estimates, workload, every, summary)
    summary |= scaling_cost(prepared, controller, every, summary)
    use = use_series(
        prepared, controller=controller, data_plane=data_plane, sink=sink, columns=every, summary=summary
    )
    return Simulated(
        summary=summary,
        columns={**columns, **scheduled_of(every, columns), **names},
        wall_s=wall_s,
        cpu_s=cpu_s,
        events=report.events,
        policies=watch.section(),
        series=series,
        unserved=metrics.unserved,
        stages=stage_columns,
        stage_load=_stage_load(prepared, controller, stage_columns, summary["duration_s"]),
        use=use,
    )


def _of_faults(
    simulation: Simulation, recovery: RecoveryWatch | None, faults: FaultPlan | None, span_s: float
) -> dict[str, Any]:
    """Summarize what was lost; empty for a run without faults."""
    if faults is None or recovery is None or simulation.losses is None:
        return {}
    return faults_section(simulation.losses.records, recovery, faults, span_s)


def _stopped(report: SimReport, *, wall_s: float, cpu_s: float) -> Simulated:
    """Return the result of a run that its rule ended."""
    return Simulated(
        summary={}, columns={}, wall_s=wall_s, cpu_s=cpu_s, events=report.events, stopped=report.stopped
    )


def _cached(
    prepared: Prepared,
    columns: dict[str, np.ndarray],
    hits: ChunkStarts | None,
    attempts: np.ndarray,
    controller: Controller,
) -> dict[str, Any]:
    """Add to each request the tokens that its answered attempt found in a cache; summarize first attempts."""
    if hits is None:
        return {}
    config, workload = prepared.config, prepared.workload
    cached = cached_tokens(hits, len(workload) * (1 + config.trace.retries))
    columns |= {CACHED_TOKENS: cached[attempts]}
    return prefix_section(config, workload, cached[: len(workload)], controller.engines.values())


def _check_conserved(summary: Mapping[str, Any], arrived: int, requests: int) -> None:
    """Check that the requests of the summary and its warm-up requests are those of the run."""
    counted = summary["requests"]["arrived"] - summary["requests"]["dropped"]
    counted += summary.get("warmup", {}).get("requests", 0)
    assert counted == arrived == requests, "invariant 1: requests conserved"


def _mask_actions(config: RunConfig, control: Control) -> Control:
    """Return ``control`` without the actions that the configuration removes from the driver."""
    return Masked(control, driver_actions(config), *masked_words(config)) if is_masked(config) else control


def _door_of(prepared: Prepared) -> FrontDoor | None:
    """Return the front end of the instances at the start; None if the engine has none."""
    front_end = prepared.front_end
    return FrontDoor(front_end, len(prepared.replicas)) if front_end.exists else None


def _columns_of(
    metrics: RunMetrics, door: FrontDoor | None, clients: ClientTimeouts | None
) -> dict[str, np.ndarray]:
    columns = metrics.columns()
    if door is not None:
        door.add_client_times(columns)
    if clients is not None:
        add_attempts(clients, columns)
        metrics.cut_short = clients.counts.time_outs > 0
    return columns


def _arrivals(prepared: Prepared, on_progress: Progress | None, door: FrontDoor | None) -> Requests:
    config, workload = prepared.config, prepared.workload
    entered_ns = None
    if config.trace.client_timeout_s is not None:
        door = None  # requests go through it one by one, for there may be more than the trace has
    if door is not None and config.trace.clients is None:
        entered_ns = door.entered_ns(workload.arrival_ns, workload.prompt_tokens)
    arrivals = build.arrivals_of(config, workload, prepared.limits, entered_ns)
    return requests_of(config, _report_progress(arrivals, len(workload), on_progress), door)


def _recorders(prepared: Prepared, door: FrontDoor | None) -> tuple[RunMetrics, Recorder, RunMetrics | None]:
    """Return the metrics of counted requests, the driver's recorder, and the metrics of warm-up requests."""
    trace, metrics = prepared.config.trace, RunMetrics(None if door is None else door.sent_of)
    metrics.given_up = None if trace.client_timeout_s is None else 0
    recorder, warmup = recorder_of(metrics, trace.warmup_requests)
    if prepared.stops is not None:
        recorder = StoppingRecorder(recorder, prepared.stops(prepared, door))
    return metrics, recorder, warmup


def _summary_of(
    prepared: Prepared, metrics: RunMetrics, columns: dict[str, np.ndarray], warmup: RunMetrics | None
) -> dict[str, Any]:
    summary = summarize(
        metrics,
        columns,
        dropped=prepared.workload.dropped,
        slo=prepared.config.slo,
        gpus=_provisioned_gpus(prepared),
        instances=max(1, len(prepared.replicas)),
        counted_from_s=0.0 if warmup is None else counted_from_s(metrics, columns),
    )
    return summary | warmup_section(warmup, metrics, columns)


def _series_of(
    sink: SeriesSink | None, columns: dict[str, np.ndarray], summary: dict[str, Any]
) -> dict[str, np.ndarray | Names] | None:
    """Return the columns of series.parquet, and add fragmentation to the summary; None without series."""
    if sink is None:
        return None
    from servetwin.results.fragmentation import fragmentation_section
    from servetwin.results.series_table import series_of

    series = series_of(sink, columns, summary["duration_s"])
    summary |= fragmentation_section(sink, columns, summary["duration_s"])
    return series


def _controller_of(prepared: Prepared, named: bytes) -> Controller:
    controller = build.controller_of(
        prepared.config,
        prepared.hardware_of_model,
        prepared.replicas,
        prepared.estimates,
        named_requests=named,
        outgrows_expected=prepared.outgrows_expected,
    )
    if prepared.on_controller is not None:
        prepared.on_controller(controller)
    return controller


def _moved(
    prepared: Prepared,
    controller: Controller,
    data_plane: DataPlane,
    summary: dict[str, Any],
    report: SimReport,
) -> dict[str, Any]:
    """Summarize loads, links, scaling and migration."""
    sections = data_plane_summary(data_plane, summary["duration_s"]) | start_summary(
        data_plane, prepared.config
    )
    sections |= elastic_summary(controller, prepared.replicas, summary, report)
    sections |= stage_scaling_summary(controller, prepared.replicas, summary, report)
    return sections | migration_summary(controller)


def _stage_load(
    prepared: Prepared, controller: Controller, rows: dict[str, Any] | None, span_s: float
) -> dict[str, Any] | None:
    """Return replicas and work of stages over time; None without stages."""
    if rows is None:
        return None
    from servetwin.results.stage_load import changes_of, default_period_s, stage_load

    period_s = prepared.config.series.period_s or default_period_s(span_s)
    return stage_load(rows, changes_of(controller, prepared.replicas), period_s, span_s)


def _of_stages(
    config: RunConfig, controller: Controller, columns: dict[str, Any] | None, summary: dict[str, Any]
) -> dict[str, Any]:
    """Summarize the work of stages, for models with and without KV."""
    sections = stages_section(config, controller, columns, summary["duration_s"])
    return sections | language_section(config, controller, summary)


def _capacity_req_per_s(prepared: Prepared, workload: Workload) -> float:
    """Return the requests per second at which the replicas of the start just keep up."""
    config, replicas = prepared.config, len(prepared.replicas)
    if decodes_in_stages(config):
        replicas = chains(config)
    elif config.system.in_stages:
        return capacity_per_s(config)
    return run_capacity_req_per_s(config, prepared.estimates, replicas, workload)


def _provisioned_gpus(prepared: Prepared) -> int:
    """Count the cluster's GPUs, or those of the replicas that serve from the start."""
    if prepared.config.system.in_stages:
        return used_gpus(prepared.replicas)
    if prepared.start is None:
        return prepared.config.cluster.gpus
    return sum(len(replica.gpus) for replica in prepared.replicas)


def _report_progress(
    arrivals: Iterator[tuple[Request, int]], total: int, on_progress: Progress | None
) -> Iterator[tuple[Request, int]]:
    """Yield the same arrivals, calling ``on_progress`` now and then with the number yielded."""
    return arrivals if on_progress is None else _reporting(arrivals, total, on_progress)


def _reporting(
    arrivals: Iterator[tuple[Request, int]], total: int, on_progress: Progress
) -> Iterator[tuple[Request, int]]:
    for arrived, arrival in enumerate(arrivals, start=1):
        if arrived % 256 == 0 or arrived == total:
            on_progress(arrived, total)
        yield arrival


def provenance(prepared: Prepared) -> dict[str, Any]:
    """Return where the numbers come from: names, sources, labels and assumptions."""
    config, workload = prepared.config, prepared.workload
    estimates, hosted = shown_estimates(config, prepared.estimates), len(prepared.hardware_of_model)
    return {
        "system": config.system.name,
        "model": shown_model(config),
        **shown_precision(config),
        "cluster": config.cluster.name,
        "engine": config.engine.name,
        "imitates": f"{config.engine.software} {config.engine.version}",
        "seed": config.seed,
        "code": code_version(),
        "trace": trace_section(
            config, workload, prepared.limits, hosted, _capacity_req_per_s(prepared, workload)
        ),
        "step_time": step_time_section(prepared.hardware),
        "kv_capacity": prepared.hardware.kv_arithmetic,
        **({"parallelism": parallelism} if (parallelism := gpus_of_an_instance(config)) else {}),
        "estimates": estimates.as_dict(),
    }
