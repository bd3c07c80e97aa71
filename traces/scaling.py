"""Transformations of a workload, each of which says what it did in a label."""

from __future__ import annotations  # numpy.random is loaded only where something is drawn

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, short_number
from traces.columns import ABSENT, Names, PrefixBlocks
from traces.errors import TraceError
from traces.streams import stream
from traces.turns import Turns
from traces.workload import (
    INT64_MAX,
    KIN_COLUMNS,
    LONGEST_NS,
    MAX_ROWS,
    MAX_TOKENS,
    NS_PER_S,
    SIZE_COLUMNS,
    Workload,
    taken,
)

MAX_JITTER_NS = NS_PER_S


def scale_tokens(workload: Workload, factor: float) -> Workload:
    """Every length times ``factor``, rounded to the nearest (ties to even), at least 1; caps too if present.

    What prompts share is scaled with them: the same positions, rounded down.
    Raises TraceError when ``factor`` is not above 0 or a length would pass 10 million tokens.
    """
    scale = positive_number("trace.tokens_scale", factor)
    if scale == 1.0:
        return workload
    caps = workload.max_new_tokens
    return workload.labelled(
        f"tokens scaled by {short_number(scale)}",
        prompt_tokens=_scaled(workload.prompt_tokens, scale),
        output_tokens=_scaled(workload.output_tokens, scale),
        max_new_tokens=None if caps is None else _scaled(caps, scale),
        prefix=None if workload.prefix is None else workload.prefix.scaled(scale),
    )


def _scaled(tokens: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    longest = int(tokens.max())
    if longest * scale > MAX_TOKENS:
        raise TraceError(
            f"trace.tokens_scale={short_number(scale)} makes {longest} tokens more than {MAX_TOKENS}:"
            " write a smaller one"
        )
    return np.asarray(np.maximum(np.rint(tokens * scale), 1), dtype=np.int64)


def compress_time(workload: Workload, factor: float) -> Workload:
    """The same requests ``factor`` times as fast (below 1: slower): every arrival time divided by it.

    Bursts get shorter too, so a compressed trace is another workload than its source; the label says so.
    To raise the rate and keep the pattern in time, scale the rate instead. Raises TraceError.
    """
    scale = positive_number("trace.time_compression", factor)
    if scale == 1.0:
        return workload
    last_ns = int(workload.arrival_ns[-1])
    if last_ns / scale > LONGEST_NS:
        raise TraceError(
            f"trace.time_compression={short_number(scale)} stretches {workload.name} beyond 31 years: write a"
            " larger one"
        )
    label = f"time compressed {short_number(scale)}x: bursts are that much shorter than the source's"
    return workload.labelled(label, arrival_ns=np.rint(workload.arrival_ns / scale).astype(np.int64))


def scale_rate(workload: Workload, factor: float, seed: int) -> Workload:
    """``factor`` times the arrivals on the same time axis; ``factor`` 1 returns the workload itself.

    Below 1 each row is kept with probability ``factor`` (a smaller factor keeps a subset of a larger one's).
    Above 1 all rows stay and each gets ``factor - 1`` copies, floor or ceiling of it in even turns. A copy
    arrives uniformly within the gap to the next row, at most 1 s late (the last row's copies: with it), keeps
    model and priority, and takes its lengths from a random row of the same model; no two n-th copies take
    theirs from one row. The n-th copies of a session, and their prefixes, are apart from the originals'. So
    the copies share as many prefix blocks as the originals, but not with the same neighbours in time.
    Raises TraceError when ``factor`` is not above 0, nothing is left, or the result would be too large.
    """
    scale = positive_number("trace.rate_scale", factor)
    if scale == 1.0:
        return workload
    if scale < 1.0:
        rows = stream(seed, "scale_rate/thin").random(len(workload)) < scale
        if not rows.any():
            raise TraceError(
                f"trace.rate_scale={short_number(scale)} leaves none of the {len(workload)} requests of"
                f" {workload.name}: write a larger trace.rate_scale or trace.utilization"
            )
        return workload.taking(rows, f"thinned to {short_number(scale)}x")
    if scale * len(workload) > MAX_ROWS:
        raise TraceError(
            f"trace.rate_scale={short_number(scale)} makes more than {MAX_ROWS} requests of"
            f" {len(workload)}: write a smaller trace.rate_scale or trace.utilization"
        )
    return _replicated(workload, scale, seed)


def _replicated(workload: Workload, scale: float, seed: int) -> Workload:
    copies = _copies(len(workload), scale, stream(seed, "scale_rate/copies"))
    parent = np.repeat(np.arange(len(workload)), copies)
    which = np.arange(len(parent)) - np.repeat(np.cumsum(copies) - copies, copies) + 1
    gap_ns = np.append(np.diff(workload.arrival_ns), 0)
    jitter = stream(seed, "scale_rate/jitter").random(len(parent))
    late_ns = (jitter * np.minimum(gap_ns, MAX_JITTER_NS)[parent]).astype(np.int64)
    donor = _donors(workload, parent, which, stream(seed, "scale_rate/lengths"))
    arrival_ns = np.concatenate((workload.arrival_ns, workload.arrival_ns[parent] + late_ns))
    by_arrival = np.argsort(arrival_ns, kind="stable")  # at one instant, originals come before copies
    row = np.arange(len(workload))
    kin = np.concatenate((row, parent))[by_arrival]
    size = np.concatenate((row, donor))[by_arrival]
    copy = np.concatenate((np.zeros(len(workload), np.int64), which))[by_arrival]
    columns = {column: taken(getattr(workload, column), kin) for column in KIN_COLUMNS}
    columns |= {column: taken(getattr(workload, column), size) for column in SIZE_COLUMNS}
    columns |= {
        "arrival_ns": arrival_ns[by_arrival],
        "session": apart(columns["session"], copy),
        "prefix": unshared(columns["prefix"], copy),
    }
    label = f"replicated {short_number(scale)}x with jitter, lengths of copies resampled"
    return workload.labelled(label, **columns)


def _copies(rows: int, scale: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Copies per row: ``scale - 1``, its fraction spread evenly from a random start (systematic sampling).

    Independent draws would add their own variance to every count of arrivals.
    """
    due = np.floor(np.arange(rows + 1) * (scale - 1.0) + generator.random())
    copies: NDArray[np.int64] = np.diff(due).astype(np.int64)
    return copies


def apart(session: Names | None, copy: NDArray[np.int64]) -> Names | None:
    """The n-th copies of a conversation are a conversation of their own, named ``NAME#n`` or with more #."""
    if session is None:
        return None
    rows = np.flatnonzero((copy > 0) & (session.codes != ABSENT))
    pairs, code = np.unique(np.stack((session.codes[rows], copy[rows])), axis=1, return_inverse=True)
    mark = "#"
    while any(mark in word for word in session.words):
        mark += "#"  # a trace that was replicated before has such names already
    words = tuple(f"{session.words[name]}{mark}{n}" for name, n in pairs.T.tolist())
    codes = session.codes.copy()
    codes[rows] = len(session.words) + code.reshape(-1)
    return Names(codes, session.words + words)


def unshared(prefix: PrefixBlocks | Turns | None, copy: NDArray[np.int64]) -> PrefixBlocks | Turns | None:
    """The n-th copies share prefixes among themselves only: else every copy would be a perfect cache hit."""
    if isinstance(prefix, Turns):
        return prefix.shifted(copy * (int(prefix.stream.max(initial=0)) + 1))
    if prefix is None or len(prefix.ids) == 0:
        return prefix
    if (int(prefix.ids.max()) + 1) * (int(copy.max()) + 1) > INT64_MAX:
        _, ids = np.unique(prefix.ids, return_inverse=True)  # an id only says what is equal
        prefix = replace(prefix, ids=ids.astype(np.int64))
    return prefix.shifted(copy * (int(prefix.ids.max()) + 1))


def _donors(
    workload: Workload, parent: NDArray[np.int64], which: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """For each copy the row that lends it lengths and prefix together: a random one of its parent's model.

    which: the number of each copy among those of its parent, from 1. Copies of one number take lengths from
    one shuffle of all rows: if a row could lend twice, some prompts would repeat others whole.
    """
    rows = np.arange(len(workload))
    rounds = int(which.max(initial=0))
    shuffled = generator.permuted(np.broadcast_to(rows, (rounds, len(rows))), axis=1)
    if workload.model is None:
        return np.asarray(shuffled[which - 1, parent], dtype=np.int64)
    kind = workload.model.codes
    place = np.empty_like(rows)
    place[np.argsort(kind, kind="stable")] = rows  # of each row when they stand model by model
    by_kind = np.take_along_axis(shuffled, np.argsort(kind[shuffled], axis=1, kind="stable"), axis=1)
    return np.asarray(by_kind[which - 1, place[parent]], dtype=np.int64)
