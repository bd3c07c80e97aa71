"""What becomes of a victim's KV: it goes to host memory, or is dropped and computed again."""

from serving.engine.host_memory import HostMemory
from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress


def take_kv(ledger: KvLedger, host: HostMemory, victim: Progress, decoded: bool, late_tokens: int) -> int:
    """Its blocks are free; how long the copy to host memory takes in ns, 0: it is dropped (``drop_kv``)."""
    took_ns = host.take(ledger, victim) if decoded and host.blocks else 0
    if not took_ns:
        drop_kv(ledger, victim, decoded, late_tokens)
    return took_ns


def drop_kv(ledger: KvLedger, victim: Progress, decoded: bool, late_tokens: int) -> None:
    """Its blocks are free; with prefix caching what it stored can be found.

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
