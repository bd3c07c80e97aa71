"""Reads one line of a CSV file that is not in the usual form, or says what is wrong with it and where.

The vectorised reader (``traces.csv.table``) reads lines of the usual form and calls this one for all others.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traces.errors import TraceError

Refuse = Callable[[str, str], TraceError]
"""(problem, remedy) -> the error that names the cell."""

_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "<na>"})
_QUOTED = re.compile(r'"([^"]*(?:""[^"]*)*)"')
_COUNTS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sentence points: a file and its 1-based line."""

    path: Path
    line: int

    def error(self, problem: str, remedy: str, column: str | None = None) -> TraceError:
        """TraceError that names file, line, column, problem and remedy."""
        where = f"{self.path}, line {self.line}" + (f", column {column}" if column else "")
        return TraceError(f"{where}: {problem}: {remedy}")

    def cell(self, column: str) -> Refuse:
        """``error`` for one column."""
        return lambda problem, remedy: self.error(problem, remedy, column)


def split_line(text: bytes, place: Place) -> list[str]:
    """The fields of one line without its ending; TraceError when it is no line of UTF-8 CSV."""
    if b"\0" in text:
        raise place.error(
            "the line has a NUL byte", "the file is damaged or not UTF-8 text, so save it anew as UTF-8"
        )
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise place.error(f"byte {error.start + 1} is not UTF-8 text", "save the file as UTF-8") from error
    if "\r" in decoded:
        raise place.error("a carriage return is inside the line", "end every line with a newline")
    return _cells(decoded, place)


def _cells(line: str, place: Place) -> list[str]:
    """Cells as RFC 4180 has them. (The csv module has a global limit on their length.)"""
    cells, at = [], 0
    while True:
        if line.startswith('"', at):
            match = _QUOTED.match(line, at)
            if match is None or line[match.end() : match.end() + 1] not in ("", ","):
                problem = "a quote is not closed" if match is None else "text follows a closing quote"
                remedy = "close each quote, and double quotes inside a cell"
                raise place.error(f"the line is not valid CSV ({problem})", remedy)
            cells.append(match[1].replace('""', '"'))
            at = match.end()
        else:
            stop = line.find(",", at)
            stop = len(line) if stop < 0 else stop
            cells.append(line[at:stop])
            at = stop
        if at == len(line):
            return cells
        at += 1


def split_row(text: bytes, place: Place, header: tuple[str, ...]) -> list[str]:
    """The fields of a line below ``header``; TraceError when it is empty or has not as many as the header."""
    if not text.strip(b" \t\r"):
        raise place.error("the line is empty", f"delete it, or fill in its {_counted(len(header))} fields")
    fields = split_line(text, place)
    if len(fields) != len(header):
        size = "too few" if len(fields) < len(header) else "too many"
        remedy = f"write {_counted(len(header))}, as in the header {shown(','.join(header), 120)}"
        raise place.error(f"{len(fields)} fields are {size}", remedy)
    return fields


def absent(text: str) -> bool:
    """Whether a cell is empty or holds one of the usual words for nothing."""
    return not text or text.lower() in _MISSING


def shown(text: str, most: int = 40) -> str:
    """A cell as an error shows it: quoted, one line, cut when long."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _counted(number: int) -> str:
    return _COUNTS.get(number, str(number))
