"""The trace of a run and its transformations, and which of these settings contradict each other."""

import inspect
from dataclasses import dataclass
from typing import Any, Final

from serving.vocabulary.errors import UserError
from traces.load import synthetic_parameters

WINDOW_RULES: Final = ("busiest", "onset")
RESAMPLES: Final = ("block",)
REPEATED_CONTENTS: Final = ("own", "same")
# Each sets the arrival rate on its own; the two shares may be combined.
_RATES: Final = (("rate_scale",), ("utilization",), ("prefill_share", "peak_share"))


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """A workload: recorded (read from ``path`` or the data folder) or synthetic, and its transformations.

    They are applied in this order. ``window_s`` seconds from ``window_start_s`` on, or from where the rule
    ``window`` finds them. ``lengths``: a length table to draw all lengths from. ``tokens_scale`` multiplies
    them. ``identities`` false: ignore what prompts share. ``repeat``: so many times, one after the other,
    with contents of their ``own`` each time or the ``same`` (``repeat_contents``). Rate, one of:
    ``rate_scale`` times; ``utilization`` of the cluster's estimated capacity; ``prefill_share`` of the
    cluster's prefill tokens per second on average and ``peak_share`` in the busiest 5 s, whichever is lower.
    ``time_compression``: divides all times. ``limit``: the first requests. ``resample``:
    ``block`` draws them again by the seed, ``block_requests`` in a row. ``clients``: so many clients take the
    requests in turn, each ``client_think_s`` seconds after its last one has finished (a closed loop);
    they begin within ``client_start_s``.
    ``high_priority_share``: this share of requests, drawn by the seed, has priority 1. ``params``: parameters
    of the drawn trace, or of the reader of a recorded one (trace.NAME on the command line).
    """

    name: str
    synthetic: bool
    path: str | None
    format: str | None
    window: str | None
    window_start_s: float | None
    window_s: float | None
    lengths: str | None
    tokens_scale: float
    identities: bool
    repeat: int
    repeat_contents: str
    rate_scale: float | None
    utilization: float | None
    prefill_share: float | None
    peak_share: float | None
    time_compression: float
    limit: int | None
    resample: str | None
    block_requests: int | None
    clients: int | None
    client_think_s: float
    client_start_s: float
    high_priority_share: float | None
    params: dict[str, Any]


NO_RESAMPLING: Final[dict[str, Any]] = {"resample": None, "block_requests": None}
CLIENT_START_S: Final = 1.0
OPEN_LOOP: Final[dict[str, Any]] = {"clients": None, "client_think_s": 0.0, "client_start_s": CLIENT_START_S}
DEFAULTS: Final[dict[str, Any]] = {
    "path": None,
    "format": None,
    "window": None,
    "window_start_s": None,
    "window_s": None,
    "lengths": None,
    "tokens_scale": 1.0,
    "identities": True,
    "repeat": 1,
    "repeat_contents": "own",
    "rate_scale": None,
    "utilization": None,
    "prefill_share": None,
    "peak_share": None,
    "time_compression": 1.0,
    "limit": None,
    **NO_RESAMPLING,
    **OPEN_LOOP,
    "high_priority_share": None,
}


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
    if trace.repeat_contents not in REPEATED_CONTENTS:
        raise UserError(
            f"trace.repeat_contents={trace.repeat_contents} is unknown: write one of"
            f" {', '.join(REPEATED_CONTENTS)}"
        )
    _check_window(trace)
    _check_rate(trace)
    _check_resampling(trace)
    _check_clients(trace)


def _check_resampling(trace: TraceConfig) -> None:
    if trace.resample is None:
        if trace.block_requests is not None:
            raise UserError(
                "trace.block_requests has nothing to be drawn in blocks: write trace.resample=block too"
            )
        return
    if trace.resample not in RESAMPLES:
        raise UserError(f"trace.resample={trace.resample} is unknown: write trace.resample=block")
    if trace.synthetic:
        raise UserError(
            f"trace.resample={trace.resample} does not fit trace={trace.name}, which every seed draws anew "
            "by itself: leave it out or choose a recorded trace such as trace=azure_conv"
        )


def _check_clients(trace: TraceConfig) -> None:
    if trace.clients is None:
        if trace.client_think_s:
            raise UserError(
                "trace.client_think_s is of clients in a closed loop: write trace.clients=NUMBER too"
            )
        if trace.client_start_s != CLIENT_START_S:
            raise UserError(
                "trace.client_start_s is of clients in a closed loop: write trace.clients=NUMBER too"
            )
        return
    times = [f"trace.{key}" for keys in _RATES for key in keys if getattr(trace, key) is not None]
    times += ["trace.time_compression"] * (trace.time_compression != 1)
    if trace.synthetic and trace.params.get("rate_per_s") is not None:
        default = synthetic_parameters(trace.name)["rate_per_s"].default
        times += ["trace.rate_per_s"] * (default is not inspect.Parameter.empty)  # otherwise it is required
    if times:
        raise UserError(
            f"{times[0]} changes arrival times, and with trace.clients requests come as others end: leave "
            "out one of them"
        )


def _check_window(trace: TraceConfig) -> None:
    if trace.window is not None and trace.window not in WINDOW_RULES:
        raise UserError(
            f"trace.window={trace.window} is unknown: write one of {', '.join(WINDOW_RULES)}, or "
            "trace.window_start_s=SECONDS"
        )
    if trace.window is not None and trace.window_start_s is not None:
        raise UserError(
            "trace.window and trace.window_start_s both say where the window starts: write only one of them"
        )
    start = "window" if trace.window is not None else "window_start_s"
    if getattr(trace, start) is not None and trace.window_s is None:
        raise UserError(f"trace.{start} has no length: write trace.window_s=SECONDS too")


def _check_rate(trace: TraceConfig) -> None:
    given = [f"trace.{key}" for keys in _RATES for key in keys if getattr(trace, key) is not None]
    if trace.utilization is not None and trace.synthetic and trace.params.get("rate_per_s") is not None:
        given.insert(0, "trace.rate_per_s")  # otherwise the trace would have two rates
    if len(given) > 1 and given != ["trace.prefill_share", "trace.peak_share"]:
        raise UserError(f"{' and '.join(given)} both set the arrival rate: write only one of them")
