"""The data of a request that only the simulated world has: its true length and its tokens' times."""

from collections.abc import Mapping, Sequence

from serving.vocabulary.actions import Chunk
from serving.vocabulary.request import Request


class Lifetime:
    """One request between arrival and end. Token times are fixed point if sub-ns order matters.

    ``end`` is the step counter of its machine at which it has all its tokens, -1 while it does not decode.
    ``generated`` is kept up to date only while the request does not decode.
    """

    __slots__ = (
        "end",
        "first_token_ns",
        "generated",
        "last_token_fixed",
        "output_tokens",
        "preempted_fixed",
        "preemptions",
        "request",
    )

    def __init__(self, request: Request, output_tokens: int) -> None:
        self.request = request
        self.output_tokens = output_tokens
        self.generated = 0
        self.end = -1
        self.first_token_ns = -1
        self.last_token_fixed = -1
        self.preemptions = 0
        self.preempted_fixed = -1  # since when it waits, or is computed again, after a preemption


def after_prompts(
    lives: Mapping[int, Lifetime], chunks: Sequence[Chunk], context: int, largest: int, steps: int
) -> tuple[int, int, int]:
    """Total and largest context of the resident requests and their remaining steps, with the chunks added."""
    for request, _, _ in chunks:
        life = lives[request]
        generated = life.generated + 1
        own = life.request.prompt_tokens + generated
        context += own
        if own > largest:
            largest = own
        missing = life.output_tokens - generated
        if missing < steps:
            steps = missing
    return context, largest, steps
