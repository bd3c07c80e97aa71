"""Starts and stops replicas of stages: from the decision to the load, from the last pass to the free GPU."""

from collections import Counter
from collections.abc import Callable, Mapping

from serving.elastic.stage_peers import StagePeers
from serving.elastic.stage_setup import StageScaling
from serving.engine.engine import Engine
from serving.engine.progress import EngineState
from serving.parameters.kept_copies import KeptCopies
from serving.parameters.loads import Loads
from serving.protocols.scaling import InstanceState, ScaleEvent
from serving.protocols.stages import StartReplicas, StopReplicas
from serving.services.staged import StagedService
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import Stage
from serving.vocabulary.actions import Action, AllocateGpus, Endpoint, Load, ReleaseGpus, Shard, StopLoad
from serving.vocabulary.events import Loaded, LoadStopped
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, Role

# Memory and CPU cores of the hosts: copies of stages, and the cores that replicas use.


class HostResources:
    """``copies``: copies of stages in the hosts' memory. ``lost``: lost hosts; ``lost_ssds``: lost SSDs."""

    __slots__ = ("_setup", "copies", "lost", "lost_ssds", "taken_cores")

    def __init__(self, setup: StageScaling) -> None:
        self._setup = setup
        self.copies = KeptCopies(setup.hosts.count, setup.hosts.memory_bytes, setup.sizes_bytes)
        self.taken_cores = Counter[int]()
        self.lost = set[int]()
        self.lost_ssds = set[int]()

    def free_cores(self, host: int) -> int:
        """Number of cores that no replica uses."""
        return self._setup.hosts.cpu_cores - self.taken_cores[host]

    @property
    def most_bytes(self) -> int:
        """How much of a host's memory copies may use."""
        return int(self._setup.copies_share * self._setup.hosts.memory_bytes)

    def lose(self, host: int) -> None:
        """Remove a lost host's memory, SSD and GPUs."""
        self.lost.add(host)
        self.copies.lose(host)


Place = Callable[[Replica, Role, bool], None]


class StageReplicas:
    """``states``: the state of each replica that has a GPU. ``history``: every decision and its result.

    ``changes``: number of events that changed a replica. ``loads``: loads in progress. ``hosts``: copies from
    which a stage can be loaded.
    """

    __slots__ = (
        "_engines", "_given_up", "_next_load", "_peers", "_place", "_seats", "_services", "_setup", "changes",
        "history", "hosts", "loads", "states",
    )  # fmt: skip

    def __init__(
        self,
        setup: StageScaling,
        engines: Mapping[int, Engine],
        services: Mapping[str, StagedService],
        seats: GpuSeats,
        place: Place,
    ) -> None:
        self._setup, self._engines, self._services = setup, engines, services
        self._seats, self._place = seats, place
        self._next_load = self.changes = 0
        self.loads = Loads()
        self.hosts = HostResources(setup)
        residency = self.loads.residency
        self._given_up: dict[int, str] = {}  # loading failed; waits until no other replica loads from it
        self._peers = None if setup.peers is None else StagePeers(setup.peers, self.loads, residency.has)
        self.history: list[ScaleEvent] = []
        self.states: dict[int, InstanceState] = {}
        for number, engine in engines.items():
            self.states[number] = "serving"
            self.loads.residency.put(("replica", number), engine.replica.part)
            self.hosts.taken_cores[self.host_of(number)] += setup.cores

    def host_of(self, replica: int) -> int:
        """The host of the replica."""
        return self._setup.hosts.of(self._engines[replica].replica.gpus[0])

    def without_nic(self, nic: int) -> None:
        """Plan no more loads over this NIC."""
        if self._peers is not None:
            self._peers.cluster = self._peers.cluster.without_nic(nic)

    def without_ssd(self, host: int) -> None:
        """Plan no more loads from this SSD."""
        if self._peers is not None:
            self._peers.cluster = self._peers.cluster.without_ssd(host)

    def gives_up(self, replica: int) -> bool:
        """Whether the replica's load is being stopped."""
        loading = self._engines[replica].state is EngineState.LOADING and replica not in self._given_up
        return self.states[replica] == "draining" and loading

    def has(self, host: int, part: Part) -> bool:
        """Whether a replica on the host has the parameters."""
        residency = self.loads.residency
        return any(
            residency.has(("replica", number), part) for number in self.states if self.host_of(number) == host
        )

    def stage_number(self, part: Part) -> int:
        """The index of the stage in its model."""
        return [stage.part for stage in self._services[part.model].stages].index(part)

    def cores_of(self, replica: int) -> int:
        """The replica's CPU cores."""
        return self._services[self._engines[replica].replica.model].cores.get(replica, self._setup.cores)

    def set_cores(self, replica: int, cores: int) -> None:
        """Set the replica's CPU cores from its next pass on."""
        self.hosts.taken_cores[self.host_of(replica)] += cores - self.cores_of(replica)
        self._services[self._engines[replica].replica.model].cores[replica] = cores

    # Starting replicas.

    def start(
        self, now_ns: int, service: StagedService, stage: Stage, wish: StartReplicas, actions: list[Action]
    ) -> None:
        """Start replicas on the named GPUs, else on hosts with a copy, then on GPUs with fewest replicas."""
        cores = wish.cpu_cores or self._setup.cores
        wanting = list[Replica]()  # replicas to load from peers
        for number in range(wish.count):
            gpu = wish.gpus[number] if wish.gpus else self._best_gpu(stage.part, cores)
            source = None if gpu is None else self._source_on_host(gpu, stage.part, wish.source)
            asks = self._peers is not None and wish.source == "any" and (source is None or source[0] == "ssd")
            if gpu is None or (source is None and not asks):
                why = "no GPU has room" if gpu is None else f"nothing to load from beside GPU {gpu}"
                self.tell(now_ns, "shortage", service.model, -1, f"stage {stage.index}: {why}")
                break
            replica = self._place_on_gpu(stage.part, gpu, cores, wish.reason, actions)
            if asks:
                wanting.append(replica)
            else:
                assert source is not None
                self._begin(
                    now_ns,
                    stage.part,
                    sources=(source,),
                    targets=(replica.id,),
                    shards=(),
                    reason=wish.reason,
                    actions=actions,
                )
        if wanting:
            self._from_peers(now_ns, stage.part, wanting, wish.reason, actions)

    def _from_peers(
        self, now_ns: int, part: Part, wanting: list[Replica], reason: str, actions: list[Action]
    ) -> None:
        """Load as the provisioner plans; the remaining replicas load from their host, or not at all."""
        assert self._peers is not None
        first = list(
            {replica.gpus: replica for replica in reversed(wanting)}.values()
        )  # one replica on each GPU
        there = [self._engines[number].replica for number in self.states]
        served = set[int]()
        peers = [
            replica
            for replica in there
            if replica.part.model == part.model and replica.part.has(*part.layers)
        ]
        for edge in self._peers.edges(part, first, peers, self.hosts.copies.hosts_of(part)):
            targets = tuple([number for _, number in edge.targets])
            served |= set(targets)
            self._begin(
                now_ns,
                part,
                sources=edge.sources,
                targets=targets,
                shards=edge.shards,
                reason=reason,
                actions=actions,
            )
        for replica in wanting:
            if replica.id in served:
                continue
            source = self._source_on_host(replica.gpus[0], part, "any")
            if source is None:
                self._release(now_ns, replica.id, "nothing to load from", actions)
            else:
                self._begin(
                    now_ns,
                    part,
                    sources=(source,),
                    targets=(replica.id,),
                    shards=(),
                    reason=reason,
                    actions=actions,
                )

    def _best_gpu(self, part: Part, cores: int) -> int | None:
        """The best GPU with room for the parameters, on a host with enough cores; None if there is none."""
        hosts, resources, seats = self._setup.hosts, self.hosts, self._seats
        size = seats.bytes_of(part)
        options = [
            (not resources.copies.has(host, part), len(seats.replicas_on(gpu)), gpu)
            for host in range(hosts.count)
            if host not in resources.lost and resources.free_cores(host) >= cores
            for gpu in hosts.gpus(host)
            if seats.free_bytes(gpu) >= size
        ]
        return min(options)[2] if options else None

    def _source_on_host(self, gpu: int, part: Part, wanted: str) -> Endpoint | None:
        """The host's memory if it has a copy, else its SSD; None if neither can be read."""
        host = self._setup.hosts.of(gpu)
        if host in self.hosts.lost:
            return None
        if wanted != "ssd" and self.hosts.copies.has(host, part):
            return ("host", host)
        return None if wanted == "host" or host in self.hosts.lost_ssds else ("ssd", host)

    def _place_on_gpu(self, part: Part, gpu: int, cores: int, reason: str, actions: list[Action]) -> Replica:
        """Give a replica its GPU; it loads next."""
        replica = self._former(part, gpu)
        number = replica.id
        self._place(replica, "both", False)
        self._seats.enter(replica)
        self.states[number] = "loading"
        self.hosts.taken_cores[self.host_of(number)] += cores
        self._services[part.model].cores[number] = cores
        actions.append(
            AllocateGpus(
                number, part.model, gpus=(gpu,), role="both", warm=False, reason=reason, layers=part.layers
            )
        )
        return replica

    def _begin(
        self,
        now_ns: int,
        part: Part,
        *,
        sources: tuple[Endpoint, ...],
        targets: tuple[int, ...],
        shards: tuple[Shard, ...],
        reason: str,
        actions: list[Action],
    ) -> None:
        ends = tuple([("replica", number) for number in targets])
        live = self._services[part.model].live_stages
        load = Load(
            self._next_load,
            part.model,
            sources=sources,
            targets=ends,
            shards=shards,
            every_layer=live is not None,
            cold=False,
            reason=reason,
            layers=part.layers,
        )
        self._next_load += 1
        self.loads.begin(load)
        self.hosts.copies.begin(now_ns, load)
        actions.append(load)
        for number in targets:
            if live is not None:
                live.begin(number)
            self.tell(now_ns, "load", part.model, number, f"{reason}, from {sources[0][0]}")

    def _former(self, part: Part, gpu: int) -> Replica:
        """The former replica of that part on this GPU, now gone, or a new one."""
        for engine in self._engines.values():
            replica = engine.replica
            if engine.state is EngineState.VACANT and replica.gpus == (gpu,) and replica.part == part:
                return replica
        return self._services[part.model].replica_of(part, 1 + max(self._engines, default=-1), gpu)

    def loaded(self, now_ns: int, event: Loaded, actions: list[Action]) -> None:
        """Let a fully loaded replica serve, unless draining. Partly loaded it may already work."""
        load = self.loads.in_flight[event.load].load
        number, there = load.targets[event.target][1], self.loads.loaded(event) is not None
        if (live := self._services[load.model].live_stages) is not None and live.loads(number):
            live.layers_loaded(number, event.layers, there, actions)
        if there:
            self._came(now_ns, number, actions)
            self._sent(now_ns, load, actions)

    def _came(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        engine = self._engines[replica]
        if engine.state is EngineState.LOST:
            return
        part = engine.replica.part
        self.hosts.copies.came(now_ns, self.host_of(engine.id), part)
        engine.ready(actions)
        if self.states[engine.id] == "draining":
            self.empty(now_ns, engine.id, actions)
            return
        self.states[engine.id] = "serving"
        self.tell(now_ns, "ready", part.model, engine.id, "its parameters are there")
        self._services[part.model].join(engine.replica, "both", actions)

    def load_stopped(self, now_ns: int, event: LoadStopped, actions: list[Action]) -> None:
        """Drain the replica of a load that ended early."""
        flight, endpoint = self.loads.in_flight[event.load], self.loads.ended_early(event)
        if endpoint[1] in self.states:
            self._leave(now_ns, endpoint[1], event.cause, actions)
        self._sent(now_ns, flight.load, actions)

    def _leave(self, now_ns: int, replica: int, reason: str, actions: list[Action]) -> None:
        """Drain a replica without its parameters; it is released once no other replica loads from it."""
        self._given_up[replica], self.states[replica] = reason, "draining"
        live = self._services[self._engines[replica].replica.model].live_stages
        if live is not None and live.loads(replica):
            live.stop(replica, actions)
        self.empty(now_ns, replica, actions)

    def _sent(self, now_ns: int, load: Load, actions: list[Action]) -> None:
        """A load has ended at one target: release draining sources that are no longer needed."""
        if load.load not in self.loads.in_flight:
            self.hosts.copies.end(now_ns, load)
        for kind, number in load.sources:
            if kind == "replica":
                self.empty(now_ns, number, actions)

    # Stopping replicas.

    def stop(self, now_ns: int, service: StagedService, wish: StopReplicas, actions: list[Action]) -> None:
        """Stop new requests to these replicas; stop the loads that have no other target."""
        for replica in wish.replicas:
            if self.states[replica] == "draining":
                continue
            before, self.states[replica] = self.states[replica], "draining"
            self.tell(now_ns, "drain", service.model, replica, wish.reason)
            flight = self.loads.to(replica)
            if before == "loading" and flight is not None:
                if len(flight.load.targets) == 1 and ("replica", replica) not in self.loads.sending():
                    actions.append(StopLoad(flight.load.load, wish.reason))
                continue  # a load with other targets runs to its end
            service.leave(replica, actions)
            self.empty(now_ns, replica, actions)

    def empty_all(self, now_ns: int, actions: list[Action]) -> None:
        """Release every draining replica that is empty."""
        for replica in sorted(
            [other_state for other_state, state in self.states.items() if state == "draining"]
        ):
            self.empty(now_ns, replica, actions)

    def empty(self, now_ns: int, replica: int, actions: list[Action]) -> None:
        """Release a draining replica if its last pass has ended and no other replica loads from it."""
        engine, gave_up = self._engines[replica], self._given_up.get(replica)
        works = engine.layer_pass is not None or (gave_up is None and engine.state is not EngineState.IDLE)
        if self.states.get(replica) != "draining" or works:
            return
        sends = ("replica", replica) in self.loads.sending()
        if self._services[engine.replica.model].outstanding(replica) == 0 and not sends:
            self._release(now_ns, replica, gave_up or "it is empty", actions)

    def _release(self, now_ns: int, replica: int, reason: str, actions: list[Action]) -> None:
        engine = self._engines[replica]
        actions.append(ReleaseGpus(replica, reason))
        engine.vacate()
        self._seats.leave(engine.replica)
        self._gone(now_ns, replica, "released", reason)

    def lost(self, now_ns: int, replica: int, cause: str) -> None:
        """Remove a lost replica and its GPU memory; its service already knows."""
        if replica in self.states:
            self._gone(now_ns, replica, "lost", cause)

    def _gone(self, now_ns: int, replica: int, act: str, reason: str) -> None:
        model = self._engines[replica].replica.model
        self.hosts.taken_cores[self.host_of(replica)] -= self.cores_of(replica)
        self._services[model].forget(replica)
        self._given_up.pop(replica, None)
        del self.states[replica]
        self.loads.residency.clear(("replica", replica))
        self.tell(now_ns, act, model, replica, reason)

    def tell(self, now_ns: int, act: str, model: str, replica: int, reason: str) -> None:
        """Add an event to the history."""
        self.changes += act != "shortage"
        self.history.append(ScaleEvent(now_ns, act, model=model, role="both", replica=replica, reason=reason))
