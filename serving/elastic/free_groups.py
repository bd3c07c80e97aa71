"""Groups of GPUs on which replicas could be started, as sets of bits: which are free, and their numbers.

Bit g of a set stands for the group that begins at GPU g. A set is one integer: it takes one bit for a GPU,
and does not change once it was handed out.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from serving.parameters.cluster_map import ClusterMap

NO_OWNER = -1


class Run(NamedTuple):
    """Groups with consecutive numbers, in order of their GPUs; ``start``: the number of the first."""

    start: int
    groups: int

    def number_of(self, first: int) -> int:
        """The number of the group that begins at this GPU."""
        return self.start + (self.groups & ((1 << first) - 1)).bit_count()


def firsts_of(groups: int) -> list[int]:
    """The first GPUs of these groups, ascending."""
    return [gpu for gpu, bit in enumerate(reversed(f"{groups:b}")) if bit == "1"]


def span(first: int, stop: int) -> int:
    """The set of all groups that begin at a GPU from ``first`` on and before ``stop``."""
    return ((1 << stop) - 1) ^ ((1 << first) - 1)


def _nth(groups: int, place: int) -> int:
    """The first GPU of the group at this place, from 0; halves the set at each step."""
    first, width = 0, groups.bit_length()
    while width > 1:
        half = width >> 1
        low = groups & ((1 << half) - 1)
        count = low.bit_count()
        if place < count:
            groups, width = low, half
        else:
            place -= count
            groups >>= half
            first += half
            width -= half
    return first


class FreeGroups:
    """The free groups of each size that was asked for. ``owner``: of each GPU (not a copy)."""

    __slots__ = ("_cluster", "_counts", "_free", "_owner")

    def __init__(self, cluster: ClusterMap, owner: Sequence[int]) -> None:
        self._cluster, self._owner = cluster, owner
        self._free: dict[int, int] = {}  # GPUs of a group -> the free groups
        self._counts: dict[int, int] = {}

    def of(self, size: int) -> int:
        """The free groups of ``size`` GPUs; kept up to date after the first call."""
        free = self._free.get(size)
        if free is None:
            free = 0
            for region in self._cluster.regions(size):
                for first in range(region.start, region.stop - size + 1, size):
                    free |= int(self._is_free(first, size)) << first
            self._free[size], self._counts[size] = free, free.bit_count()
        return free

    def count(self, size: int) -> int:
        """Number of free groups of ``size`` GPUs."""
        if size not in self._counts:
            self.of(size)
        return self._counts[size]

    def any(self) -> bool:
        """Whether there is a free group of any size that was asked for."""
        return any(self._counts.values())

    def update(self, gpus: Sequence[int]) -> None:
        """Note that these GPUs were occupied, freed or lost."""
        for size, free in self._free.items():
            for gpu in gpus:
                region = self._cluster.region_of(gpu, size)
                first = region.start + (gpu - region.start) // size * size
                if first + size <= region.stop and self._is_free(first, size):
                    free |= 1 << first
                elif free >> first & 1:
                    free ^= 1 << first
            self._free[size], self._counts[size] = free, free.bit_count()

    def _is_free(self, first: int, size: int) -> bool:
        return all(owner == NO_OWNER for owner in self._owner[first : first + size])


class SlotNumbers:
    """The number that a replica has on a group of GPUs, for each model.

    When a model looks for GPUs, its free groups without a number get the next numbers, in order of their
    GPUs: a run. A replica started on the same group again has the same number.
    """

    __slots__ = ("_next", "_numbered", "_runs", "_runs_of", "_starts")

    def __init__(self) -> None:
        self._runs_of: dict[str, list[Run]] = {}  # by model, ascending
        self._numbered: dict[str, int] = {}  # model -> groups that have numbers
        self._starts: list[int] = []  # of all runs, ascending
        self._runs: list[tuple[str, Run]] = []  # the same runs, with their models
        self._next = 0

    def number(self, model: str, groups: int) -> Sequence[Run]:
        """Give numbers to those of these groups that have none; returns the model's runs, ascending."""
        numbered = self._numbered.get(model, 0)
        new = groups & ~numbered
        runs = self._runs_of.setdefault(model, [])
        if new:
            run = Run(self._next, new)
            runs.append(run)
            self._starts.append(self._next)
            self._runs.append((model, run))
            self._numbered[model] = numbered | new
            self._next += new.bit_count()
        return runs

    def place_of(self, number: int) -> tuple[str, int]:
        """The model and the first GPU of a number that was given."""
        model, run = self._runs[bisect_right(self._starts, number) - 1]
        return model, _nth(run.groups, number - run.start)


class Offer:
    """Free groups of one model, as they were when it looked for GPUs. ``size``: GPUs of a group."""

    __slots__ = ("_runs", "groups", "size")

    def __init__(self, groups: int, runs: Sequence[Run], size: int) -> None:
        self.groups, self._runs, self.size = groups, runs, size

    def first(self, count: int, among: int, besides: frozenset[int]) -> list[tuple[int, int]]:
        """(number, first GPU) of up to ``count`` groups in the set ``among``, by number, not ``besides``."""
        found = list[tuple[int, int]]()
        among &= self.groups
        for run in self._runs:
            left = run.groups & among
            while left:
                if len(found) == count:
                    return found
                lowest = left & -left
                left ^= lowest
                first = lowest.bit_length() - 1
                number = run.number_of(first)
                if number not in besides:
                    found.append((number, first))
        return found

    def every(self) -> list[tuple[int, int]]:
        """(number, first GPU) of every group, by number."""
        found = list[tuple[int, int]]()
        for run in self._runs:
            if run.groups & self.groups == run.groups:
                found += zip(range(run.start, run.start + run.groups.bit_count()), firsts_of(run.groups))
            else:
                numbered = enumerate(firsts_of(run.groups), run.start)
                found += [(number, first) for number, first in numbered if self.groups >> first & 1]
        return found

    def first_gpu(self, number: int) -> int:
        """The first GPU of the group with this number; -1 if it is not among these groups."""
        for run in reversed(self._runs):
            if run.start <= number:
                first = -1
                if number - run.start < run.groups.bit_count():
                    first = _nth(run.groups, number - run.start)
                return first if first >= 0 and self.groups >> first & 1 else -1
        return -1
