"""QUART's numbers: ours where the paper is silent, and those of its released code. Both are named."""

from dataclasses import dataclass
from typing import Final, Literal

from policies.quart.pid import Gains
from policies.quart.queueing import DelayForm

ErrorSign = Literal[
    "delay_minus_target",  # more replicas when it is slow
    "printed",  # Algorithm 1, line 2: target - delay, which adds replicas to whoever needs none
]
KeyRule = Literal[
    "outstanding",  # grown, and behind its target by more than the other stages
    "released",  # violation x (1 + arrivals per second / 10) above 0.1
]


OUR_GAINS: Final = Gains(1.0, 0.1, 0.0)


@dataclass(frozen=True, slots=True)
class CorrectorSettings:
    """When and by how much a stage grows.

    ``control``: ``rate`` is the PID switched off: as many replicas as keep the work stable, and no more.
    ``bounded``: the PID's output is cut off at what the formula says the target needs. ``anti_windup``: see
    ``Pid``. ``drain_s``: within
    which the requests that wait are to be served: they count as arrivals of so many seconds (ours).
    ``target_s``: of each stage; 0: its share of the SLO by execution time. ``relative``: the error is a share
    of the target, else seconds. ``cool_down_s``: from one growth of a stage to its next. ``key_margin``: how
    many times the median of all stages' delays (each over its target) a key stage has. ``key_passes``: whose
    mean delay is evidence that a stage is slow; that of fewer is mostly chance, for who comes behind a long
    pass waits for it too (ours: at a CV of 0.2, the default, 20 passes have a mean within 9 % in 95 of 100
    cases). ``most_replicas``: of one stage; 0: as the service has it.
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
    key_rule: KeyRule = "outstanding"
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
    only what no instant of so many seconds needed (ours; Kubernetes calls it the stabilization window).
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
