"""GGUF files written by hand, so that what is read from them is known."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, list):
        inner = [_value(one) for one in value]
        return (
            struct.pack("<I", 9)
            + inner[0][:4]
            + struct.pack("<Q", len(value))
            + b"".join(one[4:] for one in inner)
        )
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II", 4, value)


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]]
) -> None:
    """``tensors``: (type, shape as numpy has it, bytes) by name."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        head += _string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def q4_1_blocks(scales: np.ndarray, least: np.ndarray, steps: np.ndarray) -> bytes:
    """``steps`` [blocks, 32] of 0 to 15: each number is its block's ``least`` + ``scale`` * step."""
    halves = (steps[:, :16] | (steps[:, 16:] << 4)).astype(np.uint8)
    ends = np.stack([scales, least], axis=1).astype("<f2")
    return b"".join(pair.tobytes() + row.tobytes() for pair, row in zip(ends, halves))


def q8_0_blocks(scales: np.ndarray, steps: np.ndarray) -> bytes:
    """``steps`` [blocks, 32] of -127 to 127."""
    return b"".join(
        scale.astype("<f2").tobytes() + row.astype(np.int8).tobytes() for scale, row in zip(scales, steps)
    )
