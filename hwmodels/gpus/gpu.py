"""Datasheet numbers of one accelerator, from which every rougher model starts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device.

    ``memory_bytes`` is what a process can allocate, ``flops_per_s`` the dense rate of 16-bit matrix products
    (fp32 for ``cpu_core``). ``activation_reserve_bytes`` is what an engine keeps free of KV per device
    (activations, communication buffers, context). ``l2_cache_bytes`` None: not declared.
    ``compute_efficiency``: the share of ``flops_per_s`` that prompts reach on it (None: as on other GPUs).
    ``nvlink``: whether GPUs of one host are joined by NVLink. ``sms``: streaming multiprocessors (None: not
    declared). ``unmeasured``: no step time of the catalogue was measured on it. ``source`` names the source
    of each number. ``fp8_flops_per_s``, ``fp4_flops_per_s``, ``int8_flops_per_s``: dense rates of narrower
    products (None: it has none, and computes in 16 bits; INT8 at the rate of FP8).
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    flops_per_s: float
    source: str
    activation_reserve_bytes: int = 0
    l2_cache_bytes: int | None = None
    compute_efficiency: float | None = None
    nvlink: bool = False
    sms: int | None = None
    unmeasured: bool = False
    fp8_flops_per_s: float | None = None
    fp4_flops_per_s: float | None = None
    int8_flops_per_s: float | None = None

    def flops_in(self, computes: str) -> float:
        """The dense rate of products of such numbers (hwmodels.models.precision), in FLOP/s."""
        rates = {
            "fp8": self.fp8_flops_per_s,
            "int8": self.int8_flops_per_s or self.fp8_flops_per_s,
            "fp4": self.fp4_flops_per_s,
        }
        return rates.get(computes) or self.flops_per_s
