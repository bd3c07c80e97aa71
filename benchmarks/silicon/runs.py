"""Simulations of rows, kept one by one, so that an interrupted evaluation goes on where it was."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from benchmarks.silicon.rows import Row, refusal, words
from hwmodels.errors import HardwareError
from hwmodels.step_times import library_step
from hwmodels.step_times.library_step import LibraryTerms
from servetwin.config.compose.compose import load_config
from servetwin.results.code_digest import code_digest
from servetwin.run.simulate import evaluated
from serving.vocabulary.errors import UserError

PROCESSES: Final = 2
# Rows of one place that a process runs at once, so that no process is left with all rows of a large one.
_CHUNK: Final = 24
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Terms:
    """Constants fitted on rows: of the library's steps, and seconds per sequence of vLLM before 0.15."""

    library: LibraryTerms = field(default_factory=LibraryTerms)
    old_sequence_s: float | None = None  # None: as the catalogue says

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a run that set what has a key."""
        return (
            () if self.old_sequence_s is None else (f"engine.overhead.per_sequence_s={self.old_sequence_s}",)
        )


SHIPPED: Final = Terms()


@dataclass(frozen=True, slots=True)
class Asked:
    """A row, the constants to run it with, and whether to run the ends of its range too."""

    row: Row
    terms: Terms = SHIPPED
    ranges: bool = False

    @property
    def name(self) -> str:
        """What its result is kept under; of other code, other constants or other words: another."""
        told = [] if refusal(self.row) else words(self.row)
        text = "\n".join([code_digest(), str(self.terms), str(self.ranges), self.row.id, *told])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def place(self) -> tuple[str, ...]:
        """Whose step times it takes."""
        row = self.row
        return row.model, row.system, row.precision, f"{row.tp:03}", f"{row.expert_ep:03}"


@dataclass(frozen=True, slots=True)
class Result:
    """A row with the simulated means in milliseconds, or the sentence that ``refused`` it.

    ``ttft_ends_ms``, ``tpot_ends_ms``: the ends of their ranges, where they were asked for.
    """

    row: Row
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    refused: str = ""
    ttft_ends_ms: Ends | None = None
    tpot_ends_ms: Ends | None = None


def simulated(rows: Sequence[Row], folder: Path, terms: Terms = SHIPPED) -> list[Result]:
    """Run every row that can be expressed, or take its result from ``folder``, in the order of ``rows``."""
    return run_all([Asked(row, terms) for row in rows], folder)


def run_all(asked: Sequence[Asked], folder: Path) -> list[Result]:
    """As ``simulated``, each row with constants of its own.

    Runs with the same step times go to a process together, which then asks the library once.
    """
    found = {one: kept for one in asked if (kept := _kept(one, folder)) is not None}
    missing = sorted((one for one in asked if one not in found), key=lambda one: (one.place, str(one.terms)))
    with ProcessPoolExecutor(PROCESSES) as pool:
        for chunk, results in zip(parts := list(_parts(missing)), pool.map(_several, parts), strict=True):
            for one, result in zip(chunk, results, strict=True):
                found[one] = result
                _keep(one, result, folder)
    return [found[one] for one in asked]


def _parts(asked: Iterable[Asked]) -> Iterator[list[Asked]]:
    """Cut at each place, and into parts of a process's time of some seconds."""
    for _, group in groupby(asked, key=lambda one: one.place):
        mine = list(group)
        for start in range(0, len(mine), _CHUNK):
            yield mine[start : start + _CHUNK]


def _several(asked: Sequence[Asked]) -> list[Result]:
    return [_one(one) for one in asked]


def _one(asked: Asked) -> Result:
    row = asked.row
    if reason := refusal(row):
        return Result(row, refused=reason)
    library_step.TERMS = asked.terms.library
    more = [*asked.terms.words, f"uncertainty={'on' if asked.ranges else 'off'}", "out=none"]
    try:
        summary = evaluated(load_config([*words(row), *more], "simulate"))
    except (UserError, HardwareError) as error:
        return Result(row, refused=str(error))
    ttft, tpot = summary["ttft_ms"]["mean"], summary["tpot_ms"]["mean"]
    if not (ttft and tpot):
        return Result(row, refused="no request finished")
    ends = summary.get("range", {})
    return Result(row, ttft, tpot, "", *(_ends(ends.get(f"{name}_ms.mean")) for name in ("ttft", "tpot")))


def _ends(found: Sequence[float] | None) -> Ends | None:
    return None if found is None else (found[0], found[1])


def _kept(asked: Asked, folder: Path) -> Result | None:
    path = _path(asked, folder)
    if not path.is_file():
        return None
    *means, refused, ttft, tpot = json.loads(path.read_text(encoding="utf-8"))
    return Result(asked.row, *means, refused, _ends(ttft), _ends(tpot))


def _keep(asked: Asked, result: Result, folder: Path) -> None:
    path = _path(asked, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = [result.ttft_ms, result.tpot_ms, result.refused, result.ttft_ends_ms, result.tpot_ends_ms]
    path.write_text(json.dumps(told), encoding="utf-8")


def _path(asked: Asked, folder: Path) -> Path:
    return folder / "runs" / f"{asked.name}.json"
