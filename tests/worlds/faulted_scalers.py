"""Small worlds whose scalers read metrics, drawn by chance."""

from random import Random
from typing import Final

SCALERS: Final = {
    "hpa": "system.scaler.sync_s=1 system.scaler.stabilisation_s={s}",
    "keda": "system.scaler.sync_s=0.5 system.scaler.polling_s=1 system.scaler.cooldown_s={s} "
    "system.scaler.stabilisation_s={s}",
    "kpa": "system.scaler.tick_s=0.5 system.scaler.panic_s=1 system.scaler.stable_s=3",
    "apa": "system.scaler.period_s=0.7",
    "token_velocity": "system.scaler.poll_s=0.5 system.scaler.stabilisation_s={s}",
    "tokenscale": "system.scaler.period_s=0.5 system.scaler.hold_s={s}",
    "heteroscale": "system.scaler.period_s=0.5 system.scaler.stabilisation_s={s} "
    "system.scaler.tokens_per_s=100",
    "wva_v1": "system.scaler.period_s=0.5",
    "wva_v2": "system.scaler.period_s=0.5",
    "dynamo_throughput": "system.scaler.period_s=1 system.scaler.forecast=smoothing",
    "dynamo_load": "system.scaler.period_s=0.5",
    "chiron": "system.scaler.local_s=0.5 system.scaler.period_s=1 system.scaler.hold_s={s} "
    "system.scaler.batch=2 system.scaler.itl_ms=13 system.instances.split=false",
}
"""Every scaler of metrics, quick enough for a world of some seconds; ``{s}``: a time that is drawn."""
_METRICS: Final = {
    "hpa": ("waiting", "concurrency", "kv_use", "prompt_tokens", "output_tokens_per_s", "ttft_p90_ms"),
    "keda": ("waiting", "concurrency", "kv_use", "requests_per_s"),
    "kpa": ("concurrency", "running", "prompt_tokens_per_s"),
    "apa": ("concurrency", "waiting", "kv_use"),
}
_TARGETS: Final = {
    "kv_use": 0.1,
    "prompt_tokens": 500,
    "output_tokens_per_s": 100,
    "prompt_tokens_per_s": 500,
}
SYSTEMS: Final = (
    "serverlessllm", "allcache", "blitz_multicast", "blitzscale", "tokenscale",
    "tokenscale system.dispatch.ttft_ms=20 system.dispatch.decoders=2",
    "serverlessllm system/dispatch=convertible system.dispatch.ttft_ms=1 system.dispatch.tpot_ms=1000 "
    "system.dispatch.chunk_tokens=8",
    "serverlessllm system.instances.split=false system.instances.queue=per_instance",
    "serverlessllm system.instances.split=false system.instances.queue=per_instance engine=vllm_v1",
    "blitz_multicast system.instances.split=false", "blitzscale system.instances.split=false",
)  # fmt: skip


def scaler_words(random: Random) -> str:
    """A system, a scaler with a metric, and when metrics are scraped."""
    scaler = random.choice(sorted(SCALERS))
    both = [system for system in SYSTEMS if "split=false" in system]
    system = random.choice(both if "split=false" in SCALERS[scaler] else SYSTEMS)
    words = f"system={system} system/scaler={scaler} {SCALERS[scaler].format(s=random.choice([1, 2, 4]))}"
    if scaler in _METRICS:
        metric = random.choice(_METRICS[scaler])
        target = "threshold" if scaler == "keda" else "target"
        words += f" system.scaler.metric={metric} system.scaler.{target}={_TARGETS.get(metric, 2)}"
    if random.random() < 0.3:
        roles = ("both",) if "split=false" in system else ("prefill", "decode")
        words += "".join([f" system.instances.{role}_min=0" for role in roles])
    scrape_s = random.choice([0.2, 0.5, 1])
    words += f" system.signals.scrape_s={scrape_s} system.signals.window_s={random.choice([1, 2, 5])}"
    return f"{words} system.signals.delay_s={random.choice([0, 0, 0.3, 1])}"
