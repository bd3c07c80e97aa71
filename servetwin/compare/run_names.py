"""What a result folder's run was made on, in words that are the same in all comparisons."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from servetwin.config.read_file import json_in

SIMULATED: Final = "simulated"
OWN_WORKERS: Final = "own workers"
OVER_HTTP: Final = " over HTTP"
_SERVERS: Final = {"vllm": "vLLM", "sglang": "SGLang", "openai": "an OpenAI-compatible server"}


def what_ran(summary: Mapping[str, Any]) -> str:
    """Return ``simulated``, ``own workers``, or the servers such as ``vLLM 0.32.0 over HTTP``."""
    real = summary.get("real")
    if not isinstance(real, Mapping):
        return SIMULATED
    servers = real.get("servers")
    if not isinstance(servers, list):
        return OWN_WORKERS
    kinds = dict.fromkeys(
        f"{_SERVERS.get(server['kind'], server['kind'])} {server.get('version') or ''}".strip()
        for server in servers
    )
    return f"{', '.join(kinds) or 'servers'}{OVER_HTTP}"


def name_of(folder: Path) -> str | None:
    """Return what ran; None for a folder that is not a run's."""
    try:
        return what_ran(json_in(folder / "summary.json"))
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None


def two_names(first: str, second: str) -> tuple[str, str]:
    """Tell two runs of one kind apart."""
    return (first, second) if first != second else (f"first, {first}", f"second, {second}")
