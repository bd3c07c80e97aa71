"""Keeps all workers computing: each takes the next unit of the plan until none are left."""

import queue
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from realexec.calibration.done_log import DoneLog
from realexec.calibration.grid import CalibrationPlan
from realexec.calibration.scripts import Script, filler, script_of
from realexec.wire.messages import Alive, Died, FromWorker, StepsDone, ToWorker
from serving.vocabulary.errors import UserError

# Enough for a single step of a large model on a slow core.
STEP_TIMEOUT_S: Final = 300.0
Progress = Callable[[int, int], None]


class Worker(Protocol):
    """The part of `realexec.driver.processes.WorkerProcess` that is used here."""

    def send(self, message: ToWorker) -> None:
        """Send a message. Does not block."""


class Inbox(Protocol):
    """The part of a pool's inbox that is used here."""

    def get(self, block: bool = True, timeout: float | None = None) -> tuple[int, FromWorker]:
        """Return (worker, message); raises queue.Empty."""


def name_of(unit: int, repeat: int) -> str:
    """Return the name of a log entry: ``steps of context 128, repeat 0``. Context 0 is prompts alone."""
    return f"steps of context {unit}, repeat {repeat}"


class Bench:
    """Measures the units of a plan. ``cpu_ns``: returns a worker's CPU time so far in ns; 0 if not known."""

    def __init__(
        self,
        *,
        workers: list[Worker],
        inbox: Inbox,
        plan: CalibrationPlan,
        log: DoneLog,
        vocabulary: int,
        cpu_ns: Callable[[int], int],
        on_progress: Progress | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._workers, self._inbox, self._plan, self._log = workers, inbox, plan, log
        self._vocabulary, self._cpu_ns, self._on_progress = vocabulary, cpu_ns, on_progress
        self._now_ns = now_ns
        self._left = deque(self._missing())
        self._total = len(plan.units) * plan.repeats
        self._under_way: dict[int, tuple[str, int, int]] = {}  # worker: name, wall and CPU time before it
        self._scripts: dict[int, Script] = {}

    def _missing(self) -> list[tuple[int, int]]:
        """Return (unit, repeat), by repeat, each in another order: so drift affects all units alike."""
        missing = []
        for repeat in range(self._plan.repeats):
            units = list(self._plan.units)
            random.Random(repeat).shuffle(units)
            missing += [(unit, repeat) for unit in units if name_of(unit, repeat) not in self._log.entries]
        return missing

    def run(self) -> None:
        """Run until every unit has been measured. Raises UserError if a worker dies."""
        if not self._left:
            return
        for worker in range(len(self._workers)):
            self._next(worker)
        while self._under_way:
            worker, message = self._message()
            if isinstance(message, StepsDone):
                self._go_on(worker, message)
            elif isinstance(message, Died):
                raise UserError(
                    f"worker {worker} was lost while it was measured ({message.cause}); correct the cause "
                    "and run again: what was measured is kept"
                )
            elif not isinstance(message, Alive):
                raise RuntimeError(f"worker {worker} sent {message!r} while steps were measured")
        self._come_to_rest()

    def _message(self) -> tuple[int, FromWorker]:
        try:
            return self._inbox.get(timeout=STEP_TIMEOUT_S)
        except queue.Empty:
            raise UserError(
                f"no worker ended a step within {STEP_TIMEOUT_S:g} s: take a smaller model, or end what else "
                "keeps the cores busy"
            ) from None

    def _next(self, worker: int) -> None:
        """Start the next unit. If none is left, the worker gets filler work, so that all stay busy."""
        tell = self._workers[worker].send
        if self._left:
            unit, repeat = self._left.popleft()
            self._under_way[worker] = name_of(unit, repeat), self._now_ns(), self._cpu_ns(worker)
            self._scripts[worker] = script_of(unit, self._plan, tell, self._vocabulary)
        else:
            self._scripts[worker] = filler(tell, self._vocabulary)
        tell(next(self._scripts[worker]))

    def _go_on(self, worker: int, done: StepsDone) -> None:
        if done.running:
            return
        try:
            self._workers[worker].send(self._scripts[worker].send(done))
        except StopIteration as end:
            self._record(worker, end.value)
            self._next(worker)

    def _record(self, worker: int, timed: Any) -> None:
        name, wall_ns, cpu_ns = self._under_way.pop(worker)
        now_ns, used_ns = self._now_ns(), self._cpu_ns(worker)
        entry = {
            "worker": worker,
            "wall_ns": now_ns - wall_ns,
            "cpu_ns": used_ns - cpu_ns,
            "steps": [[*step, round(took_us, 3)] for step, took_us in timed],
        }
        self._log.add(name, entry)
        if self._on_progress is not None:
            self._on_progress(self._total - len(self._left) - len(self._under_way), self._total)

    def _come_to_rest(self) -> None:
        """Wait for the last report of every worker; afterwards no worker computes any more."""
        resting: set[int] = set()
        while len(resting) < len(self._workers):
            worker, message = self._message()
            if isinstance(message, StepsDone) and not message.running:
                resting.add(worker)
