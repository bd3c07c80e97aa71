"""QUART's numbers: those of its released code, and, marked as ours, those that the paper does not give."""

from dataclasses import dataclass
from typing import Final, Literal

from policies.quart.pid import Gains
from policies.quart.queueing import DelayForm

ErrorSign = Literal[
    "delay_minus_target",  # more replicas if the stage is slow
    "printed",  # Algorithm 1, line 2: target - delay, which adds replicas to stages that need none
]
KeyRule = Literal[
    "grown",  # the corrector adds replicas to it: section 6.1
    "outstanding",  # grown, and observed to be further behind its target than the other stages (ours)
    "released",  # violation x (1 + arrivals per second / 10) above 0.1
]


OUR_GAINS: Final = Gains(1.0, 0.1, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectorSettings:
    """When and by how much a stage grows.

    ``control``: ``rate`` switches the PID off: as many replicas as keep the work stable, and no more.
    ``bounded``: the PID's output is limited to the formula's number for the target. ``anti_windup``: see
    ``Pid``. ``drain_s``: the time within which queued requests should be served: they count as arrivals over
    so many seconds (ours). ``target_s``: target delay of each stage; 0: its share of the SLO by execution
    time. ``relative``: the error is a share of the target, else seconds. ``cool_down_s``: from one growth of
    a stage to its next. ``key_rule``: which stages become key stages. ``key_margin``, of ``outstanding``: how
    many times the median of all stages' delays (each over its target) makes a key stage. ``key_passes``, of
    ``outstanding``: passes whose mean delay is evidence that a stage is slow; fewer are mostly chance, since
    requests queued behind a long pass wait for it too (at a CV of 0.2, the default, 20 passes have a mean
    within 9 % in 95 of 100 cases). ``most_replicas``: limit for one stage; 0:
    the service's limit.
    """

    form: DelayForm = "erlang_c"
    control: Literal["pid", "rate"] = "pid"
    gains: Gains = OUR_GAINS
    sign: ErrorSign = "delay_minus_target"
    bounded: bool = True
    anti_windup: bool = True
    drain_s: float = 2.0
    period_s: float = 1.0
    cool_down_s: float = 0.0
    target_s: float = 0.0
    relative: bool = True
    key_rule: KeyRule = "grown"
    key_margin: float = 1.0
    key_passes: int = 20
    most_replicas: int = 0


REFERENCE: Final = CorrectorSettings()
"""Ours. The paper has the form of the controller and none of its numbers."""
RELEASED: Final = CorrectorSettings(
    bounded=False,
    gains=Gains(2.0, 0.3, 0.1),
    period_s=30.0,
    cool_down_s=120.0,
    target_s=0.5,
    relative=False,
    key_rule="released",
    most_replicas=8,
)
"""The numbers of yanyinglin/QUART as released in December 2025. Its sign is ``printed``, its form of delay
``released``: both are options. Its two passes at a time per replica and its time-outs are not built."""
DEFAULTS: Final = {"reference": REFERENCE, "released": RELEASED}


@dataclass(frozen=True, slots=True)
class SmootherSettings:
    """When a stage gives replicas back.

    ``beta``: ``cv``: CV^2 / (1 + CV^2); ``released``: 0.5 + 0.5 * sigmoid(CV - 1). ``hold_s``: a stage gives
    back only replicas that it did not need at any look of the last ``hold_s`` (ours; Kubernetes calls it the
    stabilization window).
    """

    beta: Literal["cv", "released"] = "cv"
    hold_s: float = 10.0


SMOOTHER_DEFAULTS: Final = {"reference": SmootherSettings(), "released": SmootherSettings("released", 120.0)}


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """Dispersion under contention: gradient steps on KL(P || Q) from P + ``start``, at most ``steps``."""

    rate: float = 0.1
    steps: int = 100
    start: float = 1e-3
    tolerance: float = 1e-6
