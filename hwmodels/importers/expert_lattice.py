"""Expert times over tokens and activated experts: completed if only balanced loads were measured."""

from typing import Final

import numpy as np

from hwmodels.gpus.gpu import Gpu
from hwmodels.profiles.profile import Floats, Lattice

# A least-recently-used cache keeps a part of data a little larger than itself: up to twice its size, times
# bend away from the line of reading from memory. (In the moe.csv and moe_perf tables of the RTX PRO 6000,
# whose cache has 134 MB, 8 experts of 9.4 MB take 25 us less than that line, 32 of 4.7 MB 16 us less.)
CACHE_FACTOR: Final = 2.0


def balanced_lattice(tokens: Floats, seconds: Floats, per_token: int, count: int, ranks: int) -> Lattice:
    """The lattice from a curve over tokens whose choices were spread evenly over all ``count`` experts.

    Up to count / per_token tokens each token activates ``per_token`` more experts: the time of reading that
    many. Beyond, all are activated, and the growth of the time is the work of the tokens. With fewer
    activated experts than balanced choices have, the time is that of reading them plus that work.
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
    some = ~np.isnan(values).all(axis=1)  # fewer tokens than give every rank an expert are not usable
    axes = (tuple(int(count) for count in tokens[some]), tuple(int(count) for count in experts[kept]))
    return Lattice(axes, values[some])


def from_memory(lattice: Lattice, expert_bytes: float, gpu: Gpu) -> tuple[Lattice, tuple[str, ...]]:
    """Times of reading few experts from memory, not from the cache that repeated measurements hit.

    A step reads all layers, so no layer finds its experts in the cache. Numbers of experts whose weights the
    cache may hold get the value of the line through the next two larger numbers, at least the measured one.
    If there are no two larger ones they stay, with a note.
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
