"""Data on many combinations: a table of models by GPUs, or one line for each."""

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.kv_capacity import CANDIDATE_TP, smallest_tp
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.step_times.aiconfigurator_library import library_version
from hwmodels.step_times.select import asks_library
from servetwin.assemble.hardware import engine_limits, kv_memory
from servetwin.config.engine_config import EngineConfig
from servetwin.support.rungs import LIBRARY, chosen_rung, ladder, rungs_of

_WIDTH: Final = 100
_ALL_GPUS: Final = max(CANDIDATE_TP)
_UNASKED: Final = "not asked here"


def smallest_for(gpu: Gpu, llm: LlmShape, engine: EngineConfig) -> int | None:
    """Return the least tp at which weights and a KV block fit; None: none of ``CANDIDATE_TP``."""
    share, block = engine.gpu_memory_utilization, engine.block_tokens
    limits = engine_limits(engine, gpu)
    return smallest_tp(gpu, llm, share, block, engine.reserve_activation_bytes, limits=limits)


def table(gpus: Sequence[Gpu], llms: Sequence[LlmShape], engine: EngineConfig) -> list[str]:
    """Return rung and tp of every combination, and a legend."""
    rows = [["", *(gpu.name for gpu in gpus)]]
    rows += [[llm.name, *(_cell(gpu, llm, engine) for gpu in gpus)] for llm in llms]
    letters = ", ".join(f"{kind[0].upper()} {kind}" for kind in ladder())
    legend = (
        f"{letters}, each with the smallest tp that fits; behind a slash a larger tp with a better rung; "
        f"'-' does not fit on {_ALL_GPUS}, or needs a profile; '?' {LIBRARY} was not asked, as that takes "
        "seconds, and may lack a table. A profile of your own beats all of them. "
        "More on one: servetwin support model=MODEL gpu=GPU tp=N"
    )
    return [*_below_each_other(rows), "", *textwrap.wrap(legend, _WIDTH)]


def _below_each_other(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in parts that fit the width, each with the first column, an empty line between them."""
    lines: list[str] = []
    start, columns = 1, len(rows[0])
    while start < columns:
        stop = start + 1
        while stop < columns and _width(_part(rows, start, stop + 1)) <= _WIDTH:
            stop += 1
        lines += [*([""] if lines else []), *aligned(_part(rows, start, stop), 1)]
        start = stop
    return lines


def _part(rows: Sequence[Sequence[str]], start: int, stop: int) -> list[list[str]]:
    return [[row[0], *row[start:stop]] for row in rows]


def _width(rows: Sequence[Sequence[str]]) -> int:
    return max(map(len, aligned(rows, 1)))


def listing(gpus: Sequence[Gpu], llms: Sequence[LlmShape], engine: EngineConfig) -> list[str]:
    """Return a line for each combination and each tp whose rung differs from the smaller tp's."""
    rows = [["model", "gpu", "tp", "step times", "kv tokens", "error"]]
    for llm in llms:
        for gpu in gpus:
            by_tp = _rungs_by_tp(gpu, llm, engine)
            rows += [
                [llm.name, gpu.name, str(tp), kind, str(kv_memory(engine, gpu, llm, tp).tokens), error]
                for kind, tp, error in by_tp
            ]
            if not by_tp:
                fits = smallest_for(gpu, llm, engine) is not None
                why = "no step times without a profile" if fits else f"does not fit on {_ALL_GPUS}"
                rows.append([llm.name, gpu.name, "-", why])
    return aligned(rows)


def listing_data(gpus: Sequence[Gpu], llms: Sequence[LlmShape], engine: EngineConfig) -> list[dict[str, Any]]:
    """Return the lines of ``listing`` as data; only names for a combination that cannot run."""
    rows: list[dict[str, Any]] = []
    for llm in llms:
        for gpu in gpus:
            names = {"model": llm.name, "gpu": gpu.name}
            rungs = _rungs_by_tp(gpu, llm, engine)
            rows += [
                {**names, "tp": tp, "step_time": kind, "error": error,
                 "kv_tokens": kv_memory(engine, gpu, llm, tp).tokens}
                for kind, tp, error in rungs
            ] or [names]  # fmt: skip
    return rows


def aligned(rows: Sequence[Sequence[str]], gap: int = 2) -> list[str]:
    """Return columns as wide as their widest cell, with ``gap`` blanks between; a row may end early."""
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    between = " " * gap
    return [between.join(f"{text:<{width}}" for text, width in zip(row, widths)).rstrip() for row in rows]


def _cell(gpu: Gpu, llm: LlmShape, engine: EngineConfig) -> str:
    """Return a cell such as ``R2/L4``: roofline at tp 2, the smallest that fits, and linear at tp 4."""
    by_tp = _rungs_by_tp(gpu, llm, engine)
    cells = (f"{kind[0].upper()}{tp}{'?' if error == _UNASKED else ''}" for kind, tp, error in by_tp)
    return "/".join(cells) or "-"


def _rungs_by_tp(gpu: Gpu, llm: LlmShape, engine: EngineConfig) -> list[tuple[str, int, str]]:
    """Return (rung, tp, error band) at the smallest tp that fits and at larger ones with a better rung."""
    smallest = smallest_for(gpu, llm, engine)
    rows: list[tuple[str, int, str]] = []
    for tp in CANDIDATE_TP:
        if smallest is None or tp < smallest or not llm.splits_into(tp):
            continue
        best = _best(gpu, llm, tp)
        if best and (not rows or ladder().index(best[0]) < ladder().index(rows[-1][0])):
            rows.append((best[0], tp, best[1]))
    return rows


def _best(gpu: Gpu, llm: LlmShape, tp: int) -> tuple[str, str] | None:
    """Return rung and error band; None: no rung has this tp, because its all-reduce time is unknown.

    Where a run would ask the library it is named unasked: that takes seconds for each combination.
    """
    if asks_library(gpu, llm, Parallelism(tp)):
        return (LIBRARY, _UNASKED) if library_version() else None
    try:
        rung = chosen_rung(rungs=rungs_of(gpu, llm, tp, None), gpu=gpu, llm=llm, tp=tp, profile=None)
    except HardwareError:
        return None
    assert rung.model is not None
    return rung.kind, rung.model.error_band.partition(";")[0].partition(":")[0]
