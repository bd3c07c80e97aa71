"""Ranges of rows: the errors that runs take from measured rows, and how many rows lie inside them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

import numpy as np

from benchmarks.silicon.fit import with_experts
from benchmarks.silicon.rows import MODELS, Row, gpu_of
from benchmarks.silicon.runs import Result
from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.step_times.library_step import Factors, LibraryTerms

# Share of measured over simulated means between the two factors, half of the rest on each side; each (model,
# system) weighs the same, however many rows it has.
SHARE: Final = 0.9
# Above this share of the datasheet's fastest rate a row cannot have computed what it states: GEMMs alone
# reach no more, and there is attention, memory and the time between steps. Its (model, system) is not fitted
# on: the requests were not loaded as the row says (prompts that repeat, with prefix caching, would do that).
MOST_BUSY: Final = 0.6
_ROUGH: Final = (0.5, 2.0)


def busy(row: Row) -> float:
    """Share of the GPUs' fastest datasheet rate that the row's own means need for its products."""
    gpu, llm = load_gpu(gpu_of(row)), load_llm(MODELS[row.model])
    request_s = (row.ttft_ms + (row.output_tokens - 1) * row.tpot_ms) * 1e-3
    tokens_per_s = row.clients * (row.prompt_tokens + row.output_tokens) / request_s
    most = max(gpu.flops_per_s, gpu.fp8_flops_per_s or 0.0, gpu.fp4_flops_per_s or 0.0)
    return 2.0 * llm.active_parameters * tokens_per_s / (most * row.tp)


def impossible(results: Iterable[Result]) -> set[tuple[str, str]]:
    """(model, system) of rows that cannot have computed what they state."""
    return {result.row.group for result in results if not result.refused and busy(result.row) > MOST_BUSY}


def shown(results: Sequence[Result], without: tuple[str, str] | None = None) -> LibraryTerms:
    """The errors that the rows of other models or systems show, in constants that are otherwise shipped."""
    left = {*impossible(results), *([without] if without else [])}
    used = [result for result in results if not result.refused and result.row.group not in left]
    mixtures = {row.id for row in with_experts(result.row for result in used)}
    dense = [result for result in used if result.row.id not in mixtures]
    experts = [result for result in used if result.row.id in mixtures]
    return LibraryTerms(
        prompts=_between(used, "ttft"),
        decodes=_between(dense, "tpot"),
        expert_decodes=_between(experts, "tpot"),
    )


def _between(results: Sequence[Result], metric: str) -> Factors:
    """The two factors, rounded outwards to two digits; without rows nothing is known, and steps are rough."""
    if not results:
        return _ROUGH
    rows = Counter(one.row.group for one in results)
    ratios = [getattr(one.row, f"{metric}_ms") / getattr(one, f"{metric}_ms") for one in results]
    weights = [1.0 / (rows[one.row.group] * len(rows)) for one in results]
    order = np.argsort(ratios)
    logs, weighed = np.log(ratios)[order], np.array(weights)[order]
    middles = np.cumsum(weighed) - weighed / 2.0
    low, high = np.exp(np.interp([(1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0], middles, logs))
    return min(1.0, float(np.floor(low * 100) / 100)), max(1.0, float(np.ceil(high * 100) / 100))


def inside(result: Result, metric: str) -> bool:
    """Whether the measured mean lies in the simulated range."""
    low, high = getattr(result, f"{metric}_ends_ms")
    return bool(low <= getattr(result.row, f"{metric}_ms") <= high)


def width(results: Iterable[Result], metric: str) -> float:
    """High over low end, the median."""
    return median(high / low for low, high in (getattr(one, f"{metric}_ends_ms") for one in results))


def with_ranges(results: Iterable[Result]) -> list[Result]:
    """Those that ran and whose ends ran."""
    return [result for result in results if result.ttft_ends_ms and result.tpot_ends_ms]
