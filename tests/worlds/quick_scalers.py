"""Every scaler of metrics with periods and targets for runs of seconds: real servers are no faster than time.

With these, the load of the runs that use them makes each one start an instance.
"""

from typing import Final

OFTEN: Final = ("system.signals.scrape_s=0.1", "system.signals.window_s=0.6")
_HELD: Final = ("stabilisation_s=0.3",)
# Each by its own keys, of ``system.scaler``.
_KEYS: Final = {
    "hpa": ("metric=concurrency", "target=1", "sync_s=0.2", *_HELD),
    "keda": ("threshold=1", "polling_s=0.2", "sync_s=0.2", "cooldown_s=0.3", *_HELD),
    "kpa": ("target=1", "tick_s=0.2", "stable_s=0.6", "panic_s=0.2"),
    "apa": ("target=1", "period_s=0.2"),
    "token_velocity": ("prefill_tokens_per_s=100", "threshold_s=0.5", "poll_s=0.1", "kv_use=0.05", *_HELD),
    "tokenscale": ("tpot_ms=5000", "period_s=0.2", "hold_s=0.3", "window_s=0.6"),
    "heteroscale": ("tokens_per_s=20", "period_s=0.2", *_HELD),
    "wva_v1": ("kv_threshold=0.11", "kv_spare=0.1", "queue_spare=4.5", "period_s=0.2"),
    "wva_v2": ("kv_share=0.03", "period_s=0.2"),
    "dynamo_throughput": ("tpot_ms=1", "period_s=0.3"),
    "dynamo_load": ("ttft_ms=1", "tpot_ms=1", "period_s=0.1", "window_s=0.6"),
}
# Lengths are known of finished requests only: on a slow machine these come seconds after the arrivals.
_LONG: Final = ("system.signals.scrape_s=0.1", "system.signals.window_s=6")
NAMES: Final = tuple(_KEYS)


def scaler_words(name: str) -> list[str]:
    """The words of a run with this scaler."""
    own = [f"system.scaler.{key}" for key in _KEYS[name]]
    if name in ("kpa", "tokenscale", "dynamo_load"):  # these scrape as often as they decide
        return [f"system/scaler={name}", *own]
    return [f"system/scaler={name}", *own, *(_LONG if name == "dynamo_throughput" else OFTEN)]
