"""One of our runs, and what others need to compute it again: requests, step times, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from hwmodels.step_times.rows import FIXED_PER_S, StepRows
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import Prepared, execute, prepare
from traces.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NS_PER_S: Final = 1e9
RECORDED: Final = ("trace=azure_conv", "trace.limit=1000")
DRAWN: Final = ("trace=azure_conv_like", "trace.requests=1000")
# So that a single seat keeps up: a request alone takes 2.5 to 2.7 s on average.
SLOWLY: Final = {RECORDED: "trace.rate_scale=0.07", DRAWN: "trace.rate_per_s=0.35"}
ALWAYS: Final = ("model=llama3_8b", "out=unused")


@dataclass(frozen=True, slots=True)
class Job:
    """One request. ``cap``: max_new_tokens; ``output_tokens`` is at most that."""

    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    cap: int


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Seconds at which each request had its first and its last token, by request."""

    first_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OurRun:
    """A run that served every request."""

    prepared: Prepared
    jobs: tuple[Job, ...]
    times: RequestTimes
    preemptions: int

    @property
    def rows(self) -> StepRows:
        """Step times of the one model."""
        rows = self.prepared.hardware.rows
        assert isinstance(rows, StepRows)
        return rows


def trace_words() -> tuple[str, ...]:
    """The first 1,000 requests of the Azure conversation trace; without the file drawn ones like them."""
    try:
        prepare(load_config([*RECORDED, *ALWAYS, "cluster=a100_x1"], "simulate"))
    except TraceError:
        return DRAWN
    return RECORDED


def our_run(*words: str, topology: Path | None = None) -> OurRun:
    """Simulate; the words say cluster, engine and trace. ``topology``: other links than the cluster's."""
    config = load_config([*ALWAYS, *words], "simulate")
    if topology is not None:
        config = replace(config, cluster=replace(config.cluster, topology=str(topology)))
    prepared = prepare(config)
    workload = prepared.workload
    caps = np.broadcast_to(prepared.limits.caps, len(workload))
    jobs = tuple(
        Job(int(arrival), int(prompt), min(int(output), int(cap)), int(cap))
        for arrival, prompt, output, cap in zip(
            workload.arrival_ns, workload.prompt_tokens, workload.output_tokens, caps, strict=True
        )
    )
    columns = execute(prepared).columns
    order = np.argsort(columns["request"])
    assert len(order) == len(jobs), "a request was not served"
    times = RequestTimes(columns["first_token_ns"][order] / NS_PER_S, columns["finish_ns"][order] / NS_PER_S)
    return OurRun(prepared, jobs, times, int(columns["preemptions"].sum()))


def step_s(rows: StepRows, decodes: Sequence[int], chunks: Sequence[tuple[int, int, int]] = ()) -> float:
    """Seconds of a step, ours for all: ``decodes`` are contexts, ``chunks`` (request, start, tokens)."""
    total, count = sum(decodes), len(decodes)
    spread = count * max(decodes, default=0) - total
    if chunks:
        return rows.mixed(count, total, chunks, spread) / FIXED_PER_S
    return rows.decode_cost(count, total + rows.shift(count, spread)) / FIXED_PER_S
