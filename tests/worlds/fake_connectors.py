"""KV from one made-up server to another, as vLLM's NixlConnector and SGLang's rooms have it.

The KV of a prompt is the number from which its tokens follow, which really travels: a server that fetches
none, or another's, gives other tokens.
"""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

_PARAMS = "kv_transfer_params"
_ROOM = "bootstrap_room"


class Gone(Exception):
    """Nobody has the KV any more."""


class Connectors:
    """Those of one server. ``kept``: (KV, its tokens) by name; ``received``: tokens that came from others."""

    def __init__(self, port: int, nixl: bool, mode: str) -> None:
        self.port, self.nixl, self.mode = port, nixl, mode
        self.kept: dict[str, tuple[int, int]] = {}
        self.received = self.given = 0
        self._names = 0
        self._news = asyncio.Event()

    # The server that prefills.

    def wanted(self, body: Mapping[str, Any], tokens: int) -> int:
        """Of a server that only prefills no more than the first is wanted."""
        return 1 if self.mode == "prefill" else tokens

    def refusal(self, body: Mapping[str, Any]) -> str:
        """A server of SGLang's that does half of the work answers nobody alone."""
        return "bootstrap room is missing" if self.mode != "null" and _ROOM not in body else ""

    def keep(self, body: Mapping[str, Any], state: int, tokens: int) -> dict[str, Any] | None:
        """A prompt is computed; returns what the answer tells of its KV."""
        if self.mode == "prefill":
            self._put(f"room-{body[_ROOM]}", state, tokens)
        asked = body.get(_PARAMS) or {}
        if not self.nixl or not asked.get("do_remote_decode"):
            return None
        self._names += 1
        name = f"request-{self._names}"
        self._put(name, state, tokens)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [[self._names]],
            "remote_engine_id": f"engine-{self.port}",
            "remote_request_id": name,
            "remote_host": "127.0.0.1",
            "remote_port": self.port,
            "tp_size": 1,
            "remote_num_tokens": tokens,
            "transfer_mode": "pull",
        }

    def _put(self, name: str, state: int, tokens: int) -> None:
        self.kept[name] = state, tokens
        self._news.set()

    async def give(self, name: str) -> tuple[int, str]:
        """Status and text for a server that asks; a room's KV may be on its way yet."""
        while name.startswith("room-") and name not in self.kept:
            self._news.clear()
            await self._news.wait()
        found = self.kept.pop(name, None)
        self.given += found is not None
        self._news.set()
        return (404, "{}") if found is None else (200, json.dumps(found))

    async def given_away(self, body: Mapping[str, Any]) -> None:
        """Until the other server of the room has the KV."""
        while self.mode == "prefill" and f"room-{body[_ROOM]}" in self.kept:
            self._news.clear()
            await self._news.wait()

    # The server that decodes.

    async def fetch(self, body: Mapping[str, Any]) -> int | None:
        """The KV of a prompt that another one has computed; None: there is none. Raises Gone."""
        params = body.get(_PARAMS) or {}
        if self.nixl and params.get("do_remote_prefill"):
            where = params["remote_host"], params["remote_port"], params["remote_request_id"]
        elif self.mode == "decode":
            where = body["bootstrap_host"], body["bootstrap_port"], f"room-{body[_ROOM]}"
        else:
            return None
        try:
            state, tokens = await _asked(*where)
        except (OSError, ValueError, EOFError) as error:
            raise Gone(f"KV load failed: {error or type(error).__name__}") from None
        self.received += tokens
        return state


async def _asked(host: str, port: int, name: str) -> tuple[int, int]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /kv/{name} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if int(head.split(" ")[1]) != HTTPStatus.OK:
            raise ValueError(f"{name} is not kept")
        state, tokens = json.loads(await reader.read())
        return state, tokens
    finally:
        writer.transport.abort()
