"""Mooncake traces: JSON lines with a timestamp in ms, two lengths and the hashes of the prompt's blocks.

Source of the format: github.com/kvcache-ai/Mooncake (FAST25-release/traces): timestamp counts from the
trace's start, a block is 512 tokens, equal leading hash_ids mean an equal prefix.
"""

import gzip
import json
from array import array
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import whole_number
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.importers.json_lines import (
    JsonTimes,
    Spot,
    all_or_none,
    first_row,
    int64,
    ints_or_none,
    json_rows,
    line_of,
    names_or_none,
    shown,
    whole,
    word,
)
from traces.importers.requests import check_limit, requests_of
from traces.reading import Origin
from traces.replacing import replacing
from traces.times import OTHER_UNIT, UNITS, Clock, read_in_unit
from traces.turns import CONVERSATIONS_NOT_WRITTEN, Turns
from traces.workload import INT64_MAX, LONGEST_NS, MAX_TOKENS, NS_PER_S, Workload

BLOCK_TOKENS: Final = 512
"""Tokens of a block in the published traces."""
TIME, PROMPT, OUTPUT, HASHES = "timestamp", "input_length", "output_length", "hash_ids"
UNIT_KEY: Final = "time_unit"
"""A key that files written with ``exact`` have, because their times have fractions of a ms."""
EXAMPLE: Final = f'{{"{TIME}": 0, "{PROMPT}": 700, "{OUTPUT}": 50, "{HASHES}": [0, 1]}}'
_MS_NS: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The columns while they grow, one entry per line."""

    arrival_ns: MutableSequence[int] = field(default_factory=lambda: array("q"))
    prompt: MutableSequence[int] = field(default_factory=lambda: array("q"))
    output: MutableSequence[int] = field(default_factory=lambda: array("q"))
    hashes: list[MutableSequence[int] | None] = field(default_factory=list)
    model: list[str | None] = field(default_factory=list)
    session: list[str | None] = field(default_factory=list)
    priority: list[int | None] = field(default_factory=list)
    cap: list[int | None] = field(default_factory=list)


def read_mooncake(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    block_tokens: int = BLOCK_TOKENS,
    partial_prefix: bool = False,
    time_unit: str | None = None,
) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written, exact to the nanosecond.

    time_unit: of the timestamps, see ``traces.times``; None: that of the first line's key time_unit, or else
    ms, or s by the rules there.

    limit: only the first rows, those to be dropped included; the whole file is still judged.
    block_tokens: tokens of a full block. The last, partly filled block of a prompt may have an id or none;
    partial_prefix: still fewer hash_ids are taken.
    The keys model, priority and max_new_tokens are read when every line has them, session_id where it is.
    Rows with output_length 0 are left out and counted in ``dropped``.
    Raises TraceError naming file, line, key and remedy for anything else that is not a request.
    """
    keys = BlockKeys(TIME, Clock("ms", other="s"), EXAMPLE)
    return read_blocks(
        path,
        keys,
        name=name,
        limit=limit,
        block_tokens=block_tokens,
        partial_prefix=partial_prefix,
        time_unit=time_unit,
    )


@dataclass(frozen=True, slots=True)
class BlockKeys:
    """What differs between files with Mooncake's keys. time: the arrivals' key. example: a line."""

    time: str
    clock: Clock
    example: str


def read_blocks(
    path: str | Path,
    keys: BlockKeys,
    *,
    name: str | None,
    limit: int | None,
    block_tokens: int,
    partial_prefix: bool,
    time_unit: str | None,
) -> Workload:
    """See ``read_mooncake``."""
    check_limit(limit)
    size = whole_number("block_tokens", block_tokens, 1, MAX_TOKENS)
    file = Path(path)
    origin = Origin.of(file)

    def read(unit: str) -> tuple[_Rows, NDArray[np.int64]]:
        rows, times = _Rows(), JsonTimes(keys.time, unit)
        for spot, row in json_rows(file, keys.example):
            rows.arrival_ns.append(times.ns(row, spot))
            _add(rows, row, spot)
            _check_blocks(rows, size, partial_prefix, spot)
        times_ns = int64(rows.arrival_ns)
        return rows, times_ns

    first = first_row(file, keys.example)
    written = first.get(UNIT_KEY)
    unit = time_unit or (written if written in UNITS else None)
    rows, times = read_in_unit(keys.clock, unit, first.get(keys.time), read)
    _check_latest(times.arrival_ns, file, keys.time)
    columns = {
        "arrival_ns": times.arrival_ns,
        "prompt_tokens": int64(rows.prompt),
        "output_tokens": int64(rows.output),
        "session": names_or_none(rows.session),
        "prefix": _prefix(rows, size, file),
        "model": Names.of(rows.model) if all_or_none(rows.model, "model", file) else None,
        "priority": ints_or_none(rows.priority, "priority", file),
        "max_new_tokens": ints_or_none(rows.cap, "max_new_tokens", file),
    }
    return requests_of(origin, columns, name=name, limit=limit, labels=times.labels)


def _check_latest(arrival_ns: NDArray[np.int64], file: Path, time: str) -> None:
    late = arrival_ns > LONGEST_NS
    if late.any():
        row = int(np.argmax(late))
        problem = f"it arrives {int(arrival_ns[row]) / NS_PER_S:.9g} s after the start, too late"
        raise line_of(file)(row).error(problem, f"write the time since the trace's start, {OTHER_UNIT}", time)


def _add(rows: _Rows, row: dict[str, Any], spot: Spot) -> None:
    rows.prompt.append(whole(row, PROMPT, spot, least=1))
    rows.output.append(whole(row, OUTPUT, spot))
    rows.model.append(word(row, "model", spot))
    rows.session.append(word(row, "session_id", spot))
    priority = row.get("priority")
    rows.priority.append(
        None if priority is None else whole(row, "priority", spot, -INT64_MAX - 1, INT64_MAX)
    )
    cap = row.get("max_new_tokens")
    rows.cap.append(None if cap is None else whole(row, "max_new_tokens", spot, least=1))
    rows.hashes.append(_hashes(row, spot))


def _hashes(row: dict[str, Any], spot: Spot) -> MutableSequence[int] | None:
    ids = row.get(HASHES)
    if ids is None:
        return None
    if not isinstance(ids, list):
        raise spot.error(f"{shown(ids)} is not a list", "write one whole number per block", HASHES)
    for at in ids:
        if type(at) is not int or not 0 <= at <= INT64_MAX:
            raise spot.error(
                f"{shown(at)} is not a block id", f"write whole numbers from 0 to {INT64_MAX}", HASHES
            )
    return array("q", ids)


def _check_blocks(rows: _Rows, size: int, partial: bool, spot: Spot) -> None:
    hashes, prompt = rows.hashes[-1], rows.prompt[-1]
    if hashes is None:
        return
    blocks = -(-prompt // size)
    if len(hashes) in (blocks, prompt // size) or (partial and len(hashes) < blocks):
        return
    raise spot.error(
        f"{len(hashes)} ids do not fit {prompt} tokens in blocks of {size}",
        f"write {blocks}" + (" at most" if partial else ", or read it with another block size"),
        HASHES,
    )


def _prefix(rows: _Rows, size: int, file: Path) -> PrefixBlocks | None:
    if not all_or_none(rows.hashes, HASHES, file):
        return None
    counts = [len(ids) for ids in rows.hashes if ids is not None]
    flat = array("q")
    for ids in rows.hashes:
        flat.extend(ids or ())
    return PrefixBlocks(size, np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), int64(flat))


def write_mooncake(
    workload: Workload, path: str | Path, *, overwrite: bool = False, exact: bool = False
) -> tuple[str, ...]:
    """Writes the file (gzipped if it ends in .gz) and returns what it does not hold, one phrase each.

    Timestamps are rounded to whole ms (half up); with ``exact`` they get decimals that read back to the ns,
    and every line the key time_unit, which says that they are in ms.
    Every row gets the hash_ids of all its blocks: those the workload does not know are new ids that no other
    row has, so that nothing more is shared. model, session_id, priority, max_new_tokens, images and
    source_duration_ns are written as further keys, which other readers of the format ignore.
    Raises TraceError when blocks have another size than 512, do not fit, or the file cannot be written.
    """
    file = Path(path)
    latest_ns = int(workload.arrival_ns[-1])
    if latest_ns > LONGEST_NS - _MS_NS:
        raise TraceError(
            f"workload {workload.name!r} ends {latest_ns} ns after its start and the Mooncake format"
            f" holds up to {LONGEST_NS}: write it as .parquet"
        )
    prefix = _full_prefix(workload)
    lines = _lines(workload, prefix, exact)
    with replacing(file, overwrite) as half, half.open("wb") as raw:
        if file.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped:  # no name, no time: same bytes
                zipped.writelines(lines)
        else:
            raw.writelines(lines)
    return tuple(_losses(workload, exact))


def _losses(workload: Workload, exact: bool) -> Iterator[str]:
    moved = int(np.count_nonzero(workload.arrival_ns % _MS_NS))
    if moved and not exact:
        yield f"{moved} of {len(workload)} timestamps rounded to whole ms"
    unknown = len(workload)
    if isinstance(workload.prefix, Turns):
        yield CONVERSATIONS_NOT_WRITTEN
    elif workload.prefix is not None:
        unknown = int(np.count_nonzero(np.diff(workload.prefix.offsets) < _blocks(workload)))
    if unknown:
        yield f"{unknown} of {len(workload)} rows got block ids that no other row has"
    for column in ("images", "source_duration_ns"):
        if getattr(workload, column) is not None:
            yield f"{column} written as a key that is not read back"
    for attribute in ("labels", "dropped"):
        if getattr(workload, attribute):
            yield f"{attribute} not written"


def _blocks(workload: Workload) -> NDArray[np.int64]:
    return np.asarray(-(-workload.prompt_tokens // BLOCK_TOKENS), dtype=np.int64)


def _full_prefix(workload: Workload) -> PrefixBlocks:
    """As many block ids as each prompt has blocks, the unknown ones new."""
    wanted = _blocks(workload)
    known = workload.prefix
    if known is None or isinstance(known, Turns):
        known = PrefixBlocks(BLOCK_TOKENS, np.zeros(len(workload) + 1, np.int64), np.zeros(0, np.int64))
    if known.block_tokens != BLOCK_TOKENS:
        raise TraceError(
            f"workload {workload.name!r} has prefix blocks of {known.block_tokens} tokens and the Mooncake"
            f" format blocks of {BLOCK_TOKENS}: write it as .parquet"
        )
    has = np.diff(known.offsets)
    if (has > wanted).any():
        row = int(np.argmax(has > wanted))
        raise TraceError(
            f"workload {workload.name!r}: row {row} has {has[row]} prefix blocks and its prompt needs only"
            f" {wanted[row]}: give it no more than that"
        )
    offsets = np.concatenate(([0], np.cumsum(wanted)))
    ids = np.full(offsets[-1], -1, dtype=np.int64)
    ids[np.arange(len(known.ids)) + np.repeat(offsets[:-1] - known.offsets[:-1], has)] = known.ids
    new = ids < 0
    first = int(known.ids.max()) + 1 if len(known.ids) else 0
    if first + int(new.sum()) > INT64_MAX:
        raise TraceError(f"workload {workload.name!r} has prefix ids up to {first - 1}: write smaller ones")
    ids[new] = np.arange(first, first + int(new.sum()))
    return PrefixBlocks(BLOCK_TOKENS, offsets, ids)


def _lines(workload: Workload, prefix: PrefixBlocks, exact: bool) -> Iterator[bytes]:
    for row in range(len(workload)):
        fields = [
            f'"{TIME}": {_ms(int(workload.arrival_ns[row]), exact)}',
            f'"{PROMPT}": {workload.prompt_tokens[row]}',
            f'"{OUTPUT}": {workload.output_tokens[row]}',
            f'"{HASHES}": {list(prefix[row])}',
        ]
        for key, names in (("model", workload.model), ("session_id", workload.session)):
            if names is not None and names[row] is not None:
                fields.append(f'"{key}": {json.dumps(names[row])}')
        for column in ("priority", "max_new_tokens", "images", "source_duration_ns"):
            values = getattr(workload, column)
            if values is not None:
                fields.append(f'"{column}": {values[row]}')
        if exact:
            fields.append(f'"{UNIT_KEY}": "ms"')
        yield f"{{{', '.join(fields)}}}\n".encode()


def _ms(arrival_ns: int, exact: bool) -> str:
    if not exact:
        return str((arrival_ns + _MS_NS // 2) // _MS_NS)
    whole_ms, rest_ns = divmod(arrival_ns, _MS_NS)
    return f"{whole_ms}.{rest_ns:06d}".rstrip("0") if rest_ns else str(whole_ms)
