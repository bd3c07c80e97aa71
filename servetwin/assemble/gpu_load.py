"""The load of a run's GPUs: work done over capacity. GPUs can be busy at a low load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from servetwin.assemble.hosted import HostedModel, codes_of
from serving.vocabulary.estimates import Estimates
from traces.workload import Workload

CACHED_TOKENS = "cached_tokens"
"""Column of requests.parquet: prompt tokens that a request found computed."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def full_batch_gpu_s(
    hosted: Sequence[HostedModel], estimates: Estimates, code: Ints, prompt_tokens: Ints, output_tokens: Ints
) -> tuple[Floats, Floats]:
    """Return each request's GPU seconds in full prefill batches and in full decode batches of its model.

    ``code``: the index of each request's model in ``hosted``.
    """
    pairs = list(zip(hosted, estimates.models, strict=True))
    prefill = np.array([model.gpus / entry.prefill_tokens_per_s for model, entry in pairs])
    decode = np.array([model.gpus * entry.decode_step_s / entry.decode_sequences for model, entry in pairs])
    if len(pairs) == 1:  # a column of equal numbers would be as large as the result
        return prompt_tokens * prefill[0], output_tokens * decode[0]
    return prompt_tokens * prefill[code], output_tokens * decode[code]


def gpu_load_share(
    hosted: Sequence[HostedModel],
    estimates: Estimates,
    workload: Workload,
    columns: Mapping[str, NDArray[np.int64]],
    gpu_seconds: float,
) -> float | None:
    """Return full-batch GPU seconds of finished work over GPU seconds held; None if none were held.

    Prompt tokens that were found in the cache are not work.
    """
    if not gpu_seconds:
        return None
    prompt, decode = work_gpu_s(hosted, estimates, workload, columns)
    return float(prompt.sum() + decode.sum()) / gpu_seconds


def prompt_gpu_s(
    hosted: Sequence[HostedModel],
    estimates: Estimates,
    workload: Workload,
    columns: Mapping[str, NDArray[np.int64]],
) -> float:
    """Return full-batch GPU seconds of the prompt tokens computed for finished requests."""
    return float(work_gpu_s(hosted, estimates, workload, columns)[0].sum())


def work_gpu_s(
    hosted: Sequence[HostedModel],
    estimates: Estimates,
    workload: Workload,
    columns: Mapping[str, NDArray[np.int64]],
) -> tuple[Floats, Floats]:
    """Return the full-batch GPU seconds of each finished request's prompt, and those of its output."""
    code = codes_of(workload, hosted)[columns["request"]]
    computed = columns["prompt_tokens"] - columns.get(CACHED_TOKENS, np.int64(0))
    return full_batch_gpu_s(hosted, estimates, code, computed, columns["output_tokens"])
