"""A worker process: one thread computes, one reads messages meanwhile, others move bytes (`mover`).

Only the compute thread runs steps and changes which requests decode. Messages that arrive during a step are
handled at the next step boundary, in order. Messages about KV (its location, room for more) need no step
boundary: the listening thread handles them in the middle of a step if no earlier message is waiting. So KV
transfers do not wait for steps.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

from realexec.system.thread_exceptions import raising
from realexec.wire.messages import (
    Alive,
    DropKV,
    Fetch,
    Forget,
    FromWorker,
    Hold,
    Join,
    Locate,
    Meet,
    Met,
    Open,
    Opened,
    Passed,
    PlacePart,
    Pull,
    Ready,
    RunRounds,
    RunSteps,
    StepsDone,
    StopFetch,
    StopPull,
    StopRounds,
    StopSteps,
    TakeOut,
    ToWorker,
)
from realexec.worker.compute_inbox import ComputeInbox, Source, Thing

# A long run without finished requests reports this often, well within the driver's report timeout.
ALIVE_NS: Final = 1_000_000_000
# Messages that can be handled in the middle of a step, if no earlier message waits for a step boundary.
_MEANWHILE: Final = (Hold, Locate, Fetch, Forget)
# Messages for the data threads, handled at any time; the messages that they depend on arrive before them.
_MOVED: Final = (Pull, StopPull, StopFetch)


def serve(connection: "Connection", start: Mapping[str, Any]) -> None:
    """Handle messages until the driver closes the connection. Runs in a fresh process."""
    worker = Worker(connection, start["model"], start["seed"], start["batch_size"], start)
    connection.send(Ready())
    worker.serve()


class Connection(Source, Protocol):
    """The methods of `realexec.worker.worker_process.Control` that a worker uses."""

    def send(self, message: FromWorker) -> None:
        """Send a message; any thread may call this."""


class Worker:
    """Handles the driver's messages in order, and runs the steps of each run between them."""

    def __init__(
        self,
        connection: Connection,
        model: Mapping[str, Any],
        seed: int,
        batch_size: int,
        run: Mapping[str, Any] | None = None,
    ) -> None:
        """``run``: the settings with which workers of stages connect to each other, see `StageChannels`."""
        # Imported here, so that importing this module does not load torch.
        from realexec.model.models import model_spec

        model_spec(model)  # errors in the model's keys are raised before anything else
        self._connection = connection
        self._model, self._seed, self._batch_size, self._run = model, seed, batch_size, run
        self._stage_peers: Any = None  # a StagePeers, if batches pass through stages
        self._memory: Any = None  # a SlotMemory, once `Open` has been handled
        self._stages: Any = None  # a StageWork, if batches pass through stages
        self._inbox = ComputeInbox(connection, self._hear)
        self._heard_ns = time.monotonic_ns()  # when this worker last sent the driver a message
        self._every_step = False
        # Any thread that changes requests or KV locks it; a step runs without it (``_stepping`` is then set).
        self._changing = threading.Lock()
        self._stepping = False
        self._prompts: set[int] = set()  # requests whose chunks the current step computes

    def serve(self) -> None:
        """Handle messages for ever; raises EOFError when the driver has closed the connection."""
        self._inbox.begin()
        try:
            while True:
                self._at(self._inbox.next(wait=True))
        finally:
            if self._memory is not None:
                self._memory.close()

    def _at(self, message: Thing) -> None:
        """Handle one message. Passes of stages are short: messages wait, and no thread is woken for them."""
        if isinstance(message, RunSteps):
            with self._inbox.computing():
                done = self._run_steps(message)
            self._send(done)
        elif isinstance(message, Passed):
            self._stages.passed(message)
        elif isinstance(message, RunRounds):
            self._stages.begin(message)
        elif isinstance(message, StopRounds):
            self._stages.stop()
        elif callable(message):
            self._carry_out(message)
        else:
            with self._inbox.computing():
                self._carry_out(message)

    def _hear(self, message: ToWorker) -> None:
        """Handle or queue a message. Runs in the thread that reads the driver's connection."""
        if isinstance(message, _MOVED):
            self._memory.mover.handle(message)
        elif isinstance(message, PlacePart):
            self._memory.mover.delay_pulls(placed := threading.Event())
            self._inbox.put(partial(self._place, message, placed))
        elif isinstance(message, Meet):
            linked = partial(self._send, Met()) if message.ahead else None
            self._memory.peers.meet(message.addresses, linked)
            if self._stage_peers is not None:
                self._stage_peers.meet([address["stage"] for address in message.addresses])
        elif not (isinstance(message, _MEANWHILE) and self._done_meanwhile(message)):
            self._inbox.put(message)

    def _done_meanwhile(self, message: ToWorker) -> bool:
        """Try to handle it during a step; returns whether it was. An exception ends the compute thread."""
        from realexec.worker.slot_memory import KV  # loads torch, which is loaded by now

        if isinstance(message, Locate | Fetch) and message.what != KV:
            return False
        with self._changing:
            if not self._stepping or not self._inbox.empty():
                return False
            if isinstance(message, Forget) and self._in_step(message.request):
                return False
            try:
                self._change(message)
            except Exception as error:
                self._inbox.put(raising(error))
            return True

    def _place(self, message: PlacePart, placed: threading.Event) -> None:
        self._memory.place(message)
        placed.set()

    def _open(self, message: Open) -> None:
        from realexec.worker.slot_memory import SlotMemory
        from realexec.worker.stage_peers import StageChannels
        from realexec.worker.stage_work import StageWork

        self._every_step = message.every_step
        self._memory = SlotMemory(
            model=self._model,
            seed=self._seed,
            batch_size=self._batch_size,
            message=message,
            send=self._send,
            later=self._inbox.put,
        )
        address = self._memory.address
        if message.stages and self._run is not None:
            self._stage_peers = StageChannels(message.slot, self._run, message.bind, self._inbox)
            self._stages = StageWork(self._memory, self._stage_peers, self._send, self._inbox.put)
            address = {**address, "stage": self._stage_peers.address}
        self._send(Opened(address))

    def _carry_out(self, message: Thing) -> None:
        """Handle a message between two steps."""
        match message:
            case Open():
                self._open(message)
            case StopSteps():
                pass  # the run that it should stop has ended by itself
            case _ if callable(message):
                with self._changing:
                    message()
            case _:
                with self._changing:
                    self._change(message)

    def _change(self, message: Any) -> None:
        """Change which requests, tokens and KV this worker holds."""
        memory, engine = self._memory, self._memory.engine
        match message:
            case Hold(request, prompt, generated, missing):
                engine.assign(request, prompt, generated, missing)
            case DropKV(request):
                engine.drop_kv(request)
            case Forget(request):
                memory.forget(request)
            case TakeOut(request):
                engine.detach(request)
            case Join(requests, generated):
                engine.join(dict(zip(requests, generated, strict=True)))
            case Locate():
                self._send(memory.locate(message))
            case Fetch():
                memory.fetch(message)

    def _run_steps(self, run: RunSteps) -> StepsDone:
        """Run steps until the run ends; returns its last report. Reports earlier finishes as they happen."""
        engine = self._memory.engine
        left = run.max_steps if run.chunks or engine.has_residents() else 0
        chunks, decode = run.chunks, run.decode
        steps = _Steps(run.epoch)
        stop_after: int | None = None
        while left:
            with steps.computing(), self._in_a_step(chunks):
                done = self._step(run, chunks, decode)
            finished = steps.add(done)
            chunks, decode, left = (), True, left - 1
            stop_after = self._between_steps(steps, stop_after)
            if stop_after == 0 or not engine.has_residents() or (finished and run.until_finish):
                break
            if left and (finished or self._every_step):
                self._send(steps.report(running=True))
                steps = _Steps(run.epoch)
            elif steps.last_ns - self._heard_ns > ALIVE_NS:
                self._send(Alive())
        return steps.report(running=False)

    def _in_step(self, request: int) -> bool:
        """Whether the current step reads the request's KV, or may."""
        engine = self._memory.engine
        return request in self._prompts or (engine.holds(request) and engine.held(request).decoding)

    @contextmanager
    def _in_a_step(self, chunks: tuple[Any, ...]) -> Iterator[None]:
        with self._changing:
            self._stepping, self._prompts = True, {chunk[0] for chunk in chunks}
        try:
            yield
        finally:
            with self._changing:
                self._stepping = False

    def _step(self, run: RunSteps, chunks: tuple[Any, ...], decode: bool) -> Any:
        engine = self._memory.engine
        if run.layers is not None:
            done = engine.run_layers(chunks, run.layers)
        else:
            done = engine.step(chunks, decode, hand_over=run.hand_over)
        self._memory.wait()
        return done

    def _between_steps(self, steps: "_Steps", stop_after: int | None) -> int | None:
        """Handle queued messages; returns how many steps are left after a stop, or None without a stop."""
        if stop_after is not None:
            stop_after -= 1
        while True:
            try:
                message = self._inbox.next(wait=False)
            except queue.Empty:
                return stop_after
            if isinstance(message, StopSteps):
                stop_after = message.grace_steps if stop_after is None else stop_after
                continue
            self._carry_out(message)
            if isinstance(message, Join):
                steps.join()

    def _send(self, message: FromWorker) -> None:
        self._heard_ns = time.monotonic_ns()
        self._connection.send(message)


class _Steps:
    """Collects the steps since the last report to the driver."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._started_ns = time.monotonic_ns()
        self._ends_ns: list[int] = []
        self._tokens: dict[int, list[int]] = {}
        self._finished: tuple[int, ...] = ()
        self._joins: tuple[int, ...] = ()
        self._cpu_ns = 0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the CPU time of this thread while it computes a step."""
        began_ns = time.thread_time_ns()
        yield
        self._cpu_ns += time.thread_time_ns() - began_ns

    @property
    def last_ns(self) -> int:
        """When the last step ended."""
        return self._ends_ns[-1]

    def add(self, step: tuple[dict[int, int], tuple[int, ...]]) -> tuple[int, ...]:
        """Add a step that has just ended; returns the requests that finished in it."""
        sampled, self._finished = step
        self._ends_ns.append(time.monotonic_ns())
        for request, token in sampled.items():
            self._tokens.setdefault(request, []).append(token)
        return self._finished

    def join(self) -> None:
        """Note that requests join the batch from the next step on."""
        self._joins += (len(self._ends_ns),)

    def report(self, running: bool) -> StepsDone:
        """Make the driver's report of these steps."""
        tokens = {request: tuple(row) for request, row in self._tokens.items()}
        return StepsDone(
            epoch=self._epoch,
            started_ns=self._started_ns,
            ends_ns=tuple(self._ends_ns),
            tokens=tokens,
            finished=self._finished,
            running=running,
            joins=self._joins,
            cpu_ns=self._cpu_ns,
        )
