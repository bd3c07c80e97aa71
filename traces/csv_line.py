"""One line of an Azure trace, read by hand: the judge of every line that is not in the usual form.

The vectorised reader (csv_rows) takes the usual form and hands everything else here, so that the rare forms
cost nothing and a bad line is explained where it stands.
"""

import csv
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from traces.errors import TraceError
from traces.workload import MAX_TOKENS, NS_PER_S

STAMP, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
COLUMNS = (STAMP, PROMPT, OUTPUT)
HEADER = ",".join(COLUMNS)
YEAR_MIN, YEAR_MAX = 1970, 2261
"""Whole years that nanoseconds since 1970 in 64 bits can hold."""

_EPOCH = datetime(1970, 1, 1)
_STAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "<na>"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sentence points: a file and its 1-based line."""

    path: Path
    line: int

    def error(self, problem: str, remedy: str, column: str | None = None) -> TraceError:
        """TraceError that names file, line, column, problem and remedy."""
        where = f"{self.path}, line {self.line}" + (f", column {column}" if column else "")
        return TraceError(f"{where}: {problem}: {remedy}")


def header_order(text: bytes, place: Place) -> tuple[int, int, int]:
    """Field positions of TIMESTAMP, ContextTokens, GeneratedTokens; TraceError unless exactly these exist."""
    names = _fields(text, place)
    for column in COLUMNS:
        if names.count(column) != 1:
            what = "stands twice" if column in names else "is missing"
            raise place.error(what, f"write the header {HEADER}", column)
    if len(names) > len(COLUMNS):
        extra = next(name for name in names if name not in COLUMNS)
        raise place.error(f"column {_shown(extra)} is unknown", f"keep only {HEADER}")
    return names.index(STAMP), names.index(PROMPT), names.index(OUTPUT)


def read_line(text: bytes, place: Place, order: tuple[int, int, int]) -> tuple[int, int, int, bool]:
    """(stamp_ns since 1970, prompt tokens, output tokens, whether the stamp has a zone), or TraceError."""
    if not text.strip(b" \t\r"):
        raise place.error("the line is empty", "delete it, or fill in its three fields")
    fields = _fields(text, place)
    if len(fields) != len(COLUMNS):
        size = "too few" if len(fields) < len(COLUMNS) else "too many"
        raise place.error(f"{len(fields)} fields are {size}", f"write three, as in the header {HEADER}")
    stamp, prompt, output = (fields[at].strip(" \t") for at in order)
    stamp_ns, zoned = _stamp_ns(stamp, place)
    prompt_tokens = _tokens(prompt, place, PROMPT)
    if prompt_tokens == 0:
        raise place.error(
            "a request cannot have 0 prompt tokens",
            "write its prompt length (at least 1) or delete the line",
            PROMPT,
        )
    return stamp_ns, prompt_tokens, _tokens(output, place, OUTPUT), zoned


def _fields(text: bytes, place: Place) -> list[str]:
    if b"\0" in text:
        raise place.error(
            "the line has a NUL byte", "the file is damaged or not UTF-8 text, so save it anew as UTF-8"
        )
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise place.error(f"byte {error.start + 1} is not UTF-8 text", "save the file as UTF-8") from error
    if "\r" in decoded:
        raise place.error("a carriage return stands inside the line", "end every line with a newline")
    try:
        return next(csv.reader([decoded], strict=True), [])
    except csv.Error as error:
        raise place.error(
            f"the line is not valid CSV ({error})", "write three fields without quotes"
        ) from error


def _stamp_ns(text: str, place: Place) -> tuple[int, bool]:
    match = _STAMP.fullmatch(text)
    if match is None:
        if _absent(text):
            raise place.error(
                f"no value but {_shown(text)}", "write the arrival time or delete the line", STAMP
            )
        raise _bad_stamp(text, "is not a timestamp", place)
    *parts, fraction, zone = match.groups()
    try:
        since = datetime(*(int(part) for part in parts)) - _EPOCH  # type: ignore[arg-type]
    except ValueError as error:
        raise _bad_stamp(text, f"is not a date and time that exists ({error})", place) from error
    if not YEAR_MIN <= int(parts[0]) <= YEAR_MAX:
        raise _bad_stamp(text, f"is outside the years {YEAR_MIN} to {YEAR_MAX}", place)
    seconds = since.days * 86_400 + since.seconds
    if zone is not None and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise _bad_stamp(text, "has a zone that does not exist", place)
        seconds -= (1 if zone[0] == "+" else -1) * (hours * 3600 + minutes * 60)
    return seconds * NS_PER_S + int((fraction or "").ljust(9, "0")), zone is not None


def _bad_stamp(text: str, problem: str, place: Place) -> TraceError:
    return place.error(f"{_shown(text)} {problem}", "write it like 2023-11-16 18:15:46.6805900", STAMP)


def _tokens(text: str, place: Place, column: str) -> int:
    if _absent(text):
        raise place.error(f"no value but {_shown(text)}", "write a whole number such as 374", column)
    if not re.fullmatch(r"[0-9]+", text):
        problem = "is not a whole number"
        if re.fullmatch(r"-[0-9.]+", text):
            problem = "is negative"
        elif re.fullmatch(r"[0-9]*\.[0-9]*", text):
            problem = "has a fraction"
        raise place.error(f"{_shown(text)} {problem}", "write a whole number such as 374", column)
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(MAX_TOKENS)) or int(digits) > MAX_TOKENS:
        raise place.error(
            f"{_shown(text)} tokens are more than {MAX_TOKENS}", "correct or delete the line", column
        )
    return int(digits)


def _absent(text: str) -> bool:
    return not text or text.lower() in _MISSING


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
