"""Transformations of a workload, each of which says what it did in a label."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, short_number
from traces.errors import TraceError
from traces.streams import stream
from traces.workload import MAX_ROWS, MAX_TOKENS, NS_PER_S, Workload

MAX_JITTER_NS = NS_PER_S


def scale_tokens(workload: Workload, factor: float) -> Workload:
    """Every length times ``factor``, rounded to the nearest (ties to even), at least 1; caps too if present.

    Raises TraceError when ``factor`` is not above 0 or a length would pass 10 million tokens.
    """
    scale = positive_number("trace.tokens_scale", factor)
    if scale == 1.0:
        return workload
    caps = workload.max_new_tokens
    return replace(
        workload,
        prompt_tokens=_scaled(workload.prompt_tokens, scale),
        output_tokens=_scaled(workload.output_tokens, scale),
        max_new_tokens=None if caps is None else _scaled(caps, scale),
        labels=(*workload.labels, f"tokens scaled by {short_number(scale)}"),
    )


def _scaled(tokens: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    longest = int(tokens.max())
    if longest * scale > MAX_TOKENS:
        raise TraceError(
            f"trace.tokens_scale={short_number(scale)} makes {longest} tokens more than {MAX_TOKENS}:"
            " write a smaller one"
        )
    return np.asarray(np.maximum(np.rint(tokens * scale), 1), dtype=np.int64)


def scale_rate(workload: Workload, factor: float, seed: int) -> Workload:
    """``factor`` times the arrivals on the same time axis; ``factor`` 1 returns the workload itself.

    Below 1 each row is kept with probability ``factor`` (a smaller factor keeps a subset of a larger one's).
    Above 1 all rows stay and each gets ``factor - 1`` copies on average, floor or ceiling of it at random. A
    copy arrives uniformly within the gap to the next row, at most 1 s late (the last row's copies: with it),
    keeps model and priority, and takes its lengths from a random row of the same model.
    Raises TraceError when ``factor`` is not above 0, nothing is left, or the result would be too large.
    """
    scale = positive_number("rate_scale", factor)
    if scale == 1.0:
        return workload
    if scale < 1.0:
        kept = stream(seed, "scale_rate/thin").random(len(workload)) < scale
        if not kept.any():
            raise TraceError(
                f"rate_scale={short_number(scale)} leaves none of the {len(workload)} requests of"
                f" {workload.name}: write a larger trace.utilization"
            )
        return workload.taking(kept, f"thinned to {short_number(scale)}x")
    if scale * len(workload) > MAX_ROWS:
        raise TraceError(
            f"rate_scale={short_number(scale)} makes more than {MAX_ROWS} requests of"
            f" {len(workload)}: write a smaller trace.utilization"
        )
    return _replicated(workload, scale, seed)


def _replicated(workload: Workload, scale: float, seed: int) -> Workload:
    whole = int(scale - 1)
    more = stream(seed, "scale_rate/copies").random(len(workload)) < scale - 1 - whole
    parent = np.repeat(np.arange(len(workload)), whole + more)
    gap_ns = np.append(np.diff(workload.arrival_ns), 0)
    jitter = stream(seed, "scale_rate/jitter").random(len(parent))
    late_ns = (jitter * np.minimum(gap_ns, MAX_JITTER_NS)[parent]).astype(np.int64)
    donor = _donors(workload, parent, stream(seed, "scale_rate/lengths"))
    arrival_ns = np.concatenate((workload.arrival_ns, workload.arrival_ns[parent] + late_ns))
    by_arrival = np.argsort(arrival_ns, kind="stable")  # at one instant, originals come before copies
    row = np.arange(len(workload))
    kin = np.concatenate((row, parent))[by_arrival]
    lengths = np.concatenate((row, donor))[by_arrival]
    caps, model, priority = workload.max_new_tokens, workload.model, workload.priority
    return replace(
        workload,
        arrival_ns=arrival_ns[by_arrival],
        prompt_tokens=workload.prompt_tokens[lengths],
        output_tokens=workload.output_tokens[lengths],
        max_new_tokens=None if caps is None else caps[lengths],
        model=None if model is None else model[kin],
        priority=None if priority is None else priority[kin],
        labels=(*workload.labels, f"replicated {short_number(scale)}x with jitter"),
    )


def _donors(
    workload: Workload, parent: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """For each copy the row that lends it prompt and output length together: any of its parent's model."""
    pick = generator.random(len(parent))
    if workload.model is None:
        return (pick * len(workload)).astype(np.int64)
    _, kind = np.unique(workload.model, return_inverse=True)
    by_kind = np.argsort(kind, kind="stable")
    count = np.bincount(kind)
    first = np.cumsum(count) - count
    place = first[kind[parent]] + (pick * count[kind[parent]]).astype(np.int64)
    return np.asarray(by_kind[place], dtype=np.int64)
