"""Scales the scaling case of ``realexec fidelity`` to the machine: when it loads, and how long a load takes.

BlitzScale's own bounds are for GPUs whose prompts take tenths of a second. On another machine a short run
never reaches them, or ends before the load monitor runs, and a small model loads within a step. So the bounds
are derived from the profile: an instance is loaded when as many prompts wait as one instance runs at a time,
and the load takes as long as these prompts. That is about BlitzScale's own proportion: it checks every 0.1 s,
loads from 0.7 s of waiting prompts on, and Llama-3-8B takes 0.63 s over 200 Gb/s.
"""

from typing import Final

from hwmodels.catalogue import load_llm
from servetwin.config.config import RunConfig
from servetwin.run.simulate import prepare

BOUNDS: Final = "system.scaler.prefill"
PERIOD: Final = "system.instances.monitor_period_ms"
LINK: Final = "cluster.nic_gbps"
# The load monitor's lower bound (0.5 s) and its period (0.1 s), relative to its upper bound (0.7 s).
_LOWER: Final = 5 / 7
_LOOKS: Final = 1 / 7
_BITS_PER_GBIT: Final = 1e9


def scaling_keys(config: RunConfig) -> dict[str, str]:
    """Return the keys to add to the case's arguments, which contain a profile and measured links.

    A model that loads more slowly over the measured link loads at the link's rate.
    """
    prepared = prepare(config)
    prompts_tokens = config.engine.max_num_seqs * float(prepared.workload.prompt_tokens.mean())
    upper_s = prompts_tokens / prepared.estimates.models[0].prefill_tokens_per_s
    link_gbps = load_llm(config.model.name).weight_bytes * 8 / upper_s / _BITS_PER_GBIT
    measured_gbps = config.cluster.nic_gbps
    if measured_gbps is not None:
        link_gbps = min(link_gbps, measured_gbps)
    return {
        BOUNDS: f"[{_LOWER * upper_s:.4g},{upper_s:.4g}]",
        PERIOD: f"{_LOOKS * upper_s * 1000:.4g}",
        LINK: f"{link_gbps:.4g}",
    }
