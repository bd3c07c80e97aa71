"""Tries before a run whether KV gets from servers that prefill to servers that decode."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from realexec.http.connectors import computed, prefill_body
from realexec.http.dialects import DIALECTS, UNKNOWN_TOKEN, Wish
from realexec.http.handover import Chunks, Roles, met
from realexec.http.probe import Server, load_of
from realexec.http.stream import Refused, answer_of, tokens_of
from serving.vocabulary.errors import UserError

_TOKENS: Final = 3
_BLOCK_TOKENS: Final = 16  # assumed for a server that does not report its block size
_NIXL: Final = '\'{"kv_connector":"NixlConnector","kv_role":"kv_both"}\''


async def probe_pairs(servers: Sequence[Server], roles: Roles, timeout_s: float) -> tuple[Server, ...]:
    """Return the servers with what the probe found. Raises UserError if KV does not get across."""
    prefills = sorted(roles.prefills)
    decodes = [place for place in range(len(servers)) if place not in roles.prefills]
    for place in prefills:
        _check_kind(servers[place], "prefill", roles)
    for place in decodes:
        _check_kind(servers[place], "decode", roles)
    found = list(servers)
    for turn in range(max(len(prefills), len(decodes))):
        source, target = prefills[turn % len(prefills)], decodes[turn % len(decodes)]
        try:
            async with asyncio.timeout(timeout_s):
                ids = await _tried(servers[source], servers[target], roles, timeout_s)
        except (OSError, ValueError, Refused) as error:
            words = str(error) or type(error).__name__
            raise UserError(
                f"KV does not get from the server at {servers[source].address} to {servers[target].address} "
                f"({words}): start them as docs/HTTP.md says, or write a system whose instances do both"
            ) from None
        for one in (source, target):
            found[one] = replace(found[one], hands_over=True, token_ids=ids)
    return tuple(found)


def _check_kind(server: Server, role: str, roles: Roles) -> None:
    """Refuse a kind of server that has no connector, and a server that was started for the other role."""
    wanted = DIALECTS["sglang" if roles.together else "vllm"]
    if server.dialect.name != wanted.name:
        raise UserError(
            f"the server at {server.address} is of kind {server.dialect.name}, and only {wanted.name} hands "
            "KV over so: write http.hand_over=after for vllm, together for sglang, or a system whose "
            "instances do both, such as system=vllm"
        )
    if roles.together and server.mode != role:
        raise UserError(
            f"the server at {server.address} is to {role}: start it with --disaggregation-mode {role}, or "
            "write those that prefill first in http.servers"
        )


async def _tried(source: Server, target: Server, roles: Roles, timeout_s: float) -> bool:
    """Whether token ids came back. Raises ValueError if the KV did not arrive, or is not the right one."""
    tokens = (target.block_tokens or _BLOCK_TOKENS) + 1  # some engines send only whole blocks
    wish = Wish(source.model, tuple([1 + one % 8 for one in range(tokens)]), _TOKENS, "servetwin-pair")
    if roles.together:
        found = await _tokens(met(source, target, wish))
        return len(found) == _TOKENS and UNKNOWN_TOKEN not in found
    await _keeps(target, wish)
    prompt = await _keeps(source, wish)
    before = await load_of(target, timeout_s)
    fetch = computed(wish, prompt).fetch
    found = await _tokens(tokens_of(target.address, target.dialect, wish, target.key, fetch))
    after = await load_of(target, timeout_s)
    if found[:1] != list(computed(wish, prompt).first):
        raise ValueError("the two give different first tokens")
    if before and after and after.received is not None and after.received <= (before.received or 0):
        raise ValueError("the second computed the prompt again")
    return True


async def _keeps(server: Server, wish: Wish) -> dict[str, object]:
    """Return the answer of a server that keeps KV for another one. Raises ValueError if it does not."""
    answer = await answer_of(
        server.address, server.dialect.path, prefill_body(server.dialect, wish), server.key
    )
    try:
        computed(wish, answer)
    except ValueError as error:
        raise ValueError(f"{server.address} {error}: start it with --kv-transfer-config {_NIXL}") from None
    return answer


async def _tokens(chunks: Chunks) -> list[int]:
    async with aclosing(chunks):
        return [token async for chunk in chunks for token in chunk.tokens]
