"""Reads more details from files beside a journal, if they exist: requests.parquet and summary.json."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from servetwin.config.read_file import json_in
from servetwin.results.parquet_file import table_of
from serving.vocabulary.units import NS_PER_S

_COLUMNS: Final = ["request", "arrival_ns", "first_token_ns"]
_NOT_IN_THE_JOURNAL: Final = {
    "ready": "begins to serve",
    "drain": "takes nothing new and is to go (drain)",
    "cancel_drain": "takes requests again (drain cancelled)",
}


def first_tokens(folder: Path) -> Iterator[tuple[int, int, int]]:
    """Yield (request, arrival, first token) of every finished request; nothing without the file."""
    path = folder / "requests.parquet"
    if not path.is_file():
        return
    import pyarrow as pa

    try:
        table = table_of(path, _COLUMNS)
        yield from zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True)
    except (pa.ArrowException, ValueError, KeyError):
        return  # without it the journal's story is only less exact


def first_token_ns(folder: Path, request: int) -> int | None:
    """Return the time of a request's first token."""
    return next((first_ns for number, _, first_ns in first_tokens(folder) if number == request), None)


def decisions(folder: Path, replica: int) -> list[tuple[int, str, str]]:
    """Return (time, what, why) of an instance's decisions that no action in the journal shows."""
    try:
        events = json_in(folder / "summary.json")["scale_events"]
        rows = [
            (event["t_s"], event["act"], event["reason"]) for event in events if event["replica"] == replica
        ]
        return [
            (round(t_s * NS_PER_S), _NOT_IN_THE_JOURNAL[act], f"{reason} (summary.json)")
            for t_s, act, reason in rows
            if act in _NOT_IN_THE_JOURNAL
        ]
    except (ArithmeticError, OSError, ValueError, LookupError, TypeError):
        return []


def starts(folder: Path) -> dict[tuple[int, int], str]:
    """Return (load, target) -> the terms of the start besides the parameters, from summary.json."""
    try:
        each = json_in(folder / "summary.json")["starts"]["each"]
        return {(start["load"], start["target"]): _start(start["kind"], start["terms_s"]) for start in each}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _start(kind: str, terms_s: dict[str, float]) -> str:
    terms = ", ".join(
        f"{name.replace('_', ' ')} {seconds:.3g} s" for name, seconds in terms_s.items() if seconds
    )
    return f"a {kind} start{f': {terms}' if terms else ''} (summary.json)"
