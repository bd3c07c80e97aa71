"""A trace by name: the one entry point for commands."""

import os
from collections.abc import Mapping

from traces.azure import read_azure
from traces.checks import positive_number
from traces.errors import TraceError
from traces.find import find_trace
from traces.llmservingsim import read_llmservingsim
from traces.scaling import scale_tokens
from traces.synthesis import CONV_RATE_PER_S, CONV_REQUESTS, azure_conv_like
from traces.workload import Workload


def load(
    name: str,
    *,
    path: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    tokens_scale: float = 1.0,
    seed: int = 0,
    rate_per_s: float | None = None,
    requests: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Workload:
    """The workload ``name``: ``azure_conv_like`` is drawn from ``seed``, all others are read from a file.

    path: a file instead of the search. limit: only the first requests. tokens_scale: factor on every length.
    rate_per_s, requests: of the synthetic trace only (default: those of the file it stands in for).
    Raises TraceError on an unknown name, a missing or damaged file, or an option that does not apply.
    """
    positive_number("trace.tokens_scale", tokens_scale)  # before a long read, not after it
    if name == "azure_conv_like":
        workload = _synthetic(name, path, seed, rate_per_s, requests)
        if limit is not None:
            workload = workload.limited(limit)
    else:
        for key, value in (("rate_per_s", rate_per_s), ("requests", requests)):
            if value is not None:
                raise TraceError(
                    f"trace.{key}={value} does not apply to the file trace {name}:"
                    " leave it out (limit and the rate scale do), or write trace=azure_conv_like"
                )
        found = find_trace(name, path, environ=environ)
        read = read_llmservingsim if name.startswith("sharegpt_") else read_azure
        workload = read(found.path, name=found.name, limit=limit)
    return scale_tokens(workload, tokens_scale)


def _synthetic(
    name: str, path: str | os.PathLike[str] | None, seed: int, rate_per_s: float | None, requests: int | None
) -> Workload:
    if path is not None:
        raise TraceError(f"trace.path={path} does not apply to the synthetic trace {name}: leave it out")
    return azure_conv_like(
        seed,
        CONV_REQUESTS if requests is None else requests,
        CONV_RATE_PER_S if rate_per_s is None else rate_per_s,
    )
