"""Figures beyond the paper: what migration brings elsewhere. The paper has nothing to compare them with."""

from dataclasses import replace
from typing import Final

from experiments.common.figure import Figure
from experiments.common.outcomes import Metric, summary_metric
from experiments.common.set_up import Case, SetUp, Words
from experiments.llumnix.fig14 import autoscaled
from experiments.llumnix.judge import CurvePoint, PointJudge
from experiments.llumnix.metrics import METRICS
from experiments.llumnix.set_ups import BY_TITLE, CLUSTER_12000, INFAAS, LLUMNIX, system

_RUN_REQUESTS: Final = 2_000  # the most requests of a run, unless the figure sets another number


def _shown(*keys: str) -> dict[str, Metric]:
    return {key: METRICS[key] for key in keys}


# Prefill and decode apart: requests move to make room for hand-overs that wait.

_DEFRAGMENT_RATES_PER_S: Final = (4.0, 4.5, 5.0, 5.5, 6.0)
_PREFILL: Final = 4
_DECODE: Final = 12
_DEFRAGMENT_METRICS: Final = _shown(
    "decode_mean_s", "decode_p99_s", "prefill_p99_s", "request_mean_s", "request_p99_s"
)
# A decode instance reserves memory for a request's whole output, so no request is preempted there.
_SPLIT: Final[Words] = (
    "system=distserve_full", f"system.instances.prefill={_PREFILL}", f"system.instances.decode={_DECODE}",
    "engine.reserve=oracle",
)  # fmt: skip
_POLICIES: Final = ("none", "defragment", "least_loaded", "llumnix")


def defragment_curves(requests: int) -> list[CurvePoint]:
    """Each migration policy at each rate."""
    curves = []
    for rate in _DEFRAGMENT_RATES_PER_S:
        set_up = BY_TITLE["M-M"].at(rate, min(requests, _RUN_REQUESTS))
        for name in _POLICIES:
            case = Case(name, set_up, (*_SPLIT, f"system/migration={name}"))
            curves.append(CurvePoint("", name, rate, case, _DEFRAGMENT_METRICS))
    return curves


def defragment(judge: PointJudge) -> Figure:
    """Latencies by rate and migration policy."""
    inputs = (
        f"M-M on {_PREFILL} prefill and {_DECODE} decode instances of LLaMA-7B; room is kept for all that a "
        "request writes, and a completed prompt waits where no decode instance has it",
        "decode latency counts from the first token on, so it has that wait",
    )
    title = "Beyond the paper: room on decode instances"
    return judge.without_rows("defragment", title, defragment_curves(judge.requests), "requests/s", inputs)


# Requests are copied to instances that still load, L-L auto-scaled.

_INTO_LOADING_RATES_PER_S: Final = (2.4, 2.6, 2.8)
_INTO_LOADING_METRICS: Final = {
    "decision_to_first_s": summary_metric(
        "decision until the first request has moved there", "s", "migrations.new_instances.decision_s.mean"
    ),
    "loaded_to_first_s": summary_metric(
        "loaded until the first request has moved there", "s", "migrations.new_instances.loaded_s.mean"
    ),
    **_shown("prefill_p99_s", "request_mean_s", "preemption_loss_mean_s"),
}
_LOADS: Final[dict[str, Words]] = {
    "from disk": (), "over the network": ("system/provision=multicast",),
}  # fmt: skip
_INTO_LOADING: Final = {"into loading": "true", "after loading": "false"}


def into_loading_curves(requests: int) -> list[CurvePoint]:
    """Both ways to load at each rate, with migration into loading instances and without."""
    curves = []
    for panel, load in _LOADS.items():
        for rate in _INTO_LOADING_RATES_PER_S:
            set_up = BY_TITLE["L-L"].at(rate, min(requests, _RUN_REQUESTS), words=CLUSTER_12000)
            for label, value in _INTO_LOADING.items():
                case = autoscaled(LLUMNIX, set_up, (*load, f"migration.into_loading={value}"), panel)
                curves.append(
                    CurvePoint(panel, label, rate, replace(case, label=label), _INTO_LOADING_METRICS)
                )
    return curves


def into_loading(judge: PointJudge) -> Figure:
    """Latencies, and when the first request arrives on a new instance, by rate."""
    inputs = (
        "L-L on up to 16 instances of LLaMA-7B, 8 at the start, looked at every 10 s from 110 s on; "
        "parameters come from the SSD of a host, which four instances share, or over the network from others",
        "KV memory is there before the parameters are; into loading: one stage is copied meanwhile",
    )
    curves, title = into_loading_curves(judge.requests), "Beyond the paper: into loading instances"
    return judge.without_rows("into_loading", title, curves, "requests/s", inputs)


# A host is lost after a notice.

_NOTICE_RATE_PER_S: Final = 2.6
_NOTICES_S: Final = (0, 1, 2, 5, 10, 30, 120)  # spot machines: 30 s (GCP, Azure) or 120 s (AWS)
_REQUESTS_BEFORE: Final = 2 / 3
_LOST: Final = {"lost": summary_metric("requests lost", "", "requests.failed")}


def notice_curves(requests: int) -> list[CurvePoint]:
    """Both systems with each notice."""
    count = min(requests, _RUN_REQUESTS)
    set_up = BY_TITLE["L-L"].at(_NOTICE_RATE_PER_S, count)
    at_s = round(_REQUESTS_BEFORE * count / _NOTICE_RATE_PER_S)
    curves = []
    for notice_s in _NOTICES_S:
        words = ("faults=one_host", "faults.host=1", f"faults.at_s={at_s}", f"faults.notice_s={notice_s}")
        noticed = replace(set_up, name=f"{set_up.name}, {notice_s} s of notice")
        for name in (LLUMNIX, INFAAS):
            curves.append(
                CurvePoint("", name, notice_s, system(name, noticed, BY_TITLE["L-L"], extra=words), _LOST)
            )
    return curves


def notice(judge: PointJudge) -> Figure:
    """Requests lost by the length of the notice."""
    inputs = (
        f"L-L at {_NOTICE_RATE_PER_S:g}/s on 16 instances of LLaMA-7B; after two thirds of the requests a "
        "host with 4 of them is lost",
        "from the notice on its instances take nothing new; without migration they decode on until the loss",
    )
    curves, title = notice_curves(judge.requests), "Beyond the paper: notice of a loss"
    return judge.without_rows("notice", title, curves, "notice, s", inputs)


# Models share a cluster: how long a draining instance keeps its GPUs.

_MODELS: Final = (4, 6, 8, 12)
_VACATE_REQUESTS: Final = 1_500
_VACATE_RATE_PER_S: Final = 10
_MIGRATION: Final = {"migration": "least_loaded", "without": "none"}
_VACATE_METRICS: Final = {
    "freeing_mean_s": summary_metric("mean time to free the GPUs", "s", "freeing_s.mean"),
    "freeing_max_s": summary_metric("longest time to free the GPUs", "s", "freeing_s.max"),
    "prefill_p99_ms": summary_metric("P99 prefill latency", "ms", "ttft_ms.p99"),
}


def vacate_curves(requests: int) -> list[CurvePoint]:
    """Return the curves with migration and without it, by number of models."""
    curves = []
    for count in _MODELS:
        models = ("models=zipf", f"models.count={count}", f"models.rate_per_s={_VACATE_RATE_PER_S}")
        trace = ("trace=azure_code_like", f"trace.limit={min(requests, _VACATE_REQUESTS)}")
        words = ("cluster=blitz_b", *models, "uncertainty=off")
        set_up = SetUp(f"{count} models", words, trace, rate="written")
        for label, option in _MIGRATION.items():
            colocated = ("system=blitz_multicast", "system.instances.split=false")
            case = Case(label, set_up, (*colocated, f"system/migration={option}"))
            curves.append(CurvePoint("", label, count, case, _VACATE_METRICS))
    return curves


def vacate(judge: PointJudge) -> Figure:
    """Times until a draining instance frees its GPUs, by the number of models."""
    inputs = (
        f"lengths of azure_code_like, {_VACATE_RATE_PER_S}/s over so many models of 8 billion parameters on "
        "16 GPUs",
        "from the decision that an instance goes until its GPUs are free; what runs there ends, or "
        "migrates to another instance of its model",
    )
    curves, title = vacate_curves(judge.requests), "Beyond the paper: GPUs for other models"
    return judge.without_rows("vacate", title, curves, "models", inputs)


# A victim of preemption migrates to a neighbour with free blocks, M-M at all its rates.

_VICTIMS_METRICS: Final = _shown("preemption_loss_mean_s", "request_p99_s", "prefill_p99_s")
_NEIGHBOUR: Final = "migration.victims=neighbour"
# No pair by load: the gap is never reached.
_VICTIMS_ALONE: Final[Words] = (
    "system/migration=least_loaded", "system.migration.least_gap=1000000", _NEIGHBOUR,
)  # fmt: skip
_VICTIMS: Final[dict[str, tuple[str, Words]]] = {
    "infaas_pp": (INFAAS, ()),
    "infaas_pp, neighbour": (INFAAS, _VICTIMS_ALONE),
    "llumnix": (LLUMNIX, ()),
    "llumnix, neighbour": (LLUMNIX, (_NEIGHBOUR,)),
}


def victims_curves(requests: int) -> list[CurvePoint]:
    """Both systems, with migration of victims and without, at every rate of Figure 11."""
    workload, curves = BY_TITLE["M-M"], []
    for rate in workload.rates_per_s:
        set_up = workload.at(rate, requests)
        for label, (name, words) in _VICTIMS.items():
            case = system(name, set_up, workload, extra=words, label=label)
            curves.append(CurvePoint("", label, rate, case, _VICTIMS_METRICS))
    return curves


def victims(judge: PointJudge) -> Figure:
    """Preemption losses and latencies by rate."""
    inputs = (
        "M-M on 16 instances of LLaMA-7B; neighbour: where a step would leave less than 1 % of KV memory, "
        "who would be preempted next migrates to the instance with most free blocks",
    )
    curves, title = victims_curves(judge.requests), "Beyond the paper: where victims go"
    return judge.without_rows("victims", title, curves, "requests/s", inputs)
