"""The load of every engine at regular instants, under the names of vLLM's own metrics.

Computed after the run from its request columns and the records of the sink (``series_sink``). The result does
not depend on how decode steps were divided into runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from servetwin.results.series_sink import (
    GONE,
    MOVE_FIELDS,
    NO_ENGINE,
    READING_FIELDS,
    RUNNING,
    STEPS_BETWEEN,
    STEPS_UNKNOWN,
    WAITING,
    SeriesSink,
)

if TYPE_CHECKING:
    from array import array

    from traces.columns import Names

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[np.generic]]

TIME: Final = "time_s"
ENGINE: Final = "engine"
# vllm/v1/metrics/loggers.py, with Prometheus's names: a counter's name ends with _total.
RUNNING_GAUGE: Final = "vllm:num_requests_running"
WAITING_GAUGE: Final = "vllm:num_requests_waiting"
KV_GAUGE: Final = "vllm:kv_cache_usage_perc"
PREEMPTIONS: Final = "vllm:num_preemptions_total"
PREFIX_QUERIES: Final = "vllm:prefix_cache_queries_total"
PREFIX_HITS: Final = "vllm:prefix_cache_hits_total"
PROMPT_TOKENS: Final = "vllm:prompt_tokens_total"
GENERATION_TOKENS: Final = "vllm:generation_tokens_total"
SUCCESSES: Final = "vllm:request_success_total"
# Gauges of vLLM v0 and the two numbers that v1 logs; tokens of the period that has just ended.
PROMPT_RATE: Final = "vllm:avg_prompt_throughput_toks_per_s"
GENERATION_RATE: Final = "vllm:avg_generation_throughput_toks_per_s"
_NS_PER_S: Final = 1_000_000_000
_WHOLE: Final = 1e-6  # tokens; rounding error of sums of shares is smaller


@dataclass(frozen=True, slots=True)
class Grid:
    """Instants 0, period, 2 * period, ... up to the first at or after the end, and engines by id."""

    period_ns: int
    instants_ns: Ints
    engines: Ints

    def sums(self, times_ns: Ints, engines: Ints, amounts: NDArray[np.generic] | int) -> Floats:
        """Return [instant, engine] -> sum of that engine's amounts up to and including that instant."""
        rows, width = len(self.instants_ns), len(self.engines)
        row = -(-times_ns // self.period_ns)
        cell = row * width + np.searchsorted(self.engines, engines)
        seen = row < rows
        weights = np.broadcast_to(np.asarray(amounts, dtype=np.float64), times_ns.shape)
        flat = np.bincount(cell[seen], weights=weights[seen], minlength=rows * width)
        sums: Floats = flat.reshape(rows, width).cumsum(axis=0)
        return sums


@dataclass(frozen=True, slots=True)
class Stays:
    """When and where requests waited and ran: one row per stay, times in ns, in order of request."""

    request: Ints
    engine: Ints
    state: Ints
    begin_ns: Ints
    end_ns: Ints


def series_of(
    sink: SeriesSink, columns: dict[str, NDArray[np.generic]], end_s: float
) -> dict[str, NDArray[np.generic] | Names]:
    """Return one row per instant and engine, in this order; engine -1: requests not yet assigned.

    Adds ``scheduled_ns`` to the requests' ``columns``: when the first step of each began.
    """
    columns["scheduled_ns"] = scheduled_ns(sink, columns)
    stays = stays_of(sink, columns, round(end_s * _NS_PER_S))
    lasting = stays.end_ns > stays.begin_ns
    grid = grid_of(sink, stays, end_s)
    period_ns, instants, engines = grid.period_ns, grid.instants_ns, grid.engines
    by_name = {
        RUNNING_GAUGE: _at_once(grid, stays, lasting & (stays.state == RUNNING)),
        WAITING_GAUGE: _at_once(grid, stays, lasting & (stays.state == WAITING)),
        KV_GAUGE: kv_usage(grid, sink),
        **_counters(grid, sink, columns, stays),
    }
    seconds = period_ns / _NS_PER_S
    for rate, counter in ((PROMPT_RATE, PROMPT_TOKENS), (GENERATION_RATE, GENERATION_TOKENS)):
        by_name[rate] = np.diff(by_name[counter], axis=0, prepend=0.0) / seconds
    whole = {RUNNING_GAUGE, WAITING_GAUGE, *(name for name in by_name if name.endswith("_total"))}
    return {
        TIME: np.repeat(instants / _NS_PER_S, len(engines)),
        ENGINE: np.tile(engines, len(instants)),
        **{name: _flat(values, name in whole) for name, values in by_name.items()},
    }


def grid_of(sink: SeriesSink, stays: Stays, end_s: float) -> Grid:
    """Return the instants and engines of the series; NO_ENGINE if requests wait without an engine."""
    unassigned = bool(((stays.end_ns > stays.begin_ns) & (stays.engine == NO_ENGINE)).any())
    engines = np.array(([NO_ENGINE] if unassigned else []) + sorted(sink.engines), dtype=np.int64)
    period_ns = max(1, round(sink.period_s * _NS_PER_S))
    instants = np.arange(-(-round(end_s * _NS_PER_S) // period_ns) + 1, dtype=np.int64) * period_ns
    return Grid(period_ns, instants, engines)


def scheduled_ns(sink: SeriesSink, columns: Columns) -> Ints:
    """Return when the first step of every finished request began, in the order of ``columns``."""
    moves = _fields(sink.moves, MOVE_FIELDS)
    begun = moves["state"] == RUNNING
    request, first = np.unique(moves["request"][begun], return_index=True)
    index = np.searchsorted(request, np.asarray(columns["request"], dtype=np.int64))
    counts: Ints = moves["now_ns"][begun][first][index]
    return counts


def stays_of(sink: SeriesSink, columns: Columns, end_ns: int) -> Stays:
    """Return the stays: from each move of a request to its next, the last one to its finish or loss."""
    moves = _fields(sink.moves, MOVE_FIELDS)
    order = np.argsort(moves["request"], kind="stable")
    request, begin = moves["request"][order], moves["now_ns"][order]
    last = np.append(request[1:] != request[:-1], True)[: len(request)]
    end = np.append(begin[1:], end_ns)[: len(begin)]
    end[last] = _finishes(columns, request[last], end_ns)
    keep = moves["state"][order] != GONE
    engine, state = moves["engine"][order], moves["state"][order]
    return Stays(request[keep], engine[keep], state[keep], begin[keep], end[keep])


def _finishes(columns: Columns, requests: Ints, otherwise_ns: int) -> Ints:
    known = np.asarray(columns["request"], dtype=np.int64)
    finish = np.asarray(columns["finish_ns"], dtype=np.int64)
    if not len(known):
        return np.full(len(requests), otherwise_ns, dtype=np.int64)
    index = np.minimum(np.searchsorted(known, requests), len(known) - 1)
    return np.where(known[index] == requests, finish[index], otherwise_ns)


def _at_once(grid: Grid, stays: Stays, rows: NDArray[np.bool_]) -> Floats:
    """Count the stays in progress at each instant; a stay that ends then does not count."""
    engine = stays.engine[rows]
    return grid.sums(stays.begin_ns[rows], engine, 1) - grid.sums(stays.end_ns[rows], engine, 1)


def kv_usage(grid: Grid, sink: SeriesSink) -> Floats:
    """Return the share of blocks in use. Steps between two readings are assumed equally long."""
    readings = _fields(sink.readings, READING_FIELDS)
    usage = np.zeros((len(grid.instants_ns), len(grid.engines)))
    for column, engine in enumerate(grid.engines.tolist()):
        mine = readings["engine"] == engine
        if mine.any():
            ledger = sink.engines[engine].ledger
            engine_readings = {name: values[mine] for name, values in readings.items()}
            used = _blocks_at(grid.instants_ns, engine_readings, ledger.block_tokens)
            usage[:, column] = np.minimum(used, ledger.total_blocks) / ledger.total_blocks
    return usage


def _blocks_at(instants_ns: Ints, readings: Mapping[str, Ints], block_tokens: int) -> Floats:
    """Return the blocks that one engine's requests hold."""
    times, used, growing, steps_done = _with_changes(readings, block_tokens)
    at = np.searchsorted(times, instants_ns, side="right") - 1
    now, after = np.maximum(at, 0), np.minimum(at + 1, len(times) - 1)
    lasts = np.maximum(times[after] - times[now], 1)
    between = np.where(steps_done[after] == STEPS_UNKNOWN, 0, steps_done[after] - steps_done[now])
    steps = between * ((instants_ns - times[now]) / lasts)
    return np.where(at < 0, 0.0, used[now] + growing[now] * steps / block_tokens)


def _with_changes(readings: Mapping[str, Ints], block_tokens: int) -> tuple[Ints, Floats, Floats, Floats]:
    """Return times, used blocks, growing requests and steps of an engine, with changes made readings."""
    times = readings["now_ns"]
    used, growing, steps = (
        readings[name].astype(np.float64) for name in ("used_blocks", "growing", "steps_done")
    )
    whole = np.flatnonzero(steps != STEPS_BETWEEN)
    for row in np.flatnonzero(steps == STEPS_BETWEEN).tolist():
        before = row - 1  # exists: the ledger is read when a stage begins
        index = int(np.searchsorted(whole, row))
        after = int(whole[index]) if index < len(whole) and steps[whole[index]] != STEPS_UNKNOWN else before
        steps[row] = steps[after]
        if steps[before] != STEPS_UNKNOWN:
            share = (times[row] - times[before]) / max(int(times[after] - times[before]), 1)
            steps[row] = steps[before] + (steps[after] - steps[before]) * share
            used[row] += growing[before] * (steps[row] - steps[before]) / block_tokens
        used[row] += used[before]
        growing[row] += growing[before]
    return times, used, growing, steps


def _counters(grid: Grid, sink: SeriesSink, columns: Columns, stays: Stays) -> dict[str, Floats]:
    """Return sums since the start. A request's tokens count at the engine where the request finished."""
    first, finish, replica, prompt, output = (
        np.asarray(columns[name], dtype=np.int64)
        for name in ("first_token_ns", "finish_ns", "replica", "prompt_tokens", "output_tokens")
    )
    preempted = np.frombuffer(sink.preempted, dtype=np.int64).reshape(-1, 2)
    asked_ns, engine, looks, hits = _first_looks(sink)
    return {
        PREEMPTIONS: grid.sums(preempted[:, 0], preempted[:, 1], 1),
        PREFIX_QUERIES: grid.sums(asked_ns, engine, looks),
        PREFIX_HITS: grid.sums(asked_ns, engine, hits),
        PROMPT_TOKENS: grid.sums(first, replica, prompt),
        GENERATION_TOKENS: _generated_tokens(grid, first, finish, replica, output),
        SUCCESSES: grid.sums(finish, replica, 1),
    }


def _first_looks(sink: SeriesSink) -> tuple[Ints, Ints, Ints, Ints]:
    """Return when and where each request first ran, its prompt tokens, and those found in the cache."""
    moves = _fields(sink.moves, MOVE_FIELDS)
    came, begun = moves["engine"] == NO_ENGINE, moves["state"] == RUNNING
    came &= moves["state"] == WAITING
    request, first = np.unique(moves["request"][begun], return_index=True)
    arrived, row = np.unique(moves["request"][came], return_index=True)
    prompt = moves["tokens"][came][row][np.searchsorted(arrived, request)]
    now_ns, engine, values = (moves[name][begun][first] for name in ("now_ns", "engine", "tokens"))
    return now_ns, engine, prompt, values


def _generated_tokens(grid: Grid, first: Ints, finish: Ints, replica: Ints, output: Ints) -> Floats:
    """Spread a request's tokens after the first evenly up to its last."""
    decode_ns = np.maximum(finish - first, 1)
    slope = np.where(finish > first, (output - 1) / decode_ns, 0.0)
    at_once = np.where(finish > first, 0, output - 1)
    whole = grid.sums(first, replica, 1 + at_once) + grid.sums(finish, replica, output - 1 - at_once)
    slopes = grid.sums(first, replica, slope) - grid.sums(finish, replica, slope)
    starts = grid.sums(first, replica, slope * first) - grid.sums(finish, replica, slope * first)
    tokens = whole + slopes * grid.instants_ns[:, None] - starts
    grown: Floats = np.maximum.accumulate(np.floor(tokens + _WHOLE), axis=0)
    return grown


def _fields(numbers: array[int], names: tuple[str, ...]) -> dict[str, Ints]:
    rows = np.frombuffer(numbers, dtype=np.int64).reshape(-1, len(names))
    return {name: rows[:, at] for at, name in enumerate(names)}


def _flat(values: Floats, whole: bool) -> NDArray[np.generic]:
    return np.rint(values).astype(np.int64).ravel() if whole else values.ravel()
