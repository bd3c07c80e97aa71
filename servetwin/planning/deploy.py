"""How an answer is deployed: the command of its servers, and Kubernetes objects in a folder."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.config.config import RunConfig
from servetwin.planning.manifest import deployment, object_name, service
from servetwin.planning.scaler_objects import Scaled, adapter_rules, scaler_object, scaler_remarks
from servetwin.planning.serve_command import SGLANG, ServeCommand, serve_command, why_no_command
from servetwin.report.number_text import counted
from serving.vocabulary.replica import Replica

MANIFEST: Final = "kubernetes.yaml"
ADAPTER: Final = "prometheus_adapter.yaml"
_HOST_GPUS: Final = 8  # of the largest hosts on which one pod has all GPUs
_ABOUT: Final = (
    "# Written by servetwin plan, and not tried on a cluster: kubectl apply -f kubernetes.yaml\n"
    "# If the model needs a token of Hugging Face:\n"
    "# kubectl create secret generic hugging-face --from-literal=token=TOKEN\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleServers:
    """The servers of a role: ``instances`` of ``gpus`` GPUs at the start, from ``least`` to ``most``."""

    role: str
    instances: int
    gpus: int
    least: int
    most: int
    command: ServeCommand

    @property
    def line(self) -> str:
        """Return the command line."""
        settings = [f"{name}={value}" for name, value in self.command.settings.items()]
        return " ".join([*settings, shlex.join(self.command.words)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """``why_not``: why there is no command; then nothing else is there."""

    config: RunConfig
    roles: tuple[RoleServers, ...] = ()
    remarks: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def scaled(self) -> list[Scaled]:
        """The Deployments as a scaler sees them."""
        return [
            Scaled(name=object_name(self.config, one.role), role=one.role, least=one.least, most=one.most)
            for one in self.roles
        ]

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the manifest."""
        found = []
        for one, scaled in zip(self.roles, self.scaled, strict=True):
            scaler = scaler_object(self.config, scaled)
            replicas = one.instances if scaler is None else None
            found.append(deployment(self.config, one.role, one.command, one.gpus, replicas))
            found += [service(self.config, one.role), *([] if scaler is None else [scaler])]
        return found

    def as_data(self) -> dict[str, Any] | None:
        """Return what plan.json has."""
        if self.why_not:
            return {"why_not": self.why_not}
        commands = [{"role": one.role, "instances": one.instances, "gpus": one.gpus, "command": one.line}
                    for one in self.roles]  # fmt: skip
        return {"servers": commands, "remarks": list(self.remarks)}


def deploy_of(config: RunConfig, replicas: Iterable[Replica], words: Sequence[str]) -> Deploy:
    """Return how a run's instances are deployed. ``replicas``: those at its start; ``words``: of the run."""
    if why := why_no_command(config):
        return Deploy(config=config, why_not=why)
    counts = Counter[str](replica.role for replica in replicas)
    names = ("prefill", "decode") if config.system.instances.split else ("both",)
    roles = tuple([_servers(config, role, counts, words) for role in names])
    remarks = [*(remark for one in roles for remark in one.command.remarks), *_remarks(config, roles)]
    return Deploy(config=config, roles=roles, remarks=tuple(dict.fromkeys(remarks)))


def _servers(config: RunConfig, role: str, counts: Mapping[str, int], words: Sequence[str]) -> RoleServers:
    model, ranks = config.model, config.engine.data_parallel_size
    tp = {"prefill": model.tp_of_roles[0], "decode": model.tp_of_roles[1]}.get(role, model.tp)
    instances = counts[role] // ranks
    least, most = instances, instances
    if config.system.elastic:
        least = getattr(config.system.instances, f"{role}_min")
        other = {"prefill": "decode_min", "decode": "prefill_min"}.get(role)
        room = config.cluster.gpus // (model.tp * model.pp)
        room -= getattr(config.system.instances, other) if other else 0
        most = getattr(config.system.instances, f"{role}_max") or room
    return RoleServers(
        role=role,
        instances=instances,
        gpus=tp * model.pp * ranks,
        least=least,
        most=most,
        command=serve_command(config, role, tp, words),
    )


def _remarks(config: RunConfig, roles: Sequence[RoleServers]) -> list[str]:
    lines = scaler_remarks(config)
    if config.system.scaler.name != "none" and all(one.least >= one.most for one in roles):
        fewest = ", ".join(f"system.instances.{one.role}_min={one.least}" for one in roles)
        lines.append(
            f"the scaler never scales: {fewest} are as many as {counted(config.cluster.gpus, 'GPU')} or a "
            "given maximum hold: write a smaller minimum"
        )
    if any(one.gpus > _HOST_GPUS for one in roles):
        lines.append(
            f"an instance has {max(one.gpus for one in roles)} GPUs: a pod of a Deployment is on one host; "
            "for several write a LeaderWorkerSet with the same command"
        )
    if len(roles) > 1:
        proxy = "sglang_router with --pd-disaggregation" if config.engine.software == SGLANG else "a proxy"
        lines.append(
            f"prefill and decode servers need {proxy} in front that sends each request to one of both"
        )
    elif config.system.dispatch.name != "round_robin" and roles[0].most > 1:
        lines.append(
            f"the Service does not see loads; system/dispatch={config.system.dispatch.name} needs a "
            "router that sees the servers' loads"
        )
    return lines


def lines_of(deploy: Deploy) -> list[str]:
    """Return the lines for the console."""
    if deploy.why_not:
        return [f"to deploy: no command, because {deploy.why_not}"]
    lines = []
    for one in deploy.roles:
        role = "" if one.role == "both" else f", {one.role}"
        servers = counted(one.instances, "server")
        if one.least != one.most:
            servers = f"{one.least} to {counted(one.most, 'server')}"
        lines += [f"to deploy, {servers} of {counted(one.gpus, 'GPU')}{role}:", f"  {one.line}"]
    return [*lines, *(f"  {remark}" for remark in deploy.remarks)]


def write_manifest(deploy: Deploy, folder: Path) -> None:
    """Write the Kubernetes objects into a folder; nothing where there is no command."""
    if deploy.why_not:
        return
    remarks = "".join(f"# {remark}\n" for remark in deploy.remarks)
    (folder / MANIFEST).write_text(f"{_ABOUT}{remarks}{_yaml(deploy.objects())}", encoding="utf-8")
    if (rules := adapter_rules(deploy.config, deploy.scaled)) is not None:
        (folder / ADAPTER).write_text(_yaml([rules]), encoding="utf-8")


def _yaml(objects: list[dict[str, Any]]) -> str:
    """Return documents in which what is equal is written again, and no alias of the first."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump_all(objects, Dumper=Plain, sort_keys=False, explicit_start=True, width=1000)
