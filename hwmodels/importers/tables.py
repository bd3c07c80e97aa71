"""Reads one measured table from CSV or Parquet: checks and types its columns, computes its digest."""

import hashlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, Floats
from hwmodels.reading import read_limited

# The largest published table has 0.1 million rows, 2.4 MB and words of 45 characters.
MOST_BYTES: Final = 128 << 20
MOST_ROWS: Final = 1_000_000
MOST_LINE_BYTES: Final = 1 << 16
MOST_WORD_CHARS: Final = 100

Counts = npt.NDArray[np.int64]
Words = npt.NDArray[np.str_]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length: ``counts`` (whole, not negative), ``times`` (finite) and ``words``."""

    path: Path
    sha256: str
    counts: Mapping[str, Counts]
    times: Mapping[str, Floats]
    words: Mapping[str, Words]

    def __len__(self) -> int:
        columns = [*self.counts.values(), *self.times.values(), *self.words.values()]
        return len(columns[0])

    def where(self, rows: Mask) -> "Table":
        """The rows that ``rows`` marks."""
        return replace(
            self,
            counts={name: column[rows] for name, column in self.counts.items()},
            times={name: column[rows] for name, column in self.times.items()},
            words={name: column[rows] for name, column in self.words.items()},
        )

    def having(self, **wanted: int | str) -> "Table":
        """The rows with these values in their columns; HardwareError with the existing values if none has."""
        table = self
        for name, value in wanted.items():
            column = table.counts[name] if name in table.counts else table.words[name]
            there = sorted({str(item) for item in column.tolist()}, key=lambda item: (len(item), item))
            table = table.where(np.asarray(column == value, dtype=np.bool_))
            if not len(table):
                raise HardwareError(
                    f"{self.path} has no rows with {name}={value}; it has {name}={', '.join(there)}"
                )
        return table


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The file's content; HardwareError if it cannot be read or is too large."""
    try:
        return read_limited(path, most_bytes)
    except OSError as error:
        raise HardwareError(
            f"cannot read {path} ({os.strerror(error.errno or 0)}); name a folder or file that holds it"
        ) from error


def read_table(
    path: Path,
    counts: Sequence[str],
    *,
    times: Sequence[str],
    words: Sequence[str] = (),
    shares: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Table:
    """The named columns of a .csv or .parquet file.

    ``counts`` must be whole numbers of at least 0, ``times`` above 0, ``shares`` any finite numbers (returned
    with the times); ``optional`` counts are 0 if a file has no such column. HardwareError names the file, the
    column and the first wrong row (1 is the first).
    """
    content = read_bytes(path)
    needed = [*counts, *times, *shares, *words]
    frame = _frame(path, content, [*needed, *optional], words)
    frame = frame.assign(**{name: 0 for name in optional if name not in frame.columns})
    if missing := [name for name in needed if name not in frame.columns]:
        raise HardwareError(f"{path} lacks column {missing[0]!r}; it needs {', '.join(needed)}")
    if not len(frame):
        raise HardwareError(f"{path} has no rows; name a table that holds measurements")
    numbers = {name: _numbers(path, frame, name, "a finite number", np.isfinite) for name in shares}
    numbers |= {name: _numbers(path, frame, name, "a time above 0", _is_time) for name in times}
    whole = "a whole number of at least 0"
    return Table(
        path,
        hashlib.sha256(content).hexdigest(),
        {
            name: _numbers(path, frame, name, whole, _is_count).astype(np.int64)
            for name in (*counts, *optional)
        },
        numbers,
        {name: _words(path, frame, name) for name in words},
    )


def _frame(path: Path, content: bytes, needed: Sequence[str], words: Sequence[str]) -> Any:
    """The table as written; of Parquet only the existing needed columns."""
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            return _parquet(path, content, needed, words)
        _check_lines(path, content)
        return pd.read_csv(io.BytesIO(content), index_col=False)
    except (ValueError, OSError) as error:  # raised by pandas and pyarrow as subclasses of these
        reason = " ".join(str(error).split())[:200]
        raise HardwareError(
            f"{path} is not a readable table ({reason}); write a {path.suffix} file with a header"
        ) from error


def _parquet(path: Path, content: bytes, needed: Sequence[str], words: Sequence[str]) -> Any:
    """Store each distinct word once: a few bytes of a file can repeat a long one a million times."""
    import pandas as pd
    import pyarrow.parquet as pq

    with pq.ParquetFile(io.BytesIO(content)) as opened:
        _check_rows(path, opened.metadata.num_rows)
        there = {field.name: str(field.type) for field in opened.schema_arrow}
    return pd.read_parquet(
        io.BytesIO(content),
        columns=[name for name in dict.fromkeys(needed) if name in there],
        read_dictionary=[name for name in words if there.get(name) in ("string", "large_string")],
    )


def _check_lines(path: Path, content: bytes) -> None:
    """Check the lines before a reader makes columns and rows of them."""
    _check_rows(path, content.count(b"\n"))
    start = 0
    for piece in range(MOST_LINE_BYTES, len(content), MOST_LINE_BYTES):
        start = max(start, content.rfind(b"\n", start, piece) + 1)
        if piece - start >= MOST_LINE_BYTES:
            raise HardwareError(
                f"{path} has a line of over {MOST_LINE_BYTES} bytes; write one measurement per line"
            )


def _check_rows(path: Path, rows: int) -> None:
    if rows > MOST_ROWS:
        raise HardwareError(f"{path} has {rows} rows; write at most {MOST_ROWS}, as any published table has")


def _words(path: Path, frame: Any, name: str) -> Words:
    """The column as text with the width of its longest word."""
    longest = max((len(str(word)) for word in frame[name].unique()), default=0)
    if longest > MOST_WORD_CHARS:
        raise HardwareError(
            f"{path}: {name} has a word of {longest} characters; write at most {MOST_WORD_CHARS}"
        )
    column: Words = frame[name].astype(str).to_numpy(dtype=np.str_)
    return column


def _numbers(path: Path, frame: Any, name: str, wanted: str, good: Callable[[Floats], Any]) -> Floats:
    import pandas as pd

    column: Floats = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    for row in np.flatnonzero(~good(column))[:1]:
        raise HardwareError(f"{path} row {row + 1}: {name} is {str(frame[name].iloc[row])!r}; write {wanted}")
    return column


def _is_time(column: Floats) -> Any:
    return (column > 0.0) & np.isfinite(column)


def _is_count(column: Floats) -> Any:
    return (column >= 0.0) & (column < 2.0**53) & (column == np.floor(column))


def mean_by_count(counts: Counts, seconds: Floats) -> Curve:
    """A curve over the distinct counts; several measurements of one count are averaged."""
    distinct, inverse = np.unique(counts, return_inverse=True)
    means = np.bincount(inverse, weights=seconds) / np.bincount(inverse)
    return Curve(tuple(distinct.tolist()), tuple(means.tolist()))


def summed(curves: Sequence[tuple[float, Curve]]) -> Curve:
    """The weighted sum of curves that have the same counts."""
    counts = curves[0][1].counts
    assert all(curve.counts == counts for _, curve in curves)
    total = sum(weight * np.array(curve.seconds) for weight, curve in curves)
    return Curve(counts, tuple(np.asarray(total).tolist()))
