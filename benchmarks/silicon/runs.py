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


def simulated(rows: Sequence[Row], folder: Path, extra: Sequence[str] = ()) -> list[Result]:
    """Run every row that can be expressed, or take its result from ``folder``; the order of ``rows`` stays."""
    digest = code_digest()
    found = dict(_kept(rows, folder, digest, extra))
    # Rows of one model, GPU and split one after another: a process asks for their step times once.
    missing = sorted((row for row in rows if row.id not in found), key=_place)
    with ProcessPoolExecutor(PROCESSES) as pool:
        chunk = max(1, len(missing) // (8 * PROCESSES))
        for result in pool.map(_one, ((row, tuple(extra)) for row in missing), chunksize=chunk):
            found[result.row.id] = result
            _keep(result, folder, digest, extra)
    return [found[row.id] for row in rows]


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


def _name(row: Row, digest: str, extra: Sequence[str]) -> str:
    text = "\n".join([digest, row.id, *([] if refusal(row) else words(row)), *extra])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kept(
    rows: Iterable[Row], folder: Path, digest: str, extra: Sequence[str]
) -> Iterator[tuple[str, Result]]:
    for row in rows:
        path = folder / "runs" / f"{_name(row, digest, extra)}.json"
        if path.is_file():
            yield row.id, Result(row, *json.loads(path.read_text(encoding="utf-8")))


def _keep(result: Result, folder: Path, digest: str, extra: Sequence[str]) -> None:
    path = folder / "runs" / f"{_name(result.row, digest, extra)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([result.ttft_ms, result.tpot_ms, result.refused]), encoding="utf-8")
