"""Number and roles of a system's instances, at the start and at most; which settings contradict."""

from dataclasses import dataclass
from typing import Final

from hwmodels.loading.starting import COMPILE_CACHES, KINDS
from servetwin.config.key import COUNT, NOT_NEGATIVE, Range, key
from servetwin.config.readers import (
    COMPILING_INSTANCES,
    MODELS_THAT_DECODE,
    SCALER,
    SCALER_OF_BOTH,
    SCALER_OF_ROLES,
    SIMULATION,
)
from serving.vocabulary.errors import UserError

QUEUES: Final = ("common", "per_instance")
# vLLM's --scheduling-policy, and the order of Llumnix's artefact.
SCHEDULING_POLICIES: Final = ("fcfs", "priority", "before_last")
SIZES: Final = ("full", "half", "minimum")
LEAST_PERIOD_MS: Final = 0.001  # a shorter period would round to nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesConfig:
    """Number and roles of a system's instances, at the start and at most."""

    split: bool = key(
        "prefill and decode on separate instances; requires a cluster with links and "
        "`engine.asynchronous=false`",
        default=False,
    )
    size: str = key(
        "instances of each model at the start. `full`: all that the GPUs hold; `half`: the "
        "need at the workload's mean rate and lengths; `minimum`: the fewest allowed",
        default="full",
        choices=SIZES,
        read_by=(MODELS_THAT_DECODE,),
    )
    prefill: int | None = key(
        "split systems: prefill instances with `full`; null: five to three of `decode`. Set both or neither",
        default=None,
        within=COUNT,
    )
    decode: int | None = key(
        "split systems: decode instances with `full`; null: three to five of `prefill`. Set both or neither",
        default=None,
        within=COUNT,
    )
    prefill_min: int = key(
        "fewest prefill instances of a model; 0 allows none",
        default=1,
        within=NOT_NEGATIVE,
        read_by=(SCALER_OF_ROLES,),
    )
    prefill_max: int | None = key(
        "most prefill instances; null: what the GPUs hold beside the fewest decode instances",
        default=None,
        within=NOT_NEGATIVE,
        read_by=(SCALER_OF_ROLES,),
    )
    decode_min: int = key(
        "the same of decode instances", default=1, within=NOT_NEGATIVE, read_by=(SCALER_OF_ROLES,)
    )
    decode_max: int | None = key(
        "most decode instances; null: what the GPUs hold beside the fewest prefill instances",
        default=None,
        within=NOT_NEGATIVE,
        read_by=(SCALER_OF_ROLES,),
    )
    both_min: int = key(
        "the same of instances that prefill and decode",
        default=1,
        within=NOT_NEGATIVE,
        read_by=(SCALER_OF_BOTH,),
    )
    both_max: int | None = key(
        "most instances that prefill and decode; null: what the GPUs hold",
        default=None,
        within=NOT_NEGATIVE,
        read_by=(SCALER_OF_BOTH,),
    )
    monitor_period_ms: float = key(
        "period of the load monitor", default=100.0, within=Range(low=LEAST_PERIOD_MS), read_by=(SCALER,)
    )
    keep_parameters_ms: float = key(
        "how long parameters stay on freed GPUs, for a revival",
        default=0.0,
        within=NOT_NEGATIVE,
        read_by=(SCALER,),
    )
    queue: str | None = key(
        "if instances do both, where requests wait: one `common` queue, or `per_instance` "
        "(dispatched at arrival); null: `common` with a scaler, else `per_instance` "
        "([SYSTEMS](../reference/SYSTEMS.md#how-an-instance-comes-and-goes))",
        default=None,
        choices=QUEUES,
        read_by=(MODELS_THAT_DECODE,),
    )
    start: str | None = key(
        "what a new instance [finds](../explanation/STARTUP.md): `cold` (nothing), `warm` "
        "(caches), `hot` (a sleeping process), `pooled` (all but parameters); null: as "
        "`engine.start_up` declares",
        default=None,
        choices=KINDS,
    )
    start_total_s: float | None = key(
        "in place of `start`: seconds from the decision until the instance serves, parameters "
        "included, or longer if they take longer",
        default=None,
        omit=None,
        within=Range(low=0, high=86_400),
        read_by=(SIMULATION,),
    )
    image_pull_s: float = key(
        "with `start=cold`: seconds of a host's first image pull",
        default=0.0,
        omit=0.0,
        within=Range(low=0, high=86_400),
        read_by=(SIMULATION,),
    )
    probe_s: float = key(
        "with `start=cold` or `warm`: seconds between readiness probes (Kubernetes' "
        "periodSeconds, 10 by default); 0: none",
        default=0.0,
        omit=0.0,
        within=Range(low=0, high=86_400),
        read_by=(SIMULATION,),
    )
    drain_s: float | None = key(
        "seconds that a drained instance has for its requests, then they fail (Kubernetes' "
        "terminationGracePeriodSeconds, 30 by default); null: no limit",
        default=None,
        omit=None,
        within=Range(low=0, high=86_400),
        read_by=(SCALER,),
    )
    compile_cache: str = key(
        "later starts find a compilation on the same `host`, on all (`shared`), `present` "
        "from the beginning, or `none`",
        default="host",
        choices=COMPILE_CACHES,
        read_by=(COMPILING_INSTANCES,),
    )
    scheduling_policy: str = key(
        "order in which requests wait and are preempted: `fcfs`, by `priority`, or high priority "
        "`before_last` ([MIGRATION](../explanation/MIGRATION.md#priorities)); not with live scaling",
        default="fcfs",
        choices=SCHEDULING_POLICIES,
        read_by=(MODELS_THAT_DECODE,),
    )
    both: int | None = key(
        "with a scaler and `size=full`: instances that do both at the start; null: what the GPUs hold",
        default=None,
        within=COUNT,
        read_by=(SCALER_OF_BOTH,),
    )


def check_instances(one: InstancesConfig, scaler: str, live: str) -> None:
    """Refuse settings that contradict each other, with a UserError."""
    _check_queue(one, live)
    _check_policy(one, live)
    _check_roles(one)
    if (one.prefill is None) != (one.decode is None):
        missing = "decode" if one.decode is None else "prefill"
        raise UserError(
            f"system.instances.{missing} is missing: write how many instances of each role the full "
            "system has"
        )
    for role in ("prefill", "decode", "both"):
        low, high = getattr(one, f"{role}_min"), getattr(one, f"{role}_max")
        if high is not None and high < max(low, 1):
            raise UserError(
                f"system.instances.{role}_max={high} is below {role}_min={low} or below 1: write a larger one"
            )
    if one.both is not None and (one.size != "full" or scaler == "none"):
        raise UserError(
            f"system.instances.both={one.both} is how many a scaler starts with: write "
            "system.instances.size=full and another option of system/scaler than none, or leave it out"
        )
    if scaler == "none" and one.size == "minimum":
        raise UserError(
            "system.instances.size=minimum would stay there, for system/scaler=none starts no instance: "
            "write system.instances.size=full or =half"
        )


def _check_queue(one: InstancesConfig, live: str) -> None:
    """Check where requests wait, and whether instances take requests from there."""
    if one.queue is None:
        return
    if one.split:
        raise UserError(
            f"system.instances.queue={one.queue} says nothing with system.instances.split=true, whose "
            "requests wait in one queue for an idle prefill instance: leave it out"
        )
    if one.queue == "per_instance" and live != "none":
        raise UserError(
            f"system.instances.queue=per_instance leaves nothing that system/live={live} could take: write "
            "system.instances.queue=common or system/live=none"
        )


def _check_policy(one: InstancesConfig, live: str) -> None:
    if one.scheduling_policy == "before_last" and (one.split or one.queue == "common"):
        raise UserError(
            "system.instances.scheduling_policy=before_last is the order of queues that instances have of "
            "their own: write system.instances.scheduling_policy=priority, or system.instances.split=false "
            "and system.instances.queue=per_instance"
        )
    if one.scheduling_policy != "fcfs" and live != "none":
        raise UserError(
            f"system.instances.scheduling_policy={one.scheduling_policy} does not fit system/live={live}, "
            "whose batches are in order of arrival: write system.instances.scheduling_policy=fcfs or "
            "system/live=none"
        )


def _check_roles(one: InstancesConfig) -> None:
    """Refuse numbers of roles that the system does not have."""
    if not one.split and (one.prefill is not None or one.decode is not None):
        raise UserError(
            "system.instances.prefill and .decode are for systems that split the roles, such as "
            "system=distserve_full: leave them out"
        )
