"""Time of one all-reduce inside a tensor-parallel group: alpha-beta."""

from collections.abc import Mapping
from dataclasses import dataclass

from hwmodels.errors import HardwareError
from hwmodels.llm_shape import LlmShape

# Partial sums after the attention output and after the MLP (Megatron-style tensor parallelism).
ALL_REDUCES_PER_LAYER = 2


@dataclass(frozen=True, slots=True)
class AllReduce:
    """``alpha_s`` per group size and one bus bandwidth: bytes/s each rank sends in a ring."""

    gpu: str
    alpha_s: Mapping[int, float]
    bus_bandwidth_bytes_per_s: float
    source: str

    def latency_s(self, tp: int) -> float:
        """The part of one all-reduce that does not depend on its size; seconds, 0 for one rank."""
        if tp == 1:
            return 0.0
        if tp not in self.alpha_s:
            known = ", ".join(str(size) for size in sorted(self.alpha_s)) or "1 only"
            raise HardwareError(
                f"no all-reduce time is known for tp={tp} on {self.gpu}; write one of: {known}"
            )
        return self.alpha_s[tp]

    def seconds_per_byte(self, tp: int) -> float:
        """Slope over the message size: a ring moves 2(tp-1)/tp of the message over each rank's link."""
        if tp == 1:
            return 0.0
        return 2 * (tp - 1) / tp / self.bus_bandwidth_bytes_per_s

    def of_step(self, llm: LlmShape, tp: int) -> tuple[float, float]:
        """All of a step of ``llm``: (seconds, seconds per token); they overlap nothing."""
        times = ALL_REDUCES_PER_LAYER * llm.layers
        bytes_per_token = llm.hidden * llm.bytes_per_parameter
        return times * self.latency_s(tp), times * bytes_per_token * self.seconds_per_byte(tp)
