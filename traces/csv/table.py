"""A CSV file as columns: every line read in its usual form many at a time, or else judged alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.csv.bytes import PAD_BYTES, Block, Bools, Ints
from traces.csv.column import Column, Kind, RefuseRow
from traces.csv.line import Place, shown, split_line, split_row
from traces.errors import TraceError
from traces.reading import Origin, line_blocks
from traces.workload import MAX_ROWS

# Lines cut into fields, a block at a time.
# No general CSV reader is used: they shift columns on extra fields, turn empty cells into NaN, and pass
# whole numbers through floats. A line counts as usual only if every byte of it is accounted for; ``ok`` is
# False for the others and says nothing about whether they are wrong.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The lines of one block. start, end: each line's bytes without its ending. ok: of the usual shape.

    comma: where the commas stand. first: index into ``comma`` of each line's first.
    """

    block: Block
    start: Ints
    end: Ints
    comma: Ints
    first: Ints
    ok: Bools

    def field(self, at: int, fields: int) -> tuple[Ints, Ints]:
        """First byte of the field number ``at`` (of ``fields``) in each line, and the byte after its last.

        Lines that are not ``ok`` have empty fields.
        """
        begin = self.start if at == 0 else self._comma(at - 1) + 1
        end = self.end if at == fields - 1 else self._comma(at)
        return np.where(self.ok, begin, self.start), np.where(self.ok, end, self.start)

    def _comma(self, number: int) -> Ints:
        return np.take(self.comma, self.first + number, mode="clip")

    def first_rows(self, count: int) -> "Rows":
        """The first ``count`` lines."""
        rows = slice(0, count)
        return Rows(
            block=self.block,
            start=self.start[rows],
            end=self.end[rows],
            comma=self.comma,
            first=self.first[rows],
            ok=self.ok[rows],
        )

    def line(self, row: int) -> bytes:
        """The bytes of one line."""
        return self.block.data[self.start[row] : self.end[row]]


def split_rows(lines: bytes, fields: int) -> Rows:
    """Rows of ``lines`` (whole lines, each ending in a newline), empty ones at the end included."""
    block = Block.of(lines)
    newline = block.at("\n")
    start = np.concatenate(([PAD_BYTES], newline[:-1] + 1))
    end = newline - ((newline > start) & (block.text[newline - 1] == ord("\r")))
    comma = block.at(",")
    after = np.searchsorted(comma, newline)
    first = np.concatenate(([0], after[:-1]))
    ok = (after - first == fields - 1) & (end > start)
    for mark in _marks(lines, block, newline - end):
        ok[np.searchsorted(newline, mark)] = False
    return Rows(
        block=block,
        start=start,
        end=end,
        comma=comma if len(comma) else np.zeros(1, np.int64),
        first=first,
        ok=ok,
    )


def _marks(lines: bytes, block: Block, returns: Ints) -> list[Ints]:
    """Where quotes, NULs, carriage returns inside lines and damaged UTF-8 stand."""
    positions = [block.at(char) for char in ('"', "\0") if char.encode() in lines]
    if lines.count(b"\r") > returns.sum():
        cr = block.at("\r")
        positions.append(cr[block.text[cr + 1] != ord("\n")])
    if not lines.isascii() and not _is_utf8(lines):
        positions.append(np.flatnonzero(block.text >= 0x80))
    return positions


def _is_utf8(lines: bytes) -> bool:
    try:
        lines.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_HEADER_LINES = 1


@dataclass(frozen=True, slots=True)
class Field:
    """A column by its name in the header, wherever it stands. required: whether every file has it."""

    name: str
    kind: Kind
    required: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A file's columns.

    columns: name -> one value per row: numbers as arrays, words as Names, ids as PrefixBlocks; what the file
    has not is left out. rows: their number.
    """

    origin: Origin
    rows: int
    columns: dict[str, Any]

    def place(self, row: int) -> Place:
        """Where a row (from 0) stands: empty lines are only at the end, and the header is one line."""
        return Place(self.origin.path, _HEADER_LINES + 1 + row)


def read_header(path: Path) -> tuple[str, ...]:
    """The column names of the first line; TraceError when the file is empty or the line is no CSV."""
    names, _, _ = _opened(path, "a header")
    return names


def first_cells(path: Path) -> dict[str, str]:
    """Column name -> cell of the first row; empty when there is none that ``read_table`` could take."""
    try:
        names, rest, blocks = _opened(path, "a header")
        first = (rest or next(blocks, b"")).partition(b"\n")[0].removesuffix(b"\r")
        return dict(zip(names, split_row(first, Place(path, _HEADER_LINES + 1), names), strict=True))
    except TraceError:
        return {}  # told when the whole table is read


def read_table(
    path: Path, fields: Sequence[Field], ignored: Callable[[str], bool] = lambda name: False
) -> Table:
    """The columns of ``fields`` of one file, plain or gzipped.

    ignored: which other columns may stand in the header; their cells are not looked at. Empty lines at the
    end are no rows. Raises TraceError naming file, line (the header is line 1), column and remedy for
    whatever is not a row of this header and of these kinds.
    """
    origin = Origin.of(path)
    wanted = ",".join(field.name for field in fields if field.required)
    names, rest, blocks = _opened(path, f"the header {wanted}")
    _check_header(names, fields, ignored, Place(path, _HEADER_LINES), wanted)
    present = [field for field in fields if field.name in names]
    reader = _Reader(path, names, [(names.index(field.name), field) for field in present])
    for block in _with_first(rest, blocks):
        reader.read(block)
    columns = reader.joined()
    return Table(origin, reader.rows, columns)


class _Reader:
    """The columns of a file, as far as it has been read. fields: (position in the line, field)."""

    def __init__(self, path: Path, header: tuple[str, ...], fields: list[tuple[int, Field]]) -> None:
        self.rows = 0
        self._path = path
        self._header = header
        self._fields = fields
        self._columns: list[Column] = [field.kind.column() for _, field in fields]
        self._blank_line = 0

    def read(self, lines: bytes) -> None:
        """Append the rows of a block, every line judged."""
        rows = split_rows(lines, len(self._header))
        content = np.flatnonzero(rows.end > rows.start)
        count = int(content[-1]) + 1 if len(content) else 0
        if count and self._blank_line:
            split_row(b"", Place(self._path, self._blank_line), self._header)
        if count < len(rows.end) and not self._blank_line:
            self._blank_line = self._place(count).line
        if count:
            self._append(rows.first_rows(count))

    def joined(self) -> dict[str, Any]:
        """name -> the whole column; TraceError when there are no rows."""
        if not self.rows:
            raise TraceError(f"{self._path} has a header and no requests: add one line per request")
        joined = {}
        for (_, field), column in zip(self._fields, self._columns, strict=True):
            joined[field.name] = column.joined(self._refusal(field.name))
        return joined

    def _refusal(self, name: str) -> RefuseRow:
        """Makes the error about a row's value in the column ``name``."""
        return lambda row, problem, remedy: Place(self._path, _HEADER_LINES + 1 + row).error(
            problem, remedy, name
        )

    def _append(self, rows: Rows) -> None:
        usual = rows.ok.copy()
        for (at, _), column in zip(self._fields, self._columns, strict=True):
            usual &= column.read(rows.block, *rows.field(at, len(self._header)))
        for row in np.flatnonzero(~usual).tolist():
            self._judge(row, rows.line(row))
        self.rows += len(usual)
        if self.rows > MAX_ROWS:
            raise TraceError(f"{self._path} has more than {MAX_ROWS} rows: split the file")

    def _judge(self, row: int, line: bytes) -> None:
        """Read one row of the block appended last in full, or refuse it."""
        place = self._place(row)
        cells = split_row(line, place, self._header)
        for (at, field), column in zip(self._fields, self._columns, strict=True):
            column.put(row, field.kind.judge(cells[at], place.cell(field.name)))

    def _place(self, row: int) -> Place:
        return Place(self._path, _HEADER_LINES + 1 + self.rows + row)


def _opened(path: Path, header: str) -> tuple[tuple[str, ...], bytes, Iterator[bytes]]:
    """Column names, the rest of the block they stand in, and the blocks after it."""
    blocks = line_blocks(path)
    first = next(blocks, b"")
    if not first.strip():
        raise TraceError(f"{path} is empty: write {header} and one line per request")
    head, _, rest = first.partition(b"\n")
    return tuple(split_line(head.removesuffix(b"\r"), Place(path, _HEADER_LINES))), rest, blocks


def _check_header(
    names: tuple[str, ...],
    fields: Sequence[Field],
    ignored: Callable[[str], bool],
    place: Place,
    wanted: str,
) -> None:
    for field in fields:
        if names.count(field.name) > 1:
            raise place.error("occurs twice", "keep one of the two", field.name)
        if field.required and field.name not in names:
            raise place.error("is missing", f"write the header {wanted}", field.name)
    known = {field.name for field in fields}
    extra = [name for name in names if name not in known and not ignored(name)]
    if extra:
        optional = ",".join(field.name for field in fields if not field.required)
        remedy = f"keep only {wanted}" + (f" and, optionally, {optional}" if optional else "")
        raise place.error(f"column {shown(extra[0])} is unknown", remedy)


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
