"""The constants of layers with experts, fitted on rows of other models or systems than they are judged on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.silicon.rows import MODELS, Row, refusal
from benchmarks.silicon.runs import Asked, Result, Terms, run_all
from hwmodels.catalogue import load_llm
from hwmodels.step_times.library_step import LibraryTerms

# Seconds per layer with experts: in every step if queries and keys are normalised, in steps with prompts.
QUERY_NORM_S: Final = (2.0e-5, 2.5e-5, 3.0e-5)
PROMPT_S: Final = (1.2e-4, 1.8e-4, 2.4e-4)
# Seconds per layer with latent attention that its tables have too much.
LATENT_S: Final = (4.0e-5, 6.0e-5, 8.0e-5)


@dataclass(frozen=True, slots=True)
class Trials:
    """Rows run with each choice of constants: those of latent attention on its rows, the others on theirs."""

    others: dict[Terms, list[Result]]
    latent: dict[Terms, list[Result]]


def with_experts(rows: Iterable[Row]) -> list[Row]:
    """The rows that the constants are fitted on: those that run, of mixtures of experts."""
    return [row for row in rows if not refusal(row) and load_llm(MODELS[row.model]).experts is not None]


def tried(rows: Sequence[Row], folder: Path) -> Trials:
    """The rows with experts, run with each of the constants that they tell something of."""
    mine = with_experts(rows)
    latent = [row for row in mine if load_llm(MODELS[row.model]).latent is not None]
    others = [row for row in mine if row not in latent]
    pairs = [
        Terms(LibraryTerms(query_norm_s=norm, expert_layer_prompt_s=prompt))
        for norm, prompt in product(QUERY_NORM_S, PROMPT_S)
    ]
    graphs = [Terms(LibraryTerms(latent_graph_s=seconds)) for seconds in LATENT_S]
    return Trials(_run(pairs, others, folder), _run(graphs, latent, folder))


def _run(terms: Sequence[Terms], rows: Sequence[Row], folder: Path) -> dict[Terms, list[Result]]:
    results = iter(run_all([Asked(row, one) for one in terms for row in rows], folder))
    return {one: [next(results) for _ in rows] for one in terms}


def best(of: Trials, without: tuple[str, str] | None = None) -> Terms:
    """The constants with the least mean |log| of simulated over measured; each group weighs the same.

    ``without``: the (model, system) whose rows are left out.
    """
    found = _least(of.others, without) or Terms()
    latent = _least(of.latent, without) or Terms()
    return replace(found, library=replace(found.library, latent_graph_s=latent.library.latent_graph_s))


def _least(of: dict[Terms, list[Result]], without: tuple[str, str] | None) -> Terms | None:
    """None: no other rows tell."""
    scores = {terms: _score(results, without) for terms, results in of.items()}
    known = {terms: score for terms, score in scores.items() if score is not None}
    return min(known, key=known.__getitem__) if known else None


def _score(results: Sequence[Result], without: tuple[str, str] | None) -> float | None:
    groups: dict[tuple[str, str], list[float]] = {}
    for result in results:
        row = result.row
        if result.refused or row.group == without or result.ttft_ms is None or result.tpot_ms is None:
            continue
        off = abs(log(result.ttft_ms / row.ttft_ms)) + abs(log(result.tpot_ms / row.tpot_ms))
        groups.setdefault(row.group, []).append(off)
    return fmean([fmean(group) for group in groups.values()]) if groups else None
