"""From a trace's settings to the requests of a run: read or drawn, cut, scaled; every step leaves a label."""

from dataclasses import replace

from experiments.trace_config import TraceConfig
from serving.estimates import ModelEstimates
from traces.capacity import prompt_load, rate_factor
from traces.errors import TraceError
from traces.load import load
from traces.scaling import compress_time, scale_rate, scale_tokens
from traces.synthetic.drawn import with_lengths
from traces.synthetic.registry import STATIONARY
from traces.window import RULES, time_window
from traces.workload import Workload


def workload_of(trace: TraceConfig, seed: int, estimates: ModelEstimates, replicas: int) -> Workload:
    """The trace of a run on ``replicas`` replicas of that speed. Raises TraceError."""
    workload = selected(trace, seed)
    if trace.utilization is not None:
        wanted_per_s = trace.utilization * capacity_req_per_s(estimates, replicas, workload)
        workload = _at_rate(trace, seed, workload, wanted_per_s)
    elif trace.prefill_share is not None or trace.peak_share is not None:
        workload = _at_prompt_load(trace, seed, workload, replicas * estimates.prefill_tokens_per_s)
    return finished(trace, seed, workload)


def selected(trace: TraceConfig, seed: int) -> Workload:
    """Read or drawn, the window cut out, lengths replaced and scaled: all that comes before the rate."""
    workload = load(trace.name, path=trace.path, format=trace.format, seed=seed, **trace.params)
    if trace.window_s is not None:
        if trace.window is not None:
            workload = RULES[trace.window](workload, trace.window_s).of(workload)
        else:
            workload = time_window(trace.window_start_s or 0.0, trace.window_s).of(workload)
    if trace.lengths is not None:
        workload = with_lengths(workload, trace.lengths, seed)
    return scale_tokens(workload, trace.tokens_scale)


def finished(trace: TraceConfig, seed: int, workload: Workload) -> Workload:
    """Rate factor, time compression and limit: all that needs no cluster."""
    if trace.rate_scale is not None:
        workload = scale_rate(workload, trace.rate_scale, seed)
    workload = compress_time(workload, trace.time_compression)
    return workload if trace.limit is None else workload.limited(trace.limit)


def unused(workload: Workload) -> list[str]:
    """What the trace holds and a run does not look at, as labels."""
    labels = []
    if workload.model is not None and len(models := workload.model.counts()) > 1:
        labels.append(f"the trace's {len(models)} models are served by one")
    for column, what in (("session", "sessions"), ("prefix", "prefix blocks"), ("images", "images")):
        if getattr(workload, column) is not None:
            labels.append(f"{what} of the trace are not used")
    return labels


def capacity_req_per_s(estimates: ModelEstimates, replicas: int, workload: Workload) -> float:
    """Requests per second at which ``replicas`` busy all the time just keep up with this mix of lengths.

    A request costs its share of full prefill batches and of full decode batches.
    """
    prefill_s = float(workload.prompt_tokens.mean()) / estimates.prefill_tokens_per_s
    decode_s = float(workload.output_tokens.mean()) * estimates.decode_step_s / estimates.decode_sequences
    return replicas / (prefill_s + decode_s)


def _at_rate(trace: TraceConfig, seed: int, workload: Workload, wanted_per_s: float) -> Workload:
    """That many requests per second: a stationary trace is drawn anew, any other keeps its time axis."""
    if trace.name in STATIONARY:
        return selected(replace(trace, params=trace.params | {"rate_per_s": wanted_per_s}), seed)
    present_per_s = workload.mean_rate_per_s
    if present_per_s is None:
        raise TraceError("trace.utilization needs requests at different times: leave it out")
    return scale_rate(workload, wanted_per_s / present_per_s, seed)


def _at_prompt_load(
    trace: TraceConfig, seed: int, workload: Workload, prefill_tokens_per_s: float
) -> Workload:
    """Scaled by the rule of traces.capacity; which of its terms bound is a label."""
    factor = rate_factor(prompt_load(workload), prefill_tokens_per_s, trace.prefill_share, trace.peak_share)
    scaled = scale_rate(workload, factor.factor, seed)
    return replace(scaled, labels=(*scaled.labels, f"rate factor {factor}"))
