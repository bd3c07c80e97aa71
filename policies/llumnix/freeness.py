"""How free an instance is by its load report, by the rules of the paper and of the published artefact.

Each rule is a function from a report to a number, larger is freer; an instance without requests is freer than
any with requests. ``shipped`` is the artefact of Llumnix (AlibabaPAI/llumnix, branch osdi24ae), which stores
the negated number and counts blocks per request. ``paper`` is Algorithm 1, in iterations that the batch can
still run.

An instance with high-priority requests (above 0) should hold few tokens, so that they decode fast. Memory
above that target is their headroom and counts as used (Algorithm 1 adds headroom / number of them to the
virtual usage of each). ``headroom`` wraps a rule accordingly.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from serving.protocols.load_report import LoadReport, with_free_blocks

Rule = Callable[[LoadReport], float]


def _available_blocks(report: LoadReport) -> int:
    return report.free_blocks - report.watermark_blocks


def shipped_dispatch(report: LoadReport) -> float:
    """Free blocks less the demand of all waiting requests, per request running or waiting."""
    requests = report.running + report.waiting
    if not requests:
        return inf
    return (_available_blocks(report) - report.waiting_tokens / report.block_tokens) / requests


def shipped_migration(report: LoadReport) -> float:
    """Free blocks less the demand of waiting requests, per running request plus one for the queue's head."""
    requests = report.running + (1 if report.waiting else 0)
    if not requests:
        return inf
    return (_available_blocks(report) - report.waiting_tokens / report.block_tokens) / requests


def shipped_migration_without_queue(report: LoadReport) -> float:
    """Free blocks per running request: waiting requests do not count, so none moves to make room for them."""
    return _available_blocks(report) / report.running if report.running else inf


def paper(report: LoadReport) -> float:
    """(M - sum of virtual usage) / B: the queue's head counts with its demand, others waiting with 0."""
    if not report.running and not report.waiting:
        return inf
    free_tokens = report.free_blocks * report.block_tokens - report.first_waiting_tokens
    return free_tokens / max(1, report.running)


def paper_without_queue(report: LoadReport) -> float:
    """As ``paper``, without the demand of the queue's head."""
    return report.free_blocks * report.block_tokens / report.running if report.running else inf


RULES: Final = ("paper", "shipped")


def check_rule(rule: str, target_tokens: int | None = None) -> None:
    """Raise ValueError for an unknown rule or a target below 1 token."""
    if rule not in RULES:
        raise ValueError(f"rule must be paper or shipped, not {rule}")
    if target_tokens is not None and target_tokens < 1:
        raise ValueError(f"high_priority_target_tokens must be at least 1 or null, not {target_tokens}")


def _has_high(report: LoadReport) -> bool:
    return report.high_running + report.high_waiting > 0


def _has_no_high(report: LoadReport) -> bool:
    return report.high_running + report.high_waiting == 0


def _runs_high(report: LoadReport) -> bool:
    return report.high_running > 0


def headroom(rule: Rule, target_tokens: int | None, held: Callable[[LoadReport], bool]) -> Rule:
    """Wrap ``rule``: memory beyond the target counts as used for the instances that ``held`` selects."""
    if target_tokens is None:
        return rule

    def with_headroom(report: LoadReport) -> float:
        if not held(report):
            return rule(report)
        used_blocks = report.total_blocks - target_tokens // report.block_tokens
        return rule(with_free_blocks(report, report.free_blocks - used_blocks))

    return with_headroom


def dispatch_rule(rule: str, target_tokens: int | None = None, high: bool = False) -> Rule:
    """The rule that chooses an instance for an arriving request; ``high``: a request of high priority.

    A normal request sees the headroom of instances with high-priority requests. A high-priority request does
    not. As shipped it sees instead the headroom that it would bring to an instance without high-priority
    requests, so that these share few instances.
    """
    check_rule(rule, target_tokens)
    if rule == "shipped":
        return headroom(shipped_dispatch, target_tokens, _has_no_high if high else _has_high)
    return paper if high else headroom(paper, target_tokens, _runs_high)


def migration_rule(rule: str, defragment: bool, target_tokens: int | None = None) -> Rule:
    """Rule by which instances are paired. ``defragment``: running requests make room for a queue's head."""
    check_rule(rule, target_tokens)
    if rule == "shipped":
        plain = shipped_migration if defragment else shipped_migration_without_queue
        return headroom(plain, target_tokens, _has_high)
    return headroom(paper if defragment else paper_without_queue, target_tokens, _runs_high)
