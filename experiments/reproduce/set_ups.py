"""Every word of a configuration that the BlitzScale figures use: clusters, models, windows, systems.

What a figure runs is written here and nowhere else. All systems of a set-up share its words; a system adds
only what it is (its name) and how many instances it may have. Sources: BlitzScale (OSDI 2025) and its
artefact, unless something else is said.
"""

from dataclasses import dataclass
from typing import Final, Literal

from traces.errors import TraceError
from traces.find import find_trace

Words = tuple[str, ...]

# The system that stands for BlitzScale until live scaling (ZigZag) can be run.
BLITZ: Final = "blitz_multicast"
WITHOUT_LIVE: Final = "BlitzScale without live scaling"
BASES: Final = ("allcache", "distserve_full", "distserve_half", "blitz_network")

_STATIC: Final = ("distserve_full", "distserve_half")
# The artefact admits a decode batch by its true lengths; the run says so in its labels.
_RESERVE: Final = ("engine.reserve=oracle",)


@dataclass(frozen=True, slots=True)
class SetUp:
    """A workload on a cluster, the same for every system.

    words: cluster, model, engine. trace: the trace and its window. full: (prefill, decode) instances of the
    static full split, whose prefill tokens per second are the capacity C. prefill, decode: (least, most)
    instances of an elastic system, which also takes the words ``scaling``. rate: how C sets the rate:
    ``scaled`` copies arrivals, ``models`` gives many models a sum; share: mean load over C. alone: the same
    GPUs with every instance on a host of its own. stand_in: what is not the paper's.
    """

    name: str
    words: Words
    trace: Words
    full: tuple[int, int]
    prefill: tuple[int, int]
    decode: tuple[int, int]
    scaling: Words = ()
    rate: Literal["scaled", "models"] = "scaled"
    share: float = 0.5
    alone: str = ""
    stand_in: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One system in a set-up; label: as tables and plots name it. Its words go before those of the set-up."""

    label: str
    set_up: SetUp
    words: Words

    def all_words(self, *more: str) -> Words:
        """The set-up's, then these, then the case's; of a key that comes twice the last word."""
        keys = {
            word.partition("=")[0]: word
            for word in (*self.set_up.words, *self.set_up.trace, *more, *self.words)
        }
        return tuple(keys.values())


def case(set_up: SetUp, system: str, label: str | None = None, extra: Words = ()) -> Case:
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
    return Case(label or system, set_up, (f"system={system}", *words, *scaling, *_RESERVE, *extra))


# Windows in seconds from the first arrival: onsets 5 s and 210 s after the start; the busiest 8 minutes.
_AZURE_CODE: Final = ("trace=azure_code", "trace.window_start_s=1965", "trace.window_s=300")
_AZURE_CONV: Final = ("trace=azure_conv", "trace.window_start_s=1490", "trace.window_s=480")
_ENGINE: Final = "engine=blitz_native"
_8B: Final = ("model=llama3_8b", "cluster=blitz_b", _ENGINE)
_7B: Final = ("model=llama2_7b", "cluster=blitz_b", _ENGINE)
_24B: Final = ("model=mistral_24b", "model.tp=2", _ENGINE)
# KV memory decides the time between tokens of 72B, and sources say 64k, 256k and about 440k tokens: the
# artefact's 256k is written down; the run's own arithmetic would give 452,064.
_72B: Final = ("model=qwen2_5_72b", "model.tp=4", "cluster=blitz_a", _ENGINE, "engine.kv_tokens=256000")
_ROOFLINE: Final = "step times of a roofline"

AZURE_CONV_24B: Final = SetUp(
    "AzureConv/24B/32 GPUs", (*_24B, "cluster=blitz_a"), _AZURE_CONV, (10, 6), (1, 14), (1, 14),
    alone="cluster=blitz_a_16x2", stand_in=_ROOFLINE,
)  # fmt: skip
AZURE_CONV_24B_16: Final = SetUp(
    "AzureConv/24B/16 GPUs", (*_24B, "cluster=blitz_a_2x8"), _AZURE_CONV, (5, 3), (1, 7), (1, 7),
    alone="cluster=blitz_a_8x2", stand_in=_ROOFLINE,
)  # fmt: skip
AZURE_CODE_8B: Final = SetUp(
    "AzureCode/8B/16 GPUs", _8B, _AZURE_CODE, (10, 6), (2, 14), (2, 14), alone="cluster=blitz_b_16x1",
)  # fmt: skip
AZURE_CONV_7B: Final = SetUp("AzureConv/7B/16 GPUs", _7B, _AZURE_CONV, (10, 6), (2, 14), (2, 14))


def burst_72b(least: int = 1) -> SetUp:
    """BurstGPT with 72B; least: instances of a role (with 1 a longer stop can look better than a shorter)."""
    trace, stand_in = burstgpt()
    name = "BurstGPT/72B/32 GPUs" + (f", at least {least}" if least > 1 else "")
    scaling = ("system.scaler.scale_down_ms=1000",)  # the artefact's for 72B; 333 for all others
    shown = f"{stand_in}; {_ROOFLINE}"
    alone = "cluster=blitz_a_8x4"
    return SetUp(name, _72B, trace, (4, 4), (least, 7), (least, 7), scaling, alone=alone, stand_in=shown)


def burstgpt() -> tuple[Words, str]:
    """The recorded BurstGPT, five minutes from its steepest rise, if it is here; else the drawn one."""
    try:
        find_trace("burstgpt_1")
    except TraceError:
        return ("trace=burstgpt_like",), "drawn BurstGPT-like bursts, 5x in 2 s"
    onset = ("trace=burstgpt_1", "trace.window=onset", "trace.window_s=300")
    return onset, "our window of BurstGPT, its steepest rise"


def workloads() -> tuple[SetUp, ...]:
    """Those of Figure 17, 24B in both sizes and 72B with both minimums."""
    return (AZURE_CONV_24B, AZURE_CONV_24B_16, AZURE_CODE_8B, burst_72b(), burst_72b(2))


# ServerlessLLM keeps a host's copy for 30 s since the last load, as BlitzScale's authors ship it, or 300 s
# since the last use, as the text says. A load that finds the copy in memory is a load and a use.
_SHIPPED: Final = ("system.cache.ttl_s=30", "system.cache.since=load")
_TEXT: Final = ("system.cache.ttl_s=300", "system.cache.since=load")
_FETCHED: Final = ("system.cache.ttl_s=30", "system.cache.since=fetch")


def all_systems(set_up: SetUp) -> dict[str, Case]:
    """Label -> case of every system of Figures 17 and 18, ServerlessLLM in all readings."""
    cases = (case(set_up, BLITZ), *serverless(set_up), *(case(set_up, name) for name in BASES))
    return {one.label: one for one in cases}


def serverless(set_up: SetUp) -> tuple[Case, ...]:
    """ServerlessLLM: as shipped; with 300 s; 30 s since a copy came from the SSD; an instance to a host.

    The last is version 1's logical hosts: what one instance loads, no other finds in memory.
    """
    name = "serverlessllm"
    return (
        case(set_up, name, name, _SHIPPED),
        case(set_up, name, f"{name} 300 s", _TEXT),
        case(set_up, name, f"{name} 30 s since the SSD", _FETCHED),
        case(set_up, name, f"{name} logical hosts", (*_SHIPPED, set_up.alone)),
    )


def source_choice(set_up: SetUp, beside: bool = True) -> tuple[Case, Case]:
    """(naive, pruned): the same planner with and without sources whose way out carries KV.

    beside: a seat beside a holder loads over the links inside its host, past the planner.
    """
    over = () if beside else ("system.provision.scale_up_first=false",)
    how = "" if beside else ", network only"
    naive = ("system/provision=naive", *over)
    return case(set_up, BLITZ, f"naive{how}", naive), case(set_up, BLITZ, f"pruned{how}", over)


# Figure 4: 16 models by Zipf 0.9 on 32 hosts of one GPU. Instances do prefill and decode, for with one of
# each role for every model no GPU would be left to scale to; the first request of an idle model starts one.
def many_models_at(share: float) -> SetUp:
    """share: mean load over C, which is that of 20 instances."""
    return SetUp(
        f"16 models/32 hosts at {share:g} C",
        ("model=llama3_8b", "cluster=blitz_a_32x1", _ENGINE),
        ("trace=burstgpt_like",),
        (20, 12),
        (1, 16),
        (1, 16),
        rate="models",
        share=share,
        stand_in="drawn bursts, one process per model; Llama3-8B for all",
    )


_MANY: Final = ("models=zipf", "models.count=16", "models.zipf=0.9", "models.duration_s=600")
_COLOCATED: Final = ("system.instances.split=false", "system.instances.both_min=0")


def many_models(share: float, cached: int = 2, briefly: bool = False) -> Case:
    """ServerlessLLM with 16 models. cached: so many fit a host. briefly: copies live 30 s, not 300."""
    keys = (*(_SHIPPED if briefly else _TEXT), f"system.cache.most_models={cached}")
    label = f"{cached} cached, {'30' if briefly else '300'} s, {share:g} C"
    return Case(label, many_models_at(share), ("system=serverlessllm", *_COLOCATED, *_MANY, *keys))
