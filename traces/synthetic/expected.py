"""About how many arrivals the processes have within a time, for traces that a duration ends."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from traces.checks import number_within, positive_number
from traces.synthetic.arrivals import seconds_of
from traces.synthetic.rate_profile import RateProfile, diurnal, onsets


def expected_by(profile: RateProfile, end_s: float) -> float:
    """How many arrivals ``profile`` has up to ``end_s`` on average."""
    return float(profile.expected(np.array([end_s]))[0])


def _on_off(
    end_s: float, *, rate_per_s: float, on_s: float, off_s: float, off_to_on: float, **rest: Any
) -> float:
    """One burst of mean length from 0 on, and the long-run mean after it."""
    mean, on, off = (
        positive_number(k, v) for k, v in (("rate_per_s", rate_per_s), ("on_s", on_s), ("off_s", off_s))
    )
    in_bursts_per_s = mean * (on + off) / (on + number_within("off_to_on", off_to_on, 0, 1) * off)
    return in_bursts_per_s * min(on, end_s) + mean * max(0.0, end_s - on)


def _onsets(
    end_s: float,
    *,
    base_rate_per_s: float,
    onset_times_s: str,
    factor: float,
    ramp_s: float,
    hold_s: float,
    decay_s: float,
    **rest: Any,
) -> float:
    times_s = seconds_of("onset_times_s", onset_times_s)
    return expected_by(
        onsets(
            base_rate_per_s, times_s=times_s, factor=factor, ramp_s=ramp_s, hold_s=hold_s, decay_s=decay_s
        ),
        end_s,
    )


def _diurnal(
    end_s: float, *, rate_per_s: float, peak_to_mean: float, period_s: float, peak_at_s: float, **rest: Any
) -> float:
    return expected_by(diurnal(rate_per_s, peak_to_mean, period_s, peak_at_s), end_s)


EXPECTED: Final[dict[str, Callable[..., float]]] = {"on_off": _on_off, "onsets": _onsets, "diurnal": _diurnal}
"""name of a process -> function(seconds, the process's own parameters) -> about how many arrivals."""
