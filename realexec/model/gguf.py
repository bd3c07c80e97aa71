"""Read a GGUF file: its metadata, and its tensors as numbers.

The format, version 3: github.com/ggml-org/ggml, docs/gguf.md; the quantised blocks: ggml-common.h there. All
numbers are little-endian. Only the tensor types in `_TYPES` can be read.
"""

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from serving.vocabulary.errors import UserError

Floats = npt.NDArray[np.float32]

_MAGIC: Final = b"GGUF"
_VERSION: Final = 3
_ALIGNMENT: Final = 32  # of tensors, unless the metadata gives another one
_STRING: Final = 8
_ARRAY: Final = 9
# struct codes, by the format's number of a metadata value's type.
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_BLOCK: Final = 32  # weights that share a scale


class _Type(NamedTuple):
    """A tensor type: bytes and weights of a block, and a function from rows of blocks to numbers."""

    block_bytes: int
    block_weights: int
    decode: Callable[[npt.NDArray[np.uint8]], Floats]


class GgufTensor(NamedTuple):
    """A tensor's place and type; ``shape`` is in numpy's order (rows first), the reverse of the file's."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """A GGUF file: ``metadata`` by key; `read` returns a tensor. The file is mapped, not loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
            reader = _Reader(self._bytes)
            tensors, values = reader.head()
            self.metadata: dict[str, Any] = {reader.string(): reader.value() for _ in range(values)}
            self.tensors: dict[str, GgufTensor] = dict(reader.tensor() for _ in range(tensors))
        except (OSError, ValueError, struct.error, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read as GGUF ({error}); fetch it again.") from None
        alignment = int(self.metadata.get("general.alignment", _ALIGNMENT))
        self._data = -(-reader.at // alignment) * alignment

    def read(self, name: str) -> Floats:
        """Return the tensor as 32-bit numbers; UserError if its type is not supported."""
        tensor = self.tensors[name]
        if tensor.kind not in _TYPES:
            raise UserError(f"{name} in {self.path} is of GGUF type {tensor.kind}, which is not read here.")
        kind = _TYPES[tensor.kind]
        begin = self._data + tensor.offset
        size_bytes = math.prod(tensor.shape) // kind.block_weights * kind.block_bytes
        raw = self._bytes[begin : begin + size_bytes]
        if raw.size < size_bytes:
            raise UserError(f"{self.path} ends within {name}; fetch it again.")
        return kind.decode(raw.reshape(-1, kind.block_bytes)).reshape(tensor.shape)


class _Reader:
    """Reads the part of the file before the tensor data, from front to back."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._data = data
        self.at = 0

    def head(self) -> tuple[int, int]:
        """Read the numbers of tensors and of metadata values."""
        magic, version = self._take(4), self._number("I")
        if magic != _MAGIC or version != _VERSION:
            raise ValueError(f"it begins with {magic!r}, version {version}")
        return self._number("Q"), self._number("Q")

    def string(self) -> str:
        """Read a length, then UTF-8 text."""
        return self._take(self._number("Q")).decode()

    def value(self) -> Any:
        """Read a type number, then a value of that type."""
        return self._of_type(self._number("I"))

    def tensor(self) -> tuple[str, GgufTensor]:
        """Read a tensor's name, shape, type and offset."""
        name, dimensions = self.string(), self._number("I")
        shape = tuple(self._number("Q") for _ in range(dimensions))
        return name, GgufTensor(shape[::-1], self._number("I"), self._number("Q"))

    def _of_type(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, length = self._number("I"), self._number("Q")
            return [self._of_type(inner) for _ in range(length)]
        if kind not in _SCALARS:
            raise ValueError(f"a value of unknown type {kind}")
        return self._number(_SCALARS[kind])

    def _number(self, code: str) -> Any:
        (number,) = struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))
        return number

    def _take(self, size_bytes: int) -> bytes:
        self.at += size_bytes
        if self.at > len(self._data):
            raise ValueError("it ends too early")
        return self._data[self.at - size_bytes : self.at].tobytes()


def _plain(dtype: str) -> Callable[[npt.NDArray[np.uint8]], Floats]:
    return lambda blocks: np.ascontiguousarray(blocks).view(dtype).astype(np.float32)


def _q8_0(blocks: npt.NDArray[np.uint8]) -> Floats:
    """Decode blocks of a half-precision scale and 32 signed bytes."""
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return scale * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_1(blocks: npt.NDArray[np.uint8]) -> Floats:
    """Decode blocks of half-precision scale and minimum and 32 half bytes: 16 bytes' low, then high ones."""
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    least = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    steps = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return scale * steps.astype(np.float32) + least


# Tensor types by the format's number: F32, F16, Q4_1, Q8_0.
_TYPES: Final = {
    0: _Type(4, 1, _plain("<f4")),
    1: _Type(2, 1, _plain("<f2")),
    3: _Type(2 + 2 + _BLOCK // 2, _BLOCK, _q4_1),
    8: _Type(2 + _BLOCK, _BLOCK, _q8_0),
}
