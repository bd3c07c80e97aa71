"""Synthetic workloads by name, for runs without a trace file."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from traces.workload import Workload

# Trace -> module of this folder with a function of that name. Most commands draw no trace, or one.
_MODULES: Final = {
    "azure_conv_like": "azure_like",
    "azure_code_like": "azure_code_like",
    "burstgpt_like": "burstgpt_like",
    "maf_like": "maf_like",
    "llumnix_ss": "llumnix_like",
    "llumnix_mm": "llumnix_like",
    "llumnix_ll": "llumnix_like",
    "llumnix_sl": "llumnix_like",
    "llumnix_ls": "llumnix_like",
    "llumnix_sharegpt": "llumnix_like",
    "llumnix_burstgpt": "llumnix_like",
    "poisson": "process_like",
    "gamma": "process_like",
    "on_off": "process_like",
    "onsets": "process_like",
    "diurnal": "process_like",
    "zipf_mix": "many_models",
    "multi_turn": "multi_turn",
}


# What a list of traces says of each.
DESCRIPTIONS: Final = {
    "azure_conv_like": "lengths and gaps of the Azure 2023 conversation trace; the rate does not change",
    "azure_code_like": "lengths, rates and bursts of the Azure 2023 code trace",
    "burstgpt_like": "five minutes with five bursts, as in BurstGPT",
    "maf_like": "many functions of which few are popular, as in Azure Functions; one token in and out",
    "llumnix_ss": "Llumnix's S-S: short prompts, short outputs",
    "llumnix_mm": "Llumnix's M-M: medium prompts, medium outputs",
    "llumnix_ll": "Llumnix's L-L: long prompts, long outputs",
    "llumnix_sl": "Llumnix's S-L: short prompts, long outputs",
    "llumnix_ls": "Llumnix's L-S: long prompts, short outputs",
    "llumnix_sharegpt": "Llumnix's table of ShareGPT's lengths",
    "llumnix_burstgpt": "Llumnix's table of BurstGPT's lengths",
    "poisson": "Poisson arrivals",
    "gamma": "arrivals with Gamma gaps, burstier or steadier than Poisson",
    "on_off": "bursts and quiet spells in turn",
    "onsets": "a base rate that rises steeply at given times",
    "diurnal": "a rate that rises and falls as over days",
    "zipf_mix": "many models, of which few get most requests",
    "multi_turn": "conversations of several turns, whose prompts repeat what was said before",
}


class _Drawn(Mapping[str, "Callable[..., Workload]"]):
    """The functions by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> "Callable[..., Workload]":
        module: Any = importlib.import_module(f"traces.synthetic.{_MODULES[name]}")
        draw: Callable[..., Workload] = getattr(module, name)
        return draw

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


SYNTHETIC: Final[Mapping[str, "Callable[..., Workload]"]] = _Drawn()
"""name -> function(seed, requests, rate_per_s, more by keyword): numbers and text, all with defaults.

``inspect.signature`` has the keywords of each; azure_conv_like alone demands its seed.
"""
STATIONARY: Final = frozenset(
    {"azure_conv_like", "poisson", "gamma", "zipf_mix"}
    | {name for name, module in _MODULES.items() if module == "llumnix_like"}
)
"""Those whose rate is the same at all times: with another ``rate_per_s`` they have no pattern to stretch."""
REDRAWN: Final = STATIONARY | {"multi_turn"}
"""Those drawn anew for another rate: what copies of turns would say is no conversation."""
