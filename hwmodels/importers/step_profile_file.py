"""Reads and writes a whole-step profile: a folder with meta.yaml and steps.csv or steps.parquet.

The format is in docs/how-to/PROFILES.md. A profile can also be made from Splitwise's table.
"""

import csv
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hwmodels.catalogue import load_gpu
from hwmodels.errors import HardwareError
from hwmodels.importers.llmservingsim import Meta, read_meta
from hwmodels.importers.splitwise import LICENCE, SOURCE, read_splitwise
from hwmodels.importers.tables import Table, read_table
from hwmodels.profiles.profile import Stamp
from hwmodels.profiles.step_profile import Ints, LoadedSteps, Mask, PromptBlocks, StepProfile, Steps, distinct
from hwmodels.step_times.noise import bad_points, require_few

FORMAT: Final = "servetwin-steps"
SCHEMA: Final = 1
META: Final = "meta.yaml"
TABLES: Final = ("steps.csv", "steps.parquet")
COUNTS: Final = (
    "prefill_tokens", "prefill_sequences", "cached_tokens", "decode_sequences", "context_tokens",
)  # fmt: skip
# The content of the seconds: whole steps of an engine, or sums of operations without its overhead.
HOLDS: Final = {"steps": True, "operations": False}
_TEXTS: Final = ("gpu", "model", "engine", "engine_version", "precision", "source", "licence")
_KEYS: Final = ("format", "schema", "tp", "holds", *_TEXTS)
_OPTIONAL: Final = ("notes", "chunks", "prompt_blocks")
# Whether an engine computes the chunks and decodes of a step together, or one after the other.
TOGETHER, APART = "together", "apart"


def is_step_profile(path: Path) -> bool:
    """Whether a path is a folder, which may be a step profile; a file has operation tables."""
    return path.is_dir()


def read_step_profile(folder: Path) -> LoadedSteps:
    """The profile in ``folder``, fully checked; bad single points are left out, with a note.

    HardwareError names the file, and the key or the row.
    """
    meta = _meta(folder)
    table = _table(folder)
    _check_rows(table)
    columns = [table.counts[name] for name in COUNTS]
    repeats = np.maximum(table.counts["repeats"], 1)
    steps, spread = distinct(columns, repeats, table.times["time_us"] * 1e-6)
    steps, notes = _steadied(steps, table.path)
    for phase in ("prefill", "decode"):
        if not steps.phase(phase).any():
            alone = "prompts alone (decode_sequences 0)" if phase == "prefill" else "decodes alone"
            raise HardwareError(f"{table.path} has no steps with {alone}; measure some of each")
    stamp = _stamp(meta, table)
    stamp = replace(stamp, notes=(*stamp.notes, *notes))
    apart = meta.entries.get("chunks") == APART
    blocks = _blocks(meta)
    profile = StepProfile(
        stamp=stamp,
        steps=steps,
        includes_overhead=HOLDS[meta.entries["holds"]],
        repeat_spread=spread,
        apart=apart,
        blocks=blocks,
    )
    return LoadedSteps(profile, table.sha256)


def _meta(folder: Path) -> Meta:
    path = folder / META
    if not path.is_file():
        raise HardwareError(
            f"{folder} has no {META}: a whole-step profile is a folder with {META} and {TABLES[0]}, and "
            "operation tables are one .json file"
        )
    meta = read_meta(path)
    entries: Mapping[str, Any] = meta.entries
    if missing := [key for key in _KEYS if key not in entries]:
        raise HardwareError(f"{path} lacks the key {missing[0]!r}; it needs {', '.join(_KEYS)}")
    if unknown := [key for key in entries if key not in (*_KEYS, *_OPTIONAL)]:
        raise HardwareError(
            f"{path} has an unknown key {str(unknown[0])!r}; write only {', '.join((*_KEYS, *_OPTIONAL))}"
        )
    wanted: dict[str, tuple[Any, ...]] = {"format": (FORMAT,), "schema": (SCHEMA,), "holds": tuple(HOLDS)}
    if "chunks" in entries:
        wanted["chunks"] = (TOGETHER, APART)
    for key, values in wanted.items():
        if entries[key] not in values:
            raise HardwareError(f"{path}: {key} is {entries[key]!r}; write {' or '.join(map(str, values))}")
    if type(entries["tp"]) is not int or entries["tp"] < 1:
        raise HardwareError(f"{path}: tp is {entries['tp']!r}; write a whole number of at least 1")
    for key in _TEXTS:
        if isinstance(entries[key], (Mapping, list)) or not str(entries[key] or "").strip():
            raise HardwareError(f"{path}: {key} is {entries[key]!r}; write a text that is not empty")
    notes = entries.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise HardwareError(f"{path}: notes is {notes!r}; write a list of texts")
    return meta


def _blocks(meta: Meta) -> PromptBlocks | None:
    """Settings of an engine that lays chunks out in their whole prompts."""
    if "prompt_blocks" not in meta.entries:
        return None
    numbers = meta.entries["prompt_blocks"]
    if (
        not isinstance(numbers, list)
        or len(numbers) != 3
        or any(type(number) is not int or number < 1 for number in numbers)
    ):
        raise HardwareError(
            f"{meta.path}: prompt_blocks is {numbers!r}; write three whole numbers of at least 1: tokens per "
            "block, the fewest tokens at which a prompt is cut, and the row multiple of a chunk"
        )
    return PromptBlocks(*numbers)


def _table(folder: Path) -> Table:
    there = [folder / name for name in TABLES if (folder / name).is_file()]
    if len(there) != 1:
        raise HardwareError(f"{folder} has {len(there)} of {' and '.join(TABLES)}; keep exactly one of them")
    return read_table(there[0], COUNTS, times=("time_us",), optional=("repeats",))


def _check_rows(table: Table) -> None:
    """Refuse rows that contradict themselves."""
    prefill, chunks, cached, decode, context = (table.counts[name] for name in COUNTS)
    rules: tuple[tuple[Mask, str], ...] = (
        (
            prefill + decode == 0,
            "has neither prompts nor decodes; write prefill_tokens or decode_sequences above 0",
        ),
        (
            (prefill > 0) & ((chunks < 1) | (chunks > prefill)),
            "has prefill_tokens; write prefill_sequences from 1 up to as many",
        ),
        (
            (prefill == 0) & ((chunks > 0) | (cached > 0)),
            "has no prefill_tokens; write 0 for prefill_sequences and cached_tokens",
        ),
        (
            (decode > 0) & (context < decode),
            "has a context_tokens below its decode_sequences; write the total of all sequences",
        ),
        ((decode == 0) & (context > 0), "has no decode_sequences; write 0 for context_tokens"),
    )
    for broken, rule in rules:
        for row in np.flatnonzero(broken)[:1]:
            raise HardwareError(f"{table.path} row {row + 1} {rule}")


def _stamp(meta: Meta, table: Table) -> Stamp:
    entries = meta.entries
    assert meta.sha256 is not None
    return Stamp(
        gpu=load_gpu(str(entries["gpu"])).name,
        llm=str(entries["model"]),
        tp=entries["tp"],
        engine=str(entries["engine"]),
        engine_version=str(entries["engine_version"]),
        precision=str(entries["precision"]),
        source=str(entries["source"]),
        licence=str(entries["licence"]),
        files=((META, meta.sha256), (table.path.name, table.sha256)),
        notes=tuple(entries.get("notes", ())),
    )


def _steadied(steps: Steps, path: Path) -> tuple[Steps, tuple[str, ...]]:
    """Remove points at which more work takes much less time (``noise``); returns a note on them."""
    each = steps.context_tokens // np.maximum(steps.decode_sequences, 1)
    lines = (
        ("decode", steps.decode_sequences, steps.context_tokens),
        ("decode", each, steps.decode_sequences),
        ("prefill", steps.cached_tokens * (1 << 20) + steps.prefill_sequences, steps.prefill_tokens),
        ("prefill", steps.prefill_tokens * (1 << 20) + steps.prefill_sequences, steps.cached_tokens),
    )
    bad = np.zeros(len(steps), dtype=np.bool_)
    for phase, key, counts in lines:
        rows = np.flatnonzero(steps.phase("decode" if phase == "decode" else "prefill"))
        for value in np.unique(key[rows]):
            bad[_bad_of(rows[key[rows] == value], counts, steps)] = True
    if not bad.any():
        return steps, ()
    require_few(int(bad.sum()), len(steps), str(path))
    note = f"left out: {int(bad.sum())} of {len(steps)} steps, at which more work takes over 10% less"
    return steps.where(~bad), (note,)


def _bad_of(rows: "np.ndarray[Any, np.dtype[np.intp]]", counts: Ints, steps: Steps) -> Any:
    """The bad points among the rows of one line."""
    rows = rows[np.argsort(counts[rows], kind="stable")]
    return rows[bad_points(counts[rows].astype(np.float64), steps.seconds[rows])]


# Names of the catalogue's GPUs in Splitwise's table.
_SPLITWISE_GPUS: Final = {"a100_80g": "a100-80gb", "h100": "h100-80gb"}
_SPLITWISE_MODEL: Final = "llama2_70b"
# Prompt tokens, chunks, cached tokens, sequences, context tokens, repeats, seconds of one measured step.
Row = tuple[int, int, int, int, int, int, float]


def write_step_profile(
    folder: Path,
    stamp: Stamp,
    *,
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
    for iteration in iterations:
        if iteration.phase == "prefill":
            rows.append((iteration.count, iteration.batch, 0, 0, 0, 1, iteration.seconds))
        else:
            rows.append((0, 0, 0, iteration.count, iteration.work, 1, iteration.seconds))
    noted = ("the table does not name the engine", *notes)
    stamp = Stamp(
        gpu=gpu,
        llm=llm,
        tp=tp,
        engine="unknown",
        engine_version="unknown",
        precision="fp16",
        source=SOURCE,
        licence=LICENCE,
        files=(),
        notes=noted,
    )
    return stamp, rows
