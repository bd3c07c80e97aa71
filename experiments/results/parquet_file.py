"""Parquet files read by the thread that asks, and no other.

pyarrow reads on threads of its own unless it is told not to, and these hold the Python file object. One that
lets go of it only after the interpreter has begun to end takes the process down: "terminate called without an
active exception", exit status 134, after everything was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def table_of(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A ``pyarrow.Table`` of all columns, or of these.

    OSError and ``pyarrow.ArrowException`` for what is no Parquet file.
    """
    import pyarrow.parquet as pq

    with path.open("rb") as file:  # opened here, for pyarrow refuses a name that is not UTF-8
        return pq.ParquetFile(file, pre_buffer=False).read(columns, use_threads=False)


def frame_of(path: Path) -> pd.DataFrame:
    """The same as a DataFrame."""
    return table_of(path).to_pandas(use_threads=False)
