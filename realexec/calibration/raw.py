"""Copy rates of this machine without this package's code, to compare rates of transports and loads with."""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from realexec.memory.arena import Arena

BYTES: Final = 64 << 20  # the same size as for measuring a link


def raw_rates(repeats: int, device: str = "cpu") -> dict[str, float]:
    """Return bytes/s, the best of ``repeats``: between two blocks of shared memory; with a GPU also between
    pinned memory and the GPU, both ways, and within it."""
    with Arena.create(BYTES) as one, Arena.create(BYTES) as other:
        rates = {"memory to memory": _between(one, other, repeats)}
    return {**rates, **(_of_gpu(device, repeats) if device.startswith("cuda") else {})}


def _between(one: Arena, other: Arena, repeats: int) -> float:
    source, target = (np.frombuffer(arena.buffer, dtype=np.uint8) for arena in (one, other))
    return _best(lambda: np.copyto(target, source), repeats)


def _best(copy: Callable[[], Any], repeats: int) -> float:
    copy()  # makes the pages and streams that later copies use
    took_s = []
    for _ in range(repeats):
        began_s = time.perf_counter()
        copy()
        took_s.append(time.perf_counter() - began_s)
    return BYTES / max(min(took_s), 1e-9)


def _of_gpu(device: str, repeats: int) -> dict[str, float]:
    """Return the rates over the bus and within the GPU, each the best of ``repeats``."""
    import torch

    host = torch.zeros(BYTES, dtype=torch.uint8, pin_memory=True)
    there, beside = (torch.zeros(BYTES, dtype=torch.uint8, device=device) for _ in range(2))

    def copied(to: Any, source: Any) -> Callable[[], None]:
        def copy() -> None:
            to.copy_(source, non_blocking=True)
            torch.cuda.synchronize(there.device)

        return copy

    pairs = {
        "pinned memory to GPU": (there, host), "GPU to pinned memory": (host, there),
        "within a GPU": (beside, there),
    }  # fmt: skip
    return {name: _best(copied(*pair), repeats) for name, pair in pairs.items()}
