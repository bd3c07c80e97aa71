"""Preempts a victim's KV: moves it to host memory, or drops it to be recomputed."""

from serving.engine.host_memory import HostMemory
from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress


def take_kv(ledger: KvLedger, host: HostMemory, victim: Progress, decoded: bool, late_tokens: int) -> int:
    """Free its blocks; returns the ns of the copy to host memory, 0 if the KV is dropped (``drop_kv``)."""
    took_ns = host.take(ledger, victim) if decoded and host.blocks else 0
    if not took_ns:
        drop_kv(ledger, victim, decoded, late_tokens)
    return took_ns


def drop_kv(ledger: KvLedger, victim: Progress, decoded: bool, late_tokens: int) -> None:
    """Free its blocks; with prefix caching its stored blocks can be found.

    ``late_tokens``: vLLM hashes the last position only when its step's output is known (async_scheduler.py).
    """
    stored = victim.computed
    if decoded:
        context = ledger.context_tokens(victim.id)
        stored = max(victim.known_tokens, context - 1 - late_tokens)
        victim.known_tokens = context
    victim.computed = 0
    victim.was_preempted = True
    ledger.preempt(victim.id, stored)
