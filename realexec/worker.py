"""The main loop of a worker process: one model, one pipe, no clock but the machine's monotonic one."""

import signal
import time
import traceback
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from realexec import signals
from realexec.messages import (
    Alive,
    Died,
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
from realexec.orphans import end_with_parent

# A run without finishes says this often that it goes on, well within the driver's patience.
ALIVE_NS: Final = 1_000_000_000


def main(connection: Connection, model: Mapping[str, Any], seed: int, batch_size: int) -> None:
    """Build the model, then carry out messages until the driver goes away. Runs in a fresh process."""
    # Ctrl-C reaches the whole process group; the driver decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.let_in()
    end_with_parent()
    try:
        worker = Worker(connection, model, seed, batch_size)
        connection.send(Ready())
        worker.serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the driver is gone, and with it everybody who could read a complaint
    except Exception as error:
        traceback.print_exc()
        connection.send(Died(f"{type(error).__name__}: {error}"))


class Worker:
    """Takes messages in order; while steps run it only looks for a reason to stop, and keeps the rest."""

    def __init__(self, connection: Connection, model: Mapping[str, Any], seed: int, batch_size: int) -> None:
        # Imported here, so that the driver, which names `main`, need not load torch.
        from realexec.model_runner import ModelRunner
        from realexec.step_engine import StepEngine

        self._connection = connection
        self._engine = StepEngine(ModelRunner(model, seed, batch_size))
        self._postponed: deque[ToWorker] = deque()
        self._heard_ns = time.monotonic_ns()  # when the driver last heard of this worker

    def serve(self) -> None:
        """Never returns; EOFError says that the driver closed the pipe."""
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
