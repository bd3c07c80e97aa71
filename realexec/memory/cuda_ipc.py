"""Shares a block of a GPU's memory with other processes of this host.

CUDA IPC: NVIDIA's driver shares memory by handles. This module uses torch's functions for sharing tensors,
field by field, so that nothing is unpickled. Copies between two GPUs go directly (NVLink, PCIe) if the
driver lets one reach the other, else through the host. Several workers may share one GPU.
"""

from typing import Any, Final

import torch

# The arguments of `torch.UntypedStorage._new_shared_cuda`, in order. Bytes are sent as hexadecimal digits.
_FIELDS: Final = (
    "device", "handle", "size_bytes", "offset_bytes", "counter", "counter_offset", "event", "event_sync",
)  # fmt: skip
_BYTES: Final = frozenset({"handle", "counter", "event"})


def shared(block: torch.Tensor) -> dict[str, Any]:
    """Return what another process opens the block with. Call once per process: torch counts the users."""
    storage: Any = block.untyped_storage()
    told = dict(zip(_FIELDS, storage._share_cuda_(), strict=True))
    fields = {name: value.hex() if name in _BYTES else value for name, value in told.items()}
    return {**fields, "begins": block.storage_offset(), "bytes": block.numel()}


def opened(told: dict[str, Any]) -> torch.Tensor:
    """Open another process's block; it is released with the last tensor that uses it.

    It is on the device with its owner's number: workers of a host must see its GPUs under the same numbers.
    """
    fields = [bytes.fromhex(told[name]) if name in _BYTES else told[name] for name in _FIELDS]
    torch.cuda.init()
    make: Any = torch.UntypedStorage
    storage: Any = make._new_shared_cuda(*fields)
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage, told["begins"], (told["bytes"],), (1,))
