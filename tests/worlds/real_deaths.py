"""Deaths at exact moments of real runs in this process: a worker ends between two actions of the driver."""

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from realexec.driver import driver
from realexec.world.actions import World
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from serving.vocabulary.actions import Action, Fail, Load, Migrate, Reject, Run, Send
from tests.worlds.processes import REAL, patience_s
from tests.worlds.real_workers import own_workers

# Who has to go, if this is the moment: a replica, before or after the action is carried out.
Moment = Callable[[World, Action], int | None]
_LOOK_S = 0.05


@dataclass
class Death:
    """What happened. ``resident``: requests that the worker had when the driver heard of its end.

    ``moving``: those that were on their way at the moment. ``ended_ns``: when the worker was stopped, or the
    system had ended it. ``late_s``: how late this process woke between the signal and the news of it, for
    other work on the machine makes everything late.
    """

    replica: int = -1
    ended_ns: int = 0
    known_ns: int = 0
    late_s: float = 0.0
    moving: tuple[int, ...] = ()
    resident: set[int] = field(default_factory=set)
    unserved: set[int] = field(default_factory=set)

    @property
    def known_after_s(self) -> float:
        return (self.known_ns - self.ended_ns) / 1e9


@contextmanager
def at_the_moment(moment: Moment, before: bool, how: signal.Signals) -> Iterator[Death]:
    """The first time that the moment has come a worker is ended, or stopped."""
    death = Death()
    carry_out, lose = World.carry_out, World.lose
    woken = threading.Event()
    workers: dict[int, int] = {}

    def watched(world: World, action: Action, now_ns: int) -> None:
        if before:
            look(world, action)
        carry_out(world, action, now_ns)
        if not before:
            look(world, action)
        if isinstance(action, Fail | Reject):
            death.unserved.add(action.request)

    def look(world: World, action: Action) -> None:
        workers.update({} if workers else own_workers())  # once: that takes time
        replica = moment(world, action) if death.replica < 0 else None
        if replica is not None:
            death.replica, death.moving = replica, requests_of(action)
            end(workers[world.slots.of(replica)])

    def end(process: int) -> None:
        gone = os.pidfd_open(process)
        os.kill(process, how)
        death.ended_ns = time.monotonic_ns()
        if how == signal.SIGKILL:  # on a busy machine the system takes its time to end a process
            threading.Thread(target=wait_for_end, args=(gone,), daemon=True).start()

    def wait_for_end(gone: int) -> None:
        ends = select.poll()
        ends.register(gone, select.POLLIN)
        ends.poll()
        death.ended_ns = time.monotonic_ns()
        os.close(gone)

    def lost(world: World, slot: int, cause: str, has_hosts: bool) -> None:
        death.known_ns = time.monotonic_ns()
        death.resident = {one for one, held_by in world.holders._of.items() if slot in held_by}
        lose(world, slot, cause, has_hosts)

    def oversleeps() -> None:
        while not woken.is_set():
            began_s = time.monotonic()
            time.sleep(_LOOK_S)
            if death.ended_ns and not death.known_ns:
                death.late_s += time.monotonic() - began_s - _LOOK_S

    sleeper = threading.Thread(target=oversleeps, daemon=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(World, "carry_out", watched)
        patched.setattr(World, "lose", lost)
        sleeper.start()
        yield death
    woken.set()
    sleeper.join()


def requests_of(action: Action) -> tuple[int, ...]:
    """That are on their way."""
    if isinstance(action, Migrate):
        return (action.request,)
    return action.requests if isinstance(action, Send) else ()


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """What hangs is ended, in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the run did not end within {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(limit_s))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def real_run_with_a_death(folder: Path, words: tuple[str, ...], status: tuple[int, ...]) -> dict[str, Any]:
    """It ends, and what it wrote replays; its summary."""
    patience = partial(driver.execute, start_timeout_s=patience_s(REAL))
    with within(3 * patience_s(REAL)), pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "execute", patience)
        assert realexec_cli.run(["run", *words, "journal=true", f"out={folder}"]) in status
    assert own_workers() == {}, "workers outlive the run"
    assert cli.run(["replay", str(folder), *(word for word in words if "=tests." in word)]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


# Moments.


def loading_from(world: World, replica: int) -> list[int]:
    """The replicas that this one loads from."""
    loads: list[Load] = [one.action for one in world.loads._open.values()]
    found = [one.sources for one in loads if ("replica", replica) in one.targets]
    return [number for sources in found for kind, number in sources if kind == "replica"]


def live_pass(world: World, action: Action) -> int | None:
    """The replica that runs layers and loads others meanwhile."""
    if isinstance(action, Run) and action.layers is not None and loading_from(world, action.replica):
        return action.replica
    return None


def source_of_live_pass(world: World, action: Action) -> int | None:
    target = live_pass(world, action)
    return None if target is None else loading_from(world, target)[0]


def middle_of_live_pass(world: World, action: Action) -> int | None:
    """The target loads from it, and it loads itself."""
    source = source_of_live_pass(world, action)
    return source if source is not None and loading_from(world, source) else None


def end_of_live_pass(world: World, action: Action) -> int | None:
    """The last of the chain, which runs layers."""
    return None if middle_of_live_pass(world, action) is None else live_pass(world, action)


def of_send(end: str, what: str, *marks: str, last: bool | None = None) -> Moment:
    """An end of a send whose reason has all the marks. ``last``: whether it is a migration's last stage."""

    def moment(world: World, action: Action) -> int | None:
        if not isinstance(action, Send) or action.what != what:
            return None
        if last is not None and last != action.reason.endswith(", the last"):
            return None
        found: int = getattr(action, end)
        return found if all(mark in action.reason for mark in marks) else None

    return moment


def of_commit(end: str) -> Moment:
    def moment(world: World, action: Action) -> int | None:
        return getattr(action, end) if isinstance(action, Migrate) and action.phase == "committed" else None

    return moment


def of_load(ends: str) -> Moment:
    """A replica at an end of a load that has just begun."""

    def moment(world: World, action: Action) -> int | None:
        if not isinstance(action, Load):
            return None
        return next((number for kind, number in getattr(action, ends) if kind == "replica"), None)

    return moment


def one_that_came(world: World, action: Action) -> int | None:
    """A stage that has loaded, when a batch is to pass it; there are two from the start."""
    if not isinstance(action, Run):
        return None
    return next((number for number in action.path if number >= 2), None)
