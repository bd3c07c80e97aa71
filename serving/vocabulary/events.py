"""Events: facts that a world reports to the controller. Frozen, and complete enough to be replayed."""

from serving.vocabulary.fact import fact
from serving.vocabulary.request import Request


@fact
class Arrived:
    """A request reached the system."""

    request: Request


@fact
class Ran:
    """A replica reports at a step boundary.

    ``steps``: number of steps run since its last report (an interrupted run stops early; a run cancelled
    before its first step reports 0). ``finished``: the requests that produced their last token in the last of
    these steps, ascending. ``epoch``: the epoch of the ``Run`` that is reported. ``running``: whether the run
    continues without a new ``Run``. ``last_step_ns``: when the last of these steps began; -1 without
    asynchronous scheduling, which alone needs it. ``joins``: one number for every ``JoinBatch`` that the
    replica has read since its last report while a run was in progress: the number of these steps that ended
    before the requests of the ``JoinBatch`` took part. ``micro_batch``: on a replica cut into pipeline
    stages, the micro-batch whose step has ended; it runs no further step unless ``running``.
    ``batch_steps``: for each of the replica's micro-batches, the number of steps since the last report.
    """

    replica: int
    epoch: int
    steps: int
    finished: tuple[int, ...]
    running: bool = False
    last_step_ns: int = -1
    joins: tuple[int, ...] = ()
    micro_batch: int = -1
    batch_steps: tuple[int, ...] = ()


@fact
class Streamed:
    """A server sent its tokens since the last event. Its engine chooses its own passes.

    ``tokens``: pairs (request, number of its new tokens), ordered by request. ``finished``: the requests that
    have their last token, ascending.
    """

    replica: int
    tokens: tuple[tuple[int, int], ...]
    finished: tuple[int, ...]


@fact
class Dropped:
    """A server ended a request without a full answer. Its engine chooses its own passes; it still serves.

    ``refused``: True if the replica reported that it does not serve this request, False if the connection of
    the request broke.
    """

    replica: int
    request: int
    refused: bool
    cause: str


@fact
class Observed:
    """A server's state at ``as_of_ns``. It is asked for it; its engine chooses its own passes.

    ``running`` and ``waiting``: numbers of requests in its batch and in its queue, from all clients. Its KV
    memory has ``total_blocks`` blocks of ``block_tokens`` tokens each; ``used_blocks`` of them are in use.
    ``preemptions``, ``queried_tokens`` (looked up in its prefix cache) and ``found_tokens`` (found there):
    numbers since the engine started.
    """

    replica: int
    as_of_ns: int
    running: int
    waiting: int
    used_blocks: int
    total_blocks: int
    block_tokens: int
    preemptions: int = 0
    queried_tokens: int = 0
    found_tokens: int = 0


@fact
class Lost:
    """A replica is lost, with KV and parameters. Its process died or its host failed."""

    replica: int
    cause: str


@fact
class LossNotice:
    """It will be lost at ``at_ns``. An example is a spot instance that its provider reclaims.

    ``what``: "replica" or "host"; ``number``: which one. Before the notice of a host come the notices of its
    replicas.
    """

    what: str
    number: int
    at_ns: int
    cause: str


@fact
class LostHost:
    """A host is lost, with memory, SSD and GPUs. Or it is disconnected from the others.

    Its replicas were reported as ``Lost`` before.
    """

    host: int
    cause: str


@fact
class LostSsd:
    """A host's SSD can no longer be read."""

    host: int
    cause: str


@fact
class LostLink:
    """A cable is lost. It is that of a NIC, or one between a leaf and a spine switch; both directions.

    ``nic``: the number of the NIC, -1 for a cable between switches. Transfers take another path from now on.
    """

    link: str
    nic: int
    cause: str


@fact
class SchedulerLost:
    """The global scheduler failed. Frontends dispatch by themselves; nothing migrates or scales."""

    cause: str


@fact
class SchedulerBack:
    """The global scheduler works again."""


@fact
class Disconnected:
    """A request's client went away. Nobody waits for the answer any more."""

    request: int


@fact
class Closing:
    """Nothing can progress any more. The run ends with requests in flight."""

    cause: str


@fact
class Opened:
    """Loads can begin. It is the first event of a world that loads parameters."""


@fact
class Loaded:
    """Layers are complete at a target. They are [``first``, ``first`` + ``layers``) of the load.

    ``fully_loaded``: whether the whole load is complete at the target. ``target``: index in the load's
    ``targets``. ``first``: the first layer of the load.
    """

    load: int
    target: int
    layers: int
    fully_loaded: bool
    first: int = 0


@fact
class LoadStopped:
    """A load ended early. It was stopped, or a source, target or path failed.

    Layers [``first``, ``first`` + ``layers``) of the load are complete at the target.
    """

    load: int
    target: int
    layers: int
    cause: str
    first: int = 0


@fact
class Sent:
    """A transfer ended after ``moved_bytes``. ``cause``: why it ended early; empty if it is complete."""

    transfer: int
    moved_bytes: int
    cause: str


@fact
class Woke:
    """The time requested by a ``Wake`` has come."""


Event = (
    Arrived
    | Ran
    | Streamed
    | Dropped
    | Observed
    | Lost
    | LossNotice
    | LostHost
    | LostSsd
    | LostLink
    | SchedulerLost
    | SchedulerBack
    | Disconnected
    | Closing
    | Opened
    | Loaded
    | LoadStopped
    | Sent
    | Woke
)
