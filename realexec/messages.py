"""What travels over the pipe between the driver and one worker. Times are ``time.monotonic_ns``."""

from typing import NamedTuple

from serving.vocabulary.actions import Chunk


class Hold(NamedTuple):
    """To a worker: this request is yours; generate ``missing`` more tokens."""

    request: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    missing: int


class RunSteps(NamedTuple):
    """To a worker: the `Run` action."""

    epoch: int
    chunks: tuple[Chunk, ...]
    decode: bool
    max_steps: int
    until_finish: bool


class StopSteps(NamedTuple):
    """To a worker: end the current run at the next step boundary."""


class DropKV(NamedTuple):
    """To a worker: preempt this request."""

    request: int


class Forget(NamedTuple):
    """To a worker: this request ended elsewhere."""

    request: int


class Ready(NamedTuple):
    """From a worker: the model is built."""


class StepsDone(NamedTuple):
    """From a worker: steps since its last report; ``running`` when the run goes on.

    ``tokens`` holds, for each request that got any, one token per step from its first one to the last step.
    """

    epoch: int
    started_ns: int
    ends_ns: tuple[int, ...]
    tokens: dict[int, tuple[int, ...]]
    finished: tuple[int, ...]
    running: bool


class Alive(NamedTuple):
    """From a worker: a run is long and goes on."""


class Died(NamedTuple):
    """From a worker that failed, or put by the driver's reader for one that vanished."""

    cause: str


ToWorker = Hold | RunSteps | StopSteps | DropKV | Forget
FromWorker = Ready | StepsDone | Alive | Died
