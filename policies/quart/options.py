"""Builds stage scalers from configuration values; each keeps its own memory per model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from policies.quart.attention import GraphAttention
from policies.quart.attention_weights import WEIGHTS
from policies.quart.baselines import Cocktail, InferLine
from policies.quart.corrector import Corrector
from policies.quart.cpu import MOST_CORES, CpuCompensator
from policies.quart.cv import CvPredictor, Measured, Whitt
from policies.quart.demand import Sizing
from policies.quart.infless import Batching, Infless
from policies.quart.keys import MOST_USED, KeysManager
from policies.quart.pid import Gains
from policies.quart.placement import Placement
from policies.quart.quart import KEY_FOR_S, Quart
from policies.quart.queueing import DelayForm
from policies.quart.settings import DEFAULTS, SMOOTHER_DEFAULTS, CorrectorSettings, ErrorSign, KeyRule
from policies.quart.smoother import Smoother
from serving.protocols.stages import PipelineView, StageDecision, StageScaler

Predictor = Literal["none", "whitt", "measured", "attention"]


_PREDICTORS: Final[dict[str, CvPredictor]] = {
    "whitt": Whitt(),
    "measured": Measured(),
    "attention": GraphAttention(WEIGHTS),
}


class PerModel:
    """One scaler per model, made when its pipeline is first seen. ``memory_s``: memory of each scaler."""

    def __init__(self, make: Callable[[], StageScaler], memory_s: float) -> None:
        self._make, self.memory_s = make, memory_s
        self.of: dict[str, StageScaler] = {}

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """The decision of the model's own scaler."""
        policy = self.of.get(view.model)
        if policy is None:
            policy = self.of[view.model] = self._make()
        return policy.scale(view)


def quart(
    *,
    defaults: str = "reference",
    delay: str = "erlang_c",
    corrector: str = "pid",
    sign: str = "delay_minus_target",
    proportional: float | None = None,
    integral_per_s: float | None = None,
    derivative_s: float | None = None,
    bounded: bool | None = None,
    anti_windup: bool = True,
    drain_s: float | None = None,
    period_s: float | None = None,
    target_s: float | None = None,
    smoother: str = "whitt",
    hold_s: float | None = None,
    compensator: bool = True,
    most_cores: int = MOST_CORES,
    keys: bool = True,
    key_rule: str | None = None,
    key_margin: float | None = None,
    key_passes: int | None = None,
    most_used: float = MOST_USED,
    key_for_s: float = KEY_FOR_S,
    placement: bool = True,
    copies_first: bool = False,
) -> StageScaler:
    """QUART. ``defaults``: ``reference`` or ``released``; an argument of None takes its value from these.

    Parts can be switched off. Raises ValueError: one sentence that names the key.
    """
    _known("defaults", defaults, tuple(DEFAULTS))
    _known("delay", delay, get_args(DelayForm))
    _known("corrector", corrector, ("pid", "rate"))
    _known("sign", sign, get_args(ErrorSign))
    _known("smoother", smoother, get_args(Predictor))
    base = DEFAULTS[defaults]
    rule = _key_rule(key_rule or base.key_rule, key_margin=key_margin, key_passes=key_passes)
    values: dict[str, Any] = {"form": delay, "control": corrector, "sign": sign, "key_rule": rule}
    if drain_s is not None and drain_s <= 0:
        raise ValueError(f"drain_s={drain_s:g} is not a duration: write seconds above 0")
    values |= {"bounded": bounded, "anti_windup": anti_windup, "drain_s": drain_s}
    values |= {"period_s": period_s, "target_s": target_s, "key_margin": key_margin, "key_passes": key_passes}
    settings = replace(base, **{key: value for key, value in values.items() if value is not None})
    settings = replace(settings, gains=_gains(base, proportional, integral_per_s, derivative_s))
    smoothing = SMOOTHER_DEFAULTS[defaults]
    if hold_s is not None:
        smoothing = replace(smoothing, hold_s=hold_s)
    manager = KeysManager(most_used) if keys else None

    def make() -> StageScaler:
        return Quart(
            corrector=Corrector(settings),
            smoother=Smoother(_PREDICTORS[smoother], smoothing) if smoother != "none" else None,
            compensator=CpuCompensator(most_cores=most_cores) if compensator else None,
            keys=manager,
            placement=Placement(copies_first=copies_first) if placement else None,
            key_for_s=key_for_s,
        )

    memory_s = settings.period_s + settings.cool_down_s + smoothing.hold_s + key_for_s
    return PerModel(make, memory_s)


def infless(
    utilization: float = 0.8,
    keep_alive_s: float = 60.0,
    period_s: float = 1.0,
    batching: str = "non_uniform",
    sizing: str = "utilization",
) -> StageScaler:
    """INFless, approximated."""
    share = _share(utilization)
    _known("batching", batching, get_args(Batching))
    how: Batching = "uniform" if batching == "uniform" else "non_uniform"
    by = _sizing(sizing)
    return PerModel(lambda: Infless(share, keep_alive_s, period_s, how, sizing=by), keep_alive_s + period_s)


def inferline(
    *,
    planned_per_s: float | None = 0.0,
    utilization: float = 0.7,
    envelope_s: float = 30.0,
    settle_s: float = 15.0,
    period_s: float = 1.0,
    sizing: str = "utilization",
    mean_rate_per_s: float = 0.0,
) -> StageScaler:
    """InferLine, approximated. ``planned_per_s``: the planned rate.

    0, or None with an unknown mean rate: the rate of the first look in which requests arrive. None:
    ``mean_rate_per_s``, which the builder supplies. QUART's paper counts InferLine to the systems of "online
    dynamic scaling" (section 1) and starts "all scaling" with one replica (section 8.3), so by default it
    knows no rate before it has seen one.
    """
    planned = mean_rate_per_s if planned_per_s is None else planned_per_s
    share, by = _share(utilization), _sizing(sizing)
    memory_s = envelope_s + settle_s + period_s
    return PerModel(lambda: InferLine(planned, share, envelope_s, settle_s, period_s, sizing=by), memory_s)


def cocktail(
    *,
    utilization: float = 0.8,
    ahead_s: float = 10.0,
    history_s: float = 30.0,
    spares: int = 1,
    keep_s: float = 30.0,
    period_s: float = 1.0,
) -> StageScaler:
    """Cocktail, approximated."""
    share = _share(utilization)
    memory_s = history_s + keep_s + period_s
    return PerModel(
        lambda: Cocktail(
            utilization=share,
            ahead_s=ahead_s,
            history_s=history_s,
            spares=spares,
            keep_s=keep_s,
            period_s=period_s,
        ),
        memory_s,
    )


def _gains(base: CorrectorSettings, *value: float | None) -> Gains:
    usual = base.gains.proportional, base.gains.integral_per_s, base.gains.derivative_s
    return Gains(*[ours if own is None else own for own, ours in zip(value, usual, strict=True)])


def _key_rule(rule: str, **of_outstanding: float | None) -> str:
    """The rule, if it is one and reads all of these that are given."""
    _known("key_rule", rule, get_args(KeyRule))
    for key, value in of_outstanding.items():
        if value is not None and rule != "outstanding":
            raise ValueError(f"{key} is read with key_rule=outstanding only: write that, or drop {key}")
    return rule


def _known(key: str, value: str, options: tuple[str, ...]) -> None:
    if value not in options:
        raise ValueError(f"{key}={value} is unknown: write one of {', '.join(options)}")


def _sizing(sizing: str) -> Sizing:
    _known("sizing", sizing, get_args(Sizing))
    return "slo" if sizing == "slo" else "utilization"


def _share(utilization: float) -> float:
    if not 0 < utilization <= 1:
        raise ValueError(
            f"utilization={utilization} is not a share of time: write a number above 0 and at most 1"
        )
    return utilization
