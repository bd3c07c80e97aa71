"""How long requests took inside the engines of servers, as their metrics count it: TTFT at the engine."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from realexec.http.client import get_text
from realexec.http.metrics_text import Sample, samples_of, values
from realexec.http.probe import Server

# vLLM counts each finished request's wait for its first step, and from there to its first token, by the clock
# of its engine: without the API server's ways in and out.
SOURCE: Final = "vllm:request_queue_time_seconds and vllm:request_prefill_time_seconds"
_WAITED, _PREFILLED = "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds"
# A server counts a request a moment after its client has the last token.
_LOOK_S: Final = 0.1
_LOOKS: Final = 20


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """``requests`` that ended, and the sum of their times from the engine's queue to the first token.

    ``prefilled_s``: of these, from their first step on.
    """

    requests: int
    first_token_s: float
    prefilled_s: float = 0.0

    def __sub__(self, before: "EngineTimes") -> "EngineTimes":
        return EngineTimes(
            self.requests - before.requests,
            self.first_token_s - before.first_token_s,
            self.prefilled_s - before.prefilled_s,
        )


def engine_times(samples: list[Sample]) -> EngineTimes | None:
    """What a page of metrics says; None if it does not count these times."""
    counted = values(samples, f"{_WAITED}_count")
    waited, prefilled = values(samples, f"{_WAITED}_sum"), values(samples, f"{_PREFILLED}_sum")
    if not counted or not waited or not prefilled:
        return None
    return EngineTimes(round(sum(counted)), sum(waited) + sum(prefilled), sum(prefilled))


def times_of_all(servers: Sequence[Server], timeout_s: float, at_least: int = 0) -> EngineTimes | None:
    """The sum over all servers; None if one does not answer or does not count.

    Looks for some seconds until ``at_least`` so many requests have ended.
    """

    async def looked() -> EngineTimes | None:
        for look in range(_LOOKS):
            pages = [times_of_one(server, timeout_s) for server in servers]
            found = [one for one in await asyncio.gather(*pages) if one is not None]
            if len(found) < len(servers):
                return None
            whole = EngineTimes(sum(one.requests for one in found), sum(one.first_token_s for one in found))
            if whole.requests >= at_least or look == _LOOKS - 1:
                return whole
            await asyncio.sleep(_LOOK_S)
        return None

    return asyncio.run(looked())


async def times_of_one(server: Server, timeout_s: float) -> EngineTimes | None:
    """What one server counts; None if it does not answer or does not count."""
    try:
        status, text = await get_text(server.address, "/metrics", timeout_s, None, server.key)
    except OSError:
        return None
    return engine_times(samples_of(text)) if status == 200 else None
