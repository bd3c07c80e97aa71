"""Actions are wishes the controller hands to a world. Deltas only: what a replica holds is implicit."""

from serving.fact import fact

# (request id, first KV position to compute, number of tokens): positions [start, start + tokens).
Chunk = tuple[int, int, int]


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
    """Run steps on a replica over its whole layer range.

    Every step decodes one token for each resident decoding request (implicit), and the first step also
    computes ``chunks``. A request whose last prompt chunk is computed samples a token and is resident from
    the next step on. Without chunks the replica steps up to ``max_steps`` times and stops after the first
    step in which a request finishes; with chunks ``max_steps`` is 1. ``decode`` False leaves the resident
    set out of this step (prefill-first batching).
    """

    replica: int
    epoch: int
    chunks: tuple[Chunk, ...]
    decode: bool
    max_steps: int
    reason: str


@fact
class Interrupt:
    """Stop the replica's current run at the next step boundary and report. Ignored when nothing runs."""

    replica: int
    reason: str


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


Action = Assign | Reject | Run | Interrupt | Preempt | Fail
