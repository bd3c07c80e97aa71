"""The largest context among the resident requests of one machine, and their prompts.

All contexts grow by one per step, so their order is fixed: a request with context c at step counter s is
stored as s - c, the largest context having the smallest value. When its owner leaves, the other requests are
scanned once.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from simcore.replica.lifetime import Lifetime

NO_REQUEST: Final = -1


class LargestContext:
    """``offset``: step counter minus the largest context; valid while there is an ``owner``.

    ``prompt_tokens``: of all resident requests; the rest of their contexts is generated.
    """

    __slots__ = ("offset", "owner", "prompt_tokens")

    def __init__(self) -> None:
        self.owner = NO_REQUEST
        self.offset = 0
        self.prompt_tokens = 0

    def join(self, life: Lifetime, alone: bool) -> None:
        """A request decodes from the next step on, ``alone`` if no other does; its ``end`` is known."""
        self.prompt_tokens += life.request.prompt_tokens
        offset = life.end - life.request.prompt_tokens - life.output_tokens
        if alone or (self.owner != NO_REQUEST and offset < self.offset):
            self.owner, self.offset = life.request.id, offset

    def leave(self, life: Lifetime) -> None:
        """The request stops decoding."""
        self.prompt_tokens -= life.request.prompt_tokens
        if self.owner == life.request.id:
            self.owner = NO_REQUEST

    def largest(self, steps_done: int, ends: Iterable[tuple[int, int]], lives: Mapping[int, Lifetime]) -> int:
        """The largest context, including the token that the next step feeds; 0 if no request decodes.

        ``ends``: (step counter of the end, request) of the resident requests.
        """
        if self.owner == NO_REQUEST:
            offset = steps_done
            for end, request in ends:
                life = lives[request]
                own = end - life.request.prompt_tokens - life.output_tokens
                if own < offset:
                    self.owner, offset = request, own
            self.offset = offset
            if self.owner == NO_REQUEST:
                return 0
        return steps_done - self.offset
