"""Events are facts a world reports to the controller. Frozen, and complete enough to be replayed."""

from serving.vocabulary.fact import fact
from serving.vocabulary.request import Request


@fact
class Arrived:
    """A request reached the system."""

    request: Request


@fact
class Ran:
    """A replica reports at a step boundary.

    ``steps`` is how many steps have run since its last report (an interrupted run stops early; one cancelled
    before its first step reports 0). ``finished`` lists the requests that produced their last token in the
    last of these steps, ascending. ``epoch`` is that of the ``Run`` it answers. ``running``: the run goes on,
    no new one is needed. ``last_step_ns``: when the last of these steps began, -1 where it is not needed
    (only asynchronous scheduling needs it). ``joins``: for every ``JoinBatch`` since the last report that
    found a run in progress, how many of these steps had run before its requests took part (those that
    the replica had not read yet come with the next report of the run).
    ``micro_batch``: of a replica cut into pipeline stages, whose step has ended, and which runs no further
    unless ``running``; ``batch_steps``: how many steps of each of its micro-batches have ended since the last
    report.
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
    """A replica whose engine runs by itself sent tokens: those that have come since its last such event.

    ``tokens``: (request, how many), by request; ``finished``: those that have their last one, ascending.
    """

    replica: int
    tokens: tuple[tuple[int, int], ...]
    finished: tuple[int, ...]


@fact
class Dropped:
    """A replica whose engine runs by itself ended a request without its answer, and serves on.

    ``refused``: it said that it does not serve this one; else only the connection broke.
    """

    replica: int
    request: int
    refused: bool
    cause: str


@fact
class Observed:
    """What a replica whose engine runs by itself told of itself when it was asked, at ``as_of_ns``.

    ``running`` and ``waiting``: requests in its batch and in its queue, whoever sent them. ``used_blocks`` of
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
    """A replica is gone (its process died, its host failed): nothing it held exists any more."""

    replica: int
    cause: str


@fact
class LossNotice:
    """Something is to be lost at ``at_ns``, as a spot instance whose provider wants it back.

    ``what``: "replica" or "host", whose replicas are told of before, each with a notice of its own.
    """

    what: str
    number: int
    at_ns: int
    cause: str


@fact
class LostHost:
    """A host is gone, or nothing connects it to the others: its memory, its SSD and its GPUs are lost.

    Its replicas were told of as ``Lost`` before.
    """

    host: int
    cause: str


@fact
class LostSsd:
    """Nothing can be read from a host's SSD any more."""

    host: int
    cause: str


@fact
class LostLink:
    """A cable is gone in both directions: that of a NIC, or between a leaf and a spine switch (``nic`` -1).

    What is sent takes another way from now on.
    """

    link: str
    nic: int
    cause: str


@fact
class Closing:
    """Nothing will happen any more to the requests in flight, and the run ends."""

    cause: str


@fact
class Opened:
    """The world is up and can carry out actions. Comes first, from worlds that have parameters to load."""


@fact
class Loaded:
    """Layers [``first``, ``first`` + ``layers``) of a load are whole at a target; ``fully_loaded``: so is all
    of
    it.

    ``target`` counts over the load's targets; ``first`` is the first layer of the load.
    """

    load: int
    target: int
    layers: int
    fully_loaded: bool
    first: int = 0


@fact
class LoadStopped:
    """A load ended early at a target: asked to, or because something failed.

    Layers [``first``, ``first`` + ``layers``) of it are whole there.
    """

    load: int
    target: int
    layers: int
    cause: str
    first: int = 0


@fact
class Sent:
    """A transfer ended after ``moved_bytes``; ``cause`` is empty when that is all."""

    transfer: int
    moved_bytes: int
    cause: str


@fact
class Woke:
    """The time a ``Wake`` asked for has come."""


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
