"""Small elastic systems, and two ways to drive them: fact by fact, and by a world of single steps that loses
replicas.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from typing import Any

from hwmodels.topology.topology import Topology
from policies.admission import AdmitAll
from policies.batching import PrefillFirst
from policies.dispatch import LeastOutstanding
from policies.llumnix.dispatch import Freeness
from policies.provisioning import BinomialProvisioner, NetworkProvisioner, StoreProvisioner
from policies.scaling.load_monitor import SurplusArbiter, load_monitor
from servetwin.assemble.copies import cached, everywhere, pooled
from servetwin.assemble.elastic import cluster_map_of
from serving.composition import MigrationParts, ServiceOptions, compose
from serving.controller import Controller
from serving.elastic.setup import ElasticParts, ElasticPolicies, ElasticSetup, ModelLimits
from serving.engine.pool import EngineOptions
from serving.kv.handover import HandOverRules
from serving.parameters.cluster_map import ClusterMap
from serving.protocols.live import LivePolicy
from serving.protocols.planning import Port
from serving.protocols.provisioning import Provisioner
from serving.protocols.scaling import Act, ScaleDecision, Scaler, ScalingView
from serving.record.invariants import check
from serving.services.colocated.service import Queue
from serving.vocabulary.actions import (
    Action,
    AllocateGpus,
    Fail,
    JoinBatch,
    Load,
    Preempt,
    Reject,
    Run,
    Send,
    StopLoad,
    StopSend,
    Wake,
)
from serving.vocabulary.events import Arrived, Disconnected, Event, Loaded, LoadStopped, Lost, Ran, Sent, Woke
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

MS = 1_000_000
KV_BYTES_PER_TOKEN = 10
KV_BYTES = KvBytes(KV_BYTES_PER_TOKEN)
SIZE_BYTES = 1000  # parameters of every model
LAYERS = 4
PROVISIONERS: Mapping[str, Callable[[], Provisioner]] = {
    "multicast": NetworkProvisioner,
    "one_to_one": lambda: NetworkProvisioner("one_to_one"),
    "naive": lambda: NetworkProvisioner("naive"),
    "binomial": BinomialProvisioner,
    "host": lambda: StoreProvisioner(["host"]),
    "host_or_ssd": StoreProvisioner,
    "pipelined": lambda: StoreProvisioner(overlap=True),
}
COPIES: Mapping[str, Callable[..., Any]] = {"pool": pooled, "ttl": cached, "everywhere": everywhere}


@dataclass(frozen=True)
class Setting:
    """A system by hand. ``models``: name -> GPUs of an instance. ``start``, ``bounds``: by role, every model.

    ``elastic`` False: what is there at the start stays.
    """

    models: Mapping[str, int] = field(default_factory=lambda: {"m": 1})
    hosts: int = 2
    gpus_per_host: int = 2
    start: Mapping[Role, int] = field(default_factory=lambda: {"prefill": 1, "decode": 1})
    bounds: Mapping[Role, tuple[int, int]] | None = None
    elastic: bool = True
    provision: str = "host_or_ssd"
    copies: str = "pool"
    ways: tuple[str, ...] = ("cancel_drain", "revive")
    rules: Mapping[str, Any] = field(default_factory=dict)  # other parameters of the load monitor
    host_gb: float | None = None
    kv_blocks: int = 16
    sequence_blocks: int = 0
    block_tokens: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 16
    period_ns: int = 100 * MS
    park_ns: int = 0
    prefill_tokens_per_s: float = 1000.0
    kv_tokens_per_s: float = 1e6
    scale_up_bytes_per_s: int = 0
    pass_ns: int = 0
    coalesce: bool = True
    kv_bytes: KvBytes = KV_BYTES
    size_bytes: int = SIZE_BYTES
    whims: Callable[[], Scaler] | None = None  # instead of the load monitor, and without bounds
    live: Callable[[], LivePolicy] | None = None
    topology: Topology | None = None
    layers: int = LAYERS  # of every model
    queue: Queue | None = None  # of models whose instances do both
    max_model_len: int | None = None
    migration: Callable[[], MigrationParts] | None = None
    freeness: bool = False  # requests go to the freest by load reports
    reports: bool = True  # where requests migrate there are some

    @property
    def split(self) -> bool:
        return "both" not in self.start

    def prototype(self, model: str) -> Replica:
        gpus = tuple(range(self.models[model]))
        return Replica(
            id=-1,
            model=model,
            layers=LayerRange(0, self.layers),
            gpus=gpus,
            kv_blocks=self.kv_blocks,
            sequence_blocks=self.sequence_blocks,
            block_tokens=self.block_tokens,
            max_model_len=self.max_model_len,
        )

    def placed(self) -> list[Replica]:
        """The replicas of the start, GPUs in index order, groups where seats may be."""
        found, first = list[Replica](), 0
        for model, gpus in self.models.items():
            for role, count in self.start.items():
                for _ in range(count):
                    first = -(-first // gpus) * gpus
                    group = tuple(range(first, first + gpus))
                    found.append(replace(self.prototype(model), id=len(found), gpus=group, role=role))
                    first += gpus
        return found

    def cluster(self) -> ClusterMap:
        if self.topology is not None:
            return cluster_map_of(self.topology)
        hosts = range(self.hosts)
        gpus = range(self.hosts * self.gpus_per_host)
        ports = tuple(Port(gpu, gpu // self.gpus_per_host, 0, gpu, 1000) for gpu in gpus)
        memory = tuple((Port(-1, host, 0, host * self.gpus_per_host, 1000),) for host in hosts)
        return ClusterMap(
            gpus_per_host=self.gpus_per_host,
            ports=ports,
            host_ports=memory,
            scale_up_bytes_per_s=self.scale_up_bytes_per_s,
            stores=("ssd", "remote"),
        )

    def controller(self) -> Controller:
        """A fresh one."""
        placed = self.placed()
        return compose(
            placed,
            Freeness() if self.freeness else LeastOutstanding(),
            lambda _: PrefillFirst(self.max_num_seqs, self.max_num_batched_tokens),
            admission=AdmitAll(),
            engine_options=EngineOptions(coalesce=self.coalesce),
            service_options=self._service_options(),
            elastic=self._elastic() if self.elastic else None,
        )

    def _service_options(self) -> ServiceOptions:
        rules = {model: HandOverRules(self.kv_bytes, self.max_num_seqs) for model in self.models}
        migration = None if self.migration is None else self.migration()
        return ServiceOptions(
            hand_overs=rules if self.split else {},
            max_num_batched_tokens=self.max_num_batched_tokens,
            queue=self.queue,
            migration=migration,
            reports_period_ns=7 * MS if self.freeness or (self.reports and migration is not None) else 0,
        )

    def _elastic(self) -> ElasticParts:
        cluster = self.cluster()
        most = {role: (0, len(cluster.ports)) for role in self.start}
        limits = ModelLimits(
            bounds=self.bounds if self.bounds is not None and self.whims is None else most,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            kv_tokens=self.kv_blocks * self.block_tokens,
            kv_tokens_per_s=self.kv_tokens_per_s,
            pass_ns=self.pass_ns,
            size_bytes=self.size_bytes,
            activation_bytes_per_token=2,
            kv_bytes=self.kv_bytes,
            max_num_seqs=self.max_num_seqs,
        )
        setup = ElasticSetup(
            cluster=cluster,
            prototypes={model: self.prototype(model) for model in self.models},
            limits=dict.fromkeys(self.models, limits),
            period_ns=self.period_ns,
            park_ns=self.park_ns,
        )
        scaler = load_monitor(**{"ways": self.ways, "prescale_from": 0, **self.rules})

        asked = self.whims() if self.whims is not None else scaler
        policies = ElasticPolicies(
            asked,
            PROVISIONERS[self.provision](),
            SurplusArbiter(scaler.rules_of),
            None if self.live is None else self.live(),
        )
        sizes_bytes = dict.fromkeys([self.prototype(model).part for model in self.models], self.size_bytes)
        copies = COPIES[self.copies](sizes_bytes=sizes_bytes, hosts=self.hosts, host_gb=self.host_gb)
        return ElasticParts(setup, policies, copies)


class Whims:
    """A scaler that decides by chance, within what it may decide; a model with work gets an instance."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def scale(self, view: ScalingView) -> tuple[ScaleDecision, ...]:
        made: list[ScaleDecision] = []
        parked, spare = list(view.parked), view.spare

        def decide(act: Act, role: Role, *ids: int) -> None:
            made.append(
                ScaleDecision(
                    act=act,
                    model=view.model,
                    role=role,
                    count=max(1, len(ids)),
                    instances=ids,
                    reason="a whim",
                )
            )

        for role in view.roles:
            serving, draining = (
                [one.id for one in role.in_state(state)] for state in ("serving", "draining")
            )
            needed = view.has_work and not role.supply
            whim = self._random.random()
            if draining and (needed or whim < 0.3):
                decide("cancel_drain", role.role, draining[0])
            elif parked and (needed or whim < 0.4):
                decide("revive", role.role, parked.pop())
            elif needed or whim < 0.5:
                decide("load" if spare > 0 else "shortage", role.role)
                spare -= 1
            elif serving and whim < 0.7:
                others = [other for other in view.roles if other.role == "decode"]
                mutates = role.role == "prefill" and others and self._random.random() < 0.5
                decide("mutate" if mutates else "drain", "decode" if mutates else role.role, serving[-1])
        order = ("cancel_drain", "revive", "mutate", "load", "shortage", "drain")
        return tuple(sorted(made, key=lambda one: order.index(one.act)))


def bare(actions: list[Action]) -> list[Action]:
    """The actions without their reasons."""
    return [replace(action, reason="") for action in actions]


class Told:
    """A controller told one fact at a time, its invariants checked after each; answers without reasons."""

    def __init__(self, setting: Setting) -> None:
        self.controller = setting.controller()
        self.now_ns = 0

    def fact(self, event: Event, at_ns: int | None = None) -> list[Action]:
        self.now_ns = self.now_ns + 1 if at_ns is None else at_ns
        actions = self.controller.handle(self.now_ns, event)
        check(self.controller)
        return bare(actions)

    def arrive(self, id: int, prompt: int = 6, cap: int = 10, model: str = "m") -> list[Action]:
        return self.fact(Arrived(Request(id, self.now_ns, prompt, cap, model)))

    def ran(self, replica: int, *finished: int, steps: int = 1, epoch: int = 0) -> list[Action]:
        return self.fact(Ran(replica, epoch, steps, finished))

    def sent(self, transfer: int, cause: str = "") -> list[Action]:
        return self.fact(Sent(transfer, 0, cause))

    def lose(self, replica: int) -> list[Action]:
        return self.fact(Lost(replica, "gone"))

    def loaded(self, load: int, target: int = 0) -> list[Action]:
        return self.fact(Loaded(load, target, 4, True))

    def woke(self, at_ns: int) -> list[Action]:
        return self.fact(Woke(), at_ns)

    @property
    def deployment(self) -> Any:
        return self.controller.elastic.deployment

    @property
    def states(self) -> dict[int, tuple[str, str]]:
        """Replica -> role and state of its instance."""
        return {number: (one.role, one.state) for number, one in self.deployment.instances.live.items()}


class StepWorld:
    """Every step, load and transfer takes the time that ``spans`` says; replicas and hosts may be lost.

    For controllers that do not coalesce, so that nothing needs to be interrupted. What is sent from or to a
    replica that is lost ends with it: by turns that is told before the loss, or the controller stops it, or
    it runs on. After each event the invariants are checked. ``kv_bytes``, ``prompts_handed_over``: what the
    law of KV bytes compares.
    """

    def __init__(self, setting: Setting, spans: Callable[[str], int]) -> None:
        assert not setting.coalesce
        self.controller = setting.controller()
        self.setting, self.spans = setting, spans
        self._due: list[tuple[int, int, Callable[[], Event | None]]] = []
        self._number = 0
        self.now_ns = 0
        self.outputs: dict[int, int] = {}  # of requests in flight
        self.made: Counter[int] = Counter()
        self.decoding: dict[int, set[int]] = {}
        self.alive: dict[int, bool] = {}
        self.loads: dict[int, tuple[Load, set[int]]] = {}
        self.ended: Counter[str] = Counter()
        self.told: Counter[tuple[int, int]] = Counter()  # layers that were told of, by load and target
        self.actions: list[Action] = []
        self.prompts: dict[int, int] = {}
        self.on_the_wire: dict[int, Send] = {}
        self.stopped: Counter[str] = Counter()  # transfers that were not complete, by what stopped them

    def at(self, at_ns: int, what: Callable[[], Event | None]) -> None:
        self._number += 1
        heappush(self._due, (at_ns, self._number, what))

    def arrive(self, request: Request, output_tokens: int) -> None:
        def come() -> Event:
            self.outputs[request.id] = min(output_tokens, request.max_new_tokens)
            self.prompts[request.id] = request.prompt_tokens
            return Arrived(request)

        self.at(request.arrival_ns, come)

    def lose(self, at_ns: int, replica: int) -> None:
        """At this time, if it exists then."""

        def go() -> Event | None:
            engine = self.controller.engines.get(replica)
            if engine is None or not self.alive.get(replica, True):
                return None
            ends = [one for one, send in self.on_the_wire.items() if replica in (send.source, send.target)]
            for transfer in ends[: self._number % 3]:
                self.stopped["the world"] += 1
                self.tell(Sent(self.on_the_wire.pop(transfer).transfer, 0, "gone"))
            self.alive[replica] = False
            return Lost(replica, "gone")

        self.at(at_ns, go)

    def leave(self, at_ns: int, request: int) -> None:
        """Its client, at this time, if it waits in a queue then: it is at no instance, and ends at once."""

        def go() -> Event | None:
            services: Any = self.controller.services.values()
            waits = any(one.id == request for service in services for one in service.queue.requests)
            if not waits:
                return None
            del self.outputs[request]
            self.ended["left"] += 1
            return Disconnected(request)

        self.at(at_ns, go)

    def lose_host(self, at_ns: int, host: int) -> None:
        """Its replicas one after the other, then its memory and its SSD."""

        def go() -> None:
            elastic = self.controller.elastic
            deployment, size = elastic.deployment, self.setting.gpus_per_host
            live = deployment.instances.live.items()
            for replica in [number for number, one in live if one.replica.gpus[0] // size == host]:
                self.alive[replica] = False
                self.tell(Lost(replica, "host gone"))
            actions: list[Action] = []
            deployment.lost_host(self.now_ns, host, actions)
            check(self.controller)
            self.carry_out(actions)

        self.at(at_ns, go)

    def run(self, until_ns: int = 1 << 60) -> None:
        """Until nothing is due, or no request is in flight and only the monitor is due."""
        while self._due and self._due[0][0] <= until_ns:
            self.now_ns, _, what = heappop(self._due)
            event = what()
            if event is not None:
                self.tell(event)

    def tell(self, event: Event) -> None:
        actions = self.controller.handle(self.now_ns, event)
        check(self.controller)
        self.carry_out(actions)

    def carry_out(self, actions: list[Action]) -> None:
        self.actions += actions
        for action in actions:
            if isinstance(action, Run):
                self._run(action)
            elif isinstance(action, JoinBatch):
                self.decoding.setdefault(action.replica, set()).update(action.requests)
            elif isinstance(action, AllocateGpus):
                self.alive[action.replica] = True  # one that was lost for good is never placed again
            elif isinstance(action, Preempt):
                self.decoding[action.replica].discard(action.request)
            elif isinstance(action, Fail | Reject):
                del self.outputs[action.request]
                self.ended[type(action).__name__] += 1
            elif isinstance(action, Load):
                self._load(action)
            elif isinstance(action, StopLoad):
                self._stop(action.load)
            elif isinstance(action, Send):
                self._send(action)
            elif isinstance(action, StopSend):
                self.stopped["the controller"] += 1
                self._end_send(action.transfer, self.now_ns, "stopped")
            elif isinstance(action, Wake):
                self.at(action.at_ns, lambda: Woke() if self._awaited() else None)

    def _awaited(self) -> bool:
        """Whether requests are in flight or may come: after the last one the monitor does not look."""
        return bool(self.outputs or self._due)

    def _run(self, run: Run) -> None:
        assert run.max_steps == 1 and self.alive.get(run.replica, True)
        number = run.replica

        def end() -> Event | None:
            if not self.alive.get(number, True):
                return None
            residents = self.decoding.setdefault(number, set())
            sampled = set(residents) if run.decode else set()
            for request, start, tokens in run.chunks:
                if run.layers is not None and run.layers[1] < self.setting.layers:
                    continue
                if start + tokens == self.prompts[request] + self.made[request]:
                    sampled.add(request)
                    if not run.hand_over:
                        residents.add(request)
            sampled &= self.outputs.keys()  # a prompt may fail while its last layers run elsewhere
            for request in sampled:
                self.made[request] += 1
            done = tuple(sorted(one for one in sampled if self.made[one] == self.outputs[one]))
            residents.difference_update(done)
            for request in done:
                del self.outputs[request]
            self.ended["finished"] += len(done)
            return Ran(number, run.epoch, 1, done)

        self.at(self.now_ns + self.spans("step"), end)

    def _load(self, load: Load) -> None:
        self.loads[load.load] = load, set(range(len(load.targets)))
        span_ns = self.spans("load")
        at_ns = self.now_ns + span_ns
        for layers in range(1, LAYERS) if load.every_layer else ():
            for target in range(len(load.targets)):
                soon_ns = self.now_ns + span_ns * layers // LAYERS
                # Type: ignore[misc]
                self.at(soon_ns, lambda target=target, layers=layers: self._layer(load, target, layers))
        for target in range(len(load.targets)):
            self.at(at_ns, lambda target=target: self._whole(load, target))  # type: ignore[misc]

    def _layer(self, load: Load, target: int, layers: int) -> Event | None:
        if target not in self.loads[load.load][1]:
            return None
        self.told[load.load, target] = layers
        return Loaded(load.load, target, layers, False)

    def _whole(self, load: Load, target: int) -> Event | None:
        _, missing = self.loads[load.load]
        if target not in missing:
            return None
        feeders = [one for one, left in self.loads.values() if self._feeds(one, left, load)]
        if feeders:
            self.at(self.now_ns + 5 * MS, lambda: self._whole(load, target))
            return None
        missing.discard(target)
        return Loaded(load.load, target, self.setting.layers, True)

    @staticmethod
    def _feeds(one: Load, missing: set[int], load: Load) -> bool:
        return any(one.targets[target] in load.sources for target in missing) and one.load < load.load

    def _stop(self, number: int) -> None:
        load, missing = self.loads[number]
        followers = [
            one.load for one, left in self.loads.values() if left and self._feeds(load, missing, one)
        ]
        for target in sorted(missing):
            self.at(
                self.now_ns,
                lambda target=target: LoadStopped(number, target, self.told[number, target], "stopped"),
            )  # type: ignore[misc]
        missing.clear()
        for follower in followers:
            self._stop(follower)

    def _send(self, send: Send) -> None:
        self.on_the_wire[send.transfer] = send
        self._end_send(send.transfer, self.now_ns + self.spans("send"), "")

    def _end_send(self, transfer: int, at_ns: int, cause: str) -> None:
        """Told once, whatever ends it first."""

        def end() -> Event | None:
            send = self.on_the_wire.pop(transfer, None)
            return None if send is None else Sent(transfer, 0 if cause else send.size_bytes, cause)

        self.at(at_ns, end)
