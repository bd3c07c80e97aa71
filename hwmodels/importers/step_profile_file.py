"""Reads a whole-step profile: a folder with meta.yaml and steps.csv or steps.parquet (docs/PROFILES.md)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hwmodels.catalogue import load_gpu
from hwmodels.errors import HardwareError
from hwmodels.importers.llmservingsim_meta import Meta, read_meta
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
    profile = StepProfile(stamp, steps, HOLDS[meta.entries["holds"]], spread, apart, blocks)
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
    told = meta.entries["prompt_blocks"]
    if not isinstance(told, list) or len(told) != 3 or any(type(one) is not int or one < 1 for one in told):
        raise HardwareError(
            f"{meta.path}: prompt_blocks is {told!r}; write three whole numbers of at least 1: tokens per "
            "block, the fewest tokens at which a prompt is cut, and the row multiple of a chunk"
        )
    return PromptBlocks(*told)


def _table(folder: Path) -> Table:
    there = [folder / name for name in TABLES if (folder / name).is_file()]
    if len(there) != 1:
        raise HardwareError(f"{folder} has {len(there)} of {' and '.join(TABLES)}; keep exactly one of them")
    return read_table(there[0], COUNTS, ("time_us",), optional=("repeats",))


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
    for broken, what in rules:
        for row in np.flatnonzero(broken)[:1]:
            raise HardwareError(f"{table.path} row {row + 1} {what}")


def _stamp(meta: Meta, table: Table) -> Stamp:
    entries = meta.entries
    assert meta.sha256 is not None
    return Stamp(
        load_gpu(str(entries["gpu"])).name,
        str(entries["model"]),
        entries["tp"],
        str(entries["engine"]),
        str(entries["engine_version"]),
        str(entries["precision"]),
        str(entries["source"]),
        str(entries["licence"]),
        ((META, meta.sha256), (table.path.name, table.sha256)),
        tuple(entries.get("notes", ())),
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
