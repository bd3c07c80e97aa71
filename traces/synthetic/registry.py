"""Synthetic workloads by name, for runs without a trace file."""

from collections.abc import Callable
from typing import Final

from traces.synthetic.arrivals import gamma_arrivals_ns
from traces.synthetic.azure_code_like import azure_code_like
from traces.synthetic.azure_like import CONV_GAP_CV, CONV_RATE_PER_S, STAND_IN_LABEL, azure_conv_like
from traces.synthetic.burstgpt_like import burstgpt_like
from traces.synthetic.length_tables import CONV_REQUESTS
from traces.synthetic.llumnix_like import LLUMNIX
from traces.synthetic.maf_like import maf_like
from traces.synthetic.many_models import zipf_mix
from traces.synthetic.process_like import diurnal, gamma, on_off, onsets, poisson
from traces.workload import Workload

__all__ = [
    "CONV_GAP_CV",
    "CONV_RATE_PER_S",
    "CONV_REQUESTS",
    "STAND_IN_LABEL",
    "STATIONARY",
    "SYNTHETIC",
    "azure_conv_like",
    "gamma_arrivals_ns",
]

SYNTHETIC: Final[dict[str, Callable[..., Workload]]] = {
    "azure_conv_like": azure_conv_like,
    "azure_code_like": azure_code_like,
    "burstgpt_like": burstgpt_like,
    "maf_like": maf_like,
    **LLUMNIX,
    "poisson": poisson,
    "gamma": gamma,
    "on_off": on_off,
    "onsets": onsets,
    "diurnal": diurnal,
    "zipf_mix": zipf_mix,
}
"""name -> function(seed, requests, rate_per_s, more by keyword): numbers and text, all with defaults.

``inspect.signature`` has the keywords of each; azure_conv_like alone demands its seed.
"""
STATIONARY: Final = frozenset({"azure_conv_like", *LLUMNIX, "poisson", "gamma", "zipf_mix"})
"""Those whose rate is the same at all times: with another ``rate_per_s`` they have no pattern to stretch."""
