"""The values that the numbers of a configuration may take."""

from dataclasses import dataclass
from typing import Final

MAX_GPUS: Final = 8192
# 31 years, as for arrivals of a trace: the simulated clock counts nanoseconds in 63 bits, 292 years.
MAX_TIME_S: Final = 1e9
# Above ten times the cluster's estimated capacity the queue only grows; a larger number is a typing error.
MAX_UTILIZATION: Final = 10.0
# A step takes milliseconds, and no request waits a day for a token: larger numbers are in another unit.
MAX_OVERHEAD_S: Final = 10.0
MAX_OBJECTIVE_MS: Final = 86_400_000.0
# At 3, four of five choices are the first expert's, if each token may choose it once.
MAX_EXPERT_SKEW: Final = 3.0
# Clients that begin later than an hour after the first are no closed loop from the start.
MAX_CLIENT_START_S: Final = 3600.0
# One row per engine and period is kept in memory; steps of an engine take milliseconds.
MIN_SERIES_PERIOD_S: Final = 0.01
# Each client is held in memory and sends at the start; more than the requests of a day are a typing error.
MAX_CLIENTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Range:
    """The allowed values of a number; None means unbounded. ``open_low``/``open_high`` exclude the bound."""

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (self.open_low and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.open_high)

    def __str__(self) -> str:
        """Return the words that follow "write a number ..."."""
        if self.low is not None and self.high is not None:
            low = f"above {self.low:g}" if self.open_low else f"from {self.low:g}"
            return f"{low} {'and below' if self.open_high else 'up to'} {self.high:g}"
        return f"above {self.low:g}" if self.open_low else f"of at least {self.low:g}"


_COUNT: Final = Range(low=1)
_POSITIVE: Final = Range(low=0, open_low=True)
_OBJECTIVE: Final = Range(low=0, high=MAX_OBJECTIVE_MS, open_low=True)

RANGES: Final[dict[str, Range]] = {
    "workers": Range(low=1, high=MAX_GPUS),  # before cluster.gpus, which depends on it
    "engine.max_num_batched_tokens": _COUNT,  # before engine.max_num_seqs, which it limits
    "engine.max_num_seqs": _COUNT,
    "migration.max_stages": _COUNT,
    "migration.period_ms": Range(low=0.001),
    "migration.control_ms": Range(low=0),
    "migration.slowdown": Range(low=0, high=1),
    "migration.reserve": Range(low=0, high=1, open_low=True, open_high=True),
    "pipeline.stages": _COUNT,
    "pipeline.batch": _COUNT,
    "pipeline.period_s": Range(low=0.001),
    "pipeline.window_s": Range(low=0.001),
    "pipeline.min_replicas": _COUNT,
    "pipeline.max_replicas": _COUNT,
    "pipeline.batch_cost": Range(low=0, high=1),
    "pipeline.times_cv": Range(low=0, high=10),
    "pipeline.cpu_cores": _COUNT,
    "pipeline.cpu_share": Range(low=0, high=1, open_high=True),
    "engine.block_tokens": _COUNT,
    "engine.swap_space_gib": Range(low=0, open_low=True),
    "engine.watermark": Range(low=0, high=1, open_high=True),
    "engine.kv_tokens": _COUNT,
    "engine.gpu_memory_utilization": Range(low=0, high=1, open_low=True),
    "engine.max_new_tokens": _COUNT,
    "engine.expected_new_tokens": _COUNT,
    "engine.max_model_len": Range(low=2),
    "engine.reserved_blocks": Range(low=0),
    "engine.overhead.step_s": Range(low=0, high=MAX_OVERHEAD_S),
    "engine.overhead.per_layer_s": Range(low=0, high=MAX_OVERHEAD_S),
    "engine.overhead.per_sequence_s": Range(low=0, high=MAX_OVERHEAD_S),
    "engine.overhead.per_output_token_s": Range(low=0, high=MAX_OVERHEAD_S),
    "engine.overhead.error_s": Range(low=0, high=MAX_OVERHEAD_S),
    "engine.reserve_activation_bytes": Range(low=0),
    "engine.data_parallel_size": _COUNT,
    "engine.expert_skew": Range(low=0, high=MAX_EXPERT_SKEW),
    "model.tp": _COUNT,
    "model.pp": _COUNT,
    "cluster.gpus": Range(low=1, high=MAX_GPUS),
    **{f"cluster.{link}_gbps": _POSITIVE for link in ("pcie", "nvlink", "nic", "ssd", "remote")},
    "trace.limit": _COUNT,
    "trace.block_requests": _COUNT,
    "trace.utilization": Range(low=0, high=MAX_UTILIZATION, open_low=True),
    "trace.tokens_scale": _POSITIVE,
    "trace.repeat": _COUNT,
    "trace.window_start_s": Range(low=0),
    "trace.window_s": _POSITIVE,
    "trace.rate_scale": _POSITIVE,
    "trace.prefill_share": Range(low=0, high=MAX_UTILIZATION, open_low=True),
    "trace.peak_share": Range(low=0, high=MAX_UTILIZATION, open_low=True),
    "trace.time_compression": _POSITIVE,
    "trace.clients": Range(low=1, high=MAX_CLIENTS),
    "trace.client_think_s": Range(low=0),
    "trace.client_start_s": Range(low=0, high=MAX_CLIENT_START_S),
    "slo.ttft_ms": _OBJECTIVE,
    "slo.tpot_ms": _OBJECTIVE,
    "series.period_s": Range(low=MIN_SERIES_PERIOD_S),
    "seed": Range(low=0),
}
