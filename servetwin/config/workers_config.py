"""Real workers: the launcher that starts their processes, their device and their transport."""

import re
from dataclasses import dataclass
from typing import Final

from servetwin.config.key import key
from serving.vocabulary.errors import UserError

LAUNCHERS: Final = ("local", "ray")
CPU: Final = "cpu"
CUDA: Final = "cuda"
_DEVICE: Final = re.compile(r"cpu|apart|cuda(:\d+)?")
SHARED_MEMORY: Final = "shared_memory"
# How workers read each other's memory (implementations: `realexec.transport_registry`).
TRANSPORTS: Final = (SHARED_MEMORY, "tcp", "nixl", "verbs", "peer_copy", "nccl", "gloo")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """The Ray cluster of ``launcher=ray`` and ``http.launcher=ray``."""

    address: str | None = key(
        "`auto` (also the meaning of null) or HOST:PORT of a running cluster", default=None
    )


NO_RAY: Final = RayConfig()


def transports_asked(transport: str | None, device: str) -> tuple[str, ...]:
    """Return the run's transport, or all transports, best first."""
    from realexec.transport_registry import best_first

    return best_first(TRANSPORTS, device.startswith(CUDA)) if transport is None else (transport,)


def check_workers(launcher: str, device: str, transport: str | None) -> None:
    """Raise UserError for settings that contradict each other."""
    if launcher == "ray" and transport == SHARED_MEMORY:
        raise UserError(
            "transport=shared_memory reads memory of one host, and launcher=ray has workers on several: "
            "write transport=tcp, or leave it out"
        )
    if launcher == "ray" and device.startswith(f"{CUDA}:"):
        raise UserError(
            f"device={device} names a GPU, and with launcher=ray each worker has one that Ray gives it: "
            f"write device={CUDA}"
        )
    if not _DEVICE.fullmatch(device):
        raise UserError(f"device={device} is unknown: write cpu, cuda, or cuda:N, the number of a GPU")
