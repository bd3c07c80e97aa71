"""What a victim of preemption loses: its KV, which is computed again when its turn comes."""

from serving.engine.kv_ledger import KvLedger
from serving.engine.progress import Progress


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
