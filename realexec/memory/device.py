"""What differs between a CPU and a GPU: whether tensors lie in the arena, and how bytes are copied.

All other code is the same for both. ``apart`` is a CPU whose tensors lie in memory that transports do not
see, as on a GPU: tests run on it the code that a GPU needs.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final, Protocol

import torch

from realexec.memory.arena import Arena
from serving.vocabulary.errors import UserError

# Shares a block of a GPU's memory with other processes of this host.
# CUDA IPC: NVIDIA's driver shares memory by handles. This module uses torch's functions for sharing
# tensors, field by field, so that nothing is unpickled. Copies between two GPUs go directly (NVLink, PCIe)
# if the driver lets one reach the other, else through the host. Several workers may share one GPU.

# The arguments of `torch.UntypedStorage._new_shared_cuda`, in order. Bytes are sent as hexadecimal digits.
_FIELDS: Final = (
    "device", "handle", "size_bytes", "offset_bytes", "counter", "counter_offset", "event", "event_sync",
)  # fmt: skip
_BYTES: Final = frozenset({"handle", "counter", "event"})


def shared(block: torch.Tensor) -> dict[str, Any]:
    """Return what another process opens the block with. Call once per process: torch counts the users."""
    storage: Any = block.untyped_storage()
    handle = dict(zip(_FIELDS, storage._share_cuda_(), strict=True))
    fields = {name: value.hex() if name in _BYTES else value for name, value in handle.items()}
    return {**fields, "begins": block.storage_offset(), "bytes": block.numel()}


def opened(handle: dict[str, Any]) -> torch.Tensor:
    """Open another process's block; it is released with the last tensor that uses it.

    It is on the device with its owner's number: workers of a host must see its GPUs under the same numbers.
    """
    fields = [bytes.fromhex(handle[name]) if name in _BYTES else handle[name] for name in _FIELDS]
    torch.cuda.init()
    make: Any = torch.UntypedStorage
    storage: Any = make._new_shared_cuda(*fields)
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage, handle["begins"], (handle["bytes"],), (1,))


CPU: Final = "cpu"
APART: Final = "apart"
CUDA: Final = "cuda"


class Device(Protocol):
    """The device of one worker."""

    @property
    def pinned(self) -> bool | None:
        """Whether the arena's pages are pinned, known after `mirror`; None: there is no GPU."""

    @property
    def torch_name(self) -> str:
        """torch's name of the device."""

    @property
    def own_memory(self) -> bool:
        """Whether tensors lie in the device's own memory, not in the arena."""

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """Return the tensors' bytes for ``host`` from ``first`` on: the same bytes if the device computes in
        them, else a block of zeros for copies. ``staged``: copies go through the host's bytes; if not, only
        the host's bytes before ``first`` are used."""

    def copy_stream(self) -> AbstractContextManager[None]:
        """Context for copies of this thread: they follow all computation so far, and are complete on exit."""

    def wait(self) -> None:
        """Return when the device has computed all work submitted so far: a step ends then, and not when its
        last work was submitted."""

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """Return what one process of this host needs to `reach` a block that `mirror` made, in JSON types.
        None: it is the arena itself."""

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """Open the block of another process."""

    def close(self) -> None:
        """Unpin what was pinned. May be called twice."""


class SameMemory:
    """A CPU whose tensors lie in the arena itself."""

    torch_name, pinned, own_memory = CPU, None, False

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """Return the arena's own bytes."""
        return host[first:]

    def copy_stream(self) -> AbstractContextManager[None]:
        """Return an empty context: on a CPU, a copy runs after what was computed before."""
        return nullcontext()

    def wait(self) -> None:
        """Return at once: a CPU has already computed all its work."""

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """Return None: peers read the arena."""
        return None

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """Raise ValueError: peers of a worker on a CPU are on CPUs too."""
        raise ValueError("a worker on the CPU cannot reach memory of a device of its own")

    def close(self) -> None:
        """Do nothing: nothing is pinned."""


class MemoryApart:
    """A CPU with separate memory for tensors: bytes that the code forgets to copy are missing there."""

    torch_name, pinned, own_memory = CPU, None, True

    def __init__(self) -> None:
        self._shared: dict[int, Arena] = {}  # blocks, by their address

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """Return a block of NaN bytes (255), which cannot be mistaken for the arena's contents."""
        block = Arena.create(host.numel() - first)
        made = torch.frombuffer(block.buffer, dtype=torch.uint8).fill_(255)
        self._shared[made.data_ptr()] = block
        return made

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """Return the block's handle: peers open it as a second arena."""
        return self._shared[block.data_ptr()].handle

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """Map the block; the returned tensor keeps it mapped."""
        with Arena.attach(shared, touched=True) as block:
            return torch.frombuffer(block.buffer, dtype=torch.uint8)

    def close(self) -> None:
        """Do nothing: nothing is pinned."""

    def copy_stream(self) -> AbstractContextManager[None]:
        """Return an empty context: on a CPU, a copy runs after what was computed before."""
        return nullcontext()

    def wait(self) -> None:
        """Return at once: a CPU has already computed all its work."""


class Gpu:
    """A CUDA device. All code that only a GPU can test is in this class (docs/how-to/GPU.md says what one
    has run).

    The arena's pages are pinned, so that copies go by DMA. Each thread that copies has its own stream, which
    waits for the work submitted to the compute stream before. The compute stream never waits: a thread that
    copies bytes in reports them only once they have arrived.
    """

    own_memory = True

    def __init__(self, index: int) -> None:
        self.torch_name = f"{CUDA}:{index}"
        self.pinned = False  # copies are slower without pinned pages; the run's summary reports it
        self._pages: list[int] = []  # addresses of pinned memory
        self._device = torch.device(self.torch_name)
        self._own = threading.local()

    def mirror(self, host: torch.Tensor, first: int, staged: bool) -> torch.Tensor:
        """Return a block of the GPU's memory; pin the used part of the arena, with the host's copies."""
        made = torch.zeros_like(host[first:], device=self._device)
        used = host if staged else host[:first]
        if used.numel() == 0:
            self.pinned = True
            return made
        runtime: Any = torch.cuda.cudart()
        with torch.cuda.device(self._device):
            self.pinned = int(runtime.cudaHostRegister(used.data_ptr(), used.numel(), 0)) == 0
        if self.pinned:
            self._pages.append(used.data_ptr())
        else:
            self._drop_error()
        return made

    def _drop_error(self) -> None:
        """Clear CUDA's stored error, which torch would otherwise raise at its next call, during a step."""
        with suppress(RuntimeError):
            torch.zeros(1, device=self._device)

    def close(self) -> None:
        """Unpin the pages, once all work under way on the device has finished."""
        runtime: Any = torch.cuda.cudart() if self._pages else None
        while self._pages:
            pages = self._pages.pop()
            with suppress(RuntimeError), torch.cuda.device(self._device):  # a failed device stays failed
                torch.cuda.synchronize()
                runtime.cudaHostUnregister(pages)
        self.pinned = False

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        """Run copies on this thread's own stream."""
        if not hasattr(self._own, "stream"):
            self._own.stream = torch.cuda.Stream(self._device)
        stream: torch.cuda.Stream = self._own.stream
        stream.wait_stream(torch.cuda.default_stream(self._device))
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()

    def wait(self) -> None:
        """Wait for the compute stream; copies of other threads continue."""
        torch.cuda.default_stream(self._device).synchronize()

    def share(self, block: torch.Tensor) -> dict[str, Any] | None:
        """Share the block by CUDA IPC."""
        return shared(block)

    def reach(self, shared: dict[str, Any]) -> torch.Tensor:
        """Open the block by CUDA IPC."""
        with torch.cuda.device(self._device):
            return opened(shared)


def device_of(name: str) -> Device:
    """Return the device of this name: cpu, apart, cuda or cuda:N. UserError if this host lacks it."""
    if name == CPU:
        return SameMemory()
    if name == APART:
        return MemoryApart()
    kind, colon, index = name.partition(":")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(index) if index.isdecimal() else 0
    if kind != CUDA or (colon and not index.isdecimal()) or number >= there:
        raise UserError(
            f"model.device is {name!r}, which is not available: torch sees {there or 'no'} GPUs "
            "(`realexec probe` tells what is missing); write device=cpu."
        )
    return Gpu(number)


def here_or_cpu(name: str) -> str:
    """Return the device's name, or the CPU's if only other hosts have the device."""
    try:
        return device_of(name).torch_name
    except UserError:
        return CPU


def device_for(name: str, slot: int) -> str:
    """Return a slot's GPU for ``cuda`` without a number: workers of a host take its GPUs in turn."""
    if name != CUDA or not torch.cuda.is_available():
        return name
    return f"{CUDA}:{slot % torch.cuda.device_count()}"
