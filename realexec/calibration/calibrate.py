"""Measures this machine's workers: their starts, their steps while all are busy, and their links."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from realexec.calibration.bench import Bench, Progress, name_of
from realexec.calibration.done_log import DoneLog
from realexec.calibration.grid import CalibrationPlan, Step
from realexec.calibration.links import copies_of, link_of, messages_of, starts_of
from realexec.calibration.quiet import Spread, noise_of, spread_of, told_noise, wall_over_cpu
from realexec.calibration.sends import KvSends
from realexec.driver.processes import WorkerPool
from realexec.system.liveness import cpu_time_ns
from realexec.transport_registry import TRANSPORTS, lack_between
from realexec.transports.shared_memory import NAME as SHARED_MEMORY
from realexec.wire.messages import Open

TIMEOUT_S: Final = 300.0
STARTS: Final = "starts of workers"
MESSAGES: Final = "messages"
KV_SENDS: Final = "sends of KV between busy workers"
CPU: Final = "cpu"
_COPIES: Final = {
    "parameters from their source": ("ssd", 0),
    "parameters from the host's memory": ("host", 0),
}
_PEER: Final = {"parameters from another worker": ("replica", 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedFleet:
    """The workers to measure: ``model`` as in `realexec.model.models`, ``kv_bytes`` of memory each, and the
    ``transport`` by which they read each other's memory."""

    workers: int
    model: Mapping[str, Any]
    seed: int
    batch_size: int
    kv_bytes: int
    transport: str = SHARED_MEMORY


def measure(
    fleet: CalibratedFleet, plan: CalibrationPlan, log: DoneLog, on_progress: Progress | None = None
) -> None:
    """Measure everything that is missing in ``log`` and add it. Raises UserError."""
    wanted = [
        *(name_of(unit, repeat) for unit in plan.units for repeat in range(plan.repeats)),
        *_others(fleet),
    ]
    if any(name not in log.entries for name in wanted):
        _with_workers(fleet, plan, log, on_progress)
    device = str(fleet.model.get("device", CPU))
    for transport in TRANSPORTS:
        name = link_name(transport)
        if name not in log.entries:
            why_not = lack_between(transport, device)
            how = transport, plan.repeats, TIMEOUT_S, device
            log.add(name, {"missing": why_not} if why_not else link_of(*how))


def link_name(transport: str) -> str:
    """Return the name of a transport's entry in the log."""
    return f"link by {transport}"


def sources_of(fleet: CalibratedFleet) -> dict[str, tuple[str, int]]:
    """Return the sources that worker 0 loads parameters from, as `realexec.wire.messages.Pull` names them."""
    return _COPIES | (_PEER if fleet.workers > 1 else {})


def _others(fleet: CalibratedFleet) -> list[str]:
    """Return the names of all measurements of workers besides their steps."""
    return [STARTS, MESSAGES, *sources_of(fleet), *([KV_SENDS] if fleet.workers > 1 else [])]


def _with_workers(
    fleet: CalibratedFleet, plan: CalibrationPlan, log: DoneLog, on_progress: Progress | None
) -> None:
    began_ns = time.monotonic_ns()
    with WorkerPool(fleet.workers, fleet.model, fleet.seed, fleet.batch_size) as pool:
        pool.wait_ready(TIMEOUT_S)
        process_s = (time.monotonic_ns() - began_ns) / 1e9
        opens = [
            Open(
                slot=slot,
                kv_bytes=fleet.kv_bytes,
                warm=True,
                host=True,
                paths=None,
                every_step=False,
                transport=fleet.transport,
            )
            for slot in range(fleet.workers)
        ]
        memory_s, addresses = starts_of(pool, opens, TIMEOUT_S)
        layers = addresses[0]["layers"][0]
        if STARTS not in log.entries:
            log.add(STARTS, {"process_s": process_s, "memory": spread_of(memory_s).as_dict("s")})
        pids = [worker.process.pid for worker in pool.workers]
        vocabulary = fleet.model["vocab_size"]
        bench = Bench(
            workers=list(pool.workers), inbox=pool.inbox, plan=plan, log=log, vocabulary=vocabulary,
            cpu_ns=lambda worker: cpu_time_ns(pids[worker]), on_progress=on_progress,
        )  # fmt: skip
        bench.run()
        if MESSAGES not in log.entries:
            log.add(MESSAGES, messages_of(pool, TIMEOUT_S))
        for name, source in sources_of(fleet).items():
            if name not in log.entries:
                log.add(name, copies_of(pool, layers, source, plan.repeats, TIMEOUT_S))
        if fleet.workers > 1 and KV_SENDS not in log.entries:
            sends = KvSends(pool, plan, vocabulary, TIMEOUT_S)
            log.add(KV_SENDS, {"transport": fleet.transport, **sends.measured()})


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """``steps``: time of each step in microseconds over its repeats. ``noise``: empty if it was quiet."""

    steps: Mapping[Step, Spread]
    wall_over_cpu: float | None
    noise: tuple[str, ...]
    record: Mapping[str, Any]


def measured(fleet: CalibratedFleet, plan: CalibrationPlan, log: DoneLog) -> CalibrationResult:
    """Evaluate a complete log."""
    names = [name_of(unit, repeat) for repeat in range(plan.repeats) for unit in plan.units]
    entries = [log.entries[name] for name in names]
    samples: dict[Step, list[float]] = {}
    for entry in entries:
        for *step, took_us in entry["steps"]:
            samples.setdefault(Step(*step), []).append(took_us)
    spreads = {step: spread_of(samples[step]) for step in sorted(samples)}
    ratio = wall_over_cpu(sum(one["wall_ns"] for one in entries), sum(one["cpu_ns"] for one in entries))
    noise = noise_of(ratio, spreads.values())
    measurements = {name: log.entries[name] for name in _others(fleet)}
    links = {transport: log.entries[link_name(transport)] for transport in TRANSPORTS}
    record = {
        "quiet": {"wall_over_cpu": ratio, **told_noise(noise)},
        "steps": [{**step._asdict(), **spread.as_dict("us")} for step, spread in spreads.items()],
        "starts": measurements[STARTS],
        "messages": measurements[MESSAGES],
        "parameters": {name: measurements[name] for name in sources_of(fleet)},
        "transport": fleet.transport,  # of parameters from another worker, and of sends
        "kv_sends": measurements.get(KV_SENDS),  # with two workers or more
        "links": links,
    }
    return CalibrationResult(spreads, ratio, tuple(noise), record)
