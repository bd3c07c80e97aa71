"""Views with metrics for tests of scalers."""

from dataclasses import replace

from serving.protocols.scaling import FixedRole, InstanceState, InstanceView, ScaleDecision, ScalingView
from serving.protocols.signals import InstanceSignals, RoleMeans, Signals, StartingSignals
from serving.vocabulary.estimates import Estimates, ModelEstimates
from serving.vocabulary.measured import NOTHING, Measured
from serving.vocabulary.replica import Role
from serving.vocabulary.units import NS_PER_S

ESTIMATES = Estimates(
    (
        ModelEstimates(
            model="m",
            prefill_tokens_per_s=1000.0,
            decode_step_s=0.02,
            decode_sequences=10,
            decode_context_tokens=1000,
            kv_tokens=10_000,
        ),
    ),
    "made up",
)


def role_of(
    serving: int, loading: int = 0, role: Role = "both", minimum: int = 1, maximum: int = 20
) -> FixedRole:
    """Instances 0, 1, ... of a role: first those that serve."""
    states: list[InstanceState] = [*["serving"] * serving, *["loading"] * loading]  # type: ignore[list-item]
    views = tuple([InstanceView(number, state) for number, state in enumerate(states)])
    return FixedRole(role, views, minimum, maximum)


def signals_of(at_s: float, role: FixedRole, *, window_s: float = 60.0, **of_each: float) -> Signals:
    """Every serving instance has these gauges."""
    gauges = {"waiting": 0, "running": 0, "kv_use": 0.0, "prompt_tokens": 0} | of_each
    serving = role.in_state("serving")
    instances = [InstanceSignals(one.id, role.role, ready_ns=0, **gauges) for one in serving]  # type: ignore[arg-type]
    mean = RoleMeans(
        role.role,
        instances=len(serving),
        waiting=gauges["waiting"] * len(serving),
        running=gauges["running"] * len(serving),
        kv_use=gauges["kv_use"],
        prompt_tokens=gauges["prompt_tokens"] * len(serving),
    )
    starting = [StartingSignals(one.id, role.role, 0, None) for one in role.in_state("loading")]
    return Signals(
        round(at_s * NS_PER_S),
        round(window_s * NS_PER_S),
        requests=0,
        prompt_tokens=0,
        queued=0,
        oldest_wait_s=0.0,
        prefix_hit_share=0.0,
        instances=tuple(instances),
        starting=tuple(starting),
        means=(mean,),
        measured=NOTHING,
    )


def view_of(
    at_s: float, role: FixedRole, signals: Signals | None, spare: int = 20, **more: int
) -> ScalingView:
    """A model with one role. ``more``: loads in tokens."""
    loads = {"backlog_tokens": 1, "kv_tokens": 0, "migrating_tokens": 0} | more
    return ScalingView(
        round(at_s * NS_PER_S),
        "m",
        roles=(role,),
        prefill_tokens_per_s=1000.0,
        kv_tokens_per_instance=10_000,
        kv_tokens_per_s=50_000.0,
        spare=spare,
        signals=signals,
        **loads,
    )


def arrived(signals: Signals, requests: int, prompt_tokens: int, measured: Measured = NOTHING) -> Signals:
    """The same with arrivals in its window, and what was measured."""
    return replace(signals, requests=requests, prompt_tokens=prompt_tokens, measured=measured)


def change(decisions: tuple[ScaleDecision, ...]) -> int:
    """Instances started, wanted in vain included, less those drained."""
    return sum([-one.count if one.act == "drain" else one.count for one in decisions])
