"""Start-up time of a new instance besides its parameters: process, CUDA context, connections, engine."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hwmodels.catalogue import read_yaml
from hwmodels.errors import HardwareError
from hwmodels.loading.loader import LOADERS_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Seconds of each part for one engine, if nothing of it is ready; source names who measured.

    process_s: the worker's process; cuda_context_s: context and kernels of one GPU; connections_s: the group
    communicator; engine_init_s: what follows the load (memory profile, graphs) before the first step. pooled:
    contexts and connections are made for every GPU in advance.
    """

    process_s: float
    cuda_context_s: float
    connections_s: float
    engine_init_s: float
    source: str
    pooled: bool = False

    def __post_init__(self) -> None:
        for name in ("process_s", "cuda_context_s", "connections_s", "engine_init_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise HardwareError(f"{name} of a start-up is {value}: write seconds of at least 0")


@dataclass(frozen=True, slots=True)
class StartUpTimes:
    """before_load_s: until parameters may arrive; after_load_s: from the last one to the first step."""

    before_load_s: float
    after_load_s: float


class ContextPool:
    """CUDA contexts made in advance; at most ``size`` are kept."""

    __slots__ = ("_ready", "_size")

    def __init__(self, size: int, ready: int | None = None) -> None:
        """``size`` at least 0; ``ready`` of them exist at the start (None: all)."""
        self._size = size
        self._ready = size if ready is None else ready
        if not 0 <= self._ready <= size:
            raise HardwareError(
                f"{self._ready} of {size} contexts cannot be ready: write sizes of at least 0"
            )

    @property
    def ready(self) -> int:
        """Number of contexts that are ready and unused."""
        return self._ready

    def take(self, make_s: float) -> float:
        """Seconds until the caller has a context: 0 from the pool, ``make_s`` if it is empty."""
        if not self._ready:
            return make_s
        self._ready -= 1
        return 0.0

    def give_back(self) -> bool:
        """Return a context when an instance ends; False if the pool is full and the context is destroyed."""
        if self._ready == self._size:
            return False
        self._ready += 1
        return True


class ConnectionPool:
    """Groups of GPUs with a communicator; beyond ``size`` groups the least recently used one is removed."""

    __slots__ = ("_groups", "_size")

    def __init__(self, size: int | None = None, ready: Iterable[Iterable[int]] = ()) -> None:
        """``size`` None: without bound; ``ready``: groups (GPU indices in any order) that exist already."""
        if size is not None and size < 0:
            raise HardwareError(f"a pool cannot have {size} connections: write at least 0")
        self._size = size
        self._groups: dict[frozenset[int], None] = {}
        for group in ready:
            self.connect(group, 0.0)

    def connect(self, group: Iterable[int], make_s: float) -> float:
        """Seconds until the group can communicate: 0 if it already can or has one GPU; else ``make_s``."""
        key = frozenset(group)
        if len(key) < 2:
            return 0.0
        known = key in self._groups
        self._groups.pop(key, None)
        self._groups[key] = None
        if self._size is not None and len(self._groups) > self._size:
            del self._groups[next(iter(self._groups))]
        return 0.0 if known else make_s

    def forget(self, gpu: int) -> None:
        """Remove a lost GPU and every group that contained it."""
        self._groups = {group: None for group in self._groups if gpu not in group}


def start(
    startup: StartUp, contexts: ContextPool, connections: ConnectionPool, gpus: Iterable[int]
) -> StartUpTimes:
    """One part after the other: process, a context for each of ``gpus`` in parallel, their connections.

    The engine's part comes after the load. Each GPU takes a context of the pool, returned one by one.
    """
    group = tuple(gpus)
    context_s = max((contexts.take(startup.cuda_context_s) for _ in group), default=0.0)
    before_s = startup.process_s + context_s + connections.connect(group, startup.connections_s)
    return StartUpTimes(before_s, startup.engine_init_s)


def start_up_names() -> tuple[str, ...]:
    """Every engine whose start-up loaders.yaml knows."""
    return tuple(sorted(read_yaml(LOADERS_FILE)["start_up"]))


def load_start_up(engine: str) -> StartUp:
    """The start-up of ``engine`` in loaders.yaml. Raises HardwareError with the existing names."""
    entries = read_yaml(LOADERS_FILE)["start_up"]
    if engine not in entries:
        raise HardwareError(f"unknown start-up {engine!r}: write one of {', '.join(start_up_names())}")
    return StartUp(**entries[engine])
