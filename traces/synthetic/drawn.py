"""Drawn workloads: arrivals and lengths put together, or put in the place of a trace's own."""

import math
from collections.abc import Callable
from inspect import signature
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.checks import positive_number, whole_number
from traces.columns import Names
from traces.errors import TraceError
from traces.streams import stream
from traces.synthetic.arrivals import PROCESSES
from traces.synthetic.length_tables import fixed_lengths, length_pair
from traces.synthetic.lengths import draw_lengths
from traces.workload import MAX_ROWS, NS_PER_S, Workload

DEFAULT_REQUESTS: Final = 10_000
"""Rows of a drawn trace unless it has another end: those of every trace in the Llumnix paper."""
MOST_IN_A_DURATION: Final = 20_000_000
"""Most rows drawn because a duration has so many, about 1 GB of columns; more take a stated count."""
Arrivals = tuple[NDArray[np.int64], NDArray[np.int32] | None]
"""Arrivals in ns, not falling, and whose they are (None: nobody's); fewer are the first of more."""


def recipe(name: str, seed: int, parameters: dict[str, Any]) -> str:
    """``synthetic NAME seed=1 requests=10 ...``: what gives these rows again, numbers to the last digit."""
    words = " ".join(f"{key}={_exact(value)}" for key, value in {"seed": seed, **parameters}.items())
    return f"synthetic {name} {words}"


def _exact(value: Any) -> str:
    """A value as it is typed on a command line: ``2`` for 2.0, no blanks in a list."""
    if isinstance(value, str):
        return "".join(value.split())
    short = format(value, ".12g")
    return short if float(short) == float(value) else repr(float(value))


def drawn_workload(
    name: str,
    seed: int,
    *,
    arrival_ns: NDArray[np.int64],
    lengths: str,
    label: str,
    parameters: dict[str, Any],
    model: Names | None = None,
) -> Workload:
    """The workload of drawn arrivals (ns, not falling) with independent lengths from the pair ``lengths``.

    label: what it stands in for. parameters: those of its function, in order, without those that are None;
    with a ``duration_s`` above 0 arrivals from then on are cut off. model: one per arrival or None.
    Raises TraceError when lengths are unknown or nothing is left.
    """
    rows_within = slice(0, _within(arrival_ns, parameters))
    rows = len(arrival_ns[rows_within])
    prompt, output = length_pair(lengths)
    return Workload(
        arrival_ns=arrival_ns[rows_within],
        prompt_tokens=draw_lengths(prompt, stream(seed, f"{name}/prompt_tokens"), rows),
        output_tokens=draw_lengths(output, stream(seed, f"{name}/output_tokens"), rows),
        name=name,
        source=recipe(name, seed, {key: value for key, value in parameters.items() if value is not None}),
        model=None if model is None else model.taking(rows_within),
        labels=(label,),
        rows_read=rows,
    )


def _within(arrival_ns: NDArray[np.int64], parameters: dict[str, Any]) -> int:
    """How many arrivals come before ``duration_s`` (0: no end but that of the requests)."""
    duration_s = parameters.get("duration_s", 0)
    if duration_s == 0 and not isinstance(duration_s, bool):
        return len(arrival_ns)
    end_ns = positive_number("duration_s", duration_s) * NS_PER_S
    count = int(np.searchsorted(arrival_ns, end_ns, side="left"))
    if count == 0:
        raise TraceError(f"duration_s={duration_s!r} ends before the first arrival: write a longer one")
    return count


def drawn_to_the_end(
    draw: Callable[[int], Arrivals],
    requests: int | None,
    duration_s: float,
    expected: Callable[[float], float],
    default: int = DEFAULT_REQUESTS,
) -> tuple[int | None, Arrivals]:
    """(what ``requests`` was drawn, None: as many as there are; the arrivals, up to or beyond the end).

    draw: so many arrivals. requests: None is ``default``, or no limit with a ``duration_s`` above 0.
    expected: about how many arrivals come within so many seconds. Raises TraceError when a duration without
    ``requests`` has more than ``MOST_IN_A_DURATION``.
    """
    if requests is not None or (duration_s == 0 and not isinstance(duration_s, bool)):
        count = count_of(default if requests is None else requests)
        return count, draw(count)
    end_s = positive_number("duration_s", duration_s)
    wanted = expected(end_s)
    most = 2 * MOST_IN_A_DURATION
    count = math.ceil(wanted + 6.0 * math.sqrt(wanted) + 1.0) if wanted <= MOST_IN_A_DURATION else most + 1
    while count <= most:
        arrivals = draw(count)
        if arrivals[0][-1] >= end_s * NS_PER_S:
            return None, arrivals
        count *= 2
    raise TraceError(
        f"duration_s={duration_s!r} has more than {MOST_IN_A_DURATION} requests at these rates: write a"
        " shorter one or a lower rate, or state trace.requests too"
    )


def count_of(requests: int) -> int:
    """``requests`` as a checked number of rows; TraceError otherwise."""
    return whole_number("trace.requests", requests, 1, MAX_ROWS)


def with_lengths(workload: Workload, lengths: str, seed: int) -> Workload:
    """The same arrivals with prompt and output lengths drawn, independently, from the pair ``lengths``.

    What spoke of the old prompts goes: caps, prefix blocks, images, recorded durations. Raises TraceError.
    """
    prompt, output = length_pair(lengths)
    return workload.labelled(
        f"lengths drawn from {lengths}",
        prompt_tokens=draw_lengths(prompt, stream(seed, "with_lengths/prompt_tokens"), len(workload)),
        output_tokens=draw_lengths(output, stream(seed, "with_lengths/output_tokens"), len(workload)),
        max_new_tokens=None,
        prefix=None,
        images=None,
        source_duration_ns=None,
    )


def with_uniform_lengths(workload: Workload, lengths: str, ratio: float, seed: int) -> Workload:
    """The same arrivals with lengths as benchmark clients draw them: uniform whole numbers of [ratio L, L].

    lengths: both L in tokens, such as ``1024x1024``; prompt and output have a stream each. The least length
    is ``int(ratio * L)``, as in ``sample_uniform`` of InferenceX's utils/bench_serving/benchmark_serving.py
    (github.com/SemiAnalysisAI/InferenceX, Apache-2.0), and at least 1. Each request asks for exactly its
    output (``ignore_eos``), so that is its ``max_new_tokens``. Raises TraceError.
    """
    fixed = fixed_lengths(lengths)
    if fixed is None:
        raise TraceError(
            f"trace.length_ratio={ratio:g} draws lengths below two in tokens, and lengths={lengths} names "
            "none: write lengths such as trace.lengths=1024x1024"
        )
    if not 0 < ratio <= 1:
        raise TraceError(f"length_ratio={ratio:g} is out of range: write a number above 0 and at most 1")
    columns, told = {}, []
    for name, most in zip(("prompt_tokens", "output_tokens"), fixed):
        least = max(1, int(most * ratio))
        draws = stream(seed, f"with_uniform_lengths/{name}")
        columns[name] = draws.integers(least, most, size=len(workload), endpoint=True)
        told.append(f"{least} to {most}")
    return workload.labelled(
        f"lengths drawn uniformly: prompts of {told[0]} tokens, outputs of {told[1]}",
        **columns,
        max_new_tokens=columns["output_tokens"],
        prefix=None,
        images=None,
        source_duration_ns=None,
    )


def with_arrivals(workload: Workload, seed: int, process: str = "poisson", **parameters: Any) -> Workload:
    """The same requests in the same order with arrivals drawn from ``process``, for traces that have none.

    process: a name of ``arrivals.PROCESSES``; parameters: as its function takes them (rate_per_s,
    gap_cv, ...). Recorded durations go, they belong to the old load. Raises TraceError on an unknown name.
    """
    if process not in PROCESSES:
        raise TraceError(f"arrivals={process!r} is unknown: write one of {', '.join(PROCESSES)}")
    own = list(signature(PROCESSES[process]).parameters)[3:]  # after seed, name and requests
    for key in parameters:
        if key not in own:
            raise TraceError(f"arrivals={process} has no parameter {key}: write only {', '.join(own)}")
    arrival_ns = PROCESSES[process](seed, "with_arrivals", len(workload), **parameters)
    words = "".join(f" {key}={_exact(value)}" for key, value in parameters.items())
    return workload.labelled(
        f"arrivals drawn: {process}{words}", arrival_ns=arrival_ns, source_duration_ns=None
    )
