"""Messages between the driver and one worker, and between two workers (`Passed`).

Times are ``time.monotonic_ns``.

A message is a NamedTuple; its annotations say what a frame may hold (`realexec.wire.codec`). The unions at
the end of this module list the messages that can be sent.
"""

from typing import Any, Final, NamedTuple, get_args

from realexec.wire.codec import Codec
from serving.vocabulary.actions import Chunk, Span


class Open(NamedTuple):
    """To a worker, the first message: allocate the memory of this slot, ``kv_bytes`` of it for state.

    ``warm``: fill it with all parameters. ``host``: the memory of its host has all parameters too. ``paths``:
    the shared rate limits of links (`realexec.transports.shaped.Paths`), if links are shaped. ``every_step``:
    report each step at once. ``transport``: how peers read this memory, a name of
    `realexec.transport_registry`. ``layers``: the stage that the worker runs; None: all of the model's
    layers. ``models``: the keys of each model of the run, if there are several; ``model``: the number of the
    first one in this slot. ``bind``: the address of its host at which peers reach it, for transports between
    hosts. ``stages``: batches pass through workers that have one stage each and send each other messages.
    ``copies``: where all workers of a machine have the parameters that ``host`` asks for
    (`realexec.memory.shared_copies`); None: this worker has them for itself.
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
    copies: Any = None


class Meet(NamedTuple):
    """To a worker: the address of every slot's memory (from `Opened`), its own included.

    ``ahead``: link to all workers now and report `Met`; otherwise the worker links when it first reads.
    """

    addresses: tuple[Any, ...]
    ahead: bool = False


class Hold(NamedTuple):
    """To a worker: hold this request and generate ``missing`` more tokens for it."""

    request: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    missing: int


class RunSteps(NamedTuple):
    """To a worker: execute the `Run` action."""

    epoch: int
    chunks: tuple[Chunk, ...]
    decode: bool
    max_steps: int
    until_finish: bool
    hand_over: bool = False
    layers: Span | None = None


class RunRounds(NamedTuple):
    """To every worker on the path of a batch: run at most ``rounds`` rounds of it, each through all stages.

    ``number``: of this order, ascending. ``path``: (slot, first layer, end of its layers) of each stage.
    ``decode``: the requests that get a token, each with its newest token.
    """

    number: int
    batch: int
    path: tuple[tuple[int, int, int], ...]
    chunks: tuple[Chunk, ...]
    decode: tuple[tuple[int, int], ...]
    rounds: int


class StopRounds(NamedTuple):
    """To the worker of a last stage: report when the next round ends, of any batch."""


class Passed(NamedTuple):
    """From the worker of one stage to that of the next: a pass has ended. From the last stage to the first: a
    round has ended, and the next one begins.

    ``number``, ``batch``: of `RunRounds`. ``place``: where the hidden-state rows lie, (offset, bytes); empty
    after the last stage. ``decode``: request and newest token, flattened pairs. ``costs``: of the stages that
    this round has passed, one after the other (`realexec.wire.stage_costs`).
    """

    number: int
    batch: int
    place: tuple[int, ...]
    decode: tuple[int, ...]
    costs: tuple[int, ...]


class StopSteps(NamedTuple):
    """To a worker: end the current run at the next step boundary, or ``grace_steps`` steps later."""

    grace_steps: int = 0


class TakeOut(NamedTuple):
    """To a worker: remove the request from the batch; its KV stays, to be moved elsewhere."""

    request: int


class Join(NamedTuple):
    """To a worker: these requests decode from the next step on; all their KV is on this worker.

    ``generated``: the tokens of each so far; the KV of the last one is not computed yet.
    """

    requests: tuple[int, ...]
    generated: tuple[tuple[int, ...], ...]


class PlacePart(NamedTuple):
    """To a worker: make room for these layers (None: all) of a model in the GPU's memory, all unfilled."""

    model: int
    layers: Span | None


class Pull(NamedTuple):
    """To a worker: copy one unit of the model from a source into its own memory.

    Units: 0 is the embedding, then the layers, then the head. ``source``: (``replica``, ``host``, ``ssd`` or
    ``remote``; number of the slot or host). ``place``: the target memory, ``replica`` or ``host``.
    ``layers``: the layers that a source replica has (None: all of the model's).
    """

    load: int
    unit: int
    source: tuple[str, int]
    place: str
    model: int = 0
    layers: Span | None = None


class StopPull(NamedTuple):
    """To a worker: pull nothing more of this load."""

    load: int


class Locate(NamedTuple):
    """To the source worker: report where this state of these requests lies (`Located`)."""

    transfer: int
    what: str
    requests: tuple[int, ...]
    layers: Span | None
    positions: tuple[Span, ...]


class Fetch(NamedTuple):
    """To the target worker: read the state at the places that the worker in slot ``source`` reported."""

    transfer: int
    what: str
    source: int
    places: tuple[Any, ...]


class StopFetch(NamedTuple):
    """To a worker: the transfer is no longer needed."""

    transfer: int


class DropKV(NamedTuple):
    """To a worker: preempt this request and drop its KV."""

    request: int


class Forget(NamedTuple):
    """To a worker: drop this request; it ended elsewhere."""

    request: int


class Ready(NamedTuple):
    """From a worker: it has validated its configuration and waits for `Open`."""


class Opened(NamedTuple):
    """From a worker: its memory is allocated; ``address`` is how peers reach it."""

    address: Any


class Met(NamedTuple):
    """From a worker: it is linked to all other workers that are running."""


class StepsDone(NamedTuple):
    """From a worker: the steps since its last report; ``running``: whether the run goes on.

    ``tokens``: for each request that got any, one token per step from its first one to the last step.
    ``joins``: for each `Join` that came during the run, how many of the steps ran before it. ``cpu_ns``: CPU
    time of the compute thread in these steps.
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
    """From the worker of a last stage: the rounds of a batch since the last report, ending at ``ends_ns``.

    With a ``cause``, from any worker on the path: the batch cannot go on. ``tokens``: as in `StepsDone`.
    ``costs``: of each stage (`realexec.wire.stage_costs`), in path order. ``lost_peer``: see `Pulled`.
    """

    number: int
    ends_ns: tuple[int, ...]
    tokens: dict[int, tuple[int, ...]]
    finished: tuple[int, ...]
    costs: tuple[tuple[int, int, int, int], ...]
    cause: str = ""
    lost_peer: int | None = None


class Pulled(NamedTuple):
    """From a worker: a unit has been pulled completely or, with a ``cause``, has failed.

    ``lost_peer``: the slot of the source worker, if the read failed because that worker was lost. ``cpu_ns``:
    CPU time of the thread that read it.
    """

    load: int
    unit: int
    size_bytes: int
    cause: str
    lost_peer: int | None = None
    cpu_ns: int = 0


class Located(NamedTuple):
    """From a worker: where the state lies, in a format that only workers read."""

    transfer: int
    places: tuple[Any, ...]


class Fetched(NamedTuple):
    """From a worker: a transfer has ended; ``cause`` is empty if all of it arrived.

    ``lost_peer``, ``cpu_ns``: as in `Pulled`.
    """

    transfer: int
    moved_bytes: int
    cause: str
    lost_peer: int | None = None
    cpu_ns: int = 0


class Alive(NamedTuple):
    """From a worker: a long run is still going on."""


class Died(NamedTuple):
    """From a worker that failed; or queued by the driver itself for a worker that exited or was lost."""

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

CODEC: Final = Codec(get_args(ToWorker) + get_args(FromWorker) + (BetweenWorkers,))
