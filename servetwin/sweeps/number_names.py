"""Which numbers a run's summary may have, so that a misspelt one is refused before anything runs."""

import re
from collections.abc import Iterable
from typing import Final

from servetwin.config.overrides import closest, echo
from servetwin.results.metrics import QUANTILES
from servetwin.sweeps.outcome import HIGH, LOW
from serving.vocabulary.errors import UserError

_SPREADS: Final = ("ttft_ms", "ttft_engine_ms", "tpot_ms", "itl_ms", "e2e_ms", "preemption_loss_ms")
_STATISTICS: Final = ("mean", *QUANTILES, "max")
# Of every run.
NAMES: Final = frozenset(
    {
        *(f"{name}.{part}" for name in _SPREADS for part in _STATISTICS),
        *(f"requests.{part}" for part in ("arrived", "finished", "rejected", "failed", "dropped")),
        *(f"slo.{part}" for part in ("attainment", "ttft_attainment", "tpot_attainment", "ttft_ms")),
        "slo.tpot_ms", "slo.goodput_req_per_s", "throughput.req_per_s", "throughput.output_tokens_per_s",
        "duration_s", "gpu_seconds", "gpu_load_share", "gpu_busy_share", "preemptions", "instances.mean",
        "instances.max",
        "energy.gpu_kwh", "energy.gpu_mean_w", "energy.j_per_output_token", "energy.decode_batch",
        "energy.decode_memory_bandwidth_share", "energy.decode_tensor_share",
    }
)  # fmt: skip
# Of some runs: their names depend on the system, the cluster and what happens (docs/reference/METRICS.md).
SECTIONS: Final = (
    "cache", "client_timeouts", "clients", "control", "copies", "cuts", "data_parallel", "decisions",
    "energy", "failed_reasons", "faults", "fragmentation", "groups", "host_cache_bytes", "instances",
    "language_stages", "live", "loads", "migrations", "models", "network", "new_instances",
    "path_moves", "pipeline_parallel", "preemption_loss_ms", "prefix_cache", "rejected_reasons",
    "shortages", "stage_loads", "stages", "starts", "swaps", "warmup",
)  # fmt: skip


def refuse_unknown_numbers(names: Iterable[str]) -> None:
    """Raise UserError for a name that no run has, with the nearest that runs have."""
    for name in names:
        plain = name.removesuffix(f".{LOW}").removesuffix(f".{HIGH}")
        section, dot, _ = plain.partition(".")
        if plain in NAMES or (dot and section in SECTIONS and section not in _SPREADS):
            continue
        near = _spread(plain) or closest(plain, NAMES) or _beside(section) or "ttft_ms.p99"
        raise UserError(
            f"runs have no number {echo(name)}: write {near} if that is meant, or another one of summary.json"
        )


def _spread(name: str) -> str:
    """Return ``ttft_ms.p99`` for ``ttft_p99`` and the like; "" for a name without these two parts."""
    parts = set(re.split(r"[._]", name.lower()))
    latency = next((spread for spread in _SPREADS if spread.removesuffix("_ms") in parts), "")
    statistic = next((part for part in _STATISTICS if part in parts), "")
    return f"{latency}.{statistic}" if latency and statistic else ""


def _beside(section: str) -> str:
    """Return a name of the section; "" if there is none."""
    return next((name for name in sorted(NAMES) if name.partition(".")[0] == section), "")
