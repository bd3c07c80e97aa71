"""What differs between a CPU and a GPU: where tensors lie beside an arena, and in which lane bytes go there.

All else is the same code. ``apart`` is a CPU whose tensors lie in memory that transports do not see, as on a
GPU: what a GPU needs is tested on it.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final, Protocol

import torch

from realexec.memory import cuda_ipc
from realexec.memory.arena import Arena
from serving.vocabulary.errors import UserError

CPU: Final = "cpu"
APART: Final = "apart"
CUDA: Final = "cuda"


class Device(Protocol):
    """Of one worker."""

    @property
    def pinned(self) -> bool | None:
        """Whether the driver took the arena's pages, once there is a `mirror`; None: there is no GPU."""

    @property
    def torch_name(self) -> str:
        """What torch calls it."""

    @property
    def own_memory(self) -> bool:
        """Whether tensors lie beside the arena, and not in it."""

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """A byte for each byte of ``host`` from ``first`` on, for tensors: those bytes themselves where the
        device computes in them, else zeros that bytes are copied to and from. ``staged``: by way of those of
        the host; else these are never used, and only what lies before ``first`` is."""

    def lane(self) -> AbstractContextManager[None]:
        """Copies of this thread: they go behind all that was computed so far, and are over at its end."""

    def wait(self) -> None:
        """Returns when all that was given to the device so far is computed: a step ends then, and not when
        the last of it was asked for."""

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """By what one process of this host may `reach` a block that `mirror` made; it can be written as JSON.
        None: it is the arena itself."""

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """The block of another process."""

    def close(self) -> None:
        """What was pinned is so no more; twice does no harm."""


class SameMemory:
    """A CPU: tensors lie in the arena itself."""

    torch_name, pinned, own_memory = CPU, None, False

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """The arena."""
        return host[first:]

    def lane(self) -> AbstractContextManager[None]:
        """A CPU does one thing after the other."""
        return nullcontext()

    def wait(self) -> None:
        """A CPU has computed what it was told to."""

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """Peers have the arena."""
        return None

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """Peers of a CPU are on one too."""
        raise ValueError("a worker on the CPU cannot reach memory of a device of its own")

    def close(self) -> None:
        """Nothing is pinned."""


class MemoryApart:
    """A CPU with memory of its own for tensors: what nobody copies is found missing."""

    torch_name, pinned, own_memory = CPU, None, True

    def __init__(self) -> None:
        self._shared: dict[int, Arena] = {}  # blocks, by where they begin

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """Of bytes that are no numbers, so that nobody takes them for the arena's."""
        block = Arena.create(host.numel() - first)
        made = torch.frombuffer(block.buffer, dtype=torch.uint8).fill_(255)
        self._shared[made.data_ptr()] = block
        return made

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """A second arena, as far as peers see."""
        return self._shared[block.data_ptr()].handle

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """Mapped; what it is mapped for keeps it."""
        with Arena.attach(shared, touched=True) as block:
            return torch.frombuffer(block.buffer, dtype=torch.uint8)

    def close(self) -> None:
        """Nothing is pinned."""

    def lane(self) -> AbstractContextManager[None]:
        """A CPU does one thing after the other."""
        return nullcontext()

    def wait(self) -> None:
        """A CPU has computed what it was told to."""


class Gpu:
    """A CUDA device; all that only a GPU can show is in this class (docs/GPU.md says what one has run).

    The arena's pages are pinned, so that copies go by DMA. A thread that copies has a stream of its own,
    which waits for what the stream that computes was given before. That one never waits: who copies in tells
    others only when the bytes are there.
    """

    own_memory = True

    def __init__(self, index: int) -> None:
        self.torch_name = f"{CUDA}:{index}"
        self.pinned = False  # without, copies are slower; the run's summary says so
        self._pages: list[int] = []  # where those begin that are
        self._device = torch.device(self.torch_name)
        self._own = threading.local()

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """A block of the GPU's memory. What is used of the arena is pinned, the host's copies too."""
        made = torch.zeros_like(host[first:], device=self._device)
        used = host if staged else host[:first]
        if used.numel() == 0:
            self.pinned = True
            return made
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(self._device):
            self.pinned = int(runtime.cudaHostRegister(used.data_ptr(), used.numel(), 0)) == 0
        if self.pinned:
            self._pages.append(used.data_ptr())
        else:
            self._drop_error()
        return made

    def _drop_error(self) -> None:
        """CUDA keeps why it refused, and torch raises that at its next call: here, not in somebody's step."""
        with suppress(RuntimeError):
            torch.zeros(1, device=self._device)

    def close(self) -> None:
        """What is under way on the device is over first."""
        runtime: Any = torch.cuda.cudart() if self._pages else None  # type: ignore[no-untyped-call]
        while self._pages:
            pages = self._pages.pop()
            with suppress(RuntimeError), torch.cuda.device(self._device):  # a device that failed stays so
                torch.cuda.synchronize()
                runtime.cudaHostUnregister(pages)
        self.pinned = False

    @contextmanager
    def lane(self) -> Iterator[None]:
        """On a stream of this thread's."""
        if not hasattr(self._own, "stream"):
            self._own.stream = torch.cuda.Stream(self._device)
        stream: torch.cuda.Stream = self._own.stream
        stream.wait_stream(torch.cuda.default_stream(self._device))
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()

    def wait(self) -> None:
        """For the stream that computes; copies of other threads go on."""
        torch.cuda.default_stream(self._device).synchronize()

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """By CUDA IPC."""
        return cuda_ipc.shared(block)

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """By CUDA IPC."""
        with torch.cuda.device(self._device):
            return cuda_ipc.opened(shared)


def device_of(name: str) -> Device:
    """By name: cpu, apart, cuda or cuda:N. UserError for one that is not here."""
    if name == CPU:
        return SameMemory()
    if name == APART:
        return MemoryApart()
    kind, colon, index = name.partition(":")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(index) if index.isdecimal() else 0
    if kind != CUDA or (colon and not index.isdecimal()) or number >= there:
        raise UserError(
            f"model.device is {name!r}, which is not here: torch sees {there or 'no'} GPUs (`realexec probe` "
            "tells what is missing); write device=cpu."
        )
    return Gpu(number)


def here_or_cpu(name: str) -> str:
    """The device, or the CPU where it is only on other hosts."""
    try:
        return device_of(name).torch_name
    except UserError:
        return CPU


def device_for(name: str, slot: int) -> str:
    """Of ``cuda`` without a number the one of a slot: workers of a host take its GPUs in turn."""
    if name != CUDA or not torch.cuda.is_available():
        return name
    return f"{CUDA}:{slot % torch.cuda.device_count()}"
