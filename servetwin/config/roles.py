"""Refusals of prefill and decode instances of unequal size, one sentence each."""

from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError


def check_roles(config: RunConfig) -> None:
    """Refuse settings that do not fit instances of ``model.prefill.tp`` and ``model.decode.tp`` GPUs."""
    model, system = config.model, config.system
    if model.prefill.tp is None and model.decode.tp is None:
        return
    head = "model.prefill.tp" if model.prefill.tp is not None else "model.decode.tp"
    instead = f"leave {head} out"
    if not system.instances.split or system.elastic:
        raise UserError(
            f"{head} needs a static system with prefill and decode apart, and system={system.name} is none: "
            f"write system=distserve_full, or {instead}"
        )
    if config.kind == "realexec":
        raise UserError(f"{head} cannot be run by realexec, whose instances are one worker each: {instead}")
    if config.models.name != "one":
        raise UserError(f"{head} does not fit models={config.models.name}: write models=one, or {instead}")
    if model.pp > 1:
        raise UserError(f"{head} does not fit model.pp={model.pp}: write model.pp=1, or {instead}")
    _check_gpus(config, head)


def _check_gpus(config: RunConfig, head: str) -> None:
    (prefill_tp, decode_tp), instances = config.model.tp_of_roles, config.system.instances
    if instances.prefill is None or instances.decode is None:
        raise UserError(
            f"{head} needs the number of instances of each role: write system.instances.prefill=N and "
            "system.instances.decode=M"
        )
    needed = -(-instances.prefill * prefill_tp // decode_tp) * decode_tp + instances.decode * decode_tp
    if needed > config.cluster.gpus:
        raise UserError(
            f"{instances.prefill} prefill instances of {prefill_tp} GPUs and {instances.decode} decode "
            f"instances of {decode_tp} need {needed} GPUs, and cluster={config.cluster.name} has "
            f"{config.cluster.gpus}: write a larger cluster, or fewer instances"
        )
