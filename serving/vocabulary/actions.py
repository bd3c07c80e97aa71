"""Actions are wishes the controller hands to a world. Deltas only: what a replica holds is implicit."""

from serving.vocabulary.fact import fact
from serving.vocabulary.layers import Part, part_of

# (request id, first KV position to compute, number of tokens): positions [start, start + tokens).
Chunk = tuple[int, int, int]
# (kind, number) of a place on the way of parameters: see Load.
Endpoint = tuple[str, int]
# [first, last) of layers, or of token positions. Where an action has no layers all of the model's are meant.
Span = tuple[int, int]


@fact
class Assign:
    """The request now belongs to this replica's queue."""

    request: int
    replica: int
    reason: str


@fact
class Reject:
    """The request is refused and forgotten."""

    request: int
    reason: str


@fact
class Run:
    """Run up to ``max_steps`` steps on a replica over its whole layer range.

    The first step also computes ``chunks``; a request whose prompt they complete samples a token and decodes
    from the next step on. Every step decodes one token for each resident decoding request (implicit), except
    that ``decode`` False leaves them out of the first one (prefill-first batching). More than one step with
    chunks only if they complete every prompt they touch. Steps in which requests finish are reported; the
    run then ends if ``until_finish``, and else goes on with those left, for as long as there are any. With
    ``hand_over`` requests whose prompts it completes do not decode here: their KV waits for an ``JoinBatch``.
    With ``layers`` it is one step that runs layers [first, last) of whole prompts, which get a token only
    after the model's last one. It may run on a replica that has no more layers than these. ``inputs``: the
    activations that it begins with, as (replica that has them, bytes): the world brings them first, and a
    pass whose inputs are lost reports no step. ``cpu_cores``: that prepare it; 0: as the world has it.

    ``micro_batch``: on a replica cut into pipeline stages, which of its micro-batches this is of; its members
    stay members. ``max_steps`` and ``until_finish`` then hold for every micro-batch in flight, from this
    moment on, one with a part of a prompt too; where its memory is parted (virtual engines) for this one.
    ``path``: of a model whose stages are replicas of their own, one of each stage in order. Each step of the
    batch ``micro_batch`` passes them all, ``replica`` first; ``max_steps`` is that batch's alone. ``spans``:
    the layers that each of them runs, where two share a stage; empty: each runs all that it is to hold.
    """

    replica: int
    epoch: int
    chunks: tuple[Chunk, ...]
    decode: bool
    max_steps: int
    until_finish: bool
    reason: str
    hand_over: bool = False
    layers: Span | None = None
    inputs: tuple[tuple[int, int], ...] = ()
    cpu_cores: int = 0
    micro_batch: int = -1
    path: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()


@fact
class Interrupt:
    """Stop the replica's current run at the next step boundary and report. Ignored when nothing runs.

    Of a replica on a path all batches of its model are meant: the first of them to end a step stops.
    ``grace_steps`` more steps are run before it stops. ``later``: a boundary that is due at this very moment
    does not count, for a world that goes step by step has told of it already.
    """

    replica: int
    reason: str
    grace_steps: int = 0
    later: bool = False


@fact
class Preempt:
    """Take a resident or partly prefilled request out of the replica; its KV is dropped.

    ``swap_ns``: it goes to host memory instead, and the next pass begins so much later.
    """

    replica: int
    request: int
    reason: str
    swap_ns: int = 0


@fact
class Detach:
    """Take a request that decodes out of the batch at a step boundary; its KV stays, to go elsewhere."""

    replica: int
    request: int
    reason: str


@fact
class Migrate:
    """What becomes of the migration of a running request: ``begun``, ``committed`` or ``aborted``.

    It is told, and nothing is to be done: other actions say what.
    """

    request: int
    source: int
    target: int
    phase: str
    reason: str


@fact
class Fail:
    """The request ends without its answer, because what served it is gone."""

    request: int
    reason: str


@fact
class AllocateGpus:
    """From now on the GPUs are this replica's, which serves in ``role``: prefill, decode or both.

    A replica that gets its former GPUs again keeps its number. ``warm``: its parameters are still there.
    ``layers``: those that it is to hold and run.
    """

    replica: int
    model: str
    gpus: tuple[int, ...]
    role: str
    warm: bool
    reason: str
    layers: Span | None = None


@fact
class SwitchRole:
    """The replica serves in another role from now on; its parameters serve both."""

    replica: int
    role: str
    reason: str


@fact
class ReleaseGpus:
    """The replica's GPUs are free again. It holds no request; its parameters may be overwritten."""

    replica: int
    reason: str


@fact
class Shard:
    """One GPU's part in a load: ``share`` of all parameters, at no more than ``rate_bytes_per_s``.

    source_gpu: -1 when it comes from a host's memory.
    """

    source_gpu: int
    target_gpu: int
    share: float
    rate_bytes_per_s: float


@fact
class Load:
    """Bring the parameters of ``model`` from the sources to the targets, unit by unit.

    An endpoint is (kind, number): ``replica``, ``host`` (its memory), ``ssd`` (of a host) or ``remote``
    (number 0). A source may itself be loading: then it passes on what it has. ``shards`` (their shares sum to
    1) say which GPU sends which part to which; the ranks of several targets then exchange their parts over
    their scale-up links. Without shards there is one source and one target, rank to same rank. The world
    reports how many layers are whole at a target: each of them if ``every_layer``, else only all. ``cold``:
    replicas that load must start up first (process, context, connections). ``layers_first``: the embedding
    comes after the layers, else before them. ``layers``: which of the model's are brought; the embedding
    comes with layer 0, the head with the last one.
    """

    load: int
    model: str
    sources: tuple[Endpoint, ...]
    targets: tuple[Endpoint, ...]
    shards: tuple[Shard, ...]
    every_layer: bool
    cold: bool
    reason: str
    layers_first: bool = False
    layers: Span | None = None

    @property
    def part(self) -> Part:
        """What is brought. The action must say which layers."""
        assert self.layers is not None, f"load {self.load} does not say which layers of {self.model}"
        return part_of(self.model, *self.layers)


@fact
class StopLoad:
    """Stop a load: what is whole stays where it is, the rest is not sent."""

    load: int
    reason: str


@fact
class Send:
    """Move ``size_bytes`` of state (``what``: ``kv`` or ``activations``) of requests between two replicas.

    ``layers``: whose KV is moved; of activations the one layer that is to run next, as [n, n + 1).
    ``positions``: of each request the token positions; none where all that the source has are moved.
    ``control_ns``: it ends so much later, for what both sides tell each other beside the bytes.
    ``slowdown_ppm``: while it is under way steps of both replicas take so many millionths longer.
    """

    transfer: int
    what: str
    requests: tuple[int, ...]
    source: int
    target: int
    size_bytes: int
    reason: str
    layers: Span | None = None
    positions: tuple[Span, ...] = ()
    control_ns: int = 0
    slowdown_ppm: int = 0


@fact
class StopSend:
    """Stop a transfer; the world reports how much of it had moved."""

    transfer: int
    reason: str


@fact
class JoinBatch:
    """Requests whose KV is here now decode on this replica, from its next step on.

    A run in progress, which then is one without prompts, goes on with them and tells of it (``Ran.joins``).
    ``layers``: whose KV is here. ``swap_ns``: it was in host memory; nothing runs, and the next pass begins
    so much later.
    """

    replica: int
    requests: tuple[int, ...]
    reason: str
    layers: Span | None = None
    swap_ns: int = 0


@fact
class Wake:
    """Report ``Woke`` at this time. Only one is asked for at a time."""

    at_ns: int
    reason: str


Action = (
    Assign
    | Reject
    | Run
    | Interrupt
    | Preempt
    | Detach
    | Migrate
    | Fail
    | AllocateGpus
    | SwitchRole
    | ReleaseGpus
    | Load
    | StopLoad
    | Send
    | StopSend
    | JoinBatch
    | Wake
)
