"""The main loop of a worker process: one model, one connection, no clock but the machine's monotonic one."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from realexec.messages import (
    Alive,
    DropKV,
    Forget,
    FromWorker,
    Hold,
    Ready,
    RunSteps,
    StepsDone,
    StopSteps,
    ToWorker,
)

# A run without finishes says this often that it goes on, well within the driver's patience.
ALIVE_NS: Final = 1_000_000_000


def serve(connection: "Connection", start: Mapping[str, Any]) -> None:
    """Build the model, then carry out messages until the driver goes away. Runs in a fresh process."""
    worker = Worker(connection, start["model"], start["seed"], start["batch_size"])
    connection.send(Ready())
    worker.serve()


class Connection(Protocol):
    """What is needed of `realexec.worker_process.Control`."""

    def send(self, message: FromWorker) -> None: ...

    def recv(self) -> ToWorker: ...

    def poll(self) -> bool: ...


class Worker:
    """Takes messages in order; while steps run it only looks for a reason to stop, and keeps the rest."""

    def __init__(self, connection: Connection, model: Mapping[str, Any], seed: int, batch_size: int) -> None:
        # Imported here, so that who only names this module need not load torch.
        from realexec.model_runner import ModelRunner
        from realexec.step_engine import StepEngine

        self._connection = connection
        self._engine = StepEngine(ModelRunner(model, seed, batch_size))
        self._postponed: deque[ToWorker] = deque()
        self._heard_ns = time.monotonic_ns()  # when the driver last heard of this worker

    def serve(self) -> None:
        """Never returns; EOFError says that the driver is gone."""
        while True:
            self._carry_out(self._postponed.popleft() if self._postponed else self._connection.recv())

    def _carry_out(self, message: ToWorker) -> None:
        match message:
            case Hold(request, prompt, generated, missing):
                self._engine.assign(request, prompt, generated, missing)
            case RunSteps():
                self._send(self._run(message))
            case DropKV(request):
                self._engine.drop_kv(request)
            case Forget(request):
                self._engine.forget(request)
            case StopSteps():
                pass  # the run it meant ended by itself

    def _run(self, run: RunSteps) -> StepsDone:
        """Run it to its end; returns the last report, after sending one for each finish on the way."""
        left = run.max_steps if run.chunks or self._engine.has_residents() else 0
        chunks, decode = run.chunks, run.decode
        steps = _Steps(run.epoch)
        while left:
            finished = steps.add(self._engine.step(chunks, decode))
            chunks, decode, left = (), True, left - 1
            if self._told_to_stop() or not self._engine.has_residents() or (finished and run.until_finish):
                break
            if finished and left:
                self._send(steps.report(running=True))
                steps = _Steps(run.epoch)
            elif steps.last_ns - self._heard_ns > ALIVE_NS:
                self._send(Alive())
        return steps.report(running=False)

    def _told_to_stop(self) -> bool:
        while self._connection.poll():
            message = self._connection.recv()
            if isinstance(message, StopSteps):
                return True
            self._postponed.append(message)
        return False

    def _send(self, message: FromWorker) -> None:
        self._heard_ns = time.monotonic_ns()
        self._connection.send(message)


class _Steps:
    """The steps since the last report."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._started_ns = time.monotonic_ns()
        self._ends_ns: list[int] = []
        self._tokens: dict[int, list[int]] = {}
        self._finished: tuple[int, ...] = ()

    @property
    def last_ns(self) -> int:
        """When the last of them ended."""
        return self._ends_ns[-1]

    def add(self, step: tuple[dict[int, int], tuple[int, ...]]) -> tuple[int, ...]:
        """A step has just ended; returns who finished in it."""
        sampled, self._finished = step
        self._ends_ns.append(time.monotonic_ns())
        for request, token in sampled.items():
            self._tokens.setdefault(request, []).append(token)
        return self._finished

    def report(self, running: bool) -> StepsDone:
        tokens = {request: tuple(row) for request, row in self._tokens.items()}
        return StepsDone(self._epoch, self._started_ns, tuple(self._ends_ns), tokens, self._finished, running)
