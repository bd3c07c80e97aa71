"""Worker processes, their pipes, and a thread per worker and direction between pipe and driver."""

import multiprocessing
import queue
import signal
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from realexec import signals
from realexec.messages import Died, FromWorker, Ready, ToWorker
from realexec.worker import main
from serving.vocabulary.errors import UserError

Inbox = queue.Queue[tuple[int, FromWorker]]
# How long to wait for the exit code of a process whose pipe has already closed.
EXIT_WAIT_S: Final = 10.0


class WorkerProcess:
    """One worker: its handle, the driver's end of its pipe, and the thread that reads it."""

    def __init__(
        self, replica: int, inbox: Inbox, model: Mapping[str, Any], seed: int, batch_size: int
    ) -> None:
        # A fresh interpreter: forked children would share torch's threads and the parent's pipes.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(
            target=main,
            args=(theirs, dict(model), seed, batch_size),
            name=f"worker-{replica}",
            daemon=True,
        )
        self.process.start()
        theirs.close()  # else the end of the process would not end the stream
        self._reader = threading.Thread(
            target=_read, args=(replica, self._connection, self.process, inbox), daemon=True
        )
        self._reader.start()
        # A pipe holds little: whoever owns the controller must not wait until a busy worker has read.
        self._outbox: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=_send, args=(self._outbox, self._connection), daemon=True)
        self._sender.start()

    def send(self, message: ToWorker) -> None:
        """Hand over a message; returns at once, also when the worker is slow, stopped or gone."""
        self._outbox.put(message)

    def close(self) -> None:
        """End the process now; it keeps nothing that would need saving."""
        self.process.kill()
        self.process.join()
        self._outbox.put(None)
        self._sender.join()
        self._reader.join()
        self._connection.close()


class WorkerPool:
    """All workers of a run; a context manager that leaves no process behind."""

    def __init__(self, workers: int, model: Mapping[str, Any], seed: int, batch_size: int) -> None:
        self.inbox: Inbox = queue.Queue()
        self.workers: list[WorkerProcess] = []
        try:
            for replica in range(workers):
                with signals.postponed():
                    self.workers.append(WorkerProcess(replica, self.inbox, model, seed, batch_size))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self, timeout_s: float) -> None:
        """Return when every worker has built its model; UserError when one fails or takes too long."""
        deadline_s = time.monotonic() + timeout_s
        for ready in range(len(self.workers)):
            try:
                replica, message = self.inbox.get(timeout=max(deadline_s - time.monotonic(), 0))
            except queue.Empty:
                raise UserError(
                    f"Only {ready} of {len(self.workers)} workers were ready after {timeout_s:g} s; "
                    "start fewer workers, or end what else keeps the cores busy."
                ) from None
            if not isinstance(message, Ready):
                cause = message.cause if isinstance(message, Died) else str(message)
                raise UserError(f"Worker {replica} did not start ({cause}); correct the cause and run again.")

    def close(self) -> None:
        """End every process, by its handle."""
        for worker in self.workers:
            worker.close()


def _send(outbox: "queue.SimpleQueue[ToWorker | None]", connection: Connection) -> None:
    """Send in order until told to stop; when the worker is gone, its end is on its way to the inbox."""
    while (message := outbox.get()) is not None:
        try:
            connection.send(message)
        except OSError:
            return


def _read(
    replica: int, connection: Connection, process: multiprocessing.process.BaseProcess, inbox: Inbox
) -> None:
    try:
        while True:
            message = connection.recv()
            inbox.put((replica, message))
            if isinstance(message, Died):
                return
    except (EOFError, OSError):
        process.join(EXIT_WAIT_S)
        inbox.put((replica, Died(_exit_cause(process.exitcode))))


def _exit_cause(exit_code: int | None) -> str:
    if exit_code is None:
        return "the worker closed its pipe"
    if exit_code < 0:
        return f"the worker process was ended by {signal.Signals(-exit_code).name}"
    return f"the worker process ended with exit status {exit_code}"
