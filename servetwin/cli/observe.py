"""Words of runs over servers: their number of GPUs, and ``realexec observe URL...``."""

from collections.abc import Sequence
from typing import Final

from servetwin.config.http_config import HTTP, servers_of_text
from serving.vocabulary.errors import UserError

_WORLD: Final = f"world={HTTP}"
_SERVERS: Final = "http.servers="
# Requests go to the servers in turn, whatever load they report: an open loop.
OPEN_LOOP: Final = ("system=vllm", "system/dispatch=round_robin", "system/admission=none")


def with_servers(words: Sequence[str]) -> list[str]:
    """Add ``workers=`` with the servers' number of GPUs if the words do not set it."""
    servers = [word.removeprefix(_SERVERS) for word in words if word.startswith(_SERVERS)]
    said = any(word.startswith(("workers=", "cluster=", "cluster.gpus=", "config=")) for word in words)
    if _WORLD not in words or said or not servers:
        return list(words)
    each = 1
    for word in words:
        key, _, text = word.partition("=")
        if key in ("model.tp", "model.pp") and text.isdecimal():
            each *= max(1, int(text))
    return [*words, f"workers={len(servers_of_text(servers[0])) * each}"]


def observing_words(words: Sequence[str]) -> list[str]:
    """Translate ``URL... KEY=VALUE...`` to words of a run over these servers. Raises UserError."""
    urls = [word for word in words if "://" in word.partition("=")[0]]
    keys = [word for word in words if word not in urls]
    if not urls:
        raise UserError("observe needs a server: write realexec observe http://HOST:PORT KEY=VALUE out=DIR")
    for word in keys:
        if word.partition("=")[0] in (
            "world",
            "http.servers",
            "system",
            "system/dispatch",
            "system/migration",
        ):
            raise UserError(
                f"{word} does not fit observe, which sends requests to its servers in turn: leave it out, or "
                "write realexec run world=http"
            )
    return [_WORLD, f"{_SERVERS}[{','.join(urls)}]", *OPEN_LOOP, *keys]
