"""The constants of layers with experts, fitted on rows of other models or systems than they are judged on."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import log
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.silicon.rows import Row
from benchmarks.silicon.runs import Result, Terms, simulated

# Seconds per layer with experts: in every step, and in steps with prompts.
LAYER_S: Final = (1.5e-5, 2.0e-5, 2.5e-5)
PROMPT_S: Final = (1.2e-4, 1.8e-4, 2.4e-4)


def with_experts(rows: Iterable[Row]) -> list[Row]:
    """The rows that the constants are fitted on: mixtures of experts."""
    return [row for row in rows if row.model.startswith(("MiniMaxAI/", "Qwen/Qwen3-235B", "Qwen/Qwen3-30B"))]


def trials(rows: Sequence[Row], folder: Path) -> dict[Terms, list[Result]]:
    """The rows with experts, run with each pair of constants."""
    pairs = [Terms(layer, prompt) for layer, prompt in product(LAYER_S, PROMPT_S)]
    return {terms: simulated(with_experts(rows), folder, terms) for terms in pairs}


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
