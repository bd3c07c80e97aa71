"""The seven workloads of the Llumnix paper (OSDI 2024, section 6.1), drawn from its Table 1."""

from collections.abc import Callable
from typing import Final

from traces.synthetic.arrivals import gamma_ns
from traces.synthetic.drawn import DEFAULT_REQUESTS, count_of, drawn_workload
from traces.workload import Workload

LABEL: Final = "synthetic stand-in for Llumnix {}: lengths of its Table 1, input and output independent"
_TRACES: Final = {
    "llumnix_ss": ("ss", "S-S"),
    "llumnix_mm": ("mm", "M-M"),
    "llumnix_ll": ("ll", "L-L"),
    "llumnix_sl": ("sl", "S-L"),
    "llumnix_ls": ("ls", "L-S"),
    "llumnix_sharegpt": ("sharegpt", "ShareGPT"),
    "llumnix_burstgpt": ("burstgpt", "BurstGPT"),
}


def llumnix_like(
    name: str, seed: int = 0, requests: int = DEFAULT_REQUESTS, rate_per_s: float = 1.0, gap_cv: float = 1.0
) -> Workload:
    """The trace ``name``, one of ``_TRACES``: Gamma arrivals (gap_cv 1, the default, is Poisson).

    The paper chose rate and CV per trace by their effect and prints neither: 1 request per second is ours.
    Raises TraceError on bad parameters.
    """
    lengths, title = _TRACES[name]
    count = count_of(requests)
    arrival_ns = gamma_ns(seed, f"{name}/arrivals", count, rate_per_s, gap_cv)
    parameters = {"requests": count, "rate_per_s": rate_per_s, "gap_cv": gap_cv}
    return drawn_workload(name, seed, arrival_ns, lengths, LABEL.format(title), parameters)


def _of(name: str) -> Callable[..., Workload]:
    """The function of one trace: named and described, which a partial one would not be."""

    def draw(
        seed: int = 0, requests: int = DEFAULT_REQUESTS, rate_per_s: float = 1.0, gap_cv: float = 1.0
    ) -> Workload:
        return llumnix_like(name, seed, requests, rate_per_s, gap_cv)

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = (
        f"Llumnix {_TRACES[name][1]} (OSDI 2024): lengths of its Table 1, arrivals Gamma or Poisson."
    )
    return draw


llumnix_ss = _of("llumnix_ss")
llumnix_mm = _of("llumnix_mm")
llumnix_ll = _of("llumnix_ll")
llumnix_sl = _of("llumnix_sl")
llumnix_ls = _of("llumnix_ls")
llumnix_sharegpt = _of("llumnix_sharegpt")
llumnix_burstgpt = _of("llumnix_burstgpt")
