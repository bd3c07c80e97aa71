"""Expert times over tokens and activated experts: made whole where only balanced loads were measured."""

from typing import Final

import numpy as np

from hwmodels.gpu import Gpu
from hwmodels.profile import Floats, Lattice

# Least-recently-used caches keep some of what is a little larger than they are: up to twice their size times
# bend away from the line of reading from memory (the moe.csv and moe_perf tables of the RTX PRO 6000, where
# 8 experts of 9.4 MB take 25 us less than that line, 32 of 4.7 MB 16 us less; its cache has 134 MB).
CACHE_FACTOR: Final = 2.0


def balanced_lattice(tokens: Floats, seconds: Floats, per_token: int, count: int, ranks: int) -> Lattice:
    """From a curve over tokens whose choices were spread evenly over all ``count`` experts.

    Up to count / per_token tokens each of them activates ``per_token`` experts more: the time of reading so
    many. Beyond, all are activated, and what the time grows by is the work of the tokens. Fewer activated
    experts than balanced choices have take the time of reading them, and that work.
    """
    full = count / per_token
    reading = tokens <= full
    experts = per_token * tokens[reading] / ranks
    whole_s = float(np.interp(full, tokens, seconds))
    work_s = np.maximum.accumulate(np.where(reading, 0.0, seconds - whole_s).clip(min=0.0))
    values = seconds[reading][None, :] + work_s[:, None]
    values[per_token * tokens[:, None] < experts[None, :] * ranks - 1e-9] = np.nan
    kept = (experts >= 1.0) & (experts == np.floor(experts))
    values = values[:, kept]
    some = ~np.isnan(values).all(axis=1)  # fewer tokens than give every rank an expert tell nothing
    axes = (tuple(int(count) for count in tokens[some]), tuple(int(count) for count in experts[kept]))
    return Lattice(axes, values[some])


def from_memory(lattice: Lattice, expert_bytes: float, gpu: Gpu) -> tuple[Lattice, tuple[str, ...]]:
    """Times of reading few experts from memory, not from the cache in which repeated measurements find them.

    A step reads all layers, so that no layer finds its experts there. Numbers of experts whose weights the
    cache may hold take what the line through the next two larger numbers says, at least what was measured.
    Where there are no two larger ones they stay, and a note says so.
    """
    if gpu.l2_cache_bytes is None:
        return lattice, ()
    experts = np.array(lattice.axes[1], dtype=np.float64)
    held = experts * expert_bytes <= CACHE_FACTOR * gpu.l2_cache_bytes
    cached = int(held.sum())
    if not cached:
        return lattice, ()
    small = ", ".join(str(count) for count in lattice.axes[1][:cached])
    size = f"{gpu.l2_cache_bytes / 1e6:.0f} MB of cache"
    if cached > len(experts) - 2:
        return lattice, (f"experts: times of {small} activated experts may be of weights in the {size}",)
    values = lattice.values.copy()
    first, second = cached, cached + 1
    slope = (values[:, second] - values[:, first]) / (experts[second] - experts[first])
    known = np.flatnonzero(~np.isnan(slope))
    slope[: known[0]] = slope[known[0]]
    start = values[:, first].copy()
    start[: known[0]] = np.where(np.isnan(start[: known[0]]), values[known[0], first], start[: known[0]])
    for column in range(cached):
        line = start - slope * (experts[first] - experts[column])
        values[:, column] = np.fmax(values[:, column], np.where(np.isnan(values[:, column]), np.nan, line))
    note = f"experts: {small} activated ones were measured in the {size} or partly: the line of more goes on"
    return Lattice(lattice.axes, values), (note,)
