"""Writes a whole-step profile, and makes one from Splitwise's table (docs/PROFILES.md)."""

import csv
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.importers.splitwise import LICENCE, SOURCE, read_splitwise
from hwmodels.importers.step_profile_file import APART, COUNTS, FORMAT, HOLDS, META, SCHEMA, TABLES
from hwmodels.profiles.profile import Stamp
from hwmodels.profiles.step_profile import PromptBlocks

# Names of the catalogue's GPUs in Splitwise's table.
_SPLITWISE_GPUS: Final = {"a100_80g": "a100-80gb", "h100": "h100-80gb"}
_SPLITWISE_MODEL: Final = "llama2_70b"
# Prompt tokens, chunks, cached tokens, sequences, context tokens, repeats, seconds of one measured step.
Row = tuple[int, int, int, int, int, int, float]


def write_step_profile(
    folder: Path,
    stamp: Stamp,
    includes_overhead: bool,
    rows: Iterable[Row],
    beside: Mapping[str, str] | None = None,
    apart: bool = False,
    blocks: PromptBlocks | None = None,
) -> None:
    """Write ``folder`` with meta.yaml and steps.csv atomically; the folder must not exist.

    Rows of the same step may repeat; ``stamp.files`` and ``stamp.error_band`` are not written. ``beside``:
    texts of more files in it, by name. ``apart``: chunks and decodes are separate passes. ``blocks``: as in a
    `StepProfile`.
    """
    holds = next(word for word, whole in HOLDS.items() if whole == includes_overhead)
    words = {
        "format": FORMAT, "schema": SCHEMA, "gpu": stamp.gpu, "model": stamp.llm, "tp": stamp.tp,
        "engine": stamp.engine, "engine_version": stamp.engine_version, "precision": stamp.precision,
        "holds": holds, "source": stamp.source, "licence": stamp.licence,
    }  # fmt: skip
    if apart:
        words["chunks"] = APART
    if blocks is not None:
        words["prompt_blocks"] = [blocks.block, blocks.fewest, blocks.rows]
    if stamp.notes:
        words["notes"] = list(stamp.notes)
    made = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        try:
            made.mkdir(parents=True)
            lines = [f"{key}: {json.dumps(value)}\n" for key, value in words.items()]  # JSON is YAML
            (made / META).write_text("".join(lines), encoding="ascii")
            with (made / TABLES[0]).open("w", encoding="ascii", newline="") as file:
                table = csv.writer(file, lineterminator="\n")
                table.writerow((*COUNTS, "repeats", "time_us"))
                table.writerows((*row[:6], f"{row[6] * 1e6:.9g}") for row in rows)
            for name, text in (beside or {}).items():
                (made / name).write_text(text, encoding="utf-8")
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise HardwareError(
            f"cannot write {folder} ({os.strerror(error.errno or 0)}); name a folder that does not exist "
            "yet, in one that can be written to"
        ) from error


def splitwise_steps(path: Path, gpu: str, llm: str, tp: int) -> tuple[Stamp, Sequence[Row]]:
    """Splitwise's rows of one GPU type and tp as steps; HardwareError for another model or GPU."""
    if gpu not in _SPLITWISE_GPUS or llm != _SPLITWISE_MODEL:
        raise HardwareError(
            f"format=splitwise has {_SPLITWISE_MODEL} on {' and '.join(_SPLITWISE_GPUS)} alone: write "
            f"model={_SPLITWISE_MODEL} and one of these GPUs"
        )
    iterations, notes = read_splitwise(path, _SPLITWISE_GPUS[gpu], tp)
    rows: list[Row] = []
    for one in iterations:
        if one.phase == "prefill":
            rows.append((one.count, one.batch, 0, 0, 0, 1, one.seconds))
        else:
            rows.append((0, 0, 0, one.count, one.work, 1, one.seconds))
    noted = ("the table does not name the engine", *notes)
    stamp = Stamp(gpu, llm, tp, "unknown", "unknown", "fp16", SOURCE, LICENCE, (), noted)
    return stamp, rows
