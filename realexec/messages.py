"""What travels between the driver and one worker, and between workers (`Passed`).

Times are ``time.monotonic_ns``.

A message is a NamedTuple; its annotations say what a frame may hold (`realexec.wire.codec`). What is added to
the unions at the end can be sent.
"""

from typing import Any, Final, NamedTuple, get_args

from realexec.wire.codec import Codec
from serving.vocabulary.actions import Chunk, Span


class Open(NamedTuple):
    """To a worker, first of all: make the memory of this slot, ``kv_bytes`` of it for state.

    ``warm``: with all parameters. ``host``: the memory of its host has them all too. ``paths``: what links
    carry (`realexec.transports.shaped.Paths`), if they are shaped. ``every_step``: report each step at once.
    ``transport``: by which peers read this memory, a name of `realexec.transports.registry`. ``layers``:
    those of the stage that it runs; None: all of the model's. ``models``: the keys of each model of the run
    where there are several; ``model``: the number of the one that is here at first. ``bind``: the address of
    its host at which peers reach it, for transports that go between hosts. ``stages``: batches go round
    workers that have a stage each, and these tell each other.
    """

    slot: int
    kv_bytes: int
    warm: bool
    host: bool
    paths: Any
    every_step: bool
    transport: str = "shared_memory"
    layers: Span | None = None
    models: tuple[Any, ...] = ()
    model: int = 0
    bind: str = "127.0.0.1"
    stages: bool = False


class Meet(NamedTuple):
    """To a worker: where the memory of each slot is (`Opened`), its own among them.

    ``ahead``: link to all of them now, and tell (`Met`); else it does so when it first reads from one.
    """

    addresses: tuple[Any, ...]
    ahead: bool = False


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
    hand_over: bool = False
    layers: Span | None = None


class RunRounds(NamedTuple):
    """To every worker on the path of a batch: it goes round them, so many ``rounds`` at most.

    ``number``: of this order, above all before. ``path``: (slot, first layer, end of its layers) of each
    stage. ``decode``: the requests that get a token, each with its newest one.
    """

    number: int
    batch: int
    path: tuple[tuple[int, int, int], ...]
    chunks: tuple[Chunk, ...]
    decode: tuple[tuple[int, int], ...]
    rounds: int


class StopRounds(NamedTuple):
    """To the worker of a last stage: report when the next round has ended, whichever batch's it is."""


class Passed(NamedTuple):
    """From the worker of a stage to that of the next one: a pass has ended; from the last to the first: a
    round has, and the next one begins.

    ``number``, ``batch``: of `RunRounds`. ``place``: where the rows lie, (offset, bytes); none after the last
    stage. ``decode``: request and newest token, one pair after the other. ``costs``: of the stages that were
    passed in this round, one after the other (`realexec.stage_costs`).
    """

    number: int
    batch: int
    place: tuple[int, ...]
    decode: tuple[int, ...]
    costs: tuple[int, ...]


class StopSteps(NamedTuple):
    """To a worker: end the current run at the next step boundary, or so many steps later."""

    grace_steps: int = 0


class TakeOut(NamedTuple):
    """To a worker: the request leaves the batch; its KV stays, to go elsewhere."""

    request: int


class Join(NamedTuple):
    """To a worker: these decode from the next step on, for all their KV is here.

    ``generated``: the tokens that each has so far; the KV of the last one is not computed yet.
    """

    requests: tuple[int, ...]
    generated: tuple[tuple[int, ...], ...]


class PlacePart(NamedTuple):
    """To a worker: these layers (None: all) of a model are to be in the GPU's memory, and none is yet."""

    model: int
    layers: Span | None


class Pull(NamedTuple):
    """To a worker: bring a unit of the model from a place to a place of its own.

    Units: 0 is the embedding, then the layers, then the head. ``source``: (``replica``, ``host``, ``ssd`` or
    ``remote``; which slot or host). ``place``: ``replica`` or ``host``, whose memory it is to lie in.
    ``layers``: those that a replica that is the source has (None: all of the model's).
    """

    load: int
    unit: int
    source: tuple[str, int]
    place: str
    model: int = 0
    layers: Span | None = None


class StopPull(NamedTuple):
    """To a worker: nothing more of this load is needed."""

    load: int


class Locate(NamedTuple):
    """To the worker that has it: where does this state of these requests lie?"""

    transfer: int
    what: str
    requests: tuple[int, ...]
    layers: Span | None
    positions: tuple[Span, ...]


class Fetch(NamedTuple):
    """To the worker that is to have it: read what the worker in slot ``source`` has told of (`Located`)."""

    transfer: int
    what: str
    source: int
    places: tuple[Any, ...]


class StopFetch(NamedTuple):
    """To a worker: the transfer is not needed any more."""

    transfer: int


class DropKV(NamedTuple):
    """To a worker: preempt this request."""

    request: int


class Forget(NamedTuple):
    """To a worker: this request ended elsewhere."""

    request: int


class Ready(NamedTuple):
    """From a worker: the model is built."""


class Opened(NamedTuple):
    """From a worker: its memory is there."""

    address: Any


class Met(NamedTuple):
    """From a worker: it is linked to all others that are there."""


class StepsDone(NamedTuple):
    """From a worker: steps since its last report; ``running`` when the run goes on.

    ``tokens`` holds, for each request that got any, one token per step from its first one to the last step.
    ``joins``: for each `Join` that came during the run, how many of the steps had been run before it.
    ``cpu_ns``: of the thread that computes, in these steps.
    """

    epoch: int
    started_ns: int
    ends_ns: tuple[int, ...]
    tokens: dict[int, tuple[int, ...]]
    finished: tuple[int, ...]
    running: bool
    joins: tuple[int, ...] = ()
    cpu_ns: int = 0


class RoundsDone(NamedTuple):
    """From the worker of a last stage: rounds of a batch since it was last told of, at ``ends_ns``.

    From any on its path with a ``cause``: the batch goes no further. ``tokens``: as in `StepsDone`.
    ``costs``: of each stage (`realexec.stage_costs`), in the order of the path. ``lost_peer``: see `Pulled`.
    """

    number: int
    ends_ns: tuple[int, ...]
    tokens: dict[int, tuple[int, ...]]
    finished: tuple[int, ...]
    costs: tuple[tuple[int, int, int, int], ...]
    cause: str = ""
    lost_peer: int | None = None


class Pulled(NamedTuple):
    """From a worker: a unit is whole; with a ``cause`` it is not.

    ``lost_peer``: the slot of the worker that it was read from, where that one is what is lost.
    ``cpu_ns``: of the thread that read it.
    """

    load: int
    unit: int
    size_bytes: int
    cause: str
    lost_peer: int | None = None
    cpu_ns: int = 0


class Located(NamedTuple):
    """From a worker: where the state lies, in words that only workers read."""

    transfer: int
    places: tuple[Any, ...]


class Fetched(NamedTuple):
    """From a worker: a transfer has ended; ``cause`` is empty when all of it came.

    ``lost_peer``, ``cpu_ns``: as in `Pulled`.
    """

    transfer: int
    moved_bytes: int
    cause: str
    lost_peer: int | None = None
    cpu_ns: int = 0


class Alive(NamedTuple):
    """From a worker: a run is long and goes on."""


class Died(NamedTuple):
    """From a worker that failed, or put by the driver's reader for one that vanished."""

    cause: str


ToWorker = (
    Open
    | Meet
    | Hold
    | RunSteps
    | RunRounds
    | StopRounds
    | StopSteps
    | DropKV
    | Forget
    | TakeOut
    | Join
    | PlacePart
    | Pull
    | StopPull
    | Locate
    | Fetch
    | StopFetch
)
FromWorker = Ready | Opened | Met | StepsDone | RoundsDone | Alive | Died | Pulled | Located | Fetched
BetweenWorkers = Passed

# Rows of numbers that are too long for JSON: token ids, and the times at which steps ended.
PACKED: Final = {
    Hold: {"prompt": "i", "generated": "i"},
    Join: {"generated": "i"},
    StepsDone: {"ends_ns": "q", "tokens": "i"},
    RoundsDone: {"ends_ns": "q", "tokens": "i"},
}
CODEC: Final = Codec(get_args(ToWorker) + get_args(FromWorker) + (BetweenWorkers,), PACKED)
