"""The summary of a real run, and every file of its result folder."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nativecore
from realexec.world.report import RunReport
from servetwin.assemble.data_plane import has_data_plane
from servetwin.results.elastic_summary import elastic_summary
from servetwin.results.hosted_summary import add_models
from servetwin.results.language_summary import language_section
from servetwin.results.measured_front_end import at_the_engine
from servetwin.results.metrics import RunMetrics, summarize
from servetwin.results.migration_summary import migration_summary
from servetwin.results.priorities import add_priorities
from servetwin.results.series_sink import SeriesSink
from servetwin.results.stage_scaling_summary import stage_scaling_summary
from servetwin.results.trace_section import clients_section
from servetwin.results.warmup import counted_from_s, scheduled_of, warmup_section, with_warmup
from servetwin.run.prepared import Prepared
from servetwin.run.simulate import provenance
from servetwin.run.write_results import SERIES_NAME, write_parquet, write_results
from serving.controller import Controller
from simcore.sim_report import SimReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """Input and results of a real run.

    ``warmup``: metrics of its warm-up requests, if any. ``checked``: token check; ``real``: what only a real
    world reports. ``at_the_engine``: TTFT there as servers counted it, for the summary; None: the engine is
    in the driver, which has a request when it takes it.
    """

    prepared: Prepared
    controller: Controller
    metrics: RunMetrics
    warmup: RunMetrics | None
    report: RunReport
    config_yaml: str
    checked: Mapping[str, Any]
    real: Mapping[str, Any]
    sink: SeriesSink | None = None
    at_the_engine: Mapping[str, Any] | None = None


def real_summary(run: RealRun, folder: Path) -> dict[str, Any]:
    """Write the files and return the summary."""
    prepared, controller, metrics, report = run.prepared, run.controller, run.metrics, run.report
    config, workload = prepared.config, prepared.workload
    columns = metrics.columns()
    if run.at_the_engine is None:
        columns |= at_the_engine(columns, report.taken_ns)
    summary = summarize(
        metrics,
        columns,
        dropped=workload.dropped,
        slo=config.slo,
        gpus=config.cluster.gpus,
        instances=max(1, len(prepared.replicas)),
        counted_from_s=0.0 if run.warmup is None else counted_from_s(metrics, columns),
    )
    summary |= run.at_the_engine or {}
    summary |= warmup_section(run.warmup, metrics, columns)
    summary |= provenance(prepared) | clients_section(config.trace, metrics, columns)
    add_priorities(summary, columns, workload, config.trace.warmup_requests)
    names = add_models(summary, columns, config, prepared.hardware_of_model, workload)
    if has_data_plane(config):
        looks = SimReport(len(report.decide_ns), 0, array("q"))
        summary |= elastic_summary(controller, prepared.replicas, summary, looks)
        summary |= stage_scaling_summary(controller, prepared.replicas, summary, looks)
        summary |= migration_summary(controller) | language_section(config, controller, summary)
    summary["real"] = {
        "workers": config.workers,
        "wall_s": report.wall_s,
        "start_s": report.start_s,
        **run.checked,
        "workers_lost": [list(lost) for lost in report.lost],
        "cpu": {
            "steps_s": report.cpu.steps_ns / 1e9,
            "workers_s": report.cpu.workers_ns / 1e9,
            "driver_s": report.cpu.driver_ns / 1e9,
            "reads_s": report.cpu.reads_ns / 1e9,
            "share_beside_steps": report.cpu.share_beside_steps,
            "share_of_messages": report.cpu.share_of_messages,
        },
        "decide_us": {"mean": report.decide_ns_mean / 1e3, "p99": report.decide_ns_p99 / 1e3},
        "arrival_lateness_ms_p99": report.lateness_ns_p99 / 1e6,
        **run.real,
        **nativecore.section(),
    }
    if run.sink is not None:
        from servetwin.results.series_table import series_of

        every = with_warmup(columns, run.warmup)
        write_parquet(folder / SERIES_NAME, series_of(run.sink, every, summary["duration_s"]))
        columns |= scheduled_of(every, columns)
    write_results(
        folder,
        summary=summary,
        columns={**columns, **names},
        config_yaml=run.config_yaml,
        unserved=metrics.unserved,
    )
    return summary
