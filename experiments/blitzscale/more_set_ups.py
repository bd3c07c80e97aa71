"""Words of the figures beside 17 and 18: ablations, live schedulers, stop times, colocation, version 1.

As in set_ups, what a figure runs stands here, and all systems of a set-up share its words.
"""

from dataclasses import replace
from typing import Final

from experiments.blitzscale.set_ups import (
    AZURE_CODE_8B,
    AZURE_CONV_24B,
    BLITZ,
    CODE,
    CONV,
    ENGINE,
    LLAMA_7B,
    LLAMA_8B,
    LONG,
    MULTICAST,
    NETWORK,
    RESERVE,
    ROOFLINE,
    TEXT,
    burst_72b,
    burstgpt,
    case_of,
    serverless,
)
from experiments.common.set_up import Case, SetUp
from hwmodels.catalogue import load_llm
from hwmodels.topology.cluster_file import load_cluster

# Figure 20. Parameters from nowhere but the SSD: a copy in host memory is never looked for.
ALL_SSD: Final = "all-SSD"
_FROM_SSD: Final = ("system.provision.tiers=[ssd]",)
_APART: Final = ("system.provision.scale_up_first=false",)
APART: Final = f"{NETWORK} apart"  # seats beside a holder do not come first


def all_ssd(set_up: SetUp) -> Case:
    """ServerlessLLM without its cache: every load from the host's SSD."""
    return case_of(set_up, "serverlessllm", ALL_SSD, _FROM_SSD)


def ablation(set_up: SetUp) -> tuple[Case, ...]:
    """S-LLM, all-SSD, then +Network without and with links inside a host, +Multicast, +ZigZag."""
    return (
        serverless(set_up)[0],
        all_ssd(set_up),
        case_of(set_up, NETWORK, APART, _APART),
        case_of(set_up, NETWORK),
        case_of(set_up, MULTICAST),
        case_of(set_up, BLITZ),
    )


# What live scaling adds: the same system with other schedulers, or stopped while it loads.
SCHEDULERS: Final = ("stop", "best_effort", "ilp")


def live_cases(set_up: SetUp) -> tuple[Case, ...]:
    """BlitzScale with every scheduler (its own is ilp_free), and the systems it is compared with."""
    schedulers = tuple(
        case_of(set_up, BLITZ, f"{BLITZ}, {name}", (f"system/live={name}",)) for name in SCHEDULERS
    )
    return (case_of(set_up, BLITZ), *schedulers, case_of(set_up, MULTICAST), case_of(set_up, "allcache"))


# Figure 21's other half: six prefill instances start over the network, beside decode instances alone.
SIX_24B: Final = SetUp(
    "six 24B prefill instances",
    ("model=mistral_24b", "model.tp=2", "cluster=blitz_a", ENGINE),
    ("trace=gamma", "trace.requests=300", "trace.rate_per_s=3000"),
    full=(10, 6),
    prefill=(0, 6),
    decode=(2, 2),
    stand_in="300 drawn requests at once",
)


def six_24b() -> tuple[Case, Case]:
    """Return (live, stopped). Their rate is not scaled by the rule of the other set-ups."""
    words = ("trace.rate_scale=1", "system.provision.scale_up_first=false")
    live = case_of(SIX_24B, BLITZ, f"{BLITZ}, six at once", words)
    return live, case_of(SIX_24B, BLITZ, f"{BLITZ}, six at once, stop", (*words, "system/live=stop"))


# Figure 3: stops of a given length. Every load comes from an SSD whose rate makes it last that long, and PCIe
# is at least four times as fast, so that KV crosses it no slower than before.
def stop_72b(least: int = 1) -> SetUp:
    """72B on cluster A: a GPU's quarter of the model."""
    return burst_72b(least)


def stop_8b() -> SetUp:
    """8B on cluster B under the same bursts."""
    trace, bursts_s, stand_in = burstgpt()
    return SetUp(
        "BurstGPT/8B/16 GPUs",
        LLAMA_8B,
        trace,
        full=(10, 6),
        prefill=(2, 14),
        decode=(2, 14),
        bursts_s=bursts_s,
        stand_in=stand_in,
    )


def stopped(set_up: SetUp, stop_s: float) -> Case:
    """Every load stops its instance for ``stop_s``."""
    cluster = set_up.word("cluster")
    gbps = required_gbps(set_up.word("model"), int(set_up.word("model.tp", "1")), stop_s)
    pcie_gbps = max(128.0, 4 * gbps)
    peer = load_cluster(cluster).pcie_peer
    beside = (
        ""
        if peer is None
        else f"pcie_peer: {{gbps: {max(256.0, pcie_gbps):.6g}, source: 'no less than PCIe'}}\n"
    )
    links = (
        f"base: {cluster}\n"
        f"ssd: {{gbps: {gbps:.6g}, per: gpu, source: 'a load lasts {stop_s:g} s'}}\n"
        f"pcie: {{gbps: {pcie_gbps:.6g}, source: 'four times the SSD at least'}}\n"
        f"{beside}"
    )
    return replace(case_of(set_up, "serverlessllm", f"{stop_s:g} s stop", _FROM_SSD), links=links)


def required_gbps(model: str, tp: int, stop_s: float) -> float:
    """Return the rate at which each of ``tp`` GPUs must receive, for a load of ``stop_s`` seconds."""
    return load_llm(model).weight_bytes * 8 / tp / stop_s / 1e9


def full_load(set_up: SetUp) -> Case:
    """Figure 3 e/f: all GPUs are provisioned, and the request rate is their capacity C."""
    at_capacity = replace(set_up, name=f"{set_up.name} at 1 C", share=1.0)
    return case_of(at_capacity, "distserve_full")


def full_loads() -> tuple[Case, ...]:
    """The three workloads."""
    return tuple(full_load(set_up) for set_up in (burst_72b(), AZURE_CODE_8B, AZURE_CONV_24B))


# Figures 1 and 24: Llama2-7B under BurstGPT.
def burst_7b() -> SetUp:
    """On cluster B, as all models of one GPU; the paper does not say where it ran."""
    trace, bursts_s, stand_in = burstgpt()
    return SetUp(
        "BurstGPT/7B/16 GPUs",
        LLAMA_7B,
        trace,
        full=(10, 6),
        prefill=(2, 14),
        decode=(2, 14),
        bursts_s=bursts_s,
        stand_in=stand_in,
    )


def colocated(set_up: SetUp, system: str) -> Case:
    """Prefill and decode on the same instances, at least two; an elastic one may be refused."""
    gpus = sum(set_up.full)
    if system.startswith("vllm"):
        return Case(system, set_up, (f"system={system}", *RESERVE))
    words = (
        "system.instances.split=false",
        "system.instances.both_min=2",
        f"system.instances.both_max={gpus}",
    )
    return Case(f"{system} colocated", set_up, (f"system={system}", *words, *RESERVE), optional=True)


# Version 1 (2024): its rate rule is that all instances together can carry the peak, and copies live 300 s.


def v1_set_ups() -> tuple[SetUp, ...]:
    """BurstGPT/70B/A, AzureCode/8B/B, AzureConv/7B/A, in the order of its numbers."""
    trace, bursts_s, stand_in = burstgpt()
    words_70b = ("model=llama2_70b", "model.tp=4", "cluster=blitz_a", ENGINE, LONG)
    return (
        SetUp(
            "v1: BurstGPT/70B/32 GPUs",
            words_70b,
            trace,
            full=(4, 4),
            prefill=(1, 7),
            decode=(1, 7),
            scaling=("system.scaler.scale_down_ms=1000",),
            share=None,
            alone="cluster=blitz_a_8x4",
            bursts_s=bursts_s,
            stand_in=f"{stand_in}; {ROOFLINE}",
        ),
        SetUp(
            "v1: AzureCode/8B/16 GPUs",
            LLAMA_8B,
            CODE,
            full=(10, 6),
            prefill=(2, 14),
            decode=(2, 14),
            share=None,
            alone="cluster=blitz_b_16x1",
        ),
        SetUp(
            "v1: AzureConv/7B/32 GPUs",
            ("model=llama2_7b", "cluster=blitz_a", ENGINE, LONG),
            CONV,
            full=(20, 12),
            prefill=(2, 28),
            decode=(2, 28),
            share=None,
            alone="cluster=blitz_a_32x1",
        ),
    )


def v1_systems(set_up: SetUp) -> tuple[Case, ...]:
    """BlitzScale; ServerlessLLM with 300 s on the cluster's hosts, and on logical ones; DistServe for 8B."""
    name = "serverlessllm 300 s"
    cases = [
        case_of(set_up, BLITZ),
        case_of(set_up, "serverlessllm", name, TEXT),
        case_of(set_up, "serverlessllm", f"{name}, logical hosts", (*TEXT, set_up.alone)),
    ]
    if "AzureCode" in set_up.name:
        cases += [case_of(set_up, system) for system in ("distserve_half", "distserve_full")]
    return tuple(cases)
