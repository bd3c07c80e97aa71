"""Reads Parquet files in the calling thread only.

By default pyarrow reads in its own threads, which hold the Python file object. If such a thread releases it
after the interpreter has begun to exit, the process aborts: "terminate called without an active exception",
exit status 134, after all work was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.reading import open_regular

if TYPE_CHECKING:
    import pandas as pd


def table_of(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return a ``pyarrow.Table`` of all columns, or of the given ones.

    Raises OSError, ``pyarrow.ArrowException`` for a file that is not Parquet, and HardwareError for one that
    is not regular.
    """
    import pyarrow.parquet as pq

    with open_regular(path) as file:  # opened here because pyarrow refuses a name that is not UTF-8
        return pq.ParquetFile(file, pre_buffer=False).read(columns, use_threads=False)


def frame_of(path: Path) -> pd.DataFrame:
    """Return the file as a DataFrame."""
    return table_of(path).to_pandas(use_threads=False)
