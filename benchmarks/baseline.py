"""The recorded ratios of ``benchmarks.speed``, and which of new ones are too far above them."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.vocabulary.errors import UserError

FILE = Path(__file__).with_name("baseline.json")
MOST = 1.20
"""A ratio above this times the recorded one is slower."""

Entries = dict[str, dict[str, dict[str, Any]]]
"""Scenario -> mode -> raw, or an exponent of it, and when, by what and on what it was recorded."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row: ``slower``, or not, or (with neither) left out, and a ``sentence`` that says so."""

    scenario: str
    mode: str
    sentence: str
    slower: bool = False
    compared: bool = True

    def line(self) -> str:
        """What is printed."""
        return f"{self.scenario}, {self.mode}: {self.sentence}"


def judge(
    scenario: str,
    mode: str,
    ratio: float | str,
    entries: Entries,
    again: Callable[[], float],
) -> Verdict:
    """Hold one ratio (or the reason why there is none) against the recorded one.

    A ratio that is too high is measured ``again``, once; it is slower when both are too high.
    """
    if isinstance(ratio, str):
        return Verdict(scenario, mode, f"left out: {ratio}", compared=False)
    entry = entries.get(scenario, {}).get(mode)
    if entry is None:
        sentence = f"left out: nothing is recorded: write python -m benchmarks.speed {scenario} --record"
        return Verdict(scenario, mode, sentence, compared=False)
    recorded, seen = float(entry["raw"]), [ratio]
    if ratio > recorded * MOST:
        seen.append(again())
    best = min(seen)
    slower = best > recorded * MOST
    sentence = (
        f"{', then '.join(f'{ratio_seen:.1f}' for ratio_seen in seen)} raw, recorded {recorded:.1f} "
        f"({100 * (best / recorded - 1):+.1f} %){': slower' if slower else ''}"
    )
    return Verdict(scenario, mode, sentence, slower)


def ending(verdicts: Iterable[Verdict]) -> tuple[str, int]:
    """(The last line, the exit status): 1 when a row is slower."""
    rows = list(verdicts)
    slower = [f"{row.scenario} {row.mode}" for row in rows if row.slower]
    compared = sum(row.compared for row in rows)
    counted = f"rows: {compared} compared, {len(rows) - compared} left out"
    if slower:
        return f"{counted}; more than 20 % slower than recorded: {', '.join(slower)}", 1
    return (
        f"{counted}; {'none is more than 20 % slower than recorded' if compared else 'nothing is known'}",
        0,
    )


def read(path: Path = FILE) -> Entries:
    """What is recorded; nothing where there is no file."""
    if not path.exists():
        return {}
    try:
        entries: Entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): record it anew with --record") from None
    return entries


def write(entries: Entries, path: Path = FILE) -> None:
    """Scenario by scenario, a line each mode."""
    rows = [
        f"  {json.dumps(scenario)}: {{\n"
        + ",\n".join(f"    {json.dumps(mode)}: {json.dumps(entry)}" for mode, entry in modes.items())
        + "\n  }"
        for scenario, modes in entries.items()
    ]
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
