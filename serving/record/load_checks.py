"""Checks that load reports, with virtual usage and freeness, match the requests at the engines."""

from collections.abc import Iterator

from serving.engine.engine import Engine
from serving.engine.instance_load import InstanceLoad, free_blocks_after
from serving.engine.load_reports import LoadReports
from serving.protocols.load_report import LoadReport


def broken(reports: LoadReports, engine: Engine, high: int, migrates: bool) -> Iterator[str]:
    """Yield what is wrong in one instance's report; ``high``: its requests with a priority above 0.

    Checks the latest report, which is published later if instances report at the end of a step. Batch and
    queue must match it, except for requests that arrived since. Free blocks must match while the engine has
    reported no step since; if requests migrate (``migrates``), blocks also change between reports.
    """
    known = reports.known(engine.id)
    if known is None:
        return
    if known.high_now != high:
        yield f"replica {engine.id} has {high} requests of high priority, {known.high_now} are counted"
    latest = known.report if known.coming is None else known.coming
    if latest is not None:
        yield from _of_its_memory(engine, latest)
    if known.coming is not None and known.since == known.steps and not migrates:
        free = free_blocks_after(engine, 0)
        if known.coming.free_blocks != free:
            yield f"{free} blocks are free on replica {engine.id}, its report has {known.coming.free_blocks}"
    if reports.may_change(engine.id):
        return
    running, waiting = _counts(engine)
    if known.running != running:
        yield f"replica {engine.id} runs {running} requests, its report has {known.running}"
    if known.waiting > waiting or (reports.at_changes and known.waiting < waiting):
        yield f"{waiting} requests wait at replica {engine.id}, its report has {known.waiting}"
    if latest is not None and known.waiting == waiting:
        yield from _of_its_queue(engine, known, latest)


def _counts(engine: Engine) -> tuple[int, int]:
    running = len(engine.running) - len(engine.ended)
    return running, len(engine.waiting) + len(engine.unseen_arrivals)


def _of_its_memory(engine: Engine, report: LoadReport) -> Iterator[str]:
    ledger = engine.ledger
    if report[:3] != (ledger.total_blocks, ledger.watermark_blocks, ledger.block_tokens):
        yield f"the report of replica {engine.id} is of another memory"
    if not 0 <= report.free_blocks <= ledger.total_blocks:
        yield f"{report.free_blocks} of {ledger.total_blocks} blocks are free in a report of {engine.id}"


def _of_its_queue(engine: Engine, known: InstanceLoad, report: LoadReport) -> Iterator[str]:
    """Check the demand of the queue's head and of all waiting requests."""
    queue = [*engine.waiting, *engine.unseen_arrivals]
    preempted = sum([progress.was_preempted for progress in queue])
    own = engine.replica.sequence_tokens
    tokens = sum([progress.known_tokens + own for progress in queue])
    first = queue[0].known_tokens + own if queue else 0
    high_waiting = sum([progress.priority > 0 for progress in queue]) if known.high else 0
    counted = report._replace(
        running=known.running,
        waiting=len(queue),
        preempted=preempted,
        first_waiting_tokens=first,
        waiting_tokens=tokens,
        high_running=known.high - high_waiting,
        high_waiting=high_waiting,
    )
    if counted != report:
        yield f"the report of replica {engine.id} is {report}, and {counted} by its requests"
