"""Requests that have waited for their next token since before the present pass, and since when.

If a pass leaves the resident requests out (prefill-first batching, some layers of prompts), their next
inter-token gap is longer: it begins at their last token. Requests that got their first token from such a pass
wait from then on.
"""

from collections.abc import Callable


class DelayedTokens:
    """Groups of [time of last token in fixed point, requests], the longest waiting first.

    Empty if all resident requests got a token in the last step.
    """

    __slots__ = ("_gaps", "_own", "groups")

    def __init__(self, gaps: Callable[[int, int, int, int], None]) -> None:
        self._gaps = gaps
        self.groups: list[list[int]] = []
        self._own: dict[int, int] = {}  # joined requests without a token here yet: time of their last token

    def residents_skipped(self, start_fixed: int, end_fixed: int, residents: int, joined: int) -> None:
        """Note a pass that left ``residents`` out, and gave ``joined`` others a token at its end."""
        if residents and not self.groups:
            self.groups.append([start_fixed, residents])
        if joined and self.groups:
            self.groups.append([end_fixed, joined])

    def join(self, request: int, last_token_fixed: int, boundary_fixed: int, residents: int) -> None:
        """Add a request that decoded elsewhere; ``residents`` got a token at the last boundary, or wait."""
        if not self.groups:
            self.groups.append([boundary_fixed, residents])
        self._own[request] = last_token_fixed

    def waits(self, token_fixed: int) -> list[tuple[int, int]]:
        """Give every request a token now; returns (gap, requests)."""
        found = [(token_fixed - last, 1) for last in self._own.values()]
        found += [(token_fixed - last, requests) for last, requests in self.groups if requests]
        self._own.clear()
        self.groups.clear()
        return found

    def end(self, token_fixed: int) -> None:
        """Give every request a token now."""
        for gap, requests in self.waits(token_fixed):
            self._gaps(gap, 0, 1, requests)

    def end_run(self, start_fixed: int, first: int, slope: int, steps: int, residents: int) -> None:
        """Handle decode steps of cost ``first + i * slope``: the first one ends the wait."""
        self.end(start_fixed + first)
        if steps > 1:
            self._gaps(first + slope, slope, steps - 1, residents)

    def leave(self, request: int, last_token_fixed: int) -> int:
        """Take a waiting request out; returns when its last token appeared.

        ``last_token_fixed`` is the time of the token from its prompt, so an upper bound gives its group: a
        request that has decoded since is in the first group.
        """
        own = self._own.pop(request, None)
        if own is not None:
            return own
        last = max(last_token_fixed, self.groups[0][0])
        group = next(group for group in self.groups if group[0] == last)
        group[1] -= 1
        return last
