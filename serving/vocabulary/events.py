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

    ``steps``: steps run since its last report (an interrupted run stops early; a run cancelled before its
    first step reports 0). ``finished``: the requests that produced their last token in the last of these
    steps, ascending. ``epoch``: that of the ``Run`` it answers. ``running``: the run goes on and needs no new
    ``Run``. ``last_step_ns``: when the last of these steps began, -1 if not needed (only asynchronous
    scheduling needs it). ``joins``: for every ``JoinBatch`` since the last report that found a run in
    progress, how many of these steps had run before its requests took part (a ``JoinBatch`` that the replica
    had not read yet comes with the next report of the run). ``micro_batch``: on a replica cut into pipeline
    stages, the micro-batch whose step has ended; it stops there unless ``running``. ``batch_steps``: how many
    steps of each of its micro-batches have ended since the last report.
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
    """A replica whose engine runs by itself sent the tokens generated since its last such event.

    ``tokens``: (request, how many), by request; ``finished``: requests that have their last token, ascending.
    """

    replica: int
    tokens: tuple[tuple[int, int], ...]
    finished: tuple[int, ...]


@fact
class Dropped:
    """A replica whose engine runs by itself ended a request without its answer, and continues to serve.

    ``refused``: the replica reported that it does not serve this request; else only the connection broke.
    """

    replica: int
    request: int
    refused: bool
    cause: str


@fact
class Observed:
    """The state that a replica whose engine runs by itself reported when queried, at ``as_of_ns``.

    ``running`` and ``waiting``: requests in its batch and in its queue, from any client. ``used_blocks`` of
    ``total_blocks``, of ``block_tokens`` each: its KV memory; ``preemptions``: so far.
    """

    replica: int
    as_of_ns: int
    running: int
    waiting: int
    used_blocks: int
    total_blocks: int
    block_tokens: int
    preemptions: int = 0


@fact
class Lost:
    """A replica is lost (its process died, its host failed), with everything it held."""

    replica: int
    cause: str


@fact
class LossNotice:
    """Something will be lost at ``at_ns``, such as a spot instance that its provider reclaims.

    ``what``: "replica" or "host". Before a host's notice, each of its replicas gets a notice of its own.
    """

    what: str
    number: int
    at_ns: int
    cause: str


@fact
class LostHost:
    """A host is lost or disconnected from the others, with its memory, its SSD and its GPUs.

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
    """A cable is lost in both directions: that of a NIC, or between a leaf and a spine switch (``nic`` -1).

    Transfers take another path from now on.
    """

    link: str
    nic: int
    cause: str


@fact
class Closing:
    """The requests in flight cannot make progress any more, and the run ends."""

    cause: str


@fact
class Opened:
    """The world is up and can carry out actions. Comes first, from worlds that have parameters to load."""


@fact
class Loaded:
    """Layers [``first``, ``first`` + ``layers``) of a load are complete at a target.

    ``fully_loaded``: so is the whole load. ``target`` counts over the load's targets; ``first`` is the first
    layer of the load.
    """

    load: int
    target: int
    layers: int
    fully_loaded: bool
    first: int = 0


@fact
class LoadStopped:
    """A load ended early at a target: it was stopped, or something failed.

    Layers [``first``, ``first`` + ``layers``) of it are complete there.
    """

    load: int
    target: int
    layers: int
    cause: str
    first: int = 0


@fact
class Sent:
    """A transfer ended after ``moved_bytes``; ``cause`` is empty if that is all of it."""

    transfer: int
    moved_bytes: int
    cause: str


@fact
class Woke:
    """The time that a ``Wake`` named has come."""


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
    | Closing
    | Opened
    | Loaded
    | LoadStopped
    | Sent
    | Woke
)
