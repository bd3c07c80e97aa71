"""What wakes a replica whose run is due."""

from collections.abc import Callable

from simpy import Event

from serving.vocabulary.events import Ran
from simcore.replica.machine import Machine
from simcore.timers import Timer


def completes(
    machine: Machine, timer: Timer, handle: Callable[[int, Ran], None], complete: Callable[[], Ran]
) -> Callable[[Event], None]:
    """What ``timer`` calls: the run of ``machine`` may be due, and ``handle`` is told what happened.

    ``complete``: of the machine, or what is called instead. Half of all events: what a timer does is
    written out here, and needs no call.
    """
    push, pending = timer.push, timer.pending

    def due(event: Event) -> None:
        now_ns = pending.pop()
        if machine.run is None:
            return  # what this was for has been cut
        due_ns = machine.due_ns
        if due_ns <= now_ns:
            report = complete()
            if not report.running:
                handle(now_ns, report)
                if machine.run is None:
                    machine.idle()
                return
            due_ns = machine.due_ns
            if not pending or pending[-1] > due_ns:
                pending.append(due_ns)
                push((due_ns, timer.rank, 0, event))
            handle(now_ns, report)
        elif not pending or pending[-1] > due_ns:
            pending.append(due_ns)
            push((due_ns, timer.rank, 0, event))

    return due
