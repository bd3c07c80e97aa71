"""A production record: what monitoring has of one model's instances, as columns over common instants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from servetwin.advising.columns import (
    COLUMNS,
    FINISHED,
    LATENCIES,
    MEAN_OUTPUT,
    MEAN_PROMPT,
    OUTPUT,
    PROMPT,
    READY,
    REPLICAS,
    REQUESTS,
    RUNNING,
    WAITING,
    check_values,
)
from servetwin.advising.time_series import Floats, per_s
from serving.vocabulary.errors import UserError

_HELD_S = 300.0
"""A missing value is the last one for so long: Prometheus' own look-back."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """``at_s``: instants, in seconds since 1970 or from a start of the file's own, ascending.

    ``columns``: values at the instants, by a name of ``COLUMNS``; NaN: not known then. ``of_instances``: the
    same of each instance (instances x instants), of those columns of which the file has them. ``told``: what
    was taken for what, and what was not read, in a sentence each. ``measured``: ``ttft_p99_ms`` over the
    whole record, where its histogram is there. ``software``: the engine whose metrics they are, ``vllm`` or
    ``sglang``; "" where no name says it.
    """

    at_s: Floats
    columns: Mapping[str, Floats]
    of_instances: Mapping[str, Floats] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    software: str = ""

    @property
    def since_s(self) -> Floats:
        """The instants, counted from the first."""
        since: Floats = self.at_s - self.at_s[0]
        return since

    @property
    def step_s(self) -> float:
        """The usual time between two instants."""
        return float(np.median(np.diff(self.at_s)))

    @property
    def end_s(self) -> float:
        """How long the record is: its last instant holds for one more step."""
        return float(self.since_s[-1]) + self.step_s

    @property
    def serving(self) -> Floats:
        """The instances that take requests: ``ready``, or ``replicas`` without it."""
        known: Floats = self.columns.get(READY, self.columns[REPLICAS])
        return known

    def mean(self, column: str) -> float | None:
        """The mean of a column over the record; None: it is not known."""
        values = self.columns.get(column)
        return float(np.nanmean(values)) if values is not None and np.isfinite(values).any() else None

    def mean_length(self, tokens: str) -> float | None:
        """Mean tokens of a request; ``tokens``: ``PROMPT`` or ``OUTPUT``. None: the record lacks them."""
        own = self.mean(MEAN_PROMPT if tokens == PROMPT else MEAN_OUTPUT)
        rate, requests = self.mean(tokens), self.mean(FINISHED) or self.mean(REQUESTS)
        return own if own is not None else (rate / requests if rate and requests else None)


def with_lengths(record: Record, prompt: int, output: int) -> Record:
    """Return the record with mean lengths that somebody states, where it has none of its own."""
    columns, instants = dict(record.columns), np.ones(len(record.at_s))
    for tokens, mean, length in ((PROMPT, MEAN_PROMPT, prompt), (OUTPUT, MEAN_OUTPUT, output)):
        if tokens not in columns and mean not in columns:
            columns[mean] = instants * length
    _add_tokens(columns)
    return replace(record, columns={name: columns[name] for name in COLUMNS if name in columns})


def record_of(
    place: str,
    at_s: Floats,
    columns: Mapping[str, Floats],
    of_instances: Mapping[str, Floats],
    told: Sequence[str],
) -> Record:
    """Return the checked record, with what follows from its columns. UserError naming what is missing."""
    if len(at_s) < 2:
        raise UserError(f"{place} has fewer than two instants: save a longer time, or a smaller step")
    found, said = {name: values for name, values in columns.items() if np.isfinite(values).any()}, list(told)
    if REPLICAS not in found:
        if READY not in found:
            raise UserError(
                f"{place} has no number of instances: add kube_deployment_status_replicas, a column "
                "replicas, or a metric of each instance such as vllm:num_requests_running"
            )
        found[REPLICAS] = found[READY]
    for name in sorted(found):
        check_values(name, float(np.nanmin(found[name])), float(np.nanmax(found[name])), place)
    found = {name: values if name in LATENCIES else _held(values, at_s) for name, values in found.items()}
    _add_arrivals(found, at_s, said)
    _add_tokens(found)
    known = np.isfinite(found[REPLICAS])
    return Record(
        at_s=at_s[known],
        columns={name: found[name][known] for name in COLUMNS if name in found},
        of_instances={name: values[:, known] for name, values in of_instances.items()},
        told=tuple(said),
    )


def _held(values: Floats, at_s: Floats) -> Floats:
    """Fill what is missing by the value before, for a while; the first instant by the second (of rates)."""
    known = np.flatnonzero(np.isfinite(values))
    place = np.maximum(np.searchsorted(known, np.arange(len(values)), side="right") - 1, 0)
    age = at_s - at_s[known[place]]
    filled = np.where((age >= 0) & (age <= _HELD_S), values[known[place]], np.nan)
    if not np.isfinite(filled[0]):
        filled[0] = filled[1]
    return filled


def _add_arrivals(found: dict[str, Floats], at_s: Floats, told: list[str]) -> None:
    """Arrivals are what finished and what more is in the system, where no metric counts them."""
    if REQUESTS in found or not {FINISHED, WAITING, RUNNING} <= set(found):
        return
    steps = np.diff(at_s, prepend=at_s[0])
    ended = np.cumsum(np.nan_to_num(found[FINISHED]) * steps)
    inside = np.nan_to_num(found[WAITING] + found[RUNNING])
    found[REQUESTS] = per_s(np.maximum.accumulate(ended + inside), at_s)
    told.append(
        "requests_per_s: finished requests and the growth of waiting and running ones, as no metric counts "
        "arrivals"
    )


def _add_tokens(found: dict[str, Floats]) -> None:
    """Tokens per second are requests times their mean length, where only those are known."""
    for tokens, mean, requests in ((PROMPT, MEAN_PROMPT, REQUESTS), (OUTPUT, MEAN_OUTPUT, FINISHED)):
        rate = found.get(requests, found.get(REQUESTS))
        if tokens not in found and mean in found and rate is not None:
            found[tokens] = rate * found[mean]
