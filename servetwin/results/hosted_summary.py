"""The sections about models in summary.json and requests.parquet of a run with several models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hwmodels.models.llm_shape import LlmShape
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.hosted import HostedModel, codes_of, hosted_models, shapes_by_model
from servetwin.config.config import RunConfig
from serving.vocabulary.estimates import Estimates
from traces.columns import Names
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np

BUSIEST: Final = 20


def models_section(
    config: RunConfig, hardware: Mapping[str, Hardware], workload: Workload, columns: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return ``models``: number, shapes, and requests and TTFT of the busiest model and of all others."""
    import numpy as np

    hosted = hosted_models(config)
    code = codes_of(workload, hosted)
    requests = np.bincount(code[config.trace.warmup_requests :], minlength=len(hosted))
    finished, ttft_ms = code[columns["request"]], columns["ttft_ms"]
    order = np.argsort(-requests, kind="stable")
    busiest = {
        hosted[index].name: _numbers(int(requests[index]), ttft_ms[finished == index])
        for index in order[:BUSIEST].tolist()
    }
    smaller = order[BUSIEST:]
    section: dict[str, Any] = {
        "count": len(hosted),
        "asked_for": int((requests > 0).sum()),
        "shapes": _shapes(hosted, hardware),
        "busiest": busiest,
    }
    if len(smaller):
        rest = _numbers(int(requests[smaller].sum()), ttft_ms[np.isin(finished, smaller)])
        section["others"] = {"count": len(smaller), **rest}
    return {"models": section}


def _numbers(requests: int, ttft_ms: np.ndarray) -> dict[str, Any]:
    """Return the numbers of finished requests; null if none finished."""
    import numpy as np

    some = len(ttft_ms) > 0
    return {
        "requests": requests,
        "finished": len(ttft_ms),
        "ttft_ms": {
            "mean": float(ttft_ms.mean()) if some else None,
            "p99": float(np.quantile(ttft_ms, 0.99)) if some else None,
        },
    }


def _shapes(hosted: tuple[HostedModel, ...], hardware: Mapping[str, Hardware]) -> list[dict[str, Any]]:
    """Return one entry per shape and size of a replica, in order of first use."""
    kinds: dict[tuple[str, int], list[HostedModel]] = {}
    for model in hosted:
        kinds.setdefault((model.shape_name, model.tp), []).append(model)
    return [
        {
            "shape": shape,
            "tp": tp,
            "models": len(models),
            "weight_bytes": models[0].weight_bytes,
            "kv_capacity": hardware[models[0].name].kv_arithmetic,
            "step_time": hardware[models[0].name].step.source,
            "error_band": hardware[models[0].name].step.error_band,
            **_labels_part(hardware[models[0].name].step.labels),
        }
        for (shape, tp), models in kinds.items()
    ]


def _labels_part(labels: tuple[str, ...]) -> dict[str, list[str]]:
    return {"labels": list(labels)} if labels else {}


def add_models(
    summary: dict[str, Any],
    columns: dict[str, np.ndarray],
    config: RunConfig,
    hardware: Mapping[str, Hardware],
    workload: Workload,
) -> dict[str, Names]:
    """Add the section, and the codes of the models to ``columns``; return their names for requests.parquet.

    Adds and returns nothing for a single model.
    """
    if len(hardware) == 1:
        return {}
    summary |= models_section(config, hardware, workload, columns)
    assert workload.model is not None
    model = workload.model.taking(columns["request"])
    columns["model"] = model.codes
    return {"model": model}


def shown_estimates(config: RunConfig, estimates: Estimates) -> Estimates:
    """Return one estimate per shape: a thousand equal ones would add nothing."""
    hosted = hosted_models(config)
    first = {(model.shape_name, model.tp): index for index, model in reversed(list(enumerate(hosted)))}
    return replace(estimates, models=tuple(estimates.models[index] for index in sorted(first.values())))


def shown_precision(config: RunConfig) -> dict[str, str]:
    """Return ``precision``: how quantised models are stored; empty if none is."""
    shapes = [shape for shape in shapes_by_model(config).values() if isinstance(shape, LlmShape)]
    texts = dict.fromkeys(shape.formats.text for shape in shapes if shape.quantised)
    return {"precision": "; ".join(texts)} if texts else {}


def shown_model(config: RunConfig) -> str:
    """Return the model's name, or the number of models of each shape."""
    hosted = hosted_models(config)
    if len(hosted) == 1:
        return hosted[0].name
    return f"{len(hosted)} of {' + '.join(dict.fromkeys(model.shape_name for model in hosted))}"
