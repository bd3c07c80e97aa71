"""How free an instance is, by its load report, in the rules of the paper and of the published artefact.

Each rule is a function from a report to a number, the larger the freer; without requests an instance is freer
than any with some. ``shipped`` is the artefact of Llumnix (AlibabaPAI/llumnix, branch osdi24ae), which stores
the negated number and counts blocks per request; ``paper`` is Algorithm 1, in iterations that the batch can
still run.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from serving.protocols.load_report import LoadReport

Rule = Callable[[LoadReport], float]


def _available_blocks(one: LoadReport) -> int:
    return one.free_blocks - one.watermark_blocks


def shipped_dispatch(one: LoadReport) -> float:
    """Free blocks less the demand of all that wait, per request running or waiting."""
    requests = one.running + one.waiting
    if not requests:
        return inf
    return (_available_blocks(one) - one.waiting_tokens / one.block_tokens) / requests


def shipped_migration(one: LoadReport) -> float:
    """Free blocks less the demand of the queue's head, per running request, the head counted as one."""
    requests = one.running + (1 if one.waiting else 0)
    if not requests:
        return inf
    return (_available_blocks(one) - one.first_waiting_tokens / one.block_tokens) / requests


def shipped_migration_without_queue(one: LoadReport) -> float:
    """Free blocks per running request: what waits does not count, so nothing is moved to make room for it."""
    return _available_blocks(one) / one.running if one.running else inf


def paper(one: LoadReport) -> float:
    """(M - sum of virtual usage) / B: a queue's head counts with its demand, the others that wait with 0."""
    if not one.running and not one.waiting:
        return inf
    free_tokens = one.free_blocks * one.block_tokens - one.first_waiting_tokens
    return free_tokens / max(1, one.running)


def paper_without_queue(one: LoadReport) -> float:
    """As ``paper``, without the demand of the queue's head."""
    return one.free_blocks * one.block_tokens / one.running if one.running else inf


RULES: Final = ("paper", "shipped")


def check_rule(rule: str) -> None:
    """Refuse a word that is no rule."""
    if rule not in RULES:
        raise ValueError(f"rule must be paper or shipped, not {rule}")


def dispatch_rule(rule: str) -> Rule:
    """By which a request that arrives is given to an instance."""
    check_rule(rule)
    return shipped_dispatch if rule == "shipped" else paper


def migration_rule(rule: str, defragment: bool) -> Rule:
    """By which instances are paired. ``defragment``: running requests make room for a queue's head."""
    check_rule(rule)
    if rule == "shipped":
        return shipped_migration if defragment else shipped_migration_without_queue
    return paper if defragment else paper_without_queue
