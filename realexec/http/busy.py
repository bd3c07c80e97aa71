"""Keeps a server busy with requests, while something beside it is measured."""

import asyncio
import random
from typing import Final

from realexec.http.dialects import Wish
from realexec.http.probe import Server
from realexec.http.stream import tokens_of

_LEAST_ID: Final = 10  # the first ids of a vocabulary are often special
_PROMPT_TOKENS: Final = 64
_OUTPUT_TOKENS: Final = 32


async def keep_busy(server: Server, requests: int, vocabulary: int, seed: int) -> None:
    """Hold so many requests at the server until this is cancelled."""
    drawn = random.Random(seed)

    async def one_after_another(slot: int) -> None:
        count = 0
        while True:
            count += 1
            prompt = tuple(drawn.randrange(_LEAST_ID, vocabulary) for _ in range(_PROMPT_TOKENS))
            wish = Wish(server.model, prompt, _OUTPUT_TOKENS, f"servetwin-busy-{slot}-{count}")
            async for _ in tokens_of(server.address, server.dialect, wish, server.key):
                pass

    await asyncio.gather(*[one_after_another(slot) for slot in range(requests)])
