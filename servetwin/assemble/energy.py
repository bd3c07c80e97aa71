"""The energy of a run's GPUs, from how long they prefilled, decoded and idled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hwmodels.catalogue import gpu_power, load_gpu
from hwmodels.catalogue.stacks import is_stack
from hwmodels.gpus.power import SOURCE, decode_w, energy_j
from hwmodels.models.decode_work import flops_per_token, weight_bytes_read
from servetwin.assemble.gpu_load import gpu_load_share, prompt_gpu_s
from servetwin.assemble.hosted import HostedModel, codes_of, hosted_models
from servetwin.config.config import RunConfig
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.units import NS_PER_S
from traces.workload import Workload

_J_PER_KWH: Final = 3.6e6
Columns = Mapping[str, NDArray[np.int64]]


def use_of_gpus(
    config: RunConfig, estimates: Estimates, workload: Workload, columns: Columns, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``gpu_load_share`` and ``energy`` of summary.json."""
    hosted = hosted_models(config)
    load = gpu_load_share(hosted, estimates, workload, columns, summary["gpu_seconds"])
    energy = energy_section(
        config, hosted, estimates=estimates, workload=workload, columns=columns, summary=summary
    )
    return {"gpu_load_share": load} | energy


def energy_section(
    config: RunConfig,
    hosted: Sequence[HostedModel],
    *,
    estimates: Estimates,
    workload: Workload,
    columns: Columns,
    summary: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the ``energy`` part of summary.json; empty for a GPU of unknown power.

    Busy seconds beyond those of prompts in full batches count as decode.
    """
    power, held_s = gpu_power(config.cluster.gpu), summary["gpu_seconds"]
    busy_share = summary["gpu_busy_share"]
    if power is None or busy_share is None or not held_s:
        return {}
    busy_s = min(1.0, busy_share) * held_s
    prompt_s = min(prompt_gpu_s(hosted, estimates, workload, columns), busy_s)
    decode_s = busy_s - prompt_s
    batch = _batch(decode_s, hosted, workload, columns, config.engine.max_num_seqs)
    memory_share, tensor_share = 0.0, 0.0
    if decode_s > 0:
        gpu = load_gpu(config.cluster.gpu)
        read_bytes, flops = _decode_work(hosted, workload, columns, batch)
        memory_share = read_bytes / decode_s / gpu.memory_bandwidth_bytes_per_s
        tensor_share = flops / decode_s / gpu.flops_per_s
    decoding_w = decode_w(power, memory_share, tensor_share)
    found_j = energy_j(power, prompt_s, decode_s, decoding_w, held_s - busy_s)
    tokens = int(columns["output_tokens"].sum())
    return {
        "energy": {
            "gpu_kwh": found_j / _J_PER_KWH,
            "gpu_mean_w": found_j / held_s,
            "j_per_output_token": found_j / tokens if tokens else None,
            "decode_batch": batch,
            "decode_memory_bandwidth_share": memory_share,
            "decode_tensor_share": tensor_share,
            "source": SOURCE,
        }
    }


def _decode_work(
    hosted: Sequence[HostedModel], workload: Workload, columns: Columns, batch: float
) -> tuple[float, float]:
    """Return the bytes that decode steps of ``batch`` requests read, and their operations, on all GPUs."""
    code = codes_of(workload, hosted)[columns["request"]]
    read_bytes = flops = 0.0
    for place, model in enumerate(hosted):
        rows = code == place
        decoded = columns["output_tokens"][rows] - 1.0
        tokens = float(decoded.sum())
        if is_stack(model.shape_name) or not tokens:
            continue
        context = float((decoded * (columns["prompt_tokens"][rows] + decoded / 2)).sum())
        shape = model.shape
        decode_tp = model.tp_of("decode")
        kv_bytes = shape.kv_bytes_per_token * shape.kv_copies(decode_tp)
        own_bytes = shape.kv_sequence_bytes_on(decode_tp, range(shape.layers))
        read_bytes += weight_bytes_read(shape, batch) * tokens / batch + kv_bytes * context
        read_bytes += own_bytes * tokens
        flops += flops_per_token(shape, context / tokens) * tokens
    return read_bytes, flops


def _batch(
    decode_gpu_s: float, hosted: Sequence[HostedModel], workload: Workload, columns: Columns, most: int
) -> float:
    """Return the average number of requests that decode at once while any does.

    Steps with prompts decode too, so the estimate is capped at ``most``, the engine's own limit.
    """
    gpus = np.array([model.gpus for model in hosted])[codes_of(workload, hosted)[columns["request"]]]
    decoding_ns = ((columns["finish_ns"] - columns["first_token_ns"]) * gpus).sum()
    at_once = float(decoding_ns) / NS_PER_S / decode_gpu_s if decode_gpu_s > 0 else 1.0
    return min(max(1.0, at_once), float(most))
