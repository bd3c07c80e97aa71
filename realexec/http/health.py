"""Checks whether a server still serves."""

import asyncio
from typing import Final

from realexec.http.lines import Line
from realexec.http.probe import Server, is_alive

# A server that does not answer is checked a second time before it counts as lost.
HEALTH_TRIES: Final = 2


async def why_dead(line: Line, timeout_s: float) -> str | None:
    """Return why a server no longer serves; None if it serves. Concurrent callers share one check."""
    if line.checking is None:
        line.checking = asyncio.create_task(_asked(line.server, timeout_s))
        line.checking.add_done_callback(lambda _: setattr(line, "checking", None))
    return await asyncio.shield(line.checking)


async def _asked(server: Server, timeout_s: float) -> str | None:
    cause = None
    for _ in range(HEALTH_TRIES):
        cause = await is_alive(server, timeout_s)
        if cause is None:
            return None
    return cause
