"""SimPy events that are scheduled again and again, and the times for which they are."""

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any

from simpy import Environment, Event


def run_all(env: Environment) -> None:
    """What ``env.run()`` does where all events are timers', without calls of its own for each of them.

    None of them fails, nothing stops the world, and their callbacks stay as they are.
    """
    world: Any = env
    queue = world._queue
    while queue:
        world._now, _, _, event = heappop(queue)
        for callback in event.callbacks:
            callback(event)


class Timer:
    """One reusable event with one rank; its pending times are a stack, the next one last.

    What is due may move: to an earlier time by another entry, to a later one by an entry that comes too early
    and is renewed. So there is seldom more than one.
    """

    __slots__ = ("event", "pending", "push", "rank")

    def __init__(self, env: Environment, rank: int, callback: Callable[[int], None]) -> None:
        """``callback`` is given the time; it asks for the next one with ``at``."""
        # What env.schedule does. Its serial numbers are not needed: no two of ours have time and rank alike.
        world: Any = env
        self.push: Callable[[tuple[int, int, int, Event]], None] = partial(heappush, world._queue)
        self.rank = rank
        self.pending: list[int] = []
        pending = self.pending

        self.event = Event(env)
        self.event._ok = True
        self.event._value = None
        self.calls(lambda _: callback(pending.pop()))

    def calls(self, callback: Callable[[Event], None]) -> None:
        """Instead of what it has called: this, which takes the time from ``pending`` itself."""
        self.event.callbacks = [callback]

    def at(self, due_ns: int) -> None:
        """Call back at ``due_ns``, or before."""
        pending = self.pending
        if not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            self.push((due_ns, self.rank, 0, self.event))


def are_only(timers: Iterable[Timer], env: Environment) -> bool:
    """Whether nothing is scheduled but these: each has one entry in the queue per pending time."""
    world: Any = env
    return len(world._queue) == sum([len(timer.pending) for timer in timers])
