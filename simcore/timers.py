"""SimPy events that are scheduled again and again, and the times for which they are."""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any

from simpy import Environment, Event


def run_all(env: Environment) -> None:
    """What ``env.run()`` does where no event fails and nobody stops it, without calls for every event."""
    world: Any = env
    queue = world._queue
    while queue:
        world._now, _, _, event = heappop(queue)
        callbacks, event.callbacks = event.callbacks, None
        for callback in callbacks:
            callback(event)


class Timer:
    """One reusable event with one rank; its pending times are a stack, the next one last.

    What is due may move: to an earlier time by another entry, to a later one by an entry that comes too early
    and is renewed. So there is seldom more than one.
    """

    __slots__ = ("callbacks", "event", "pending", "push", "rank")

    def __init__(self, env: Environment, rank: int, callback: Callable[[int], None]) -> None:
        """``callback`` is given the time; it asks for the next one with ``at``."""
        # What env.schedule does. Its serial numbers are not needed: no two of ours have time and rank alike.
        world: Any = env
        self.push: Callable[[tuple[int, int, int, Event]], None] = partial(heappush, world._queue)
        self.rank = rank
        self.pending: list[int] = []
        pending = self.pending

        def due(event: Event) -> None:
            event.callbacks = callbacks
            callback(pending.pop())

        self.event = event = Event(env)
        event._ok = True
        event._value = None
        callbacks: list[Callable[[Event], None]] = [due]
        event.callbacks = self.callbacks = callbacks

    def at(self, due_ns: int) -> None:
        """Call back at ``due_ns``, or before."""
        pending = self.pending
        if not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            self.push((due_ns, self.rank, 0, self.event))
