"""The largest context among the resident requests of one machine, and their prompts.

All contexts grow by one per step, so their order stands still: a request with context c at step counter s is
kept as s - c, the smallest of all. When its owner leaves, the others are looked through once.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from simcore.replica.lifetime import Lifetime

NO_REQUEST: Final = -1


class LargestContext:
    """``offset``: step counter less the largest context; right while there is an ``owner``.

    ``prompt_tokens``: of the residents together; what their contexts have beyond that they have generated.
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
        """It decodes no more."""
        self.prompt_tokens -= life.request.prompt_tokens
        if self.owner == life.request.id:
            self.owner = NO_REQUEST

    def largest(self, steps_done: int, ends: Iterable[tuple[int, int]], lives: Mapping[int, Lifetime]) -> int:
        """The largest context, the token that the next step feeds included; 0 when no request decodes.

        ``ends``: (step counter of the end, request) of the residents.
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
