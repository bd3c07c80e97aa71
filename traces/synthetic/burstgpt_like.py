"""A stand-in for the BurstGPT window that BlitzScale scales on."""

from typing import Any, Final

from traces.synthetic.arrivals import ONSET_TIMES_S, onsets_ns
from traces.synthetic.drawn import drawn_to_the_end, drawn_workload
from traces.synthetic.expected import EXPECTED
from traces.workload import Workload

DURATION_S: Final = 300.0
"""Without a count and a duration: the five minutes that BlitzScale (OSDI 2025) evaluates."""
LABEL: Final = (
    "synthetic stand-in for BurstGPT: sudden 5-fold bursts as BlitzScale describes them, shape after the rise"
    " ours, lengths independent"
)


def burstgpt_like(
    seed: int = 0,
    requests: int | None = None,
    base_rate_per_s: float = 2.0,
    *,
    onset_times_s: str = ONSET_TIMES_S,
    factor: float = 5.0,
    ramp_s: float = 2.0,
    hold_s: float = 20.0,
    decay_s: float = 20.0,
    gap_cv: float = 1.0,
    duration_s: float | None = None,
) -> Workload:
    """Five minutes with five bursts; ``base_rate_per_s`` is the base rate between them, from the run's start.

    From BlitzScale (OSDI 2025): requests rise fivefold within 2 seconds (its Figure 1a), first at 0:05 of the
    window it evaluates, with further bursts later. Ours: the four later onsets one minute apart, 20 s at the
    height, 20 s back, and the base rate, which the paper scales to the cluster. Lengths: BurstGPT
    (GPT4-Conversation) of Llumnix's Table 1. The trace ends with ``requests`` or with ``duration_s``,
    whichever comes first of what is given; with neither after five minutes. 0 seconds: no such end.
    Raises TraceError on bad parameters.
    """
    if duration_s is None:
        duration_s = DURATION_S if requests is None else 0.0
    own: dict[str, Any] = {
        "base_rate_per_s": base_rate_per_s,
        "onset_times_s": onset_times_s,
        "factor": factor,
        "ramp_s": ramp_s,
    }
    own |= {"hold_s": hold_s, "decay_s": decay_s, "gap_cv": gap_cv}
    count, (arrival_ns, _) = drawn_to_the_end(
        lambda count: (onsets_ns(seed, name="burstgpt_like/arrivals", requests=count, **own), None),
        requests,
        duration_s,
        lambda end_s: EXPECTED["onsets"](end_s, **own),
    )
    parameters = {"requests": count, **own, "duration_s": duration_s}
    return drawn_workload(
        "burstgpt_like", seed, arrival_ns=arrival_ns, lengths="burstgpt", label=LABEL, parameters=parameters
    )
