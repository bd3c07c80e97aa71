"""Builds a run's faults from the configuration: what each of them hits, and when."""

import heapq
import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal, get_args

from hwmodels.topology.cables import cables_of
from hwmodels.topology.topology import Topology, build
from policies.dispatch import RoundRobin
from servetwin.assemble.data_plane import spec_of
from servetwin.assemble.groups import groups_of
from servetwin.assemble.hosted import hosted_models
from servetwin.assemble.streams import seed_of
from servetwin.config.compose.durations import MAX_TIME_S
from servetwin.config.config import RunConfig
from servetwin.config.faults_config import NO_FAULTS, ONE_OF
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import NS_PER_S
from simcore.faults.plan import Fault, FaultPlan, What

Part = Literal["replica", "host", "link", "ssd"]
"""What a cluster may lose for good."""
_NS_PER_HOUR = 3600 * NS_PER_S
_FORM = "write AT_S:WHAT:WHICH with + between, such as faults.events=10:replica:3+20:link:host0/nic1"


def fault_plan_of(config: RunConfig, replicas: Sequence[Replica]) -> FaultPlan | None:
    """Return the fault plan; None without faults. UserError for a target that the cluster lacks."""
    faults, spec = config.faults, spec_of(config)
    if faults == NO_FAULTS:
        return None
    topology = None if spec is None else build(spec)
    gpus_of, groups = [replica.gpus for replica in replicas], groups_of(config, replicas)
    world = _FaultTargets(config, topology, len(replicas))
    notice_ns = round((faults.notice_s or 0.0) * NS_PER_S)
    if faults.name == "drawn":
        rates = {kind: getattr(faults, f"{kind}_per_hour") or 0.0 for kind in get_args(Part)}
        for kind, rate in rates.items():
            if rate:
                world.most(kind, f"faults.{kind}_per_hour={rate:g}")
        return FaultPlan(drawn(config.seed, rates), gpus_of, topology, groups, notice_ns)
    if faults.name == "scheduler":
        assert faults.at_s is not None and faults.duration_s is not None
        planned = [world.scheduler(faults.at_s, faults.duration_s, "faults=scheduler")]
    elif faults.name == "listed":
        planned = [_parse_fault(word.strip(), world) for word in str(faults.events).split("+")]
    else:
        kind = ONE_OF[faults.name]
        assert faults.at_s is not None
        planned = [world.fault(faults.at_s, kind, str(getattr(faults, kind)), f"faults.{kind}")]
    return FaultPlan(sorted(planned, key=lambda fault: fault.at_ns), gpus_of, topology, groups, notice_ns)


def drawn(seed: int, per_hour: dict[Part, float]) -> Iterator[Fault]:
    """Yield faults without end: a Poisson process per kind, whose random stream no other kind affects."""
    streams = [
        _process(kind, rate, Random(seed_of(seed, f"faults/{kind}")))
        for kind, rate in per_hour.items()
        if rate
    ]
    return heapq.merge(*streams, key=lambda fault: fault.at_ns)


def _process(kind: Part, per_hour: float, random: Random) -> Iterator[Fault]:
    at_hours = 0.0
    while True:
        at_hours -= math.log(1.0 - random.random()) / per_hour
        if not at_hours * 3600 <= MAX_TIME_S:
            return
        yield Fault(round(at_hours * _NS_PER_HOUR), kind, None, random.random())


def _parse_fault(word: str, world: "_FaultTargets") -> Fault:
    parts = word.split(":", 2)
    if len(parts) != 3:
        raise UserError(f"faults.events has '{word}': {_FORM}")
    try:
        at_s = float(parts[0])
    except ValueError:
        at_s = math.nan
    if not 0 <= at_s <= MAX_TIME_S:
        raise UserError(
            f"faults.events has '{word}', whose time is no number of seconds up to {MAX_TIME_S:g}: {_FORM}"
        )
    if parts[1] == "scheduler":
        return world.scheduler(at_s, _duration_s(word, parts[2]), f"faults.events has '{word}', which")
    return world.fault(at_s, parts[1], parts[2], f"faults.events has '{word}', and {parts[1]}")


def _duration_s(word: str, text: str) -> float:
    try:
        duration_s = float(text)
    except ValueError:
        duration_s = math.nan
    if not 0 < duration_s <= MAX_TIME_S:
        raise UserError(
            f"faults.events has '{word}', whose duration is no number of seconds above 0 and up to "
            f"{MAX_TIME_S:g}: write AT_S:scheduler:DURATION_S, such as faults.events=10:scheduler:30"
        )
    return duration_s


def bypass_of(config: RunConfig) -> RoundRobin | None:
    """Return what dispatches while the global scheduler is lost; None if no fault of the run is its loss.

    Llumnix's paper (section 5) names no rule. In its code a frontend counts the requests that it has sent to
    each instance by itself and chooses the instance with the fewest (``_generate_by_instance``): in turn.
    """
    events = str(config.faults.events).split("+") if config.faults.name == "listed" else ()
    listed = any(word.strip().split(":")[1:2] == ["scheduler"] for word in events)
    return RoundRobin() if config.faults.name == "scheduler" or listed else None


class _FaultTargets:
    """The parts of a run's cluster that can fail."""

    def __init__(self, config: RunConfig, topology: Topology | None, replicas: int) -> None:
        self._config, self._topology, self._replicas = config, topology, replicas

    def scheduler(self, at_s: float, duration_s: float, key: str) -> Fault:
        """Return the loss of the global scheduler. UserError if no request of the run passes through one."""
        system = self._config.system
        shared = system.instances.queue == "common" or (system.elastic and not system.instances.queue)
        if system.instances.split or system.in_stages:
            raise UserError(
                f"{key} needs instances that do prefill and decode, to which requests are dispatched, and "
                f"system={system.name} has others: write another system, such as system=llumnix_base"
            )
        if shared:
            raise UserError(
                f"{key} needs a queue for each instance, and in system={system.name} requests wait in one for"
                " all: write system.instances.queue=per_instance, or another system, such as llumnix_base"
            )
        return Fault(round(at_s * NS_PER_S), "scheduler", duration_ns=round(duration_s * NS_PER_S))

    def fault(self, at_s: float, name: str, which: str, key: str) -> Fault:
        """Return a fault that can happen in this cluster. ``key``: how the user wrote it."""
        kinds: dict[str, Part] = {kind: kind for kind in get_args(Part)}
        if name not in kinds:
            raise UserError(f"{key} is no kind of loss: write one of {', '.join(get_args(What))}")
        kind = kinds[name]
        most = self.most(kind, f"{key}={which}")
        if kind == "link":
            return Fault(round(at_s * NS_PER_S), kind, self._cable(which, key))
        if not (which.isdecimal() and which.isascii()) or int(which) >= most:
            raise UserError(
                f"{key}={which} is not in this run, which has {most} of them: write a number from 0 to "
                f"{most - 1}"
            )
        return Fault(round(at_s * NS_PER_S), kind, int(which))

    def most(self, kind: Part, key: str) -> int:
        """Return how many of this kind the run has, or may have. Raises UserError if it has none."""
        config, topology = self._config, self._topology
        if kind == "replica":
            return self._replicas if not config.system.elastic else self._replicas + self._seats()
        cluster = config.cluster.name
        if topology is None:
            raise UserError(
                f"{key} cannot be lost in cluster={cluster}, of which only GPUs are known: write a cluster "
                "with hosts and links, such as cluster=blitz_a or cluster=dgx_h100, or faults=one_replica"
            )
        count = {
            "host": len(topology.hosts),
            "ssd": len(topology.hosts) if topology.spec.ssd is not None else 0,
            "link": len(cables_of(topology)),
        }[kind]
        if not count:
            raise UserError(f"{key} cannot be lost in cluster={cluster}, which has no {kind}: leave it out")
        return count

    def _seats(self) -> int:
        """Return the most instances that may be added: one of each model on every group of GPUs."""
        assert self._topology is not None
        return sum(len(self._topology.gpus) // model.gpus for model in hosted_models(self._config))

    def _cable(self, name: str, key: str) -> int:
        assert self._topology is not None
        names = [cable.name for cable in cables_of(self._topology)]
        if name not in names:
            raise UserError(
                f"{key}={name} is no cable of cluster={self._config.cluster.name}: write one from {names[0]} "
                f"to {names[-1]}"
            )
        return names.index(name)
