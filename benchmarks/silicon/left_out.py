"""Rows with constants and errors that their own (model, system) has not shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.silicon.fit import Trials, best, tried, with_experts
from benchmarks.silicon.ranges import shown
from benchmarks.silicon.rows import Row
from benchmarks.silicon.runs import Asked, Result, Terms, run_all
from hwmodels.step_times.library_step import LibraryTerms

_NEW_TERMS: Final = 0.0  # per sequence: what vLLM 0.15 has, the nearest version with other rows


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Judged rows, the constants of each (model, system), and what all rows say that runs should have."""

    results: list[Result]
    terms: dict[tuple[str, str], Terms]
    of_all: LibraryTerms


def left_out(rows: Sequence[Row], shipped: Sequence[Result], folder: Path) -> LeftOut:
    """``shipped``: the same rows with the constants of runs."""
    trials = tried(rows, folder)
    terms = _fitted(rows, trials)
    means = run_all([Asked(row, terms[row.group]) for row in rows], folder)
    for group, own in terms.items():
        errors = shown(means, group)
        terms[group] = replace(own, library=_with_errors(own.library, errors))
    judged = run_all([Asked(row, terms[row.group], ranges=True) for row in rows], folder)
    return LeftOut(judged, terms, _with_errors(best(trials).library, shown(shipped)))


def _fitted(rows: Sequence[Row], trials: Trials) -> dict[tuple[str, str], Terms]:
    """Of each (model, system), without its own rows; without experts there is only that of old versions."""
    found = {row.group: best(trials, row.group) for row in with_experts(rows)}
    old = {row.group for row in rows if row.version.startswith("0.12")}
    return {
        row.group: found.get(row.group, Terms(old_sequence_s=_NEW_TERMS) if row.group in old else Terms())
        for row in rows
    }


def _with_errors(terms: LibraryTerms, errors: LibraryTerms) -> LibraryTerms:
    return replace(
        terms, prompts=errors.prompts, decodes=errors.decodes, expert_decodes=errors.expert_decodes
    )
