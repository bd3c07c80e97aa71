"""Reads a production record, whichever of the known kinds its file is."""

from collections.abc import Mapping
from pathlib import Path

from servetwin.advising.from_series import record_of_series
from servetwin.advising.query_answers import series_in
from servetwin.advising.record import Record
from servetwin.advising.table import record_of_table
from servetwin.config.overrides import echo
from serving.vocabulary.errors import UserError


def read_record(path: Path, renamed: Mapping[str, str]) -> Record:
    """Return the record. ``renamed``: as ``record_of_table``. UserError, or TraceError of a line of CSV."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"log={echo(str(path))} cannot be read ({error.strerror}): write the path of a record"
        ) from error
    if not text.strip():
        raise UserError(f"{path} is empty: write Prometheus' answer of /api/v1/query_range, or a CSV file")
    if text.lstrip()[:1] in (b"{", b"["):
        if renamed:
            raise UserError(f"columns= renames those of CSV files, and {path} is JSON: leave it out")
        try:
            return record_of_series(str(path), series_in(path, text.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is no UTF-8 text: save it as UTF-8") from error
    return record_of_table(path, text, renamed)
