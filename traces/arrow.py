"""numpy arrays as Arrow arrays and back, by their buffers.

``pyarrow.array`` and ``Array.to_numpy`` look whether pandas is involved and import it, which costs more than
reading or writing most files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def arrow_numbers(values: NDArray[np.generic], present: NDArray[np.bool_] | None = None) -> Any:
    """Numbers of whole bytes, null where ``present`` is False."""
    import pyarrow as pa

    flat = np.ascontiguousarray(values)
    assert flat.dtype.kind in "iuf", "whole bytes per value"
    valid = (
        None if present is None or present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    )
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [valid, pa.py_buffer(flat)])


def arrow_words(words: Sequence[str], large: bool = False) -> Any:
    """Texts; ``large``: with 64-bit offsets."""
    import pyarrow as pa

    texts = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64 if large else np.int32)
    kind = pa.LargeStringArray if large else pa.StringArray
    return kind.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def numbers_of(values: Any) -> NDArray[Any]:
    """A copy of an Arrow array or chunked array of numbers without nulls."""
    chunks = getattr(values, "chunks", [values])
    arrays = [np.from_dlpack(chunk) for chunk in chunks if len(chunk)]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=values.type.to_pandas_dtype())


def codes_of(indices: Any, absent: int) -> NDArray[Any]:
    """An Arrow array of integers, ``absent`` where it is null."""
    import pyarrow as pa

    if not indices.null_count:
        return numbers_of(indices)
    there = numbers_of(indices.is_valid().cast(pa.int8()))
    buffers = [None, indices.buffers()[1]]
    known = pa.Array.from_buffers(indices.type, len(indices), buffers, offset=indices.offset)
    return np.where(there, numbers_of(known), absent)
