"""The timer callback that completes a replica's due run."""

from collections.abc import Callable

from simpy import Event

from serving.vocabulary.events import Ran
from simcore.replica.machine import Machine
from simcore.timers import Timer


def completes(
    machine: Machine, timer: Timer, handle: Callable[[int, Ran], None], complete: Callable[[], Ran]
) -> Callable[[Event], None]:
    """The callback of ``timer``: if the run of ``machine`` is due, ``handle`` receives its report.

    ``complete``: the machine's, or a replacement for it. Half of all events pass here, so the timer's code is
    inlined and needs no call.
    """
    push, pending = timer.push, timer.pending

    def due(event: Event) -> None:
        now_ns = pending.pop()
        if machine.run is None:
            return  # the run of this entry was cut short
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
