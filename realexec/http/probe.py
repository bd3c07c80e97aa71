"""Finds out before a run what a server is and can do, by asking it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from realexec.http.client import Address, ask, get_text
from realexec.http.dialects import DIALECTS, MISFIT, UNKNOWN_TOKEN, Dialect, ServerLoad, Wish
from realexec.http.metrics_text import LARGEST, Sample, samples_of
from realexec.http.stream import Refused, tokens_of
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

_PROBE_TOKENS: Final = 3
_LONG_TOKENS: Final = 1024  # length of the request that is aborted
_LOOKS: Final = 40
_LOOK_S: Final = 0.05
_VLLM_INFO: Final = ("/version",)
_SGLANG_INFO: Final = ("/server_info", "/get_server_info")  # a newer and an older name


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server, as probed. ``max_model_len``, ``kv_tokens``, ``block_tokens``: None if not reported.

    ``token_ids``: it returns them and takes them as a prompt. ``aborts``: it stops a request whose client has
    disconnected; None: not observable. ``tells_load``: its metrics report its load, ``tells_kv_use`` also how
    much of its KV memory is in use. ``mode``: "prefill" or
    "decode" if it does only that; servers of the other mode connect to its ``bootstrap_port``.
    ``hands_over``: KV was seen to get from it or to it.
    """

    address: Address
    dialect: Dialect
    model: str
    version: str
    max_model_len: int | None
    kv_tokens: int | None
    block_tokens: int | None
    token_ids: bool
    aborts: bool | None
    tells_load: bool
    tells_kv_use: bool = False
    key: str | None = None
    mode: str = ""
    bootstrap_port: int | None = None
    hands_over: bool = False

    def facts(self) -> dict[str, Any]:
        """Return what users are shown and summary.json holds."""
        return {
            "address": str(self.address),
            "kind": self.dialect.name,
            "version": self.version,
            "model": self.model,
            "max_model_len": self.max_model_len,
            "kv_tokens": self.kv_tokens,
            "block_tokens": self.block_tokens,
            "token_ids": self.token_ids,
            "aborts": self.aborts,
            "tells_load": self.tells_load,
            "hands_over": self.hands_over,
        }


async def probe(address: Address, model: str | None, key: str | None, timeout_s: float) -> Server:
    """Probe a server. Raises UserError if no server answers there, or not as one of its kind."""
    try:
        return await _probe(address, model, key, timeout_s)
    except Refused as error:
        raise UserError(f"the server at {address} refused a request of three tokens: {error}") from None
    except (OSError, ValueError) as error:
        words = str(error) or type(error).__name__
        raise UserError(
            f"no server answers at {address} as OpenAI's do ({words}): start one there, or write another "
            "address in http.servers"
        ) from None


async def _probe(address: Address, model: str | None, key: str | None, timeout_s: float) -> Server:
    name, longest = await model_of(address, model, key, timeout_s)
    dialect, load, info = await kind_of(address, key, timeout_s)
    kv_tokens, block_tokens = _memory(load)
    if load is None and (tokens := _count(info.get("max_total_num_tokens"))) is not None:
        kv_tokens, block_tokens = tokens, 1  # SGLang without --enable-metrics counts its memory in tokens too
    mode = str(info.get("disaggregation_mode") or "")
    port = info.get("disaggregation_bootstrap_port")
    server = Server(
        address=address,
        dialect=dialect,
        model=name,
        version=str(info.get("version") or ""),
        max_model_len=longest,
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        token_ids=False,
        aborts=None,
        tells_load=load is not None,
        tells_kv_use=load is not None and load.used_share is not None,
        key=key,
        mode=mode if mode in ("prefill", "decode") else "",
        bootstrap_port=_count(port),
    )
    if server.mode:
        return server  # it answers only together with a server of the other mode
    wish = Wish(name, tuple(range(1, 9)), _PROBE_TOKENS, "servetwin-probe")
    ids_seen = list[int]()
    async with asyncio.timeout(timeout_s):
        async for chunk in tokens_of(server.address, dialect, wish, key):
            ids_seen += chunk.tokens
    ids = len(ids_seen) == _PROBE_TOKENS and UNKNOWN_TOKEN not in ids_seen
    aborts = await _aborts(server, timeout_s) if load is not None else None
    return replace(server, token_ids=ids, aborts=aborts)


def _count(value: Any) -> int | None:
    """Return what a server counts; None if it is no whole number above 0, or larger than any there is."""
    return value if type(value) is int and 0 < value <= LARGEST else None


def _memory(load: ServerLoad | None) -> tuple[int | None, int | None]:
    if load is None or load.total_blocks is None or load.block_tokens is None:
        return None, None
    return load.total_blocks * load.block_tokens, load.block_tokens


async def model_of(
    address: Address, wanted: str | None, key: str | None, timeout_s: float
) -> tuple[str, int | None]:
    """Return the server's name of the model, its longest context. Raises UserError, OSError, ValueError."""
    status, text = await get_text(address, "/v1/models", timeout_s, None, key)
    if status != 200:
        raise ValueError(f"/v1/models answers {status}")
    try:
        listed = [entry for entry in json_data(text)["data"] if isinstance(entry["id"], str)]
        entries = {entry["id"]: entry.get("max_model_len") for entry in listed}
    except MISFIT as error:
        raise ValueError(f"/v1/models answers {text[:60]!r}, which lists no models: {error}") from None
    if not entries or (wanted is not None and wanted not in entries):
        raise UserError(
            f"the server at {address} serves {', '.join(entries) or 'no model'}, not {wanted}: write "
            "http.model=NAME of one that all servers have"
        )
    name = wanted or next(iter(entries))
    return name, _count(entries[name])


async def kind_of(
    address: Address, key: str | None, timeout_s: float
) -> tuple[Dialect, ServerLoad | None, Mapping[str, Any]]:
    """Return the server's kind, by its metrics or routes of only one kind; its load; its information."""
    status, text = await get_text(address, "/metrics", timeout_s, None, key)
    samples = samples_of(text) if status == 200 else []
    of_vllm = await _info(address, _VLLM_INFO, key, timeout_s)
    for dialect in DIALECTS.values():
        load = dialect.load(samples)
        if load is not None:
            info = of_vllm if dialect.name == "vllm" else await _info(address, _SGLANG_INFO, key, timeout_s)
            return dialect, load, info
    info = await _info(address, _SGLANG_INFO, key, timeout_s)
    if info:
        return DIALECTS["sglang"], None, info
    return DIALECTS["vllm" if of_vllm.get("version") else "openai"], None, of_vllm


async def _info(
    address: Address, paths: Sequence[str], key: str | None, timeout_s: float
) -> Mapping[str, Any]:
    """Return the information that the server gives about itself; empty if it has no such route."""
    for path in paths:
        status, text = await get_text(address, path, timeout_s, None, key)
        if status == 200:
            try:
                info = json_data(text)
            except ValueError:
                continue
            if isinstance(info, dict):
                return info
    return {}


async def _aborts(server: Server, timeout_s: float) -> bool:
    """Whether a long request leaves the server's metrics soon after its client has disconnected and has used
    the server's abort route, if there is one."""
    before = await load_of(server, timeout_s)
    longest = (server.max_model_len or 2 * _LONG_TOKENS) - 16
    wish = Wish(server.model, tuple(range(1, 9)), min(_LONG_TOKENS, longest), "servetwin-abort")
    async with asyncio.timeout(timeout_s):
        stream = tokens_of(server.address, server.dialect, wish, server.key)
        async for _ in stream:
            break
        await stream.aclose()
    with suppress(OSError):  # as for an abort in a run; the metrics show whether it worked
        await forget(server, wish.label, timeout_s)
    for _ in range(_LOOKS):
        now = await load_of(server, timeout_s)
        if before is not None and now is not None and now.running <= before.running:
            return True
        await asyncio.sleep(_LOOK_S)
    return False


async def load_of(server: Server, timeout_s: float) -> ServerLoad | None:
    """Return the server's present load; None if it reports none. Raises OSError."""
    return server.dialect.load(await page_of(server, timeout_s))


async def page_of(server: Server, timeout_s: float) -> list[Sample]:
    """Return the server's metrics; none if it has none. Raises OSError."""
    status, text = await get_text(server.address, "/metrics", timeout_s, None, server.key)
    return samples_of(text) if status == 200 else []


async def is_alive(server: Server, timeout_s: float) -> str | None:
    """Return None if the server serves, else why it does not."""
    try:
        status, _ = await get_text(server.address, server.dialect.health, timeout_s, None, server.key)
    except OSError as error:
        return str(error) or f"{type(error).__name__} after {timeout_s:g} s"
    return None if status < 500 else f"{server.dialect.health} answers {status}"


async def forget(server: Server, label: str, timeout_s: float) -> None:
    """Abort a request by the server's abort route, if it has one, in addition to closing the connection."""
    if server.dialect.abort is not None:
        body = {"rid": label}
        answer = await asyncio.wait_for(
            ask(server.address, server.dialect.abort, body, server.key), timeout_s
        )
        answer.close()
