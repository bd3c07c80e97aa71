"""Putting servers to sleep and waking them: the routes of each kind, and a check that they really work.

vLLM: /sleep and /wake_up, of a server in development mode with --enable-sleep-mode. SGLang, by its
documentation: /release_memory_occupation and /resume_memory_occupation. While a server sleeps, its parameters
stay in its host's memory, so waking is a load from there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from realexec.http.client import get_text
from realexec.http.dialects import Wish
from realexec.http.probe import Server
from realexec.http.stream import Refused, tokens_of
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

_SERVES_ON_S: Final = 1.0  # a server that sends a token within this time is awake
_PROBE_TOKENS: Final = 2
_SETTINGS: Final = "/server_info?config_format=json"


@dataclass(frozen=True, slots=True)
class SleepRoutes:
    """The routes of one kind of server. ``started``: the settings with which a server has them."""

    sleep: str
    wake: str
    started: str


SLEEP_ROUTES: Final[Mapping[str, SleepRoutes]] = {
    "vllm": SleepRoutes("/sleep?level=1", "/wake_up", "VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode"),
    "sglang": SleepRoutes("/release_memory_occupation", "/resume_memory_occupation", "--enable-memory-saver"),
}


async def put_to_sleep(server: Server, timeout_s: float) -> None:
    """Put a server to sleep: it frees its GPU's memory. Raises Refused or OSError."""
    await _told(server, SLEEP_ROUTES[server.dialect.name].sleep, timeout_s)


async def wake(server: Server, timeout_s: float) -> None:
    """Wake a server: it serves again when this returns. Raises Refused or OSError."""
    await _told(server, SLEEP_ROUTES[server.dialect.name].wake, timeout_s)


async def _told(server: Server, path: str, timeout_s: float) -> None:
    status, text = await get_text(server.address, path, timeout_s, {}, server.key)
    if status != 200:
        raise Refused(f"{path} answers {status} {' '.join(text.split())[:100]}".strip())


async def probe_sleep(servers: Sequence[Server], timeout_s: float) -> None:
    """Make every server sleep and wake once. Raises UserError for a server that does not."""
    await asyncio.gather(*[_probe(server, timeout_s) for server in servers])


async def _probe(server: Server, timeout_s: float) -> None:
    if server.dialect.name not in SLEEP_ROUTES:
        raise UserError(
            f"the server at {server.address} is of kind {server.dialect.name}, of which none sleeps: write a "
            "system whose instances stay, such as system=vllm"
        )
    try:
        why = await _frees_nothing(server, timeout_s)
        if why is None:
            await put_to_sleep(server, timeout_s)
            why = "reports that it sleeps and still serves" if await _serves(server, _SERVES_ON_S) else None
            await wake(server, timeout_s)
            if why is None and not await _serves(server, timeout_s):
                why = "does not serve after it was woken"
    except (OSError, Refused) as error:
        why = f"does not sleep ({error or type(error).__name__})"
    if why is not None:
        raise UserError(
            f"the server at {server.address} {why}: start it with "
            f"{SLEEP_ROUTES[server.dialect.name].started}, or write a system whose instances stay, such as "
            "system=vllm"
        )


async def _frees_nothing(server: Server, timeout_s: float) -> str | None:
    """Return why /sleep frees no memory: vLLM's, without the mode or on a CPU, only stops scheduling."""
    if server.dialect.name != "vllm":
        return None
    status, text = await get_text(server.address, _SETTINGS, timeout_s, None, server.key)
    try:
        enabled = (
            json_data(text)["vllm_config"]["model_config"]["enable_sleep_mode"] if status == 200 else None
        )
    except (KeyError, TypeError, ValueError):
        return None
    return "was started without its sleep mode" if enabled is False else None


async def _serves(server: Server, within_s: float) -> bool:
    """Whether a token arrives within ``within_s`` seconds."""
    wish = Wish(server.model, tuple(range(1, 9)), _PROBE_TOKENS, "servetwin-awake")
    try:
        async with asyncio.timeout(within_s):
            chunks = tokens_of(server.address, server.dialect, wish, server.key)
            async with aclosing(chunks):
                return await anext(chunks, None) is not None
    except (OSError, Refused):
        return False
