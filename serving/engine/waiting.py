"""The order of a queue: first come, first served; or by priority, higher ones first.

A preempted request goes before all others of its priority, as vLLM puts it at the head of its queue. Within a
priority no request passes another. Requests are inserted in order, so nothing is sorted.

``before_last`` is the order of Llumnix's artefact, whose loop over the queue compares a request with 0: first
come, first served, but a request of high priority goes before the last one waiting.
"""

from collections import deque
from collections.abc import Iterable

from serving.engine.progress import Progress
from serving.vocabulary.request import Request


def line_up(queue: deque[Request], requests: Iterable[Request], by_priority: bool) -> None:
    """Add requests to a common queue, in order; by priority: after those of the same or higher priority."""
    for request in requests:
        place = len(queue)
        while by_priority and place and queue[place - 1].priority < request.priority:
            place -= 1
        queue.insert(place, request)


def queue_up(queue: deque[Progress], progress: Progress) -> None:
    """Insert after all of its or higher priority; with ``passes_last`` before the last one."""
    if progress.passes_last:
        queue.insert(max(0, len(queue) - 1), progress)
        return
    if not queue or queue[-1].priority >= progress.priority:
        queue.append(progress)
        return
    place = 0
    while queue[place].priority >= progress.priority:
        place += 1
    queue.insert(place, progress)


def would_head(queue: deque[Progress], progress: Progress) -> bool:
    """Whether it will be queued before the head."""
    return bool(queue) and (
        queue[0].priority < progress.priority or (progress.passes_last and len(queue) == 1)
    )


def queue_first(queue: deque[Progress], progress: Progress) -> None:
    """Insert before all of its or lower priority."""
    if not queue or queue[0].priority <= progress.priority:
        queue.appendleft(progress)
        return
    place = 0
    while place < len(queue) and queue[place].priority > progress.priority:
        place += 1
    queue.insert(place, progress)
