"""Builds a run's requests from the trace settings: read or drawn, cut, scaled; every step adds a label."""

from collections.abc import Sequence
from dataclasses import replace

from servetwin.assemble.gpu_load import Floats, full_batch_gpu_s
from servetwin.assemble.hosted import HostedModel, codes_of, hosted_models
from servetwin.config.config import RunConfig
from servetwin.config.trace_config import TraceConfig, lengths_of
from serving.vocabulary.estimates import Estimates, ModelEstimates
from traces.capacity import prompt_load, rate_factor
from traces.errors import TraceError
from traces.load import load
from traces.priorities import with_high_priority
from traces.repeating import repeated
from traces.resampling import resampled
from traces.scaling import compress_time, scale_rate, scale_tokens
from traces.synthetic.registry import REDRAWN
from traces.turns import Turns
from traces.window import RULES, from_start, time_window
from traces.workload import Workload


def run_workload(
    config: RunConfig, estimates: Estimates, replicas: int, capacity_per_s: float | None = None
) -> Workload:
    """Return the requests of a run: the trace's, or many models' own. Raises TraceError.

    ``capacity_per_s``: requests per second at which the run just keeps up; None: from the mix's lengths.

    With several models ``workload.model`` has the names of the hosted ones.
    """
    trace, seed, hosted = config.trace, config.seed, hosted_models(config)
    if len(hosted) == 1:
        return workload_of(trace, seed, estimates.models[0], replicas, capacity_per_s)
    workload = _of_many(config, hosted, None)
    if trace.utilization is not None:
        full_per_s = capacity_per_s or run_capacity_req_per_s(config, estimates, replicas, workload)
        workload = _of_many(config, hosted, trace.utilization * full_per_s)
    elif trace.prefill_share is not None or trace.peak_share is not None:
        gpu_s, _ = _gpu_seconds(hosted, estimates, workload)
        tokens_per_gpu_s = float(workload.prompt_tokens.sum() / gpu_s.sum())
        workload = _at_prompt_load(trace, seed, workload, config.cluster.gpus * tokens_per_gpu_s)
    return finished(trace, seed, workload)


def _of_many(config: RunConfig, hosted: Sequence[HostedModel], wanted_per_s: float | None) -> Workload:
    """Return the requests of several models, at ``wanted_per_s`` if given; ``finished`` comes after."""
    from traces.many import many_models, with_hosted  # imports drawing code, as with_lengths does below

    models, trace, seed = config.models, config.trace, config.seed
    source, names = selected(trace, seed), [model.name for model in hosted]
    if models.name == "of_trace":
        workload = with_hosted(source, names)
        if wanted_per_s is None:
            return workload
        workload = _at_rate(trace, seed, workload, wanted_per_s)
        drawn_anew = trace.name in REDRAWN and trace.params.get("rates") is None
        return with_hosted(workload, names) if drawn_anew else workload
    rate_per_s = wanted_per_s or models.rate_per_s or source.mean_rate_per_s
    if rate_per_s is None:
        raise TraceError(f"{source.name} has all arrivals at one instant: write models.rate_per_s=NUMBER")
    requests = models.requests
    if requests is None and models.duration_s is None:
        requests = len(source)
    assert models.zipf is not None
    return many_models(
        source,
        names=names,
        rate_per_s=rate_per_s,
        exponent=models.zipf,
        bursts=models.bursts,
        seed=seed,
        requests=requests,
        duration_s=models.duration_s,
    )


def workload_of(
    trace: TraceConfig,
    seed: int,
    estimates: ModelEstimates,
    replicas: int,
    capacity_per_s: float | None = None,
) -> Workload:
    """Return the trace of a run on ``replicas`` replicas of that speed. Raises TraceError."""
    workload = selected(trace, seed)
    if trace.utilization is not None:
        full_per_s = capacity_per_s or capacity_req_per_s(estimates, replicas, workload)
        wanted_per_s = trace.utilization * full_per_s
        workload = _at_rate(trace, seed, workload, wanted_per_s)
    elif trace.prefill_share is not None or trace.peak_share is not None:
        workload = _at_prompt_load(trace, seed, workload, replicas * estimates.prefill_tokens_per_s)
    return finished(trace, seed, workload)


def selected(trace: TraceConfig, seed: int) -> Workload:
    """Read or draw, cut out the window, replace and scale lengths, repeat: all steps before the rate."""
    workload = load(trace.name, path=trace.path, format=trace.format, seed=seed, **trace.params)
    if trace.window_s is not None:
        if trace.window is not None:
            workload = RULES[trace.window](workload, trace.window_s).of(workload)
        else:
            workload = time_window(trace.window_start_s or 0.0, trace.window_s).of(workload)
    elif trace.window_start_s is not None:
        workload = from_start(trace.window_start_s, workload).of(workload)
    if trace.length_ratio is not None:
        from traces.synthetic.drawn import with_uniform_lengths

        workload = with_uniform_lengths(workload, lengths_of(trace) or "", trace.length_ratio, seed)
    elif trace.lengths is not None:
        from traces.synthetic.drawn import with_lengths

        workload = with_lengths(workload, trace.lengths, seed)
    if not trace.identities and workload.prefix is not None:
        workload = workload.labelled("what prompts share is left out", prefix=None)
    return repeated(scale_tokens(workload, trace.tokens_scale), trace.repeat, trace.repeat_contents)


def finished(trace: TraceConfig, seed: int, workload: Workload) -> Workload:
    """Apply rate, time compression, limit, redrawn requests, priorities, warm-up: these need no cluster."""
    if trace.rate_scale is not None:
        workload = scale_rate(workload, trace.rate_scale, seed)
    workload = compress_time(workload, trace.time_compression)
    if trace.limit is not None:
        workload = workload.limited(trace.limit)
    if trace.resample is not None:
        workload = resampled(workload, seed, trace.block_requests)
    if trace.clients is not None:
        workload = workload.in_closed_loop(trace.clients)
    if trace.high_priority_share is not None:
        workload = with_high_priority(workload, trace.high_priority_share, seed)
    if trace.warmup_requests:
        workload = workload.warmed_up(trace.warmup_requests)
    return workload


def unused(workload: Workload, hosted: int = 1, shares: bool = False) -> list[str]:
    """Return labels of trace columns that a run of so many models ignores. shares: ``shares_prefixes``."""
    labels = []
    if hosted == 1 and workload.model is not None and len(models := workload.model.counts()) > 1:
        labels.append(f"the trace's {len(models)} models are served by one")
    without = {"session": "sessions", "prefix": "shared prefixes", "images": "images"}
    if shares:
        del without["prefix"]
    if isinstance(workload.prefix, Turns):
        del without["session"]  # names of the same conversations
    return labels + [
        f"{noun} of the trace are not used"
        for column, noun in without.items()
        if getattr(workload, column) is not None
    ]


def capacity_req_per_s(estimates: ModelEstimates, replicas: int, workload: Workload) -> float:
    """Return the requests per second of this length mix at which ``replicas`` busy replicas just keep up.

    A request costs its share of full prefill batches and of full decode batches.
    """
    prefill_s = float(workload.prompt_tokens.mean()) / estimates.prefill_tokens_per_s
    decode_s = float(workload.output_tokens.mean()) * estimates.decode_step_s / estimates.decode_sequences
    return replicas / (prefill_s + decode_s)


def run_capacity_req_per_s(
    config: RunConfig, estimates: Estimates, replicas: int, workload: Workload
) -> float:
    """Return the requests per second that keep the run's GPUs just busy, in the workload's mix of models.

    As if every GPU could serve every model: with fixed instances the busiest model may have too few at a
    lower rate.
    """
    hosted = hosted_models(config)
    if len(hosted) == 1:
        return capacity_req_per_s(estimates.models[0], replicas, workload)
    prefill, decode = _gpu_seconds(hosted, estimates, workload)
    return config.cluster.gpus * len(workload) / float((prefill + decode).sum())


def _gpu_seconds(
    hosted: Sequence[HostedModel], estimates: Estimates, workload: Workload
) -> tuple[Floats, Floats]:
    """Return the prefill and decode GPU seconds of each request in full batches."""
    code = codes_of(workload, hosted)
    return full_batch_gpu_s(hosted, estimates, code, workload.prompt_tokens, workload.output_tokens)


def _at_rate(trace: TraceConfig, seed: int, workload: Workload, wanted_per_s: float) -> Workload:
    """Set the requests per second: a stationary trace is drawn anew, others keep their time axis."""
    if trace.name in REDRAWN and trace.params.get("rates") is None:
        return selected(replace(trace, params=trace.params | {"rate_per_s": wanted_per_s}), seed)
    present_per_s = workload.mean_rate_per_s
    if present_per_s is None:
        raise TraceError("trace.utilization needs requests at different times: leave it out")
    return scale_rate(workload, wanted_per_s / present_per_s, seed)


def _at_prompt_load(
    trace: TraceConfig, seed: int, workload: Workload, prefill_tokens_per_s: float
) -> Workload:
    """Scale the rate by the rule of traces.capacity; a label names the term of the rule that applied."""
    factor = rate_factor(prompt_load(workload), prefill_tokens_per_s, trace.prefill_share, trace.peak_share)
    scaled = scale_rate(workload, factor.factor, seed)
    return replace(scaled, labels=(*scaled.labels, f"rate factor {factor}"))
