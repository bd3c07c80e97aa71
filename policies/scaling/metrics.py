"""Metrics that scalers of pods compare with a target, from the signals of a model.

Each is a total over a role's instances, or (``_AVERAGED``) one value for all, such as a latency.
"""

from collections.abc import Callable, Mapping
from typing import Final

from serving.protocols.signals import InstanceSignals, Signals
from serving.vocabulary.replica import Role

NS_PER_MS: Final = 1e6

Sampled = Callable[[InstanceSignals], float]
OF_INSTANCES: Final[Mapping[str, Sampled]] = {
    "waiting": lambda instance: instance.waiting,
    "running": lambda instance: instance.running,
    "concurrency": lambda instance: instance.waiting + instance.running,
    "kv_use": lambda instance: instance.kv_use,
    "prompt_tokens": lambda instance: instance.prompt_tokens,
    "in_flight_tokens": lambda instance: instance.in_flight_tokens,
}
"""Gauges of each instance; queues in front of the instances are divided among them."""
OF_ARRIVALS: Final[Mapping[str, Callable[[Signals], float]]] = {
    "requests_per_s": lambda signals: signals.requests_per_s,
    "prompt_tokens_per_s": lambda signals: signals.prompt_tokens_per_s,
    "output_tokens_per_s": lambda signals: signals.output_tokens_per_s,
}
"""Rates of the model, which its instances share."""
OF_LATENCY: Final = {
    f"{name}_{share}_ms": (name, share)
    for name in ("ttft", "tpot")
    for share in ("mean", "p50", "p90", "p99")
}
"""Latencies of the window, which more instances shorten."""
NAMES: Final = (*OF_INSTANCES, *OF_ARRIVALS, *OF_LATENCY)
QUEUED: Final[Mapping[str, Callable[[Signals], float]]] = {
    "waiting": lambda signals: signals.queued,
    "concurrency": lambda signals: signals.queued,
    "in_flight_tokens": lambda signals: signals.queued_tokens,
}
"""What waits at no instance yet, which counts for instances that compute prompts."""


def check_metric(name: str) -> str:
    """The name. Raises ValueError if there is no such metric."""
    if name not in NAMES:
        raise ValueError(f"metric is {name}, and must be one of {', '.join(NAMES)}")
    return name


def is_latency(metric: str) -> bool:
    """Whether the metric is one value for all instances and not shared by them."""
    return metric in OF_LATENCY


def total(metric: str, signals: Signals, role: Role) -> float | None:
    """The metric summed over the role's instances; of a latency its value. None: nothing was measured."""
    if metric in OF_LATENCY:
        name, share = OF_LATENCY[metric]
        latency = signals.measured.ttft if name == "ttft" else signals.measured.tpot
        value: int = getattr(latency, f"{share}_ns")
        return value / NS_PER_MS if latency.count else None
    if metric in OF_ARRIVALS:
        return OF_ARRIVALS[metric](signals)
    own = signals.of_role(role)
    queued = QUEUED[metric](signals) if metric in QUEUED and role != "decode" else 0
    if not own and not queued:
        return None
    return sum([OF_INSTANCES[metric](instance) for instance in own]) + queued
