"""SimPy events that are scheduled again and again, and the times for which they are."""

from collections.abc import Callable

from simpy import Environment, Event


class Timer:
    """One reusable event with one rank; its pending times are a stack, the next one last.

    What is due may move: to an earlier time by another entry, to a later one by an entry that comes too early
    and is renewed. So there is seldom more than one.
    """

    __slots__ = ("callbacks", "event", "pending", "rank", "schedule")

    def __init__(self, env: Environment, rank: int, callback: Callable[[int], None]) -> None:
        """``callback`` is given the time; it asks for the next one with ``at``."""
        self.schedule: Callable[[Event, int, int], None] = env.schedule  # type: ignore[assignment]
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

    def at(self, now_ns: int, due_ns: int) -> None:
        """Call back at ``due_ns``, or before."""
        pending = self.pending
        if not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            self.schedule(self.event, self.rank, due_ns - now_ns)
