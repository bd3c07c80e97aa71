"""Reusable SimPy events and the times for which they are scheduled."""

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

from simpy import Environment, Event


def run_all(env: Environment) -> None:
    """Do what ``env.run()`` does if all events are timers, without its calls for each of them.

    No event fails, nothing stops the world, and the events' callbacks do not change.
    """
    world: Any = env
    queue = world._queue
    while queue:
        entry = heappop(queue)
        world._now, event = entry[0], entry[3]
        event.callbacks[0](event)  # a timer has one


class Timer:
    """One reusable event with one rank; its pending times are a stack, the next one last.

    A due time may move: to an earlier time by another entry, to a later one if an entry comes too early and
    is renewed. So there is rarely more than one entry.
    """

    __slots__ = ("_env", "event", "pending", "push", "rank")

    def __init__(self, env: Environment, rank: int, callback: Callable[[int], None]) -> None:
        """``callback`` receives the time; it schedules the next call with ``at``."""
        # As env.schedule, but without serial numbers: no two of our events have the same time and rank.
        world: Any = env
        self._env = env
        self.push: Callable[[tuple[int, int, int, Event]], None] = partial(heappush, world._queue)
        self.rank = rank
        self.pending: list[int] = []
        pending = self.pending

        self.event = Event(env)
        self.event._ok = True
        self.event._value = None
        self.calls(lambda _: callback(pending.pop()))

    def calls(self, callback: Callable[[Event], None]) -> None:
        """Replace the callback: the new one takes the time from ``pending`` itself."""
        self.event.callbacks = [callback]

    def at(self, due_ns: int) -> None:
        """Call back at ``due_ns``, or earlier."""
        pending = self.pending
        if not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            self.push((due_ns, self.rank, 0, self.event))

    def cancel(self) -> None:
        """Forget all pending times. Rare, so the queue may be rebuilt."""
        world: Any = self._env
        queue = world._queue
        queue[:] = [entry for entry in queue if entry[3] is not self.event]
        heapify(queue)
        self.pending.clear()


def others(timers: Iterable[Timer], env: Environment) -> int:
    """How many entries the queue has of others: each timer has one per pending time."""
    world: Any = env
    return len(world._queue) - sum([len(timer.pending) for timer in timers])
