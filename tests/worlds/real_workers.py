"""Processes that this one has started, by Linux's account, and entries for workers without a model."""

import ctypes
import itertools
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realexec.wire.messages import Alive, Died, Forget, Hold, Ready, StepsDone, StopSteps
from realexec.worker.worker_process import Control

_NAME = re.compile(r"realexec-w(\d+)\n")
_FORKS = "realexec-forks\n"


def worker_number(process: int) -> int | None:
    """Which worker of its run this process is, by its name; None where it is none, or gone."""
    named = _NAME.fullmatch(_name(process))
    return None if named is None else int(named[1])


def workers_of(parent: int) -> dict[int, int]:
    """Worker number -> process, of those that are alive; ``parent`` started them or what forks them."""
    alive = {
        int(stat.parent.name): told[1]
        for stat in Path("/proc").glob("[0-9]*/stat")
        if (told := _told(stat)) and told[0] not in "ZX"
    }
    parents = {parent, *forks_of(parent)}
    numbers = {one: worker_number(one) for one, its in alive.items() if its in parents}
    return {number: one for one, number in numbers.items() if number is not None}


def forks_of(parent: int) -> list[int]:
    """The processes that fork workers, of those that this one has started."""
    stats = {int(stat.parent.name): _told(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    ours = [one for one, told in stats.items() if told and told[0] not in "ZX" and told[1] == parent]
    return [one for one in ours if _name(one) == _FORKS]


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text()
    except OSError:
        return ""


def _told(stat: Path) -> tuple[str, int] | None:
    """State and parent of a process; None when it has gone."""
    try:
        state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return state, int(parent)


def own_workers() -> dict[int, int]:
    return workers_of(os.getpid())


def echo(control: Control, start: Mapping[str, Any]) -> None:
    """Answers each `Hold` with its numbers as tokens; `Forget` makes it do what its number says."""
    control.send(Ready())
    while True:
        message = control.recv()
        if isinstance(message, Hold):
            tokens = {message.request: message.prompt}
            control.send(
                StepsDone(
                    epoch=start["epoch"],
                    started_ns=start["seed"],
                    ends_ns=message.generated,
                    tokens=tokens,
                    finished=(),
                    running=False,
                )
            )
        elif isinstance(message, Forget):
            misbehave(message.request)
        elif isinstance(message, StopSteps):
            control.send(Alive())


def misbehave(how: int) -> None:
    if how == 0:
        raise ValueError("told to fail")
    if how == 1:
        os._exit(7)
    if how == 2:
        ctypes.CDLL(None).sleep(100_000)  # computes, without the interpreter's lock
    if how == 3:
        sum(itertools.repeat(0, 10**12))  # computes and keeps the interpreter's lock
    if how == 4:
        ctypes.PyDLL(None).sleep(100_000)  # waits and keeps the interpreter's lock


def never_ready(control: Control, start: Mapping[str, Any]) -> None:
    ctypes.PyDLL(None).sleep(100_000)  # keeps the interpreter's lock, as long imports do


def says_no_message(control: Control, start: Mapping[str, Any]) -> None:
    control.send(Ready())
    control._channel.send({"type": "Salary", "amount": 3})
    time.sleep(100_000)


def cannot_tell_of_transfers(control: Control, start: Mapping[str, Any]) -> None:
    """A worker whose data threads fail where nobody asks what became of their work."""
    import realexec.worker.mover
    from realexec.worker.worker import serve

    def broken(*_: object) -> None:
        raise ValueError("as the test says")

    vars(realexec.worker.mover)["Fetched"] = broken
    serve(control, start)


def fails(control: Control, start: Mapping[str, Any]) -> None:
    control.send(Died("as its model says"))
