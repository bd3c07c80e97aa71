"""The order of a queue: first come, first served; by priority, those of a higher one before.

Who was preempted stands before all others of its priority, as vLLM puts it at the head of its queue. Within a
priority nobody passes another. Queues keep their order as requests come, so nothing is sorted.

``before_last`` is the order of Llumnix's artefact, whose loop over the queue compares a request with 0: first
come, first served, but one of high priority goes before the last that waits.
"""

from collections import deque
from collections.abc import Iterable

from serving.engine.progress import Progress
from serving.vocabulary.request import Request


def line_up(queue: deque[Request], requests: Iterable[Request], by_priority: bool) -> None:
    """In a common queue, each behind all who came before; by priority behind those of its own and above."""
    for one in requests:
        place = len(queue)
        while by_priority and place and queue[place - 1].priority < one.priority:
            place -= 1
        queue.insert(place, one)


def queue_up(queue: deque[Progress], one: Progress) -> None:
    """Behind all of its priority and of higher ones; or before the last."""
    if one.passes_last:
        queue.insert(max(0, len(queue) - 1), one)
        return
    if not queue or queue[-1].priority >= one.priority:
        queue.append(one)
        return
    place = 0
    while queue[place].priority >= one.priority:
        place += 1
    queue.insert(place, one)


def would_head(queue: deque[Progress], one: Progress) -> bool:
    """Whether it will be queued up before the head."""
    return bool(queue) and (queue[0].priority < one.priority or (one.passes_last and len(queue) == 1))


def queue_first(queue: deque[Progress], one: Progress) -> None:
    """Before all of its priority and of lower ones."""
    if not queue or queue[0].priority <= one.priority:
        queue.appendleft(one)
        return
    place = 0
    while place < len(queue) and queue[place].priority > one.priority:
        place += 1
    queue.insert(place, one)
