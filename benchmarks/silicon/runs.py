"""Simulations of rows, kept one by one, so that an interrupted evaluation goes on where it was."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.silicon.rows import Row, refusal, words
from hwmodels.errors import HardwareError
from hwmodels.step_times import aiconfigurator_library
from servetwin.config.compose.compose import load_config
from servetwin.results.code_digest import code_digest
from servetwin.run.simulate import evaluated
from serving.vocabulary.errors import UserError

PROCESSES: Final = 2


@dataclass(frozen=True, slots=True)
class Result:
    """A row with the simulated means in milliseconds, or the sentence that ``refused`` it."""

    row: Row
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """Constants fitted on rows: seconds per layer with experts, and per sequence of vLLM before 0.15."""

    expert_layer_s: float = aiconfigurator_library.EXPERT_LAYER_S
    expert_layer_prompt_s: float = aiconfigurator_library.EXPERT_LAYER_PROMPT_S
    old_sequence_s: float | None = None  # None: as the catalogue says

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a run that set what has a key."""
        return (
            () if self.old_sequence_s is None else (f"engine.overhead.per_sequence_s={self.old_sequence_s}",)
        )


SHIPPED: Final = Terms()


def simulated(rows: Sequence[Row], folder: Path, terms: Terms = SHIPPED) -> list[Result]:
    """Run every row that can be expressed, or take its result from ``folder``, in the order of ``rows``."""
    digest = f"{code_digest()} {terms}"
    found = dict(_kept(rows, folder, digest))
    # Rows of one model, GPU and split one after another: a process asks for their step times once.
    missing = sorted((row for row in rows if row.id not in found), key=_place)
    with ProcessPoolExecutor(PROCESSES, initializer=_take, initargs=(terms,)) as pool:
        chunk = max(1, len(missing) // (8 * PROCESSES))
        for result in pool.map(_one, ((row, terms.words) for row in missing), chunksize=chunk):
            found[result.row.id] = result
            _keep(result, folder, digest)
    return [found[row.id] for row in rows]


def _take(terms: Terms) -> None:
    """Set the constants of a process that runs rows."""
    aiconfigurator_library.EXPERT_LAYER_S = terms.expert_layer_s
    aiconfigurator_library.EXPERT_LAYER_PROMPT_S = terms.expert_layer_prompt_s


def _place(row: Row) -> tuple[str, ...]:
    return row.model, row.system, row.precision, f"{row.tp:03}", f"{row.expert_ep:03}", row.id


def _one(asked: tuple[Row, Sequence[str]]) -> Result:
    row, extra = asked
    if reason := refusal(row):
        return Result(row, refused=reason)
    try:
        summary = evaluated(load_config([*words(row), *extra, "out=none"], "simulate"))
    except (UserError, HardwareError) as error:
        return Result(row, refused=str(error))
    ttft, tpot = summary["ttft_ms"]["mean"], summary["tpot_ms"]["mean"]
    return Result(row, ttft, tpot, "" if ttft and tpot else "no request finished")


def _name(row: Row, digest: str) -> str:
    text = "\n".join([digest, row.id, *([] if refusal(row) else words(row))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kept(rows: Iterable[Row], folder: Path, digest: str) -> Iterator[tuple[str, Result]]:
    for row in rows:
        path = folder / "runs" / f"{_name(row, digest)}.json"
        if path.is_file():
            yield row.id, Result(row, *json.loads(path.read_text(encoding="utf-8")))


def _keep(result: Result, folder: Path, digest: str) -> None:
    path = folder / "runs" / f"{_name(result.row, digest)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([result.ttft_ms, result.tpot_ms, result.refused]), encoding="utf-8")
