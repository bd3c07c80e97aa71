"""Instances from wish to GPU and back: seats are occupied, parameters loaded, requests served, GPUs freed.

What the policies of ``serving.elastic.elastic`` decide is carried through here, the slow parts over many
events.
"""

from collections.abc import Callable, Mapping, Sequence

from serving.elastic.instances import Instances
from serving.elastic.setup import ElasticParts
from serving.elastic.sources import provision_for
from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK
from serving.live.loads import live_targets
from serving.parameters.cache_answers import AskedCopies
from serving.parameters.loads import UNDER_WAY, Loads
from serving.parameters.parameter_pool import Reload
from serving.protocols.provision_answers import AskedProvisioner
from serving.protocols.provisioning import Missing, Provisioned, missing_of
from serving.protocols.scaling import ScaleDecision, ScaleEvent
from serving.services.service import Service
from serving.vocabulary.actions import Action, Load, Place, Reclaim, Stop, StopLoad, Turn
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.replica import Replica, Role


class Deployment:
    """The instances of all models. ``history``: every decision and what came of it, with the reasons."""

    __slots__ = (
        "_begun_ns", "_cluster", "_engines", "_limits", "_loads", "_numbers", "_overlapping", "_park_ns",
        "_place", "_provisioner", "_services", "active_ns", "asked_copies", "copies",
        "drained", "history", "instances",
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
        setup, copies = parts.setup, parts.copies
        cluster, prototypes = setup.cluster, setup.prototypes
        self._engines, self._services, self._loads, self._place = engines, services, Loads(), place
        self._limits = setup.limits
        self._begun_ns: dict[int, int] = {}  # of the loads under way
        self._overlapping: set[int] = set()  # of these, behind which a pass may run
        self._cluster = cluster
        self._provisioner = AskedProvisioner(parts.policies.provisioner)
        self._park_ns = setup.park_ns
        self.copies, self.asked_copies = copies, AskedCopies(copies, cluster.hosts, prototypes)
        self.instances = Instances(cluster, prototypes, placed)
        self.asked_copies.start([(one.model, one.id, cluster.host_of(one.gpus[0])) for one in placed])
        self.history: list[ScaleEvent] = []
        self.active_ns: dict[int, int] = {}  # when each replica began to serve, or reported last
        self.drained: set[int] = set()  # instances that go as soon as they may
        self._numbers = 0  # of loads

    def loaded(self, now_ns: int, event: Loaded, actions: list[Action]) -> None:
        """More of a load is there; with all of it an instance serves."""
        load = self._loads.in_flight[event.load].load
        kind, number = load.targets[event.target]
        whole = self._loads.loaded(event) is not None
        there = kind == "replica" and number in self.instances.live  # else it was lost meanwhile
        live = self._services[load.model].live if there else None
        if live is not None and number in live.pairs:
            live.layers_came(now_ns, number, event.layers, whole, actions)
            if not whole:
                self._services[load.model].feed(actions)
        if there and (whole or self._overlaps(now_ns, load, number, event.layers)):
            if self.instances.live[number].state == "loading":
                self.instances.loaded(number)
                what = "is whole" if whole else f"has brought {event.layers} layers, the rest overlaps"
                self.note(now_ns, "ready", number, f"load {load.load} {what}")
                self._engines[number].ready(actions)
                self.active_ns[number] = now_ns
                self._join(number, actions)
            if whole:
                self.asked_copies.deployed(load.model, number, self._host(number), now_ns)
        self._ended(now_ns, load, True, actions)

    def _overlaps(self, now_ns: int, load: Load, number: int, layers: int) -> bool:
        """Whether what is still to come takes no longer than a prefill pass, at the pace so far.

        Then the pass can run layer by layer behind the load (PipeSwitch). Earlier, requests would wait here
        while others could serve them; an instance that decodes needs all layers at every step.
        """
        replica, role = self.instances.live[number].replica, self.instances.live[number].role
        if load.load not in self._overlapping or role == "decode" or not layers:
            return False
        count = len(replica.layers)
        took_ns = now_ns - self._begun_ns[load.load]
        return took_ns * (count - layers) <= self._limits[load.model].pass_ns * layers

    def load_stopped(self, now_ns: int, event: LoadStopped, actions: list[Action]) -> None:
        """A load ended early: its instance is given up, the load monitor will want another."""
        load = self._loads.in_flight[event.load].load
        kind, number = self._loads.ended_early(event)
        if kind == "replica" and number in self.instances.live:
            state = self.instances.live[number].state
            assert state == "loading", f"load {load.load} was stopped while replica {number} is {state}"
            service = self._services[load.model]
            if service.live is not None and number in service.live.pairs:
                service.live.load_stopped(number)
                service.feed(actions)
            if service.outstanding(number):  # others end what it has begun
                self.drained.add(number)
            else:
                self._leave_gpus(now_ns, number, f"load {load.load} stopped: {event.cause}", actions)
        self._ended(now_ns, load, False, actions)

    def lost(self, now_ns: int, replica: int, cause: str, actions: list[Action]) -> None:
        """An instance is gone with its parameters."""
        model = self.instances.live[replica].replica.model
        self.drained.discard(replica)
        self.note(now_ns, "lost", replica, cause)
        self.instances.lost(replica)
        self._stop_loads(("replica", replica), f"replica {replica} is lost", actions)
        for reload in self.asked_copies.lost(model, replica, now_ns):
            self._reload(now_ns, reload, actions)
        for instance in self.instances.of(model):  # one that drains may have waited for what is lost
            if instance.state == "draining":
                self.reclaim(now_ns, instance.replica.id, actions)

    def lost_host(self, now_ns: int, host: int, actions: list[Action]) -> None:
        """A host is gone with its memory, its SSD and its free GPUs, after its replicas were ``lost``."""
        self.instances.lost_host(host)
        for kind in ("host", "ssd"):
            self._stop_loads((kind, host), f"host {host} is lost", actions)
        for reload in self.asked_copies.lost_host(host, now_ns):
            self._reload(now_ns, reload, actions)

    def _stop_loads(self, stop: Stop, reason: str, actions: list[Action]) -> None:
        """Loads that have a lost stop on their way go nowhere; the world tells when each has ended."""
        for flight in self._loads.in_flight.values():
            load = flight.load
            missing = [target for target, state in zip(load.targets, flight.states) if state is UNDER_WAY]
            if stop in load.sources or stop in missing:
                actions.append(StopLoad(load.load, reason))

    def start(self, now_ns: int, decision: ScaleDecision, actions: list[Action]) -> Missing | None:
        """Occupy seats and begin the loads that the provisioner chose; what does not come."""
        model = decision.model
        wanted = provision_for(
            model,
            decision.role,
            decision.count,
            self.instances,
            self._cluster,
            self.asked_copies.hosts(model, now_ns),
            self._loads,
            self._services[model].kv_senders(),
        )
        answer = self._provisioner.provision(wanted)
        chosen = self._live(now_ns, decision, answer)
        live = self._services[model].live
        if chosen and answer.overlap:
            self._provisioner.refuse_overlap(answer)
        layers_first = bool(chosen) and live is not None and not live.embeds
        for edge in answer.edges:
            lives = not chosen.isdisjoint(number for _, number in edge.targets)
            for _, number in edge.targets:
                works = "; works while it loads" if number in chosen else ""
                self.note(now_ns, "load", number, decision.reason + works, decision)
                self._occupy(number, decision.role, False, edge.reason, actions)
            load = Load(
                self._numbers,
                model,
                edge.sources,
                edge.targets,
                edge.shards,
                answer.overlap or lives,
                True,
                f"{decision.reason}; {edge.reason}{'; live' if lives else ''}",
                layers_first,
            )
            if answer.overlap:
                self._overlapping.add(load.load)
            self._begin(now_ns, load, actions)
        return missing_of(wanted, answer)

    def _live(self, now_ns: int, decision: ScaleDecision, answer: Provisioned) -> set[int]:
        """Which of the instances work while they load: never those that are to decode only."""
        model = decision.model
        live = self._services[model].live
        if live is None or decision.role == "decode" or not answer.edges:
            return set()
        chosen = live.choose(now_ns, live_targets(answer.edges, self._limits[model].size_bytes))
        for number in chosen:
            live.begin(now_ns, number)
        return set(chosen)

    def _begin(self, now_ns: int, load: Load, actions: list[Action]) -> None:
        self._begun_ns[load.load] = now_ns
        self._numbers += 1
        self._loads.begin(load)
        self.asked_copies.begin(load, self._hosts(load), now_ns)
        actions.append(load)

    def _ended(self, now_ns: int, load: Load, whole: bool, actions: list[Action]) -> None:
        """Nothing more, unless all targets of the load have got what they get."""
        if load.load not in self._loads.in_flight:
            del self._begun_ns[load.load]
            self._overlapping.discard(load.load)
            for reload in self.asked_copies.end(load, self._hosts(load), whole, now_ns):
                self._reload(now_ns, reload, actions)
            self.reclaim_drained(now_ns, actions)

    def _reload(self, now_ns: int, reload: Reload, actions: list[Action]) -> None:
        """A copy comes to a host's memory."""
        target: Stop = ("host", reload.domain)
        load = Load(self._numbers, reload.model, (reload.source,), (target,), (), False, False, reload.reason)
        self._begin(now_ns, load, actions)

    def _occupy(self, number: int, role: Role, warm: bool, reason: str, actions: list[Action]) -> None:
        instance = self.instances.place(number, role, "serving" if warm else "loading")
        seat = instance.replica
        actions.append(Place(number, seat.model, seat.gpus, role, warm, reason))
        self._place(seat, role, warm)

    def _join(self, number: int, actions: list[Action]) -> None:
        instance = self.instances.live[number]
        self._services[instance.replica.model].join(instance.replica, instance.role, actions)

    def turn(self, number: int, role: Role, reason: str, actions: list[Action]) -> None:
        """A serving instance changes its role."""
        self.instances.turn(number, role)
        replica = self.instances.live[number].replica
        actions.append(Turn(number, role, reason))
        self._services[replica.model].leave(number, actions)
        self._join(number, actions)

    def drain(self, now_ns: int, number: int, actions: list[Action]) -> None:
        """An instance takes nothing new and goes when it is empty."""
        self.instances.drain(number)
        self.drained.add(number)
        self._services[self.instances.live[number].replica.model].leave(number, actions)
        self.reclaim(now_ns, number, actions)

    def reclaim(self, now_ns: int, number: int, actions: list[Action]) -> None:
        """Free the GPUs of a drained instance, when it is empty and nobody needs its parameters."""
        model = self.instances.live[number].replica.model
        if self._services[model].outstanding(number):
            return
        if self.instances.live[number].state == "loading":
            self.drained.discard(number)
            self._leave_gpus(now_ns, number, "its load stopped, and what it had begun is over", actions)
            return
        self.drained.add(number)
        reload = self.asked_copies.before_leaving(model, number, now_ns)
        if reload is not None:
            self._reload(now_ns, reload, actions)
        needed = ("replica", number) in self._loads.sending() or self._loads.to(number) is not None
        if needed or not self.asked_copies.may_leave(model, number):
            return
        self.drained.discard(number)
        self.asked_copies.left(model, number, now_ns)
        self._leave_gpus(now_ns, number, "empty", actions)

    def _leave_gpus(self, now_ns: int, number: int, reason: str, actions: list[Action]) -> None:
        loaded = self.instances.live[number].state != "loading"
        self.note(now_ns, "reclaimed", number, reason)
        self.instances.free(number, now_ns + self._park_ns if self._park_ns and loaded else None)
        self._engines[number].vacate()
        actions.append(Reclaim(number, reason))

    def _host(self, replica: int) -> int:
        return self._cluster.host_of(self.instances.seats[replica].gpus[0])

    def _hosts(self, load: Load) -> list[int]:
        """The hosts of a load's targets, each once."""
        return sorted({self._host(number) if kind == "replica" else number for kind, number in load.targets})

    def note(self, now_ns: int, act: str, number: int, reason: str, of: ScaleDecision | None = None) -> None:
        """Keep what was decided, or what came of it."""
        if of is not None:
            model, role = of.model, str(of.role)
        else:
            instance = self.instances.live[number]
            model, role = instance.replica.model, instance.role
        self.history.append(ScaleEvent(now_ns, act, model, role, number, reason))

    def waits(self) -> bool:
        """Whether one that is to go must be looked at again: of those at work, a report will tell."""
        return not all(self._engines[number].state in AT_WORK for number in self.drained)

    def reclaim_drained(self, now_ns: int, actions: list[Action]) -> None:
        """Instances that had to wait may be able to go now."""
        for replica in sorted(self.drained):
            self.reclaim(now_ns, replica, actions)

    def cancel_drain(self, number: int, actions: list[Action]) -> None:
        """A draining instance takes requests again."""
        self.drained.discard(number)
        self.instances.cancel_drain(number)
        self._join(number, actions)

    def revive(self, now_ns: int, number: int, role: Role, reason: str, actions: list[Action]) -> None:
        """An instance whose parameters are still on its GPUs serves again."""
        self._occupy(number, role, True, reason, actions)
        self.active_ns[number] = now_ns
        self.asked_copies.deployed(self.instances.seats[number].model, number, self._host(number), now_ns)
        self._join(number, actions)
