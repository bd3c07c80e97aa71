"""Writes a workload as plain CSV, some rows at a time."""

import gzip
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from traces import reading
from traces.columns import Names, PrefixBlocks
from traces.csv.word import MAX_WORD_BYTES
from traces.errors import TraceError
from traces.replacing import replacing
from traces.turns import CONVERSATIONS_NOT_WRITTEN, Turns
from traces.workload import Workload, taken

_ROWS: Final = 50_000  # a few MB of text at a time
_BREAKS: Final = ("\n", "\r", "\0")
_COLUMNS: Final = (
    "arrival_ns", "prompt_tokens", "output_tokens", "max_new_tokens", "model", "priority", "session",
    "images", "source_duration_ns",
)  # fmt: skip


def write_plain_csv(workload: Workload, path: str | Path, *, overwrite: bool = False) -> tuple[str, ...]:
    """Write every column that the workload has; gzipped when the name ends in .gz.

    What is read back has the same columns. Name, source, labels and counts of dropped rows are not in the
    file. Returns what of a request the format cannot hold: which one continues which. Raises TraceError when
    the file exists and ``overwrite`` is False, when it cannot be written, or for a cell that would not be
    read back.
    """
    _check(workload)
    path = Path(path)
    names = [column for column in _COLUMNS if getattr(workload, column) is not None]
    columns = [getattr(workload, column) for column in names]
    if isinstance(workload.prefix, PrefixBlocks):
        names.append(f"prefix_{workload.prefix.whole_block_tokens}")
        columns.append(workload.prefix)
    words = [_quoted_words(column) if isinstance(column, Names) else () for column in columns]
    with replacing(path, overwrite) as half, half.open("xb") as file:
        if path.name.endswith(".gz"):
            # Without a name and a time in it, so that the same workload gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
                _write(zipped, workload, names, columns, words)
        else:
            _write(file, workload, names, columns, words)
    return (CONVERSATIONS_NOT_WRITTEN,) if isinstance(workload.prefix, Turns) else ()


def _write(
    file: IO[bytes] | gzip.GzipFile,
    workload: Workload,
    names: list[str],
    columns: list[Any],
    words: Sequence[Sequence[str]],
) -> None:
    file.write((",".join(names) + "\n").encode())
    for rows in workload.blocks(_ROWS):
        cells = [_cells(taken(column, rows), quoted) for column, quoted in zip(columns, words, strict=True)]
        lines = [",".join(row) for row in zip(*cells, strict=True)]
        if max(map(len, lines)) > reading.BLOCK_BYTES // 4:  # a character has at most 4 bytes
            raise TraceError(
                f"{workload.name}: a request has too many prefix blocks for a line of CSV: write Parquet"
            )
        file.write(("\n".join(lines) + "\n").encode())


def _cells(column: Any, quoted: Sequence[str]) -> Iterator[str]:
    if isinstance(column, Names):
        return (quoted[code] for code in column.codes.tolist())
    if isinstance(column, PrefixBlocks):
        ids, at = list(map(str, column.ids.tolist())), column.offsets.tolist()
        return (" ".join(ids[a:b]) for a, b in pairwise(at))
    return map(str, column.tolist())


def _quoted_words(names: Names) -> tuple[str, ...]:
    """Words as cells, and at the end an empty one, which the code of a row without a word (-1) finds."""
    return (*(_quoted(word) for word in names.words), "")


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"' if '"' in word or "," in word else word


def _check(workload: Workload) -> None:
    """TraceError for what would not be read back as it is."""
    for column in ("model", "session"):
        names = getattr(workload, column)
        if names is not None:
            _check_words(workload, column, names)
    if isinstance(workload.prefix, PrefixBlocks) and workload.prefix.block_tokens > 999_999_999:
        raise TraceError(
            f"{workload.name}: prefix blocks of over 999999999 tokens cannot be written to CSV: make"
            " them smaller"
        )


def _check_words(workload: Workload, column: str, names: Names) -> None:
    used = np.unique(names.codes)
    for code in used[used >= 0].tolist():
        word = names.words[code]
        problem = None
        if any(char in word for char in _BREAKS):
            problem = "has a line break or a NUL"
        elif len(word.encode()) > MAX_WORD_BYTES:
            problem = f"has more than {MAX_WORD_BYTES} bytes"
        if problem:
            raise TraceError(f"{workload.name}: {column} {word[:40]!a} {problem}: give it another name")
