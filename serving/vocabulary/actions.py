"""Actions: requests of the controller to a world. An action names changes, not a replica's whole state."""

from serving.vocabulary.fact import fact
from serving.vocabulary.layers import Part, part_of

# (request id, first KV position to compute, number of tokens): positions [start, start + tokens).
Chunk = tuple[int, int, int]
# (kind, number) of a place where parameters are or go: see Load.
Endpoint = tuple[str, int]
# [first, last) of layers, or of token positions. An action without layers means all layers of the model.
Span = tuple[int, int]


@fact
class Assign:
    """Put the request into the replica's queue."""

    request: int
    replica: int
    reason: str


@fact
class Reject:
    """Refuse the request."""

    request: int
    reason: str


@fact
class Run:
    """Run up to ``max_steps`` steps. They are of the replica's whole layer range.

    The first step also computes ``chunks``; a request whose prompt they complete samples a token and decodes
    from the next step on. Every step decodes one token for each resident decoding request (implicit), except
    that with ``decode`` False the first step leaves them out (prefill-first batching). A run with chunks has
    more than one step only if they complete every prompt they touch. Steps in which requests finish are
    reported. The run then ends if ``until_finish``; else it goes on while any requests are left. With
    ``hand_over``, requests whose prompts it completes do not decode here: their KV waits for a ``JoinBatch``.
    With ``layers`` it is one step that runs layers [first, last) of whole prompts; they get a token only
    after the model's last layer. The replica may have no more layers than these. ``inputs``: the activations
    that it begins with, as (replica that has them, bytes): the world brings them first, and a pass whose
    inputs are lost reports no step. ``cpu_cores``: the cores that prepare it; 0: the world's default.

    ``micro_batch``: on a replica cut into pipeline stages, the micro-batch that this run belongs to; its
    members stay members. ``max_steps`` and ``until_finish`` then hold from now on for every micro-batch in
    flight, also for one with a part of a prompt; with parted memory (virtual engines) only for this one.
    ``path``: for a model whose stages are separate replicas, one replica of each stage in order, ``replica``
    first. Each step of the batch ``micro_batch`` passes them all; ``max_steps`` is that batch's alone.
    ``spans``: the layers that each of them runs, if two share a stage; empty: each runs all the layers that
    it is to hold.
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
    """Stop the current run at a step boundary. The replica reports. Ignored if nothing runs.

    For a replica on a path it applies to all batches of the model: the first to end a step stops.
    ``grace_steps`` more steps run before the stop. ``later``: a boundary due at this very moment does not
    count, because a world that simulates step by step has reported it already.
    """

    replica: int
    reason: str
    grace_steps: int = 0
    later: bool = False


@fact
class Preempt:
    """Preempt the request. It is resident or partly prefilled; its KV is dropped.

    ``swap_ns``: the KV goes to host memory instead, and the next pass begins this much later.
    """

    replica: int
    request: int
    reason: str
    swap_ns: int = 0


@fact
class Detach:
    """Take a request out of the batch, not its KV. It decodes; its KV stays until it is moved."""

    replica: int
    request: int
    reason: str


@fact
class Migrate:
    """Where a migration is: ``begun``, ``committed`` or ``aborted``.

    For information only: other actions carry out the migration.
    """

    request: int
    source: int
    target: int
    phase: str
    reason: str


@fact
class Fail:
    """End a request whose replica is lost. It gets no answer."""

    request: int
    reason: str


@fact
class Abort:
    """Drop a request whose client went away. It leaves the batch at this step boundary, or a queue.

    ``replica``: where it was; -1: at none yet. ``tokens``: tokens of its prompt and output that were computed
    for it, or found in a prefix cache.
    """

    request: int
    replica: int
    tokens: int
    reason: str


@fact
class AllocateGpus:
    """Give GPUs to a replica. It serves in ``role``: prefill, decode or both.

    A replica that gets its former GPUs again keeps its number. ``warm``: its parameters are still there.
    ``layers``: the layers that it is to hold and run.
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
    """Change a replica's role. Its parameters serve both."""

    replica: int
    role: str
    reason: str


@fact
class ReleaseGpus:
    """Free the replica's GPUs. It holds no request; its parameters may be overwritten."""

    replica: int
    reason: str


@fact
class Shard:
    """One GPU's part in a load.

    source_gpu, target_gpu: numbers; -1 if the part comes from a host's memory. share: of all parameters.
    rate_bytes_per_s: at most.
    """

    source_gpu: int
    target_gpu: int
    share: float
    rate_bytes_per_s: float


@fact
class Load:
    """Load parameters from the sources to the targets. They come unit by unit.

    An endpoint is (kind, number): ``replica``, ``host`` (its memory), ``ssd`` (of a host) or ``remote``
    (number 0). A source that is still loading forwards what it has. ``shards`` (their shares sum to 1) say
    which GPU sends which part to which GPU; the ranks of several targets then exchange their parts over their
    scale-up links. Without shards there is one source and one target, rank to same rank. The world reports
    how many layers are complete at a target: after each layer if ``every_layer``, else only when all are.
    ``cold``: replicas that load must first start (process, context, connections). ``layers_first``: the
    embedding comes after the layers, else before them. ``layers``: the layers of the model to bring; the
    embedding comes with layer 0, the head with the last layer.
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
        """The part to bring. Requires ``layers``."""
        assert self.layers is not None, f"load {self.load} does not say which layers of {self.model}"
        return part_of(self.model, *self.layers)


@fact
class StopLoad:
    """Stop a load. Complete layers stay where they are, the rest is not sent."""

    load: int
    reason: str


@fact
class Send:
    """Move KV or activations (``what``). They are ``size_bytes`` of requests, between two replicas.

    ``layers``: the layers whose KV is moved; for activations the one layer that runs next, as [n, n + 1).
    ``positions``: token positions of each request; empty: all that the source has are moved. ``control_ns``:
    the transfer ends this much later, for the control messages of both sides. ``slowdown_ppm``: during the
    transfer steps of both replicas take this many millionths longer.
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
    """Stop a transfer. The world reports how much of it had moved."""

    transfer: int
    reason: str


@fact
class JoinBatch:
    """Let requests whose KV has arrived decode. They do from the replica's next step on.

    A run in progress has no prompts then; it continues with them and reports it (``Ran.joins``). ``layers``:
    the layers whose KV is here. ``swap_ns``: the KV was in host memory; nothing runs, and the next pass
    begins this much later.
    """

    replica: int
    requests: tuple[int, ...]
    reason: str
    layers: Span | None = None
    swap_ns: int = 0


@fact
class Wake:
    """Report ``Woke`` at this time. At most one is pending at a time."""

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
    | Abort
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
