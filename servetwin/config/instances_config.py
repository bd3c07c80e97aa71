"""Number and roles of a system's instances, at the start and at most; which settings contradict."""

from dataclasses import dataclass, fields
from typing import Final

from serving.vocabulary.errors import UserError

QUEUES: Final = ("common", "per_instance")
# vLLM's --scheduling-policy, and the order of Llumnix's artefact.
SCHEDULING_POLICIES: Final = ("fcfs", "priority", "before_last")
SIZES: Final = ("full", "half", "minimum")
LEAST_PERIOD_MS: Final = 0.001  # a shorter period would round to nothing
RESERVES: Final = ("max_new_tokens", "oracle", "mean")
# Keys that only systems of the other kind use, with the value that means unset.
_SPLIT_ONLY: Final = (
    ("prefill_min", 1), ("prefill_max", None), ("decode_min", 1), ("decode_max", None),
)  # fmt: skip
_WORDS: Final = ("queue", "start", "compile_cache", "scheduling_policy")
_BOTH_ONLY: Final = (("both_min", 1), ("both_max", None), ("both", None))


@dataclass(frozen=True, slots=True)
class InstancesConfig:
    """``split``: prefill and decode run on separate instances.

    ``size``: instances at the start, and throughout in a static system. ``full``: all that the GPUs hold,
    ``prefill`` of them for prefill and ``decode`` for decode (null: five to three, BlitzScale's 10P+6D). If
    an instance does both, ``both`` of them (null: all). ``half``: the workload's average need, computed.
    ``minimum``: the fewest allowed. The other keys bound a scaler, per model (a maximum of null: what the
    GPUs hold).

    ``queue``: where requests wait if instances do both (``QUEUES``); None: common if there is a scaler.
    ``start``, ``compile_cache``: what new instances find (``hwmodels.loading.starting``); start None: as
    ``engine.start_up`` declares. ``scheduling_policy``: the order in which requests wait and are preempted.
    """

    split: bool
    size: str
    prefill: int | None
    decode: int | None
    prefill_min: int
    prefill_max: int | None
    decode_min: int
    decode_max: int | None
    both_min: int
    both_max: int | None
    monitor_period_ms: float
    keep_parameters_ms: float
    queue: str | None = None
    start: str | None = None
    compile_cache: str = "host"
    scheduling_policy: str = "fcfs"
    both: int | None = None


def check_instances(one: InstancesConfig, scaler: str, live: str) -> None:
    """Refuse settings that contradict each other, with a UserError."""
    _check_queue(one, live)
    _check_policy(one, live)
    if one.size not in SIZES:
        raise UserError(f"system.instances.size={one.size} is unknown: write one of {', '.join(SIZES)}")
    _check_roles(one)
    if (one.prefill is None) != (one.decode is None):
        missing = "decode" if one.decode is None else "prefill"
        raise UserError(
            f"system.instances.{missing} is missing: write how many instances of each role the full "
            "system has"
        )
    for field in fields(one):
        value = getattr(one, field.name)
        if field.name in ("split", "size", "monitor_period_ms", *_WORDS) or value is None:
            continue
        least = 1 if field.name in ("prefill", "decode", "both") else 0
        if value < least:
            raise UserError(
                f"system.instances.{field.name}={value:g} is out of range: write a number of at least {least}"
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
    if one.monitor_period_ms < LEAST_PERIOD_MS:
        raise UserError(
            f"system.instances.monitor_period_ms={one.monitor_period_ms:g} would look all the time: write "
            f"milliseconds, at "
            f"least {LEAST_PERIOD_MS:g}"
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
    if one.queue not in QUEUES:
        raise UserError(
            f"system.instances.queue={one.queue} is unknown: write one of {', '.join(QUEUES)}, or null"
        )
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
    if one.scheduling_policy not in SCHEDULING_POLICIES:
        raise UserError(
            f"system.instances.scheduling_policy={one.scheduling_policy} is unknown: write one of "
            f"{', '.join(SCHEDULING_POLICIES)}"
        )
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
    for key, silent in _BOTH_ONLY if one.split else _SPLIT_ONLY:
        if (value := getattr(one, key)) != silent:
            roles = "prefill_ and decode_" if one.split else "both_"
            raise UserError(
                f"system.instances.{key}={value} says nothing with system.instances.split="
                f"{str(one.split).lower()}: leave it out, and write the keys that begin with {roles}"
            )
