"""What differs between a CPU and a GPU: where tensors lie beside an arena, and in which lane bytes go there.

All else is the same code. ``apart`` is a CPU whose tensors lie in memory that transports do not see, as on a
GPU: what a GPU needs is tested on it.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import torch

from serving.vocabulary.errors import UserError

CPU: Final = "cpu"
APART: Final = "apart"
CUDA: Final = "cuda"


class Device(Protocol):
    """Of one worker."""

    @property
    def torch_name(self) -> str:
        """What torch calls it."""

    def mirror(self, host: torch.Tensor, first: int) -> torch.Tensor:
        """A byte for each byte of ``host`` from ``first`` on, for tensors: those bytes themselves where the
        device computes in them, else zeros that bytes are copied to and from."""

    def lane(self) -> AbstractContextManager[None]:
        """Copies of this thread: they go behind all that was computed so far, and are over at its end."""


class SameMemory:
    """A CPU: tensors lie in the arena itself."""

    torch_name = CPU

    def mirror(self, host: torch.Tensor, first: int) -> torch.Tensor:
        """The arena."""
        return host[first:]

    def lane(self) -> AbstractContextManager[None]:
        """A CPU does one thing after the other."""
        return nullcontext()


class MemoryApart:
    """A CPU with memory of its own for tensors: what nobody copies is found missing."""

    torch_name = CPU

    def mirror(self, host: torch.Tensor, first: int) -> torch.Tensor:
        """Of bytes that are no numbers, so that nobody takes them for the arena's."""
        return torch.full_like(host[first:], 255)

    def lane(self) -> AbstractContextManager[None]:
        """A CPU does one thing after the other."""
        return nullcontext()


class Gpu:
    """A CUDA device. No GPU has run this yet; all that only a GPU can show is in this class.

    The arena's pages are pinned, so that copies go by DMA. A thread that copies has a stream of its own,
    which waits for what the stream that computes was given before. That one never waits: who copies in tells
    others only when the bytes are there.
    """

    def __init__(self, index: int) -> None:
        self.torch_name = f"{CUDA}:{index}"
        self.pinned = False  # whether the driver took the arena's pages; without, copies are slower
        self._device = torch.device(self.torch_name)
        self._own = threading.local()

    def mirror(self, host: torch.Tensor, first: int) -> torch.Tensor:
        """A block of the GPU's memory; all of the arena is pinned, the host's copies too."""
        made = torch.zeros_like(host[first:], device=self._device)
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(self._device):
            self.pinned = int(runtime.cudaHostRegister(host.data_ptr(), host.numel(), 0)) == 0
        return made

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
