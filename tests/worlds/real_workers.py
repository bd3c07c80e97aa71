"""Processes that this one has started, by Linux's account, and entries for workers without a model."""

import ctypes
import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realexec.messages import Alive, Died, Forget, Hold, Ready, StepsDone, StopSteps
from realexec.worker_process import Control

MARK = b"realexec-worker"


def is_worker(number: int) -> bool:
    try:
        return MARK in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def workers_of(parent: int) -> dict[int, int]:
    """Worker number -> process, of those that are alive."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, its_parent = stat.read_text().rpartition(")")[2].split()[:2]
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(its_parent) == parent and state not in "ZX" and MARK in words:
            found[int(words[words.index(MARK) + 1])] = int(stat.parent.name)
    return found


def own_workers() -> dict[int, int]:
    return workers_of(os.getpid())


def echo(control: Control, start: Mapping[str, Any]) -> None:
    """Answers each `Hold` with its numbers as tokens; `Forget` makes it do what its number says."""
    control.send(Ready())
    while True:
        message = control.recv()
        if isinstance(message, Hold):
            tokens = {message.request: message.prompt}
            control.send(StepsDone(start["epoch"], start["seed"], message.generated, tokens, (), False))
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
    import realexec.mover
    from realexec.worker import serve

    def broken(*_: object) -> None:
        raise ValueError("as the test says")

    vars(realexec.mover)["Fetched"] = broken
    serve(control, start)


def fails(control: Control, start: Mapping[str, Any]) -> None:
    control.send(Died("as its model says"))
