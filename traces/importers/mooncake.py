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
from traces.importers.block_ids import Ids, check_count, ids_of, prefix_of
from traces.importers.drawn_arrivals import Draw, no_arrivals
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
from traces.importers.texts import Measure, measure_of
from traces.reading import Origin
from traces.replacing import replacing
from traces.times import OTHER_UNIT, UNITS, Clock, read_in_unit
from traces.turns import CONVERSATIONS_NOT_WRITTEN, Turns
from traces.workload import INT64_MAX, LONGEST_NS, MAX_TOKENS, NS_PER_S, Workload

BLOCK_TOKENS: Final = 512
"""Tokens of a block in the published traces."""
TIME, PROMPT, OUTPUT, HASHES = "timestamp", "input_length", "output_length", "hash_ids"
TEXT, DELAY = "text_input", "delay"
DELAYED: Final = "arrive their delay after the turn before them arrived: the file has no times of answers"
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
    hashes: list[Ids | None] = field(default_factory=list)
    model: list[str | None] = field(default_factory=list)
    session: list[str | None] = field(default_factory=list)
    last_ns: dict[str, int] = field(default_factory=dict)
    delayed: int = 0
    timed: int = 0
    texts: int = 0
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
    chars_per_token: float | None = None,
    rate_per_s: float | None = None,
    gap_cv: float = 1.0,
    seed: int = 0,
) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written, exact to the nanosecond.

    time_unit: of the timestamps, see ``traces.times``; None: that of the first line's key time_unit, or else
    ms, or s by the rules there.

    limit: only the first rows, those to be dropped included; the whole file is still judged.
    block_tokens: tokens of a full block. The last, partly filled block of a prompt may have an id or none;
    partial_prefix: still fewer hash_ids are taken.
    A turn with a delay in ms instead of a timestamp (AIPerf) arrives so long after the turn before it in its
    session did. chars_per_token: of prompts that are text (text_input); None: such are refused. rate_per_s,
    gap_cv, seed: of drawn arrivals, for a file without times.
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
        measure=None if chars_per_token is None else measure_of(None, chars_per_token),
        draw=Draw(rate_per_s, gap_cv, seed, "mooncake"),
    )


@dataclass(frozen=True, slots=True)
class BlockKeys:
    """What differs between files with Mooncake's keys. time: the arrivals' key. example: a line.

    chat, parent: keys of a request's chat and the one it continues; both name its session.
    """

    time: str
    clock: Clock
    example: str
    chat: str | None = None
    parent: str | None = None


def read_blocks(
    path: str | Path,
    keys: BlockKeys,
    *,
    name: str | None,
    limit: int | None,
    block_tokens: int,
    partial_prefix: bool,
    time_unit: str | None,
    measure: Measure | None = None,
    draw: Draw | None = None,
) -> Workload:
    """See ``read_mooncake``. measure: of prompts that are text. draw: how arrivals are drawn if need be."""
    check_limit(limit)
    size = whole_number("block_tokens", block_tokens, 1, MAX_TOKENS)
    file = Path(path)
    origin = Origin.of(file)

    def read(unit: str) -> tuple[_Rows, NDArray[np.int64]]:
        rows, times = _Rows(), JsonTimes(keys.time, unit)
        for spot, row in _with_sessions(json_rows(file, keys.example), keys):
            rows.arrival_ns.append(_arrival_ns(rows, row, times, draw, spot))
            _add(rows, row, measure, spot)
            check_count(rows.hashes[-1], rows.prompt[-1], size, partial=partial_prefix, spot=spot, key=HASHES)
        return rows, int64(rows.arrival_ns)

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
        "prefix": prefix_of(rows.hashes, size, HASHES, file),
        "model": Names.of(rows.model) if all_or_none(rows.model, "model", file) else None,
        "priority": ints_or_none(rows.priority, "priority", file),
        "max_new_tokens": ints_or_none(rows.cap, "max_new_tokens", file),
    }
    labels = () if draw is not None and draw.rate_per_s is not None else times.labels
    if rows.texts and measure is not None:
        labels = (*labels, f"prompt lengths of {rows.texts} of {len(rows.prompt)} rows {measure.label()}")
    if rows.delayed:
        labels = (*labels, f"{rows.delayed} of {len(rows.prompt)} requests {DELAYED}")
    workload = requests_of(origin, columns, name=name, limit=limit, labels=labels)
    return workload if draw is None or draw.rate_per_s is None else draw.arrivals(workload, file)


def _with_sessions(
    rows: Iterator[tuple[Spot, dict[str, Any]]], keys: BlockKeys
) -> Iterator[tuple[Spot, dict[str, Any]]]:
    """The rows, with the first chat of its chain as the session of each if they have chats."""
    if keys.chat is None or keys.parent is None:
        yield from rows
        return
    firsts: dict[str, str] = {}
    for spot, row in rows:
        chat, parent = word(row, keys.chat, spot), word(row, keys.parent, spot)
        if chat is not None:
            firsts[chat] = firsts.get(parent or "", chat)
        yield spot, row if chat is None else {**row, "session_id": firsts[chat]}


def _arrival_ns(rows: _Rows, row: dict[str, Any], times: JsonTimes, draw: Draw | None, spot: Spot) -> int:
    """When a row arrives; 0 if arrivals are drawn."""
    session, timed = word(row, "session_id", spot), row.get(times.key) is not None
    if draw is not None and draw.rate_per_s is not None:
        if timed:
            problem = "the file has arrivals of its own"
            raise spot.error(problem, "leave out trace.rate_per_s", times.key)
        return 0
    if not timed and draw is not None and row.get(DELAY) is not None and session in rows.last_ns:
        at_ns = rows.last_ns[session] + JsonTimes(DELAY, "ms").ns(row, spot)
        rows.delayed += 1
    elif not timed and draw is not None and not rows.timed:
        raise no_arrivals(spot.path)
    else:
        at_ns = times.ns(row, spot)
        rows.timed += 1
    if session is not None:
        rows.last_ns[session] = at_ns
    return at_ns


def _check_latest(arrival_ns: NDArray[np.int64], file: Path, time: str) -> None:
    late = arrival_ns > LONGEST_NS
    if late.any():
        row = int(np.argmax(late))
        problem = f"it arrives {int(arrival_ns[row]) / NS_PER_S:.9g} s after the start, too late"
        raise line_of(file)(row).error(problem, f"write the time since the trace's start, {OTHER_UNIT}", time)


def _add(rows: _Rows, row: dict[str, Any], measure: Measure | None, spot: Spot) -> None:
    rows.prompt.append(_prompt(rows, row, measure, spot))
    rows.output.append(whole(row, OUTPUT, spot))
    rows.model.append(word(row, "model", spot))
    rows.session.append(word(row, "session_id", spot))
    priority = row.get("priority")
    rows.priority.append(
        None if priority is None else whole(row, "priority", spot, -INT64_MAX - 1, INT64_MAX)
    )
    cap = row.get("max_new_tokens")
    rows.cap.append(None if cap is None else whole(row, "max_new_tokens", spot, least=1))
    rows.hashes.append(ids_of(row, HASHES, spot))


def _prompt(rows: _Rows, row: dict[str, Any], measure: Measure | None, spot: Spot) -> int:
    """Tokens of the prompt, of its text if the row has no length."""
    text = row.get(TEXT)
    if row.get(PROMPT) is not None or text is None:
        return whole(row, PROMPT, spot, least=1)
    if not isinstance(text, str) or not text:
        raise spot.error(f"{shown(text)} is not a prompt", f"write its text, or its length as {PROMPT}", TEXT)
    if measure is None:
        raise spot.error(
            f"the prompt is a text without {PROMPT}",
            "write trace.chars_per_token=4 to estimate its tokens, or add its length",
            TEXT,
        )
    rows.texts += 1
    return measure.tokens(measure.size(text, spot), spot, TEXT)


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
