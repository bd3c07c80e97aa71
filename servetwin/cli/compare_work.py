"""Lines of ``servetwin compare`` about steps and sends, real and simulated."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from servetwin.compare.step_times import Row, send_rows, step_rows
from servetwin.report.number_text import NOTHING, duration
from servetwin.report.text_table import text_table

_STEPS: Final = "the same steps, real and as the simulation takes them (means of a step)"
_SENDS: Final = "sends, real and simulated (means of a send)"


def work_lines(simulated: Path, real: Sequence[Path]) -> Iterator[str]:
    """Return two tables, the second only if anything was sent."""
    steps, sends = step_rows(simulated, real), send_rows(simulated, real)
    if isinstance(steps, str):
        yield steps
    elif steps:
        yield _STEPS
        yield from text_table([["", "steps", "simulated", "real", "simulated / real"], *map(_cells, steps)])
    if sends:
        yield _SENDS
        yield from text_table([["", "bytes", "simulated", "real", "simulated / real"], *map(_cells, sends)])
    if steps or sends:
        yield ""


def _cells(row: Row) -> list[str]:
    simulated = NOTHING if row.simulated_ms is None else duration(row.simulated_ms)
    ratio = NOTHING if row.ratio is None else f"{row.ratio:.2f}"
    return [row.kind, f"{row.amount:,}", simulated, duration(row.real_ms), ratio]


def work_data(simulated: Path, real: Sequence[Path]) -> dict[str, Any]:
    """Return data for programs: ``steps`` is null if their times are not available."""
    steps = step_rows(simulated, real)
    return {
        "steps": None if isinstance(steps, str) else [_data(row) for row in steps],
        "sends": [_data(row) for row in send_rows(simulated, real)],
    }


def _data(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind, "count": row.count, "amount": row.amount, "real_ms": row.real_ms,
        "simulated_ms": row.simulated_ms, "ratio": row.ratio,
    }  # fmt: skip
