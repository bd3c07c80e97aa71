"""Every word of a configuration that the BlitzScale figures use: clusters, models, windows, systems.

What a figure runs is written here and nowhere else. All systems of a set-up share its words; a system adds
only what it is (its name) and how many instances it may have. Sources: BlitzScale (OSDI 2025) and its
artefact, unless something else is said.
"""

from typing import Final

from experiments.common.set_up import Case, SetUp, Words
from traces.errors import TraceError
from traces.find import find_trace
from traces.synthetic.arrivals import ONSET_TIMES_S

BLITZ: Final = "blitzscale"
MULTICAST: Final = "blitz_multicast"  # BlitzScale stopped while it loads: the ablation before ZigZag
NETWORK: Final = "blitz_network"  # one to one over the network: the ablation before multicast
BASES: Final = (MULTICAST, NETWORK, "allcache", "distserve_full", "distserve_half")

_STATIC: Final = ("distserve_full", "distserve_half")
# The artefact admits a decode batch by its true lengths, and a label of the run states it. The limit of 2,048
# tokens per output is ours.
RESERVE: Final = ("engine.reserve=oracle", "engine.max_new_tokens=2048")


def case_of(set_up: SetUp, system: str, label: str | None = None, extra: Words = ()) -> Case:
    """A system with the instances the set-up gives it; ``distserve_half`` has half of each role."""
    prefill, decode = set_up.full
    if system == "distserve_half":
        prefill, decode = prefill // 2, (prefill + decode) // 2 - prefill // 2
    if system in _STATIC:
        sizes: Words = ("size=full", f"prefill={prefill}", f"decode={decode}")
    else:
        sizes = (
            f"prefill_min={set_up.prefill[0]}",
            f"prefill_max={set_up.prefill[1]}",
            f"decode_min={set_up.decode[0]}",
            f"decode_max={set_up.decode[1]}",
        )
    words = [f"system.instances.{size}" for size in sizes]
    scaling = () if system in _STATIC else set_up.scaling
    return Case(label or system, set_up, (f"system={system}", *words, *scaling, *RESERVE, *extra))


# Windows in seconds from the first arrival: onsets 5 s and 210 s after the start; the busiest 8 minutes.
CODE: Final = ("trace=azure_code", "trace.window_start_s=1965", "trace.window_s=300")
CONV: Final = ("trace=azure_conv", "trace.window_start_s=1490", "trace.window_s=480")
ENGINE: Final = "engine=blitz_native"
LLAMA_8B: Final = ("model=llama3_8b", "cluster=blitz_b", ENGINE)
# The papers mention no refused request, but some are longer than these models' context of 4,096 tokens.
LONG: Final = "engine.max_model_len=16384"
LLAMA_7B: Final = ("model=llama2_7b", "cluster=blitz_b", ENGINE, LONG)
MISTRAL_24B: Final = ("model=mistral_24b", "model.tp=2", ENGINE)
# KV memory decides the time between tokens of 72B, and sources say 64k, 256k and about 440k tokens: the
# artefact's 256k is written down; the run's own arithmetic would give 452,064.
QWEN_72B: Final = ("model=qwen2_5_72b", "model.tp=4", "cluster=blitz_a", ENGINE, "engine.kv_tokens=256000")
ROOFLINE: Final = "step times of a roofline"

AZURE_CONV_24B: Final = SetUp(
    "AzureConv/24B/32 GPUs",
    (*MISTRAL_24B, "cluster=blitz_a"),
    CONV,
    full=(10, 6),
    prefill=(1, 14),
    decode=(1, 14),
    alone="cluster=blitz_a_16x2",
    stand_in=ROOFLINE,
)
AZURE_CONV_24B_16: Final = SetUp(
    "AzureConv/24B/16 GPUs",
    (*MISTRAL_24B, "cluster=blitz_a_2x8"),
    CONV,
    full=(5, 3),
    prefill=(1, 7),
    decode=(1, 7),
    alone="cluster=blitz_a_8x2",
    stand_in=ROOFLINE,
)
AZURE_CODE_8B: Final = SetUp(
    "AzureCode/8B/16 GPUs",
    LLAMA_8B,
    CODE,
    full=(10, 6),
    prefill=(2, 14),
    decode=(2, 14),
    alone="cluster=blitz_b_16x1",
    bursts_s=(5.0, 210.0),
)
AZURE_CONV_7B: Final = SetUp(
    "AzureConv/7B/16 GPUs",
    LLAMA_7B,
    CONV,
    full=(10, 6),
    prefill=(2, 14),
    decode=(2, 14),
    alone="cluster=blitz_b_16x1",
)


def burst_72b(least: int = 1) -> SetUp:
    """BurstGPT with 72B; least: instances of a role (with 1 a longer stop can look better than a shorter)."""
    trace, bursts_s, stand_in = burstgpt()
    name = "BurstGPT/72B/32 GPUs" + (f", at least {least}" if least > 1 else "")
    scaling = ("system.scaler.scale_down_ms=1000",)  # the artefact's for 72B; 333 for all others
    shown = f"{stand_in}; {ROOFLINE}"
    alone = "cluster=blitz_a_8x4"
    return SetUp(
        name,
        QWEN_72B,
        trace,
        full=(4, 4),
        prefill=(least, 7),
        decode=(least, 7),
        scaling=scaling,
        alone=alone,
        bursts_s=bursts_s,
        stand_in=shown,
    )


def burstgpt() -> tuple[Words, tuple[float, ...], str]:
    """Return (trace, its bursts, stand-in): the recorded trace from its steepest rise if it is available.

    Otherwise the trace is drawn.
    """
    try:
        find_trace("burstgpt_1")
    except TraceError:
        onsets_s = tuple(float(at_s) for at_s in ONSET_TIMES_S.split("+"))
        return ("trace=burstgpt_like",), onsets_s, "drawn BurstGPT-like bursts, 5x in 2 s"
    onset = ("trace=burstgpt_1", "trace.window=onset", "trace.window_s=300")
    return onset, (), "our window of BurstGPT, its steepest rise"


def workloads() -> tuple[SetUp, ...]:
    """The set-ups of Figure 17, 24B in both sizes and 72B with both minimums."""
    return (AZURE_CONV_24B, AZURE_CONV_24B_16, AZURE_CODE_8B, burst_72b(), burst_72b(2))


def three() -> tuple[SetUp, ...]:
    """One set-up of each workload of Figure 17, as the paper names them."""
    return (burst_72b(), AZURE_CODE_8B, AZURE_CONV_24B)


# ServerlessLLM keeps a host's copy for 30 s since the last load, as BlitzScale's authors ship it, or 300 s
# since the last use, as the text says. A load that finds the copy in memory is a load and a use.
SHIPPED: Final = ("system.cache.ttl_s=30", "system.cache.since=load")
TEXT: Final = ("system.cache.ttl_s=300", "system.cache.since=load")
_FETCHED: Final = ("system.cache.ttl_s=30", "system.cache.since=fetch")


def all_systems(set_up: SetUp) -> dict[str, Case]:
    """Label -> case of every system of Figures 17 and 18, ServerlessLLM in all readings."""
    cases = (case_of(set_up, BLITZ), *serverless(set_up), *(case_of(set_up, name) for name in BASES))
    return {system_case.label: system_case for system_case in cases}


def serverless(set_up: SetUp) -> tuple[Case, ...]:
    """ServerlessLLM with its cache as shipped; with 300 s; 30 s since a copy came from the SSD; two more.

    The fourth is version 1's logical hosts: what one instance loads, no other finds in memory. These have the
    scaler of every other system, which is our reading of the paper; the last has the one its authors ship, by
    which no draining instance is taken back.
    """
    name = "serverlessllm"
    return (
        case_of(set_up, name, name, SHIPPED),
        case_of(set_up, name, f"{name} 300 s", TEXT),
        case_of(set_up, name, f"{name} 30 s since the SSD", _FETCHED),
        case_of(set_up, name, f"{name} logical hosts", (*SHIPPED, set_up.alone)),
        case_of(set_up, name, f"{name} scaler as shipped", (*SHIPPED, "system/scaler=load_monitor_plain")),
    )


def source_choice(set_up: SetUp, beside: bool = True) -> tuple[Case, Case]:
    """(naive, pruned): the same planner with and without sources whose outgoing link carries KV.

    beside: a seat beside a holder loads over the links inside its host, past the planner; else every GPU is
    on a host of its own, and all loads and all KV cross NICs.
    """
    over = () if beside else (set_up.alone,)
    suffix = "" if beside else ", RDMA alone"
    naive = ("system/provision=naive", *over)
    return case_of(set_up, MULTICAST, f"naive{suffix}", naive), case_of(
        set_up, MULTICAST, f"pruned{suffix}", over
    )


# Figure 4: 16 models by Zipf 0.9 on 32 hosts of one GPU. Instances do prefill and decode, for with one of
# each role for every model no GPU would be left to scale to; the first request of an idle model starts one.
def many_models_at(share: float) -> SetUp:
    """share: mean load over C, which is that of 20 instances."""
    return SetUp(
        f"16 models/32 hosts at {share:g} C",
        ("model=llama3_8b", "cluster=blitz_a_32x1", ENGINE),
        ("trace=burstgpt_like",),
        full=(20, 12),
        prefill=(1, 16),
        decode=(1, 16),
        rate="models",
        share=share,
        stand_in="drawn bursts, one process per model; Llama3-8B for all",
    )


_MANY: Final = ("models=zipf", "models.count=16", "models.zipf=0.9", "models.duration_s=600")
_COLOCATED: Final = ("system.instances.split=false", "system.instances.both_min=0")


def many_models(share: float, cached: int = 2, briefly: bool = False) -> Case:
    """ServerlessLLM with 16 models. cached: how many fit in a host. briefly: copies live 30 s, not 300."""
    keys = (*(SHIPPED if briefly else TEXT), f"system.cache.max_models={cached}")
    label = f"{cached} cached, {'30' if briefly else '300'} s, {share:g} C"
    return Case(label, many_models_at(share), ("system=serverlessllm", *_COLOCATED, *_MANY, *keys))
