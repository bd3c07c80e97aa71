"""Actions are wishes the controller hands to a world. Deltas only: what a replica holds is implicit."""

from serving.fact import fact

# (request id, first KV position to compute, number of tokens): positions [start, start + tokens).
Chunk = tuple[int, int, int]
# (kind, number) of a place on the way of parameters: see Load.
Stop = tuple[str, int]


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
    run then ends if ``until_finish``, and else goes on with those left, for as long as there are any.
    """

    replica: int
    epoch: int
    chunks: tuple[Chunk, ...]
    decode: bool
    max_steps: int
    until_finish: bool
    reason: str


@fact
class Interrupt:
    """Stop the replica's current run at the next step boundary and report. Ignored when nothing runs.

    ``grace_steps`` more steps are run before it stops.
    """

    replica: int
    reason: str
    grace_steps: int = 0


@fact
class Preempt:
    """Take a resident or partly prefilled request out of the replica; its KV is dropped."""

    replica: int
    request: int
    reason: str


@fact
class Fail:
    """The request ends without its answer, because what served it is gone."""

    request: int
    reason: str


@fact
class Load:
    """Bring the parameters of ``model`` from the first stop to every later one, each forwarding to the next.

    A stop is (kind, number): ``replica``, ``host`` (its memory), ``ssd`` (of a host) or ``remote`` (number
    0). The world reports how many layers are whole at a stop: each of them if ``every_layer``, else only all.
    ``cold``: the replicas that load must start up first (process, context, connections).
    """

    load: int
    model: str
    stops: tuple[Stop, ...]
    every_layer: bool
    cold: bool
    reason: str


@fact
class StopLoad:
    """Stop a load: what is whole stays where it is, the rest is not sent."""

    load: int
    reason: str


@fact
class Send:
    """Move ``size_bytes`` of state (``what``: ``kv`` or ``activations``) from one replica to another."""

    transfer: int
    what: str
    source: int
    target: int
    size_bytes: int
    reason: str


@fact
class StopSend:
    """Stop a transfer; the world reports how much of it had moved."""

    transfer: int
    reason: str


Action = Assign | Reject | Run | Interrupt | Preempt | Fail | Load | StopLoad | Send | StopSend
