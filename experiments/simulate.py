"""servetwin simulate: one run in virtual time, from configuration to result folder."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from experiments import build
from experiments.compose import resolved_yaml
from experiments.config import RunConfig
from experiments.journal_file import NAME as JOURNAL_NAME
from experiments.journal_file import JournalFile, header_fields
from experiments.metrics import RunMetrics, summarize
from experiments.results import write_results
from experiments.version import code_version
from serving.estimates import Estimates
from simcore.simulation import Simulation
from traces.workload import Workload

Progress = Callable[[int, int], None]  # (requests arrived, requests in all)


def simulate(config: RunConfig, folder: Path, on_progress: Progress | None = None) -> dict[str, Any]:
    """Run, write every file into ``folder``, and return the summary."""
    hardware = build.hardware_of(config)
    replicas = build.replicas_of(config, hardware)
    estimates = build.estimates_of(config, hardware)
    workload = build.workload_of(config, estimates.models[0], len(replicas))
    build.check_lengths(workload, hardware)
    config_yaml = resolved_yaml(config)
    metrics = RunMetrics()
    with ExitStack() as stack:
        journal = None
        if config.journal:
            header = header_fields("simulated", config.seed, config_yaml, estimates)
            journal = stack.enter_context(JournalFile(folder / JOURNAL_NAME, header))
        simulation = Simulation(
            build.controller_of(config, replicas),
            build.arrivals_of(config, workload),
            [hardware.rows] * len(replicas),
            metrics,
            journal,
            None if on_progress is None else lambda arrived: on_progress(arrived, len(workload)),
        )
        wall_s, cpu_s = perf_counter(), process_time()
        with undisturbed():
            report = simulation.run()
        columns = metrics.columns()
        summary = summarize(
            metrics,
            columns,
            dropped=workload.dropped,
            ttft_slo_ms=config.slo.ttft_ms,
            tpot_slo_ms=config.slo.tpot_ms,
            gpus=config.cluster.gpus,
            instances=len(replicas),
        )
        cpu_s, wall_s = process_time() - cpu_s, perf_counter() - wall_s
    summary |= provenance(config, workload, hardware, estimates, len(replicas))
    summary["sim"] = {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "process_cpu_s": process_time(),
        "requests_per_cpu_s": len(workload) / cpu_s,
        "events": report.events,
    }
    write_results(folder, summary, columns, config_yaml)
    return summary


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection: the event loop makes no reference cycles, and scanning costs 5 % of it."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def provenance(
    config: RunConfig, workload: Workload, hardware: build.Hardware, estimates: Estimates, replicas: int
) -> dict[str, Any]:
    """Where the numbers come from: names, sources, labels, and what was assumed."""
    entry = estimates.models[0]
    return {
        "system": config.system.name,
        "model": config.model.name,
        "cluster": config.cluster.name,
        "engine": config.engine.name,
        "seed": config.seed,
        "code": code_version(),
        "trace": {
            "name": workload.name,
            "source": workload.source,
            "labels": list(workload.labels),
            "dropped": dict(sorted(workload.dropped.items())),
            "truncated_outputs": build.truncated(config, workload),
            "mean_rate_per_s": workload.mean_rate_per_s,
            "capacity_req_per_s": build.capacity_req_per_s(entry, replicas, workload),
        },
        "step_time": {"source": hardware.step.source, "error_band": hardware.step.error_band},
        "kv_capacity": hardware.kv_arithmetic,
        "estimates": json.loads(json.dumps(estimates.as_dict())),
    }
