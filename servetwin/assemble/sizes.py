"""How many instances of each role a system starts with, and the bounds of its scaler."""

from collections.abc import Mapping, Sequence

from hwmodels.topology.cluster_file import load_cluster
from servetwin.assemble.hosted import HostedModel
from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import ModelEstimates
from serving.vocabulary.replica import Role
from traces.workload import Workload

# BlitzScale's static split of 16 instances is 10 for prefill and 6 for decode (its artefact's cluster files).
PREFILL_SHARE = 5 / 8


Bounds = Mapping[Role, tuple[int, int]]
"""(Fewest, most) instances of one model by role."""


def bounds_of(config: RunConfig, hosted: Sequence[HostedModel]) -> Bounds:
    """Return the scaler's bounds. Several models share the GPUs: each may use all that others do not need."""
    instances, seats = config.system.instances, seat_count(config, hosted)
    roles: tuple[Role, ...] = ("prefill", "decode") if instances.split else ("both",)
    bounds: dict[Role, tuple[int, int]] = {}
    for role in roles:
        low, high = getattr(instances, f"{role}_min"), getattr(instances, f"{role}_max")
        other_roles = sum(getattr(instances, f"{other}_min") for other in roles if other != role)
        bounds[role] = (low, max(low, min(seats, high if high is not None else seats - other_roles)))
    return bounds


def start_of(
    config: RunConfig, hosted: Sequence[HostedModel], estimates: ModelEstimates, workload: Workload
) -> dict[Role, int] | None:
    """Return each model's instances at the start by role; None: all that fit, in turns, for both roles.

    Raises UserError if they are more than the GPUs hold.
    """
    instances, seats = config.system.instances, seat_count(config, hosted)
    _check_placeable(config, hosted, seats)
    if instances.size == "full" and not instances.split:
        return None if instances.both is None else {"both": instances.both}
    if instances.size == "minimum":
        start = {role: low for role, (low, _) in bounds_of(config, hosted).items()}
    else:
        full = _full(config, seats)
        start = full if instances.size == "full" else _half(full, estimates, workload)
    needed = sum(start.values()) * len(hosted)
    if needed > seats:
        raise UserError(
            f"system={config.system.name} starts with {needed} instances and cluster={config.cluster.name} "
            f"holds {seats}: write a larger cluster, or fewer in system.instances"
        )
    return start


def _check_placeable(config: RunConfig, hosted: Sequence[HostedModel], seats: int) -> None:
    """Refuse instances that the cluster's GPUs can never hold."""
    system, cluster = config.system, config.cluster
    if system.instances.split and seats < 2:
        raise UserError(
            f"system={system.name} needs two instances, one per role, and cluster={cluster.name} holds "
            f"{seats}: write a larger cluster or a smaller model.tp"
        )
    if not system.elastic:
        return
    least = sum(low for low, _ in bounds_of(config, hosted).values()) * len(hosted)
    if least > seats:
        raise UserError(
            f"system={system.name} keeps at least {least} instances and cluster={cluster.name} holds "
            f"{seats}: write a larger cluster, or fewer in system.instances"
        )
    assert cluster.topology is not None, "an elastic system has links"
    spec = load_cluster(cluster.topology)
    for model in hosted:
        if model.tp > spec.gpus_per_host and not spec.holds_instances_of(model.tp):
            raise UserError(
                f"system={system.name} starts instances within one host or one NVLink domain, and "
                f"{model.shape_name} on {model.tp} GPUs is larger than the {spec.gpus_per_host} of a host of "
                f"cluster={cluster.name}: write hosts of at least {model.tp} GPUs, fewer GPUs per instance, "
                "or a system that does not scale"
            )


def seat_count(config: RunConfig, hosted: Sequence[HostedModel]) -> int:
    """Return how many instances of the largest model the GPUs hold, or of both roles if they differ."""
    (first, *_), instances = hosted, config.system.instances
    if first.decode_tp is not None and instances.prefill is not None and instances.decode is not None:
        return instances.prefill + instances.decode  # servetwin.config.roles has checked that they fit
    return config.cluster.gpus // max(model.gpus for model in hosted)


def _full(config: RunConfig, seats: int) -> dict[Role, int]:
    instances = config.system.instances
    if not instances.split:
        return {"both": seats}
    if instances.prefill is not None and instances.decode is not None:
        return {"prefill": instances.prefill, "decode": instances.decode}
    prefill = min(max(1, round(seats * PREFILL_SHARE)), seats - 1)
    return {"prefill": prefill, "decode": seats - prefill}


def _half(full: Mapping[Role, int], estimates: ModelEstimates, workload: Workload) -> dict[Role, int]:
    """Return the average need: prefill by prompt tokens, other roles in the proportion of ``full``.

    A colocated instance is counted by its prompt tokens and by the steps its decoding takes.
    """
    rate = workload.mean_rate_per_s or 0.0
    prompt_share = rate * float(workload.prompt_tokens.mean()) / estimates.prefill_tokens_per_s
    if "prefill" in full:
        prefill = min(full["prefill"], max(1, round(prompt_share)))
        decode = max(1, round(full["decode"] * prefill / full["prefill"]))
        return {"prefill": prefill, "decode": decode}
    decode_rate = estimates.decode_sequences / estimates.decode_step_s
    decode_share = rate * float(workload.output_tokens.mean()) / decode_rate
    return {"both": min(full["both"], max(1, round(prompt_share + decode_share)))}
