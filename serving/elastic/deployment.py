"""Carries out scaling decisions: occupies GPUs, loads parameters, lets instances serve, frees GPUs.

The policies in ``serving.elastic.elastic`` make the decisions. Slow parts spread over many events.
"""

from collections.abc import Callable, Mapping, Sequence

from serving.elastic.drains import Drains
from serving.elastic.instances import Instances
from serving.elastic.load_progress import LoadProgress
from serving.elastic.placement import Placement
from serving.elastic.scale_log import ScaleLog
from serving.elastic.setup import ElasticParts
from serving.elastic.sources import provision_for
from serving.engine.engine import Engine
from serving.live.loads import live_targets
from serving.parameters.cache_answers import CheckedCopies
from serving.parameters.residency import Residency
from serving.protocols.provision_answers import CheckedProvisioner
from serving.protocols.provisioning import MissingInstances, Provisioned, missing_instances
from serving.protocols.scaling import ScaleDecision
from serving.services.colocated.migrating import Migrating
from serving.services.service import Service
from serving.vocabulary.actions import Action, Load
from serving.vocabulary.events import Loaded, LoadStopped, LossNotice, LostLink, LostSsd
from serving.vocabulary.replica import Replica, Role


class Deployment:
    """The instances of all models. ``active_ns``: when each replica began to serve, or last reported."""

    __slots__ = (
        "_keeps_lost_gpus", "_limits", "_noticed_ns", "_placement", "_progress", "_provisioner", "_services",
        "active_ns", "checked_copies", "cluster", "copies", "drains", "instances", "log", "residency",
    )  # fmt: skip

    def __init__(
        self,
        parts: ElasticParts,
        placed: Sequence[Replica],
        engines: Mapping[int, Engine],
        services: Mapping[str, Service],
        place: Callable[[Replica, Role, bool], None],
    ) -> None:
        """``placed`` serve from the start; ``place`` gives a replica its engine."""
        setup = parts.setup
        cluster, prototypes = setup.cluster, setup.prototypes
        self._services = services
        self.cluster = cluster
        self._limits, self._keeps_lost_gpus = setup.limits, setup.keeps_lost_gpus
        self._provisioner = CheckedProvisioner(parts.policies.provisioner)
        self.copies = parts.copies
        self.checked_copies = copies = CheckedCopies(
            parts.copies, cluster.hosts, [prototype.part for prototype in prototypes.values()]
        )
        self.log = ScaleLog()
        self.instances = Instances(cluster, prototypes, placed)
        copies.start([(replica.part, replica.id, cluster.host_of(replica.gpus[0])) for replica in placed])
        self.residency = residency = Residency()
        for replica in placed:
            residency.put(("replica", replica.id), replica.part)
        self.active_ns: dict[int, int] = {}
        self._noticed_ns: dict[int, int] = {}  # loading instances with a loss notice: when the loss comes
        self._placement = placement = Placement(
            instances=self.instances,
            cluster=cluster,
            park_ns=setup.park_ns,
            engines=engines,
            services=services,
            place=place,
            log=self.log,
            residency=residency,
        )
        self._progress = LoadProgress(copies, placement, setup.limits, residency)
        self.drains = Drains(placement, self._progress, copies, setup.grace_ns)

    def start(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> MissingInstances | None:
        """Occupy slots and begin the loads that the provisioner chose; returns what cannot be started."""
        model, part = decision.model, self.instances.part_of(decision.model)
        wanted = provision_for(
            model,
            decision.role,
            decision.count,
            instances=self.instances,
            cluster=self.cluster,
            host_copies=self.checked_copies.hosts(part, now_ns),
            loads=self._progress.loads,
            kv_senders=self._services[model].kv_senders(),
        )
        answer = self._provisioner.provision(wanted)
        chosen = self._live_instances(now_ns, decision, answer)
        live = self._services[model].live
        if chosen and answer.overlap:
            self._provisioner.refuse_overlap(answer)
        layers_first = bool(chosen) and not live.embeds
        for edge in answer.edges:
            lives = not chosen.isdisjoint([number for _, number in edge.targets])
            for _, number in edge.targets:
                works = "; works while it loads" if number in chosen else ""
                self.log.decided(now_ns, decision, number, decision.reason + works)
                self._placement.occupy(number, decision.role, False, edge.reason, actions)
            self._progress.begin(
                now_ns,
                part,
                edge,
                overlap=answer.overlap,
                live=lives,
                layers_first=layers_first,
                reason=decision.reason,
                actions=actions,
            )
        return missing_instances(wanted, answer)

    def _live_instances(self, now_ns: int, decision: ScaleDecision, answer: Provisioned) -> set[int]:
        """The instances that work while they load; never those that only decode."""
        model = decision.model
        live = self._services[model].live
        if not live.enabled or decision.role == "decode" or not answer.edges:
            return set()
        chosen = live.choose(now_ns, live_targets(answer.edges, self._limits[model].size_bytes))
        for number in chosen:
            live.begin(now_ns, number)
        return set(chosen)

    def model_of(self, event: Loaded | LoadStopped) -> str:
        """The model of the load that an event reports on."""
        return self._progress.load_of(event).model

    def loaded(self, now_ns: int, event: Loaded, actions: list[Action]) -> None:
        """Book more loaded layers; an instance serves once all layers are loaded."""
        load = self._progress.load_of(event)
        kind, number = load.targets[event.target]
        fully_loaded = self._progress.loads.loaded(event) is not None
        if kind == "replica" and number in self.instances.live:  # else the replica was lost meanwhile
            self._layers_came(
                now_ns,
                load=load,
                number=number,
                layers=event.layers,
                fully_loaded=fully_loaded,
                actions=actions,
            )
        self._end_load(now_ns, load, True, actions)

    def _layers_came(
        self, now_ns: int, *, load: Load, number: int, layers: int, fully_loaded: bool, actions: list[Action]
    ) -> None:
        service = self._services[load.model]
        if number in service.live.pairs:
            service.live.layers_loaded(now_ns, number, layers, fully_loaded, actions)
            if not fully_loaded:
                service.feed(actions)
        if not (fully_loaded or self._progress.overlaps(now_ns, load, number, layers)):
            return
        instance = self.instances.live[number]
        if instance.state == "loading":
            state = "is whole" if fully_loaded else f"has brought {layers} layers, the rest overlaps"
            self.log.happened(now_ns, "ready", instance, f"load {load.load} {state}")
            self._placement.loaded(number, actions)
            self.active_ns[number] = now_ns
            self._placement.join(number, actions)
            if self._noticed_ns.get(number, 0) > now_ns:
                self._terminate(now_ns, number, "there was a notice while it loaded", actions)
        if fully_loaded:
            self.checked_copies.deployed(load.part, number, self._placement.host_of(number), now_ns)

    def load_stopped(self, now_ns: int, event: LoadStopped, actions: list[Action]) -> None:
        """Give up the instance of a load that ended early; the load monitor will request another."""
        load = self._progress.load_of(event)
        kind, number = self._progress.loads.ended_early(event)
        if kind == "replica" and number in self.instances.live:
            state = self.instances.live[number].state
            assert state == "loading", f"load {load.load} was stopped while replica {number} is {state}"
            service = self._services[load.model]
            if number in service.live.pairs:
                service.live.load_stopped(number)
                service.feed(actions)
            if isinstance(service, Migrating):
                service.load_stopped(number, actions)
            self.drains.give_up(now_ns, number, f"load {load.load} stopped: {event.cause}", actions)
        self._end_load(now_ns, load, False, actions)

    def _end_load(self, now_ns: int, load: Load, fully_loaded: bool, actions: list[Action]) -> None:
        if self._progress.ended(now_ns, load, fully_loaded, actions):
            self.drains.reclaim_all(now_ns, actions)

    def loss_notice(self, now_ns: int, event: LossNotice, actions: list[Action]) -> None:
        """Handle a notice of a coming loss: the instance takes no new requests; a host gets no instances."""
        if event.what == "host":
            self.instances.close_host(event.number)
            return
        instance = self.instances.live.get(event.number)
        if instance is not None and instance.state == "loading":
            self._noticed_ns[event.number] = event.at_ns
        elif instance is not None and instance.state != "terminating":
            self._terminate(now_ns, event.number, event.cause, actions)

    def _terminate(self, now_ns: int, number: int, why: str, actions: list[Action]) -> None:
        self.log.happened(now_ns, "terminating", self.instances.live[number], why)
        self.drains.terminate(number, actions)

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """Remove a lost instance and its parameters."""
        instance = self.instances.live[replica]
        part = instance.replica.part
        self.drains.forget(replica)
        self.log.happened(now_ns, "lost", instance, cause)
        self.instances.lost(replica, self._keeps_lost_gpus)
        self.residency.clear(("replica", replica))
        self._progress.stop(("replica", replica), f"replica {replica} is lost", actions)
        self._progress.reload(now_ns, self.checked_copies.lost(part, replica, now_ns), actions)
        self.drains.reclaim_of(now_ns, part.model, actions)

    def lost_host(self, now_ns: int, host: int, actions: list[Action]) -> None:
        """Remove a lost host's memory, SSD and free GPUs, after its replicas were ``lost``."""
        self.instances.lost_host(host)
        for kind in ("host", "ssd"):
            self._progress.stop((kind, host), f"host {host} is lost", actions)
        self._progress.reload(now_ns, self.checked_copies.lost_host(host, now_ns), actions)

    def lost_ssd(self, now_ns: int, event: LostSsd, actions: list[Action]) -> None:
        """Plan no more loads from this SSD; the world reports the loads from it that stopped."""
        self.cluster = self.cluster.without_ssd(event.host)

    def lost_link(self, now_ns: int, event: LostLink, actions: list[Action]) -> None:
        """Plan GPUs behind a lost NIC as if behind the next NIC of their host."""
        self.cluster = self.cluster.without_nic(event.nic)
        self.instances.rewired(self.cluster)

    def switch_role(self, number: int, role: Role, reason: str, actions: list[Action]) -> None:
        """Change the role of a serving instance."""
        self._placement.switch_role(number, role, reason, actions)

    def limit_batch(self, now_ns: int, number: int, most: int, actions: list[Action]) -> None:
        """Let an instance admit requests only while fewer than ``most`` run there."""
        self._placement.limit_batch(now_ns, number, most, actions)

    def revive(self, now_ns: int, number: int, role: Role, reason: str, actions: list[Action]) -> None:
        """Let an instance whose parameters are still on its GPUs serve again."""
        self._placement.occupy(number, role, True, reason, actions)
        self.active_ns[number] = now_ns
        part, host = self.instances.replica(number).part, self._placement.host_of(number)
        self.checked_copies.deployed(part, number, host, now_ns)
        self._placement.join(number, actions)
