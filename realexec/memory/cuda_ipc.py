"""A block of a GPU's memory as another process of this host sees it.

CUDA IPC: the driver hands out memory by handles. What torch has for tensors of several processes is used,
field by field, so that nothing is unpickled. Copies between two GPUs go directly (NVLink, PCIe) where the
driver lets one reach the other, else through the host; several workers may share one GPU.
"""

from typing import Any, Final

import torch

# What `torch.UntypedStorage._new_shared_cuda` takes, in its order. Bytes go as hexadecimal digits.
_FIELDS: Final = (
    "device", "handle", "size_bytes", "offset_bytes", "counter", "counter_offset", "event", "event_sync",
)  # fmt: skip
_BYTES: Final = frozenset({"handle", "counter", "event"})


def shared(block: torch.Tensor) -> dict[str, Any]:
    """What another process opens the block by; once for each, for torch counts who has it open."""
    storage: Any = block.untyped_storage()
    told = dict(zip(_FIELDS, storage._share_cuda_(), strict=True))
    fields = {name: value.hex() if name in _BYTES else value for name, value in told.items()}
    return {**fields, "begins": block.storage_offset(), "bytes": block.numel()}


def opened(told: dict[str, Any]) -> torch.Tensor:
    """The block itself; it is let go with the last tensor that has it.

    On the device with its owner's number: workers of a host are to see its GPUs under the same numbers.
    """
    fields = [bytes.fromhex(told[name]) if name in _BYTES else told[name] for name in _FIELDS]
    torch.cuda.init()
    make: Any = torch.UntypedStorage
    storage: Any = make._new_shared_cuda(*fields)
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage, told["begins"], (told["bytes"],), (1,))
