"""Repeats requests one at a time, undisturbed, to find tokens that moving or resuming has changed."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from realexec.http.dialects import UNKNOWN_TOKEN, Wish
from realexec.http.probe import Server
from realexec.http.stream import tokens_of
from realexec.world.report import Generation


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """``different``: of ``checked`` tokens that came before any move; the other two: of those after one."""

    checked: int = 0
    different: int = 0
    resumed: int = 0
    resumed_different: int = 0
    first_difference: str | None = None


def chosen(generations: Iterable[Generation], tokens: int) -> list[Generation]:
    """Choose resumed requests first, then others by id, until they have this many tokens."""
    found, left = list[Generation](), tokens
    known = [generation for generation in generations if UNKNOWN_TOKEN not in generation.tokens]
    for generation in sorted(
        known, key=lambda generation: (generation.exact_tokens >= len(generation.tokens), generation.request)
    ):
        if left <= 0:
            break
        left -= len(generation.tokens)
        found.append(generation)
    return found


def ask_again(servers: Sequence[Server], generations: Sequence[Generation], timeout_s: float) -> TokenCheck:
    """Repeat one request after the other, in turn at the servers. Raises OSError or Refused."""
    return asyncio.run(_ask_again(servers, generations, timeout_s))


async def _ask_again(
    servers: Sequence[Server], generations: Sequence[Generation], timeout_s: float
) -> TokenCheck:
    counts, first = [0, 0, 0, 0], ""
    for place, generation in enumerate(generations):
        server = servers[place % len(servers)]
        wish = Wish(
            server.model, generation.prompt, len(generation.tokens), f"servetwin-again-{generation.request}"
        )
        tokens = list[int]()
        async with asyncio.timeout(timeout_s):
            async for chunk in tokens_of(server.address, server.dialect, wish, server.key):
                tokens += chunk.tokens
        exact = min(generation.exact_tokens, len(generation.tokens))
        wrong = [at for at, token in enumerate(generation.tokens) if tokens[at : at + 1] != [token]]
        counts[0] += exact
        counts[1] += sum(at < exact for at in wrong)
        counts[2] += len(generation.tokens) - exact
        counts[3] += sum(at >= exact for at in wrong)
        if wrong and not first:
            first = f"request {generation.request}, token {wrong[0]}, at {server.address}"
    checked, different, resumed, resumed_different = counts
    return TokenCheck(checked, different, resumed, resumed_different, first or None)
