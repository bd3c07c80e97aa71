"""Refusals of settings that do not fit the start of instances (``system.instances.start``)."""

from typing import Final

from hwmodels.loading.starting import serves_while_loading
from servetwin.config.compose.starting import runs_layers_early, starting_of
from servetwin.config.config import RunConfig
from serving.vocabulary.errors import UserError

_FROM_INSTANCES: Final = (
    "policies.provisioning:NetworkProvisioner",
    "policies.provisioning:BinomialProvisioner",
)


def check_instance_starts(config: RunConfig) -> None:
    """Refuse starts that the run cannot have, with a UserError."""
    start, total_s = config.system.instances.start, config.system.instances.start_total_s
    if start is not None and total_s is not None:
        raise UserError(
            f"system.instances.start={start} has terms of its own, and system.instances.start_total_s="
            f"{total_s:g} takes their place: write one of the two"
        )
    _check_pod(config)
    if total_s is not None:
        _check_total(config, total_s)
        return
    if start is None:
        return
    if not config.system.elastic and config.cluster.start == "warm":
        raise UserError(
            f"system.instances.start={start} says nothing with system={config.system.name}, whose instances "
            "are there from the beginning: leave it out, or write cluster.start=host, ssd or remote"
        )
    if start == "hot":
        _check_hot(config)
    _check_serving_while_loading(config)


def _check_pod(config: RunConfig) -> None:
    """Refuse terms of a pod with starts that have none."""
    one = config.system.instances
    for name, seconds, kinds in (
        ("image_pull_s", one.image_pull_s, ("cold",)),
        ("probe_s", one.probe_s, ("cold", "warm")),
    ):
        if seconds and one.start not in kinds:
            said = "start_total_s" if one.start_total_s is not None else f"start={one.start or 'null'}"
            raise UserError(
                f"system.instances.{name}={seconds:g} is a part of a pod's start, and "
                f"system.instances.{said} has no such part: write system.instances.start={' or '.join(kinds)}"
            )


def _check_total(config: RunConfig, total_s: float) -> None:
    """Refuse a time of starts in a run without starts, and with instances that work before its end."""
    where = f"system.instances.start_total_s={total_s:g}"
    if not config.system.elastic and config.cluster.start == "warm":
        raise UserError(
            f"{where} says nothing with system={config.system.name}, whose instances are there from the "
            "beginning: leave it out, or write cluster.start=host, ssd or remote"
        )
    if early := runs_layers_early(config):
        instead = "system/live=none" if "live" in early else "system.provision.overlap=false"
        raise UserError(
            f"{where} is the time until an instance serves, and with {early} it works before: leave it out, "
            f"or write {instead}"
        )


def _check_hot(config: RunConfig) -> None:
    """Check that sleeping instances find their parameters in the memory of their own host."""
    provision, place = config.system.provision, config.cluster.start
    if config.system.elastic and provision.policy in _FROM_INSTANCES:
        raise UserError(
            f"system.instances.start=hot does not fit system/provision={provision.name}: instances that "
            "sleep have their parameters in the memory of their host, and it brings them from other "
            "instances; write system/provision=host and system/cache=everywhere, or "
            "system.instances.start=pooled"
        )
    if place in ("ssd", "remote"):
        raise UserError(
            f"system.instances.start=hot does not fit cluster.start={place}: instances that sleep have their "
            "parameters in the memory of their host; write cluster.start=host"
        )


def _check_serving_while_loading(config: RunConfig) -> None:
    """Refuse early layers with an engine that compiles and captures after the last byte."""
    start, early = config.system.instances.start, runs_layers_early(config)
    instead = "system/live=none" if "live" in early else "system.provision.overlap=false"
    if early and not serves_while_loading(starting_of(config)):
        raise UserError(
            f"system.instances.start={start} does not fit {early}: engine.start_up="
            f"{config.engine.start_up} compiles and captures after the last layer is there and runs none "
            f"before; write system.instances.start=pooled or {instead}"
        )
