"""The work of one server on a request: all of it, only its prompt, or decoding with another server's KV."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from realexec.http.connectors import Computed, computed, prefill_body, room
from realexec.http.dialects import Chunk, Wish
from realexec.http.probe import Server
from realexec.http.server_state import ServerState
from realexec.http.stream import Refused, answer_of, tokens_of
from realexec.world.tracking import Tracker
from serving.vocabulary.actions import Send
from serving.vocabulary.events import Sent

Chunks = AsyncGenerator[Chunk, None]


@dataclass(frozen=True, slots=True)
class Roles:
    """``prefills``: servers that only prefill; others decode. ``together``: both get a request at once."""

    prefills: frozenset[int] = frozenset()
    together: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One request at one server. ``repeats``: first tokens known before; ``ends``: finishes the request."""

    wish: Wish
    chunks: Chunks
    repeats: int = 0
    ends: bool = True


class Works:
    """Makes `Work`. ``on_the_way``: by request, transfers whose target has sent no token yet."""

    def __init__(self, states: Sequence[ServerState], tracker: Tracker, roles: Roles) -> None:
        self._states, self._tracker, self._roles = states, tracker, roles
        self._computed: dict[int, Computed] = {}
        self.on_the_way: dict[int, Send] = {}

    def _wish(self, request: int, replica: int) -> Wish:
        held = self._tracker.hold(request)
        label = f"servetwin-{request}-{replica}-{len(held.generated)}"
        return Wish(self._states[replica].server.model, held.prompt + held.generated, held.missing, label)

    def assigned(self, request: int, replica: int) -> Work | None:
        """Return the work on an assigned request. None: it starts with `Send`, which follows at once."""
        wish, server = self._wish(request, replica), self._states[replica].server
        prefills = replica in self._roles.prefills
        if prefills and self._roles.together:
            return None
        if prefills and wish.max_tokens > 1:
            return Work(wish, self._prefilled(request, server, wish), ends=False)
        return Work(wish, tokens_of(server.address, server.dialect, wish, server.key))

    async def _prefilled(self, request: int, server: Server, wish: Wish) -> Chunks:
        body = prefill_body(server.dialect, wish)
        answer = await answer_of(server.address, server.dialect.path, body, server.key)
        try:
            parameters = self._computed[request] = computed(wish, answer)
        except ValueError as error:
            raise Refused(str(error)) from None
        yield Chunk(parameters.first)

    def sent(self, action: Send) -> Work:
        """Return the work of the server that takes over a request's KV and continues it."""
        (request,) = action.requests
        self.on_the_way[request] = action
        source, target = self._states[action.source].server, self._states[action.target].server
        wish = self._wish(request, action.target)
        if self._roles.together:
            return Work(wish, met(source, target, wish))
        # The target computes the already known token again, from the prompt's last position.
        kv = self._computed.pop(request)
        again = Wish(wish.model, kv.prompt, wish.max_tokens + len(kv.first), wish.label)
        chunks = tokens_of(target.address, target.dialect, again, target.key, kv.fetch)
        return Work(again, chunks, repeats=len(kv.first))

    def came(self, request: int) -> Sent | None:
        """Return the request's completed transfer, if any: a token from its target proves that KV arrived."""
        action = self.on_the_way.pop(request, None)
        return None if action is None else Sent(action.transfer, action.size_bytes, "")

    def ended(self, request: int, replica: int, cause: str) -> Sent | None:
        """Return the failed transfer, if the stream at its target ended before a token came."""
        action = self.on_the_way.get(request)
        if action is None or action.target != replica:
            return None
        del self.on_the_way[request]
        return Sent(action.transfer, 0, cause)


async def met(prefill: Server, decode: Server, wish: Wish) -> Chunks:
    """Send the request to both servers, which meet; yield the decoding one's tokens. Raises as tokens_of."""
    where = room(prefill)
    drain = asyncio.create_task(
        _drained(tokens_of(prefill.address, prefill.dialect, wish, prefill.key, where))
    )
    try:
        async with aclosing(tokens_of(decode.address, decode.dialect, wish, decode.key, where)) as chunks:
            while (chunk := await _next_of_both(chunks, drain)) is not None:
                yield chunk
    finally:
        await _end(drain)


async def _next_of_both(chunks: Chunks, drain: "asyncio.Task[None]") -> Chunk | None:
    """Return the next chunk. Raises the error of the server that prefills if that fails first."""
    coming = asyncio.create_task(_next(chunks))
    try:
        await _either(coming, drain)
        return await coming
    finally:  # the chunks must not be closed while a task waits for them
        await _end(coming)


async def _end(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _next(chunks: Chunks) -> Chunk | None:
    return await anext(chunks, None)


async def _drained(chunks: Chunks) -> None:
    async with aclosing(chunks):
        async for _ in chunks:
            pass


async def _either(coming: "asyncio.Task[Chunk | None]", drain: "asyncio.Task[None]") -> None:
    """Wait for a chunk. Raises the error of the server that prefills if that fails first."""
    while not coming.done():
        waits: set[asyncio.Task[Chunk | None] | asyncio.Task[None]] = {coming}
        if not drain.done():
            waits.add(drain)
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if drain.done() and (error := drain.exception()) is not None:
            raise error
