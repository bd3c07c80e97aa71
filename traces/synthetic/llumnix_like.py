"""The seven workloads of the Llumnix paper (OSDI 2024, section 6.1): lengths drawn as it publishes them."""

from collections.abc import Callable
from typing import Final

from traces.errors import TraceError
from traces.synthetic.arrivals import gamma_ns, profile_arrivals_ns
from traces.synthetic.drawn import DEFAULT_REQUESTS, count_of, drawn_workload, recipe
from traces.synthetic.length_tables import length_pair
from traces.synthetic.lengths import ZipfLengths
from traces.synthetic.llumnix_sample import artefact_priorities, artefact_sample, share_of_high_priority
from traces.synthetic.rate_profile import constant
from traces.workload import Workload

LABEL: Final = "synthetic stand-in for Llumnix {}: lengths as published, input and output independent"
_TRACES: Final = {
    "llumnix_ss": ("ss", "S-S"),
    "llumnix_mm": ("mm", "M-M"),
    "llumnix_ll": ("ll", "L-L"),
    "llumnix_sl": ("sl", "S-L"),
    "llumnix_ls": ("ls", "L-S"),
    "llumnix_sharegpt": ("sharegpt", "ShareGPT"),
    "llumnix_burstgpt": ("burstgpt", "BurstGPT"),
}
FIGURE_11_RATES_PER_S: Final = {
    "llumnix_sharegpt": (7.0, 7.25, 7.5, 7.75, 8.0),
    "llumnix_burstgpt": (7.5, 7.75, 8.0, 8.25, 8.5),
    "llumnix_ss": (32.0, 33.0, 34.0, 35.0, 36.0),
    "llumnix_mm": (7.4, 7.5, 7.6, 7.7, 7.8),
    "llumnix_ll": (2.6, 2.7, 2.8, 2.9, 3.0),
    "llumnix_sl": (4.1, 4.15, 4.2, 4.25, 4.3),
    "llumnix_ls": (10.0, 12.0, 14.0, 16.0, 18.0),
}
"""Requests per second of Figure 11 on 16 instances (artefact; S-L, L-S: between the ends ours)."""


def llumnix_like(
    name: str,
    seed: int = 0,
    requests: int = DEFAULT_REQUESTS,
    rate_per_s: float = 1.0,
    gap_cv: float = 1.0,
    priority_ratio: float = 0.0,
) -> Workload:
    """The trace ``name``, one of ``_TRACES``: Gamma arrivals (gap_cv 1, the default, is Poisson).

    S, M and L are samples as the paper's artefact draws them, with ``seed`` 0 its very own; the lengths of
    the other two are drawn from its Table 1. 1 request per second is ours; the rates of Figure 11 are
    ``FIGURE_11_RATES_PER_S``. priority_ratio: of the samples, drawn as the artefact draws it, has priority 1.
    Raises TraceError on bad parameters.
    """
    lengths, title = _TRACES[name]
    count, priority_ratio = count_of(requests), share_of_high_priority(priority_ratio)
    label = LABEL.format(title)
    parameters = {"requests": count, "rate_per_s": rate_per_s, "gap_cv": gap_cv}
    prompt, output = length_pair(lengths)
    if not (isinstance(prompt, ZipfLengths) and isinstance(output, ZipfLengths)):
        if priority_ratio:
            raise TraceError(
                f"trace.priority_ratio does not apply to trace={name}: write trace.high_priority_share="
                f"{priority_ratio:g} instead"
            )
        arrival_ns = gamma_ns(seed, f"{name}/arrivals", count, rate_per_s, gap_cv)
        return drawn_workload(name, seed, arrival_ns, lengths, label, parameters)
    operational, prompt_tokens, output_tokens = artefact_sample(seed, count, gap_cv, prompt, output)
    labels, priority = [label], None
    if priority_ratio:
        parameters["priority_ratio"] = priority_ratio
        priority = artefact_priorities(seed, count, priority_ratio, prompt, output)
        labels.append(f"{priority.sum()} of {count} requests drawn to have a high priority (seed {seed})")
    return Workload(
        arrival_ns=profile_arrivals_ns(operational, constant(rate_per_s)),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        name=name,
        source=recipe(name, seed, parameters),
        priority=priority,
        labels=tuple(labels),
        rows_read=count,
    )


def _of(name: str) -> Callable[..., Workload]:
    """The function of one trace: named and described, which a partial one would not be."""

    def draw(
        seed: int = 0,
        requests: int = DEFAULT_REQUESTS,
        rate_per_s: float = 1.0,
        gap_cv: float = 1.0,
        priority_ratio: float = 0.0,
    ) -> Workload:
        return llumnix_like(name, seed, requests, rate_per_s, gap_cv, priority_ratio)

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = f"Llumnix {_TRACES[name][1]} (OSDI 2024): lengths as published, arrivals Gamma or Poisson."
    return draw


llumnix_ss = _of("llumnix_ss")
llumnix_mm = _of("llumnix_mm")
llumnix_ll = _of("llumnix_ll")
llumnix_sl = _of("llumnix_sl")
llumnix_ls = _of("llumnix_ls")
llumnix_sharegpt = _of("llumnix_sharegpt")
llumnix_burstgpt = _of("llumnix_burstgpt")
