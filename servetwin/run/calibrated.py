"""``realexec calibrate``: measure a whole-step profile of this machine's workers for a configuration."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hwmodels.catalogue import load_gpu
from hwmodels.importers.step_profile_file import META, Row, write_step_profile
from hwmodels.profiles.profile import NOISE_LABEL, Stamp
from hwmodels.profiles.step_profile import PromptBlocks
from servetwin.assemble.fleet import state_bytes, transport_of
from servetwin.assemble.hardware import kv_memory, precision_of
from servetwin.assemble.hosted import hosted_models
from servetwin.config.compose.measured_links import CALIBRATION
from servetwin.config.config import FLOAT32, RunConfig
from servetwin.config.version import code_version
from servetwin.run.real_run import require_torch, worker_model
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from realexec.calibration.calibrate import CalibratedFleet, CalibrationResult
    from realexec.calibration.grid import CalibrationPlan

REPEATS: Final = 5
QUICK_REPEATS: Final = 2
LICENCE: Final = "your own measurement"
_CPU_INFO: Final = Path("/proc/cpuinfo")
_MEMORY_INFO: Final = Path("/proc/meminfo")


def calibrate(
    config: RunConfig,
    quick: bool,
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
    on_resumed: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Measure, write the profile into ``config.out``, and return what calibration.json holds.

    Samples are kept beside ``out`` until all are measured: an interrupted calibration resumes from them.
    """
    require_torch()
    from realexec.calibration.calibrate import measure, measured
    from realexec.calibration.done_log import DoneLog
    from realexec.calibration.grid import plan_of

    if config.launcher != "local":
        raise UserError(
            f"launcher={config.launcher} is for runs: leave it out, for what is measured is this machine"
        )
    target = target_of(config)
    engine = config.engine
    plan = plan_of(
        engine.max_num_seqs, engine.max_num_batched_tokens, kv_tokens_of(config), repeats=repeats, quick=quick
    )
    fleet = fleet_of(config, plan)
    partial = target.with_name(f".{target.name}.calibrating")
    began_s = time.monotonic()
    with DoneLog(partial, _all_of(fleet, plan)) as log:
        if log.resumed and on_resumed is not None:
            on_resumed(log.resumed)
        measure(fleet, plan, log, on_progress)
        measurements = measured(fleet, plan, log)
    record = record_of(config, measurements) | {"took_s": time.monotonic() - began_s}
    write_profile(target, config, measurements, record)
    shutil.rmtree(partial, ignore_errors=True)
    return record


def kv_tokens_of(config: RunConfig) -> int:
    """Return how many KV tokens a worker's memory holds, of all sequences together."""
    (model,) = hosted_models(config)
    capacity = kv_memory(config.engine, load_gpu(config.cluster.gpu), model.shape, model.tp)
    return capacity.blocks * config.engine.block_tokens


def target_of(config: RunConfig) -> Path:
    """Return the profile's folder: one that does not exist, or an older profile with overwrite=true."""
    target = Path(config.out).expanduser().absolute()
    if os.path.lexists(target) and not (config.overwrite and (target / META).is_file()):
        raise UserError(
            f"out={config.out} exists: write the name of a folder that does not, or overwrite=true if it is "
            "a profile that may go"
        )
    return target


def fleet_of(config: RunConfig, plan: CalibrationPlan) -> CalibratedFleet:
    """Describe the workers of a run with this configuration, with memory for what is measured."""
    from realexec.calibration.calibrate import CalibratedFleet

    assert config.workers is not None
    (model,) = hosted_models(config)
    return CalibratedFleet(
        workers=config.workers,
        model=worker_model(config.model, config.device),
        seed=config.seed,
        batch_size=config.engine.max_num_seqs,
        kv_bytes=state_bytes(max(kv_tokens_of(config), plan.held_tokens), model.shape.kv_bytes_per_token),
        transport=transport_of(config),
    )


def _all_of(fleet: CalibratedFleet, plan: CalibrationPlan) -> dict[str, Any]:
    """Return everything that samples depend on: samples with other values are not resumed."""
    return {
        "workers": fleet.workers, "model": dict(fleet.model), "seed": fleet.seed,
        "batch_size": fleet.batch_size, "transport": fleet.transport, "plan": plan.as_dict(),
        "machine": machine(), "code": code_version(),
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """Describe the measured machine and the library versions."""
    from realexec.probe.machine import probe

    hardware = probe()
    return {
        "host": platform.node(), "system": platform.platform(), "processor": _processor(),
        "cores": hardware["cpus"], "memory_bytes": hardware["memory_bytes"],
        "python": platform.python_version(), "torch": hardware["torch"],
        "transformers": hardware["transformers"], "cuda_devices": hardware["cuda_devices"],
    }  # fmt: skip


def _processor() -> str:
    """Return the processor's name, if the system reports it."""
    return _value_in(_CPU_INFO, "model name") or platform.processor() or platform.machine()


def _value_in(path: Path, name: str) -> str | None:
    """Return the value of the first line ``name : value``."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    values = [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name]
    return values[0] if values else None


def record_of(config: RunConfig, measurements: CalibrationResult) -> dict[str, Any]:
    """Return all measurements and a description of the machine."""
    assert config.workers is not None
    (model,) = hosted_models(config)
    each = model.shape.kv_bytes_per_token
    free = _value_in(_MEMORY_INFO, "MemAvailable")
    fits = None if free is None else int(free.split()[0]) * 1024 // config.workers // each
    return {
        "format": "servetwin-calibration",
        "schema": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "code": code_version(),
        "model": config.model.name,
        "workers_busy": config.workers,
        "max_num_seqs": config.engine.max_num_seqs,
        **measurements.record,
        "kv": {
            "tokens": kv_tokens_of(config),
            "bytes_per_token": each,
            "tokens_of_free_memory_per_worker": fits,
        },
    }


def write_profile(
    target: Path, config: RunConfig, measurements: CalibrationResult, record: Mapping[str, Any]
) -> None:
    """Write the profile folder at ``target``, replacing an older profile if there is one."""
    from realexec.model.chunk_cuts import FEWEST_CUT, KEY_BLOCK, SMALL_PRODUCT_ROWS

    (model,) = hosted_models(config)
    text = json.dumps(record, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    made = record["machine"]
    busy = f"{record['workers_busy']} workers busy on {made['cores']} cores"
    precision = precision_of(model.shape) if config.model.dtype == FLOAT32 else config.model.dtype
    stamp = Stamp(
        gpu=config.cluster.gpu,
        llm=model.shape.name,
        tp=model.tp,
        engine=config.engine.software,
        engine_version=config.engine.version,
        precision=precision,
        source=f"measured on {made['host']} ({made['processor']}), {busy}, {record['date']}",
        licence=LICENCE,
        files=(),
        notes=(
            *(f"{NOISE_LABEL}{cause}" for cause in measurements.noise),
            f"code {record['code']['version']}, commit {record['code']['commit']}, torch {made['torch']}",
            f"{CALIBRATION} has the spread of repeats, links and starts, sha256 {digest}",
            "of prompts in several chunks the last one alone is here",
        ),
    )
    rows: list[Row] = [
        (*step, spread.repeats, spread.median / 1e6) for step, spread in measurements.steps.items()
    ]
    if target.exists():
        shutil.rmtree(target)
    # A worker runs each prompt chunk and then its decodes (step_engine.py), and lays out each chunk.
    blocks = PromptBlocks(KEY_BLOCK, FEWEST_CUT, SMALL_PRODUCT_ROWS)
    write_step_profile(
        target,
        stamp,
        includes_overhead=True,
        rows=rows,
        beside={CALIBRATION: text},
        apart=True,
        blocks=blocks,
    )
