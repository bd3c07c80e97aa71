"""Lines cut into fields, a block at a time.

No general CSV reader is used: they shift columns on extra fields, turn empty cells into NaN, and pass whole
numbers through floats. A line counts as usual only if every byte of it is accounted for; ``ok`` is False for
the others and says nothing about whether they are wrong.
"""

from dataclasses import dataclass

import numpy as np

from traces.csv.bytes import PAD_BYTES, Block, Bools, Ints


@dataclass(frozen=True, slots=True)
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
        kept = slice(0, count)
        return Rows(self.block, self.start[kept], self.end[kept], self.comma, self.first[kept], self.ok[kept])

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
    for found in _marks(lines, block, newline - end):
        ok[np.searchsorted(newline, found)] = False
    return Rows(block, start, end, comma if len(comma) else np.zeros(1, np.int64), first, ok)


def _marks(lines: bytes, block: Block, returns: Ints) -> list[Ints]:
    """Where quotes, NULs, carriage returns inside lines and damaged UTF-8 stand."""
    found = [block.at(char) for char in ('"', "\0") if char.encode() in lines]
    if lines.count(b"\r") > returns.sum():
        cr = block.at("\r")
        found.append(cr[block.text[cr + 1] != ord("\n")])
    if not lines.isascii() and not _is_utf8(lines):
        found.append(np.flatnonzero(block.text >= 0x80))
    return found


def _is_utf8(lines: bytes) -> bool:
    try:
        lines.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
