"""Sweeps of BlitzScale's set-ups: windows, loads, memory, time-outs, life of copies, thresholds.

Every point runs under the first seed, unless its sweep says all seeds. No sweep chooses a value: figures use
the set-ups as they stand, and a row that is out names the sweep that shows how far it moves.
"""

from dataclasses import replace
from typing import Final

from experiments.blitzscale.fig03 import STOPS_8B_S, STOPS_72B_S
from experiments.blitzscale.more_set_ups import (
    APART,
    ablation,
    burst_7b,
    colocated,
    live_cases,
    stop_8b,
    stop_72b,
    stopped,
    v1_set_ups,
    v1_systems,
)
from experiments.blitzscale.set_ups import (
    AZURE_CODE_8B,
    AZURE_CONV_7B,
    AZURE_CONV_24B,
    AZURE_CONV_24B_16,
    BLITZ,
    MULTICAST,
    NETWORK,
    RESERVE,
    all_systems,
    burst_72b,
    case_of,
    source_choice,
    three,
)
from experiments.common.set_up import Case, SetUp, Words, last_words
from experiments.common.sweep import SetUpSweep

WINDOW: Final = "window"
_CONV_STARTS_S: Final = range(0, 3000, 480)  # the trace has 3,501 s
_CODE_STARTS_S: Final = range(0, 3300, 300)  # the trace has 3,435 s
_SHARES: Final = (0.4, 0.45, 0.55, 0.6)
_KV_TOKENS: Final = (64_000, 440_000)  # 256,000 is the set-up's
_SCALE_DOWN_MS: Final = (1000, 3000)  # 333 is the set-up's
_LIVES_S: Final = ("10", "30", "60", "120", "300", "null")  # 30 s is the set-up's
_SHARES_7B: Final = (0.25, 0.75, 1.0)  # 0.5 is the set-up's
_AVERAGE: Final = (5, 6, 8)  # instances; the average need of seed 0 is 4
# Seconds of backlog and share of KV memory at which instances go and come; the artefact's are 0.5 to 0.7 and
# 0.75 to 0.95.
_THRESHOLDS: Final = {
    "KV 0.5 to 0.7": ("system.scaler.memory=[0.5,0.7]",),
    "KV 0.3 to 0.5": ("system.scaler.memory=[0.3,0.5]",),
    "backlog 0.2 to 0.3 s": ("system.scaler.prefill=[0.2,0.3]",),
    "both lower": ("system.scaler.memory=[0.3,0.5]", "system.scaler.prefill=[0.2,0.3]"),
}
_HEIGHTS: Final = (10, 20)  # 5 is the set-up's
_BEST_EFFORT: Final = f"{BLITZ}, best_effort"
_LEAST: Final = "at least 1 of each role"
_PREFILL: Final = "0.5 C by prefill alone"


def all_sweeps() -> tuple[SetUpSweep, ...]:
    """Every sweep, in the order of its figure."""
    return (
        *(
            windows(set_up, _CONV_STARTS_S, "distserve_half")
            for set_up in (AZURE_CONV_24B, AZURE_CONV_24B_16)
        ),
        windows(AZURE_CODE_8B, _CODE_STARTS_S),
        loads(AZURE_CONV_24B),
        scale_down(AZURE_CONV_24B),
        decode(AZURE_CODE_8B),
        *(kv_memory(burst_72b(least)) for least in (1, 2)),
        *(lives(burst_72b(least)) for least in (1, 2)),
        *heights(),
        kv_demand(),
        thresholds(),
        average_provisioning(),
        beside_kv(AZURE_CONV_7B),
        *(rate_rule(set_up) for set_up in v1_set_ups()),
    )


def windows(set_up: SetUp, starts_s: range, *static: str) -> SetUpSweep:
    """Every window of the trace, side by side from its start, each with the rate its own rule gives."""
    length_s = set_up.word("trace.window_s")
    points = []
    for start_s in starts_s:
        trace = last_words((*set_up.trace, f"trace.window_start_s={start_s}"))
        window = replace(set_up, name=f"{set_up.name} from {start_s:,} s", trace=trace)
        systems = (*_compared(set_up), *static)
        points.append((f"{start_s} s", _cases(window, systems)))
    about = f"windows of {length_s} s from 0 to {starts_s[-1]:,} s in steps of {starts_s.step} s, seed 0"
    return SetUpSweep(WINDOW, set_up.name, about, tuple(points))


def loads(set_up: SetUp) -> SetUpSweep:
    """The mean load as a share of the full split's capacity; the set-up's is one half."""
    systems = (BLITZ, "serverlessllm", "distserve_half")
    points = [
        (f"{share:g} C", _cases(replace(set_up, name=f"{set_up.name} at {share:g} C", share=share), systems))
        for share in _SHARES
    ]
    points.insert(2, ("0.5 C", tuple(replace(system, once=False) for system in _cases(set_up, systems))))
    return SetUpSweep("mean load", set_up.name, "share of the full split's capacity, seed 0", tuple(points))


def scale_down(set_up: SetUp) -> SetUpSweep:
    """How long an instance must be unneeded before it is drained, for all systems; the set-up's is 333 ms."""
    systems = (BLITZ, "serverlessllm", "allcache")
    points = [
        (f"{ms} ms", _cases(set_up, systems, (f"system.scaler.scale_down_ms={ms}",))) for ms in _SCALE_DOWN_MS
    ]
    return SetUpSweep(
        "scale-down time-out", set_up.name, "ms below the bound before an instance goes", tuple(points)
    )


def decode(set_up: SetUp) -> SetUpSweep:
    """Vary what could make the time between tokens depend on the system.

    That requires that decode instances scale, and that they scale slowly.
    """
    systems = (BLITZ, MULTICAST, "serverlessllm", "allcache")
    least = replace(set_up, name=f"{set_up.name}, {_LEAST}", prefill=(1, 14), decode=(1, 14))
    alone = replace(least, name=f"{least.name}, a host each", words=last_words((*least.words, set_up.alone)))
    mean = replace(set_up, name=f"{set_up.name}, mean load alone", peak=None)
    corner = replace(least, name=f"{mean.name}, {_LEAST}", peak=None)
    shipped = ("estimates=artefact",)
    points = (
        (_LEAST, _cases(least, systems)),
        (f"{_LEAST}, an instance to a host", _cases(alone, systems)),
        (f"{_LEAST}, the artefact's estimates", _cases(least, systems, shipped)),
        ("rate by the mean load alone", _cases(mean, systems)),
        (f"{_LEAST}, rate by the mean load alone", _cases(corner, systems)),
    )
    return SetUpSweep(
        "decode instances", set_up.name, "least instances, hosts, estimates, rate rule; seed 0", points
    )


def kv_memory(set_up: SetUp) -> SetUpSweep:
    """Tokens of KV memory per instance: sources disagree; the set-up's is 256,000."""
    systems, points = _compared(set_up), []
    for tokens in _KV_TOKENS:
        words = (f"engine.kv_tokens={tokens}",)
        points.append((f"{tokens:,} tokens", _cases(set_up, systems, words)))
    return SetUpSweep("KV memory", set_up.name, "tokens per instance, seed 0", tuple(points))


def lives(set_up: SetUp) -> SetUpSweep:
    """How long ServerlessLLM keeps a host's copy after a load, under all seeds; the set-up's is 30 s."""
    (ours,), points = _cases(set_up, (BLITZ,), once=False), []
    for life in _LIVES_S:
        label = "no end" if life == "null" else f"{life} s"
        with_life = set_up if life == "30" else replace(set_up, name=f"{set_up.name}, copies for {label}")
        other = _cases(with_life, ("serverlessllm",), (f"system.cache.ttl_s={life}",), once=False)
        points.append((label, (ours, *other)))
    about = "after a host's last load, ServerlessLLM alone; all seeds"
    return SetUpSweep("life of a copy", set_up.name, about, tuple(points))


def heights() -> tuple[SetUpSweep, ...]:
    """Drawn bursts that rise higher: how dense they must be for a stop to show. None of a recorded trace."""
    sweeps = []
    for set_up, stops_s in ((stop_72b(), STOPS_72B_S), (stop_72b(2), STOPS_72B_S), (stop_8b(), STOPS_8B_S)):
        if "trace=burstgpt_like" not in set_up.trace:
            return ()
        points = []
        for factor in _HEIGHTS:
            name, trace = f"{set_up.name}, {factor}x", (*set_up.trace, f"trace.factor={factor}")
            with_height = replace(set_up, name=name, trace=trace, peak=None)
            cases = tuple(replace(stopped(with_height, stop_s), once=True) for stop_s in stops_s)
            points.append((f"{factor} times", cases))
        about = "height of a burst over the base rate (5 is the set-up's), mean load alone, seed 0"
        sweeps.append(SetUpSweep("height of a burst", set_up.name, about, tuple(points)))
    return tuple(sweeps)


def kv_demand() -> SetUpSweep:
    """Other loads, and half of C by prefill alone: 7B has four times the KV per token of 8B."""
    set_up, points = burst_7b(), []
    loads = {f"{share:g} C": replace(set_up, share=share) for share in _SHARES_7B}
    for label, own in {**loads, _PREFILL: replace(set_up, capacity="prefill")}.items():
        named = replace(own, name=f"{set_up.name} at {label}")
        cases = [colocated(named, name) for name in (BLITZ, MULTICAST, "vllm_full", "vllm_half")]
        cases.append(case_of(named, "distserve_full"))
        points.append((label, tuple(replace(system, once=True) for system in cases)))
    about = "share of the full split's capacity, 0.5 is the set-up's, seed 0"
    return SetUpSweep("mean load", set_up.name, about, tuple(points))


def thresholds() -> SetUpSweep:
    """When the load monitor starts and stops colocated instances, beside vLLM as it is."""
    set_up, points = burst_7b(), []
    for label, words in _THRESHOLDS.items():
        ours = [colocated(set_up, name) for name in (BLITZ, MULTICAST)]
        swept = [replace(system, words=last_words((*system.words, *words)), once=True) for system in ours]
        points.append((label, (*swept, colocated(set_up, "vllm_full"), colocated(set_up, "vllm_half"))))
    about = "seconds of backlog and share of KV memory at which instances go and come, seed 0"
    return SetUpSweep("thresholds", set_up.name, about, tuple(points))


def average_provisioning() -> SetUpSweep:
    """More instances for the vLLM that has the average need, which is full on average and so never idle."""
    set_up, points = burst_7b(), []
    ours = tuple(colocated(set_up, name) for name in (BLITZ, MULTICAST))
    for count in _AVERAGE:
        words = ("system=vllm_full", *RESERVE, f"cluster=blitz_b_1x{count}")
        points.append((f"{count} instances", (*ours, Case("vllm_half", set_up, words, once=True))))
    return SetUpSweep("average provisioning", set_up.name, "instances of vllm_half, seed 0", tuple(points))


def beside_kv(set_up: SetUp) -> SetUpSweep:
    """Loads at which instances send more or less KV."""
    points = []
    loads = {f"{share:g} C": replace(set_up, share=share) for share in (0.25, 0.75)}
    for label, own in {**loads, _PREFILL: replace(set_up, capacity="prefill")}.items():
        named = replace(own, name=f"{set_up.name} at {label}")
        cases = (*source_choice(named), *source_choice(named, beside=False))
        points.append((label, tuple(replace(system, once=True) for system in cases)))
    about = "share of the full split's capacity, 0.5 is the set-up's, seed 0"
    return SetUpSweep("mean load", set_up.name, about, tuple(points))


def rate_rule(set_up: SetUp) -> SetUpSweep:
    """Version 1's workloads at the mean load of the later text, in place of its peak rule."""
    at_half = replace(set_up, name=f"{set_up.name} at 0.5 C", share=0.5)
    cases = tuple(replace(system, set_up=at_half, once=True) for system in v1_systems(set_up))
    return SetUpSweep(
        "rate rule", set_up.name, "mean load 0.5 C as well as the peak, seed 0", (("0.5 C", cases),)
    )


def _compared(set_up: SetUp) -> tuple[str, ...]:
    """The systems of most rows; those of Figure 20 and of live scaling where they are run."""
    ours = (BLITZ, MULTICAST, NETWORK, "serverlessllm", "serverlessllm 300 s", "allcache", "distserve_full")
    return (*ours, APART, _BEST_EFFORT) if set_up in three() else ours


def _cases(set_up: SetUp, systems: tuple[str, ...], extra: Words = (), once: bool = True) -> tuple[Case, ...]:
    """Return the cases of the systems with these labels; their own words override ``extra``."""
    others = (*ablation(set_up), *live_cases(set_up))
    cases, known = [], all_systems(set_up) | {other.label: other for other in others}
    for system in systems:
        known_case = known[system]
        static = system.startswith("distserve")
        words = () if static and any(word.startswith("system.") for word in extra) else extra
        cases.append(replace(known_case, words=last_words((*known_case.words, *words)), once=once))
    return tuple(cases)
