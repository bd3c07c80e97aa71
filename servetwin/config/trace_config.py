"""The trace of a run and its transformations, and which of these settings contradict each other."""

import inspect
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from servetwin.config.key import COUNT, NOT_NEGATIVE, POSITIVE, Range, key
from servetwin.config.readers import (
    CLOSED_LOOP,
    GIVING_UP,
    MODELS_THAT_DECODE,
    PREFIX_CACHING,
    REPEATED_PREFIXES,
    RESAMPLING,
)
from serving.vocabulary.errors import UserError
from traces.load import synthetic_parameters

# Above ten times the cluster's estimated capacity the queue only grows; a larger number is a typing error.
MAX_UTILIZATION: Final = 10.0
UTILIZATION: Final = Range(low=0, high=MAX_UTILIZATION, open_low=True)
# Clients that begin later than an hour after the first are no closed loop from the start.
MAX_CLIENT_START_S: Final = 3600.0
# Each client is held in memory and sends at the start; more than the requests of a day are a typing error.
MAX_CLIENTS: Final = 1_000_000
# HTTP clients retry a few times (urllib3: 10 by default); a larger number than this is a typing error.
MAX_RETRIES: Final = 100
RATIO: Final = Range(low=0, high=1, open_low=True)
WINDOW_RULES: Final = ("busiest", "onset")
RESAMPLES: Final = ("block",)
REPEATED_CONTENTS: Final = ("own", "same")
# Which requests sample with top-p: those of a model whose publisher says so, all, or none.
TOP_P: Final = ("model", "all", "none")
TOP_P_OF_MODEL, TOP_P_ALL, _ = TOP_P
# Each sets the arrival rate on its own; the two shares may be combined.
_RATES: Final = (("rate_scale",), ("utilization",), ("prefill_share", "peak_share"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig:
    """A workload, recorded or drawn, and its transformations, which are applied in this order.

    ``params``: parameters of the drawn trace, or of the reader of a recorded one.
    """

    name: str = key("the chosen option")
    synthetic: bool = key("whether the trace is drawn")
    path: str | None = key(
        "a file to read; null: search for the named trace. `trace=file` needs it", default=None
    )
    format: str | None = key(
        "its [format](../reference/TRACES.md#formats-that-are-read); null: that of the named "
        "trace, or detected",
        default=None,
    )
    window: str | None = key(
        "`busiest` or `onset`: a rule that finds the start of the window; requires `trace.window_s`",
        default=None,
        choices=WINDOW_RULES,
    )
    window_start_s: float | None = key(
        "or the start itself, seconds after the first request; null: 0. Without `trace.window_s`: to the end",
        default=None,
        within=NOT_NEGATIVE,
        also=("start_s", "start", "from_s", "offset_s", "skip_s"),
    )
    window_s: float | None = key(
        "seconds to take; null: all",
        default=None,
        within=POSITIVE,
        also=("duration", "duration_s", "seconds"),
    )
    lengths: str | None = key(
        "[lengths](../reference/TRACES.md#drawn-traces) to draw instead of the trace's own; "
        "the parameter of that name, if a drawn trace has it",
        default=None,
        read_by=(MODELS_THAT_DECODE,),
    )
    length_ratio: float | None = key(
        "lengths such as `1024x1024` are drawn uniformly [from this share of "
        "each](../reference/TRACES.md#as-benchmark-clients-load-a-server) to all of it",
        default=None,
        within=RATIO,
        read_by=(MODELS_THAT_DECODE,),
        omit=None,
    )
    tokens_scale: float = key(
        "factor on prompt and output lengths, rounded, at least 1 token",
        default=1.0,
        within=POSITIVE,
        read_by=(MODELS_THAT_DECODE,),
    )
    identities: bool = key(
        "shared prompt content counts if the trace has it ([PREFIX_CACHING](../how-to/PREFIX_CACHING.md))",
        default=True,
        read_by=(PREFIX_CACHING,),
    )
    repeat: int = key("play the trace this many times, one after the other", default=1, within=COUNT)
    repeat_contents: str = key(
        "prompts have their `own` contents in each repetition, or the `same`",
        default=REPEATED_CONTENTS[0],
        choices=REPEATED_CONTENTS,
        read_by=(REPEATED_PREFIXES,),
    )
    rate_scale: float | None = key(
        "factor on the arrival rate: copies above 1, thinning below; times stay",
        default=None,
        within=POSITIVE,
    )
    utilization: float | None = key(
        "or the arrival rate as a share of [the estimated "
        "capacity](../reference/METRICS.md#capacity_req_per_s-and-traceutilization)",
        default=None,
        within=UTILIZATION,
    )
    prefill_share: float | None = key(
        "or the mean share of the prompt tokens that the cluster can prefill "
        "([rule](../reference/TRACES.md#the-rule-of-cluster-capacity))",
        default=None,
        within=UTILIZATION,
    )
    peak_share: float | None = key(
        "the same share in the busiest 5 s; with both, the lower factor counts",
        default=None,
        within=UTILIZATION,
    )
    time_compression: float = key(
        "all times are divided by it; bursts get shorter too", default=1.0, within=POSITIVE
    )
    limit: int | None = key(
        "run only so many first requests; real runs: 30, unless `trace.requests`, "
        "`trace.duration_s`, `trace.window_s` or `trace.rates` is written",
        default=None,
        within=COUNT,
    )
    resample: str | None = key(
        "`block`: a recorded trace is [drawn "
        "again](../reference/TRACES.md#drawing-requests-again) in blocks, by `seed`",
        default=None,
        choices=RESAMPLES,
        omit=None,
    )
    block_requests: int | None = key(
        "requests in a block; null: the cube root of the number of requests",
        default=None,
        within=COUNT,
        read_by=(RESAMPLING,),
        omit_with="resample",
    )
    clients: int | None = key(
        "[closed loop](../reference/TRACES.md#closed-loop): so many clients, each sends its "
        "next request when its last has ended; arrival times do not count",
        default=None,
        within=Range(low=1, high=MAX_CLIENTS),
        omit=None,
    )
    client_think_s: float = key(
        "seconds between a client's answer and its next request",
        default=0.0,
        within=NOT_NEGATIVE,
        read_by=(CLOSED_LOOP,),
        omit_with="clients",
    )
    client_start_s: float = key(
        "seconds within which clients begin: the first at 0, the others uniformly",
        default=1.0,
        absent=0.0,  # all clients of earlier versions began at once
        within=Range(low=0, high=MAX_CLIENT_START_S),
        read_by=(CLOSED_LOOP,),
        omit_with="clients",
    )
    warmup_requests: int = key(
        "copies of the first request that clients [send before all "
        "others](../reference/TRACES.md#as-benchmark-clients-load-a-server); no metric "
        "counts them",
        default=0,
        within=Range(low=0, high=MAX_CLIENTS),
        read_by=(CLOSED_LOOP,),
        omit=0,
    )
    client_timeout_s: float | None = key(
        "seconds after which a client without its last token [gives "
        "up](../reference/METRICS.md#clients-that-give-up); null: never",
        default=None,
        within=POSITIVE,
        omit=None,
    )
    retries: int = key(
        "how often a client that gave up sends its request again",
        default=0,
        within=Range(low=0, high=MAX_RETRIES),
        read_by=(GIVING_UP,),
        omit_with="client_timeout_s",
    )
    retry_wait_s: float = key(
        "seconds from giving up to sending again",
        default=0.0,
        within=NOT_NEGATIVE,
        read_by=(GIVING_UP,),
        omit_with="client_timeout_s",
    )
    top_p: str = key(
        "which requests [sample with top-p](../explanation/STEP_TIMES.md#the-sort-for-top-p): "
        "`all`, `none`, or as generation_config.json of the `model` says",
        default=TOP_P_OF_MODEL,
        choices=TOP_P,
        read_by=(MODELS_THAT_DECODE,),
        omit=TOP_P_OF_MODEL,
    )
    high_priority_share: float | None = key(
        "share of the requests, drawn by the seed, with priority 1; not for a trace that has priorities",
        default=None,
    )
    params: dict[str, Any]


DEFAULTS: Final = {field.name: field.default for field in fields(TraceConfig) if field.default is not MISSING}


def check_trace(trace: TraceConfig) -> None:
    """Refuse settings that contradict each other, with a UserError."""
    if trace.synthetic:
        for key in ("path", "format"):
            if getattr(trace, key) is not None:
                raise UserError(
                    f"trace.{key} does not fit trace={trace.name}, which is drawn and not read: leave it out "
                    "or choose a recorded trace such as trace=azure_conv"
                )
    if trace.name == "file" and trace.path is None:
        raise UserError("trace=file has no file: write trace.path=FILE")
    _check_length_ratio(trace)
    _check_window(trace)
    _check_rate(trace)
    _check_resampling(trace)
    _check_clients(trace)


def _check_resampling(trace: TraceConfig) -> None:
    if trace.resample is not None and trace.synthetic:
        raise UserError(
            f"trace.resample={trace.resample} does not fit trace={trace.name}, which every seed draws anew "
            "by itself: leave it out or choose a recorded trace such as trace=azure_conv"
        )


def _check_length_ratio(trace: TraceConfig) -> None:
    if trace.length_ratio is None:
        return
    from traces.synthetic.length_tables import fixed_lengths  # imports drawing code

    lengths = lengths_of(trace)
    if lengths is None or fixed_lengths(lengths) is None:
        raise UserError(
            f"trace.length_ratio={trace.length_ratio:g} draws lengths below two in tokens, and trace.lengths="
            f"{'null' if lengths is None else lengths} names none: write trace.lengths=1024x1024"
        )


def lengths_of(trace: TraceConfig) -> str | None:
    """Return the lengths that the run asks for, as the trace's own parameter or in place of its lengths."""
    own = trace.params.get("lengths")
    return trace.lengths if trace.lengths is not None else None if own is None else str(own)


def _check_clients(trace: TraceConfig) -> None:
    if trace.clients is None:
        return
    times = [f"trace.{key}" for keys in _RATES for key in keys if getattr(trace, key) is not None]
    times += ["trace.time_compression"] * (trace.time_compression != 1)
    times += ["trace.rates"] * (trace.params.get("rates") is not None)
    if trace.synthetic and trace.params.get("rate_per_s") is not None:
        default = synthetic_parameters(trace.name)["rate_per_s"].default
        times += ["trace.rate_per_s"] * (default is not inspect.Parameter.empty)  # otherwise it is required
    if times:
        raise UserError(
            f"{times[0]} changes arrival times, and with trace.clients requests come as others end: leave "
            "out one of them"
        )


def check_clients_give_up(config: Any) -> None:
    """Refuse clients that give up where nothing can be aborted, with a UserError."""
    trace = config.trace
    if trace.client_timeout_s is None:
        return
    system, leave = config.system.name, "leave trace.client_timeout_s out"
    for holds, what, instead in (
        (config.kind == "realexec", "real runs, which abort no request of a client that gave up", ""),
        (
            config.system.in_stages,
            f"system={system}, whose batches pass stages as a whole",
            " or system=vllm",
        ),
        (
            config.model.pp > 1,
            f"model.pp={config.model.pp}, whose micro-batches are in flight",
            " or model.pp=1",
        ),
        (trace.warmup_requests > 0, "trace.warmup_requests, all of which must be answered", " or them"),
    ):
        if holds:
            raise UserError(f"trace.client_timeout_s does not fit {what}: {leave}{instead}")


def _check_window(trace: TraceConfig) -> None:
    if trace.window is not None and trace.window_start_s is not None:
        raise UserError(
            "trace.window and trace.window_start_s both say where the window starts: write only one of them"
        )
    if trace.window is not None and trace.window_s is None:
        raise UserError("trace.window has no length: write trace.window_s=SECONDS too")


def _check_rate(trace: TraceConfig) -> None:
    given = [f"trace.{key}" for keys in _RATES for key in keys if getattr(trace, key) is not None]
    if trace.params.get("rates") is not None and trace.params.get("rate_per_s") is not None:
        raise UserError(
            "trace.rates and trace.rate_per_s both set the arrival rate: write only one of them, or "
            "trace.rate_scale=FACTOR beside trace.rates"
        )
    if trace.utilization is not None and trace.synthetic and trace.params.get("rate_per_s") is not None:
        given.insert(0, "trace.rate_per_s")  # otherwise the trace would have two rates
    if len(given) > 1 and given != ["trace.prefill_share", "trace.peak_share"]:
        raise UserError(f"{' and '.join(given)} both set the arrival rate: write only one of them")
