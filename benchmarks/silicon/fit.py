"""The constants of layers with experts, fitted on rows of other models or systems than they are judged on."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import log
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.silicon.rows import MODELS, Row, refusal
from benchmarks.silicon.runs import Asked, Result, Terms, run_all
from hwmodels.catalogue import load_llm
from hwmodels.step_times.library_step import LibraryTerms

# Seconds per layer with experts: in every step, and in steps with prompts.
LAYER_S: Final = (1.5e-5, 2.0e-5, 2.5e-5, 3.0e-5)
PROMPT_S: Final = (1.2e-4, 1.8e-4, 2.4e-4)


def with_experts(rows: Iterable[Row]) -> list[Row]:
    """The rows that the constants are fitted on: those that run, of mixtures of experts."""
    return [row for row in rows if not refusal(row) and load_llm(MODELS[row.model]).experts is not None]


def trials() -> list[Terms]:
    """Each pair of constants that is tried."""
    return [Terms(LibraryTerms(layer, prompt)) for layer, prompt in product(LAYER_S, PROMPT_S)]


def tried(rows: Sequence[Row], folder: Path) -> dict[Terms, list[Result]]:
    """The rows with experts, run with each pair."""
    mine = with_experts(rows)
    results = iter(run_all([Asked(row, terms) for terms in trials() for row in mine], folder))
    return {terms: [next(results) for _ in mine] for terms in trials()}


def best(of: dict[Terms, list[Result]], without: tuple[str, str] | None = None) -> Terms:
    """The pair with the least mean |log| of simulated over measured; each (model, system) weighs the same."""
    return min(of, key=lambda terms: _score(of[terms], without))


def _score(results: Sequence[Result], without: tuple[str, str] | None) -> float:
    groups: dict[tuple[str, str], list[float]] = {}
    for result in results:
        row = result.row
        if result.refused or row.group == without or result.ttft_ms is None or result.tpot_ms is None:
            continue
        off = abs(log(result.ttft_ms / row.ttft_ms)) + abs(log(result.tpot_ms / row.tpot_ms))
        groups.setdefault(row.group, []).append(off)
    return fmean([fmean(group) for group in groups.values()])
