"""The data plane in virtual time: loads and transfers become flows, the ends of flows become events.

It uses the fabric, not SimPy: ``next_ns`` says when to call ``collect``, which returns the events up to then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import FlowSpec
from hwmodels.loading.chain import Chain
from hwmodels.loading.loader import Loader, load_loader
from hwmodels.loading.plan import ChunkSend, LoadStep
from hwmodels.topology.topology import Topology
from serving.vocabulary.actions import (
    Action,
    AllocateGpus,
    Endpoint,
    Load,
    ReleaseGpus,
    Span,
    StopLoad,
    StopSend,
)
from serving.vocabulary.actions import Send as Send
from serving.vocabulary.events import Event, LoadStopped, Sent
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S
from simcore.data_plane.channels import LoadRoute
from simcore.data_plane.load_routes import load_route, ranks_of
from simcore.data_plane.loading import SLACK_NS, Cutter, LoadRecord, LoadRun, rounded_up_ns
from simcore.data_plane.relays import Relays, by_begin
from simcore.data_plane.replica_placement import ReplicaPlacement
from simcore.data_plane.residency import Residency
from simcore.data_plane.setup import DataPlaneSetup
from simcore.data_plane.starts import Starts
from simcore.data_plane.transfer_flows import TransferFlows

# Lost parts of the cluster: loads over them end, transfers are rerouted or end, new ones are refused.


class Outages:
    """``given_up``: loads that ended early, or never began, because of a loss. True if anything is lost.

    ``topology``: without the lost links. ``loads``: in progress, kept up to date by its owner; ``end_early``
    ends one; ``tell`` takes events to report.
    """

    __slots__ = (
        "_causes", "_end_early", "_fabric", "_loads", "_places", "_residency", "_tell", "_transfers",
        "given_up", "topology",
    )  # fmt: skip

    def __init__(
        self,
        *,
        topology: Topology,
        fabric: Fabric,
        placement: ReplicaPlacement,
        residency: Residency,
        transfers: TransferFlows,
        loads: Mapping[int, LoadRun],
        end_early: Callable[[float, LoadRun, str], None],
        tell: Callable[[Sequence[Event]], None],
    ) -> None:
        self.topology, self._fabric, self._places, self._residency = topology, fabric, placement, residency
        self._transfers, self._loads, self._end_early, self._tell = transfers, loads, end_early, tell
        self._causes: dict[Endpoint, str] = {}
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._causes)

    # Losses.

    def lose_replica(self, now_ns: int, replica: int, cause: str) -> None:
        """A replica is lost with its GPUs: loads and transfers from or to it end."""
        self._places.lose(replica)
        self._tell(self._transfers.lose(self._now_s(now_ns), replica, cause))
        self.lose_stop(now_ns, ("replica", replica), cause)

    def lose_stop(self, now_ns: int, endpoint: Endpoint, cause: str) -> None:
        """End all loads from or to this lost endpoint."""
        self._causes[endpoint] = cause
        runs = self._loads.items()
        self._give_up(now_ns, [number for number, run in runs if run.has_open(endpoint)], cause)

    def lose_links(self, now_ns: int, topology: Topology, lost: frozenset[int], cause: str) -> None:
        """End loads that cross these links, reroute transfers; ``topology`` is without the links."""
        self.topology = topology
        self._causes["link", min(lost)] = cause
        self._give_up(now_ns, [number for number, run in self._loads.items() if run.links & lost], cause)
        self._tell(self._transfers.reroute(self._now_s(now_ns), topology, lost, cause))

    def _give_up(self, now_ns: int, loads: Iterable[int], cause: str) -> None:
        for number in loads:
            run = self._loads.get(number)
            if run is not None:  # it may have ended together with another one
                self.given_up += 1
                self._end_early(self._now_s(now_ns), run, cause)

    def _now_s(self, now_ns: int) -> float:
        return max(now_ns / NS_PER_S, self._fabric.now_s)

    # New loads.

    def way(
        self, load: Load, gpus_of: Mapping[int, tuple[int, ...]], loader: Loader | None, bundled: bool
    ) -> LoadRoute | None:
        """The route of a load; None, with a report, if a loss leaves no path."""
        try:
            return load_route(self.topology, load, gpus_of, loader, bundled)
        except HardwareError as error:
            if not self._causes:
                raise
            self._refuse(load, str(error))
            return None

    def refuses(self, load: Load, part: Part) -> bool:
        """Whether a load cannot begin, as an endpoint is lost or got nothing; if so, this is reported."""
        cause = next(
            (
                self._causes[endpoint]
                for endpoint in (*load.sources, *load.targets)
                if endpoint in self._causes
            ),
            None,
        )
        for endpoint in load.sources if cause is None else ():
            if (
                endpoint[0] == "replica"
                and not self._residency.has(endpoint, part)
                and not self._is_arriving(endpoint, part)
            ):
                cause = f"replica {endpoint[1]}, its source, got no parameters"
        if cause is not None:
            self._refuse(load, cause)
        return cause is not None

    def _is_arriving(self, endpoint: Endpoint, part: Part) -> bool:
        return any(run.has_open(endpoint) and run.part.overlaps(part) for run in self._loads.values())

    def _refuse(self, load: Load, cause: str) -> None:
        self.given_up += 1
        self._tell([LoadStopped(load.load, target, 0, cause) for target in range(len(load.targets))])


_STORES: Final = {"host": "dram", "ssd": "ssd", "remote": "remote"}
_BEGIN: Final = -1  # what a load waits for: -1 its start-up, else the engine of that target


class DataPlane:
    """Carries out AllocateGpus, ReleaseGpus, Load, StopLoad, Send and StopSend.

    ``records`` has the loads that ended, ``starts`` the start-up times of instances. A source that is itself
    loading forwards what it has. Raises HardwareError if no path exists.
    """

    def __init__(self, setup: DataPlaneSetup) -> None:
        self._setup = setup
        self.topology = topology = setup.topology
        self.records: list[LoadRecord] = []
        self.fabric = Fabric([link.rate_bytes_per_s for link in topology.links])
        contexts = len(topology.gpus) if setup.contexts is None else setup.contexts
        self.residency = Residency(setup.shapes)
        parts = [self._part(model, setup.layers_of.get(n)) for n, model in enumerate(setup.model_of)]
        self.placement = ReplicaPlacement(parts, setup.gpus_of, setup.start_up, contexts, setup.connected)
        per_host = topology.spec.gpus_per_host
        self.starts = Starts(setup.starting, self.placement, self.residency, setup.shapes, per_host)
        for replica, part in enumerate(parts):
            self.residency.put(("replica", replica), part)
        self._transfers = TransferFlows(topology, self.fabric, self.placement, setup.shapes, setup.bundled)
        self._cutter = Cutter(setup.shapes)
        self._relays = Relays(self.fabric)
        self._loads: dict[int, LoadRun] = {}
        self._of_flow: dict[int, tuple[LoadRun, ChunkSend | None]] = {}  # flows of loads
        self._coming: dict[Endpoint, dict[Part, tuple[LoadRun, int]]] = {}  # target -> load, its target
        self._read: dict[Endpoint, int] = {}  # source -> how many loads in progress are from it
        self._layer_ready_ns: dict[int, tuple[int, ...]] = {}
        self._facts: list[Event] = []  # not yet collected
        self._relayed = False  # whether a load with relays is among them
        self.outages = Outages(
            topology=topology,
            fabric=self.fabric,
            placement=self.placement,
            residency=self.residency,
            transfers=self._transfers,
            loads=self._loads,
            end_early=self._end_early,
            tell=self._tell,
        )

    def carry_out(self, now_ns: int, action: Action) -> None:
        """Begin or stop what the action requests."""
        if type(action) is Send:
            self.send(now_ns, action)
            return
        now_s = max(now_ns / NS_PER_S, self.fabric.now_s)
        if type(action) is Load:
            self._load(now_s, action)
        elif type(action) is StopLoad:
            self._stop_load(now_s, action)
        elif type(action) is StopSend:
            sent = self._transfers.stop(now_s, action.transfer, action.reason)
            self._tell([] if sent is None else [sent])
        elif type(action) is AllocateGpus:
            self._place(action)
        else:
            assert type(action) is ReleaseGpus, f"the data plane cannot carry out {action}"
            self.placement.release_gpus(action, self._loads_of(("replica", action.replica)))
            self.starts.released(now_s, action.replica)

    def send(self, now_ns: int, action: Send) -> None:
        """Begin a transfer."""
        now_s, at_s = now_ns / NS_PER_S, self.fabric.now_s
        try:
            self._transfers.begin(now_s if now_s > at_s else at_s, action)
        except HardwareError as error:
            if not self.outages:
                raise
            self._facts.append(Sent(action.transfer, 0, str(error)))

    def next_ns(self) -> int | None:
        """When something ends or may change next, in whole ns, rounded up; None if never by itself."""
        if self._facts:
            return rounded_up_ns(self.fabric.now_s)
        next_s = self.fabric.next_completion_s()
        return None if next_s == inf else rounded_up_ns(next_s)

    def collect(self, now_ns: int) -> list[Event]:
        """The events up to now, in order of time and then of begin.

        Whatever follows an end begins at its exact time, though the end is reported at the next whole ns.
        """
        fabric, of_flow = self.fabric, self._of_flow
        # The same as rounded_up_ns(next_s) <= now_ns, with less arithmetic.
        while (next_s := fabric.next_completion_s()) * NS_PER_S - SLACK_NS <= now_ns:
            for flow in fabric.finished(next_s if next_s > fabric.now_s else fabric.now_s):
                owner = of_flow.pop(flow, None) if of_flow else None
                if owner is None:
                    fact = self._transfers.ended(flow)
                    if fact is not None:
                        self._facts.append(fact)
                else:
                    self._flow_ended(*owner, flow, fabric.now_s)
        facts, self._facts = self._facts, []
        if self._relayed:
            self._relayed = False
            by_begin(facts)
        return facts

    def layer_ready_ns(self, replica: int) -> tuple[int, ...]:
        """When each layer, in order, could run a prompt on a replica whose load reported every layer.

        A layer can run once it and the embedding are complete. Valid from the end of the load until the
        replica is placed again.
        """
        return self._layer_ready_ns[replica]

    def layers_of(self, model: str) -> int:
        """How many layers the model has."""
        return self.residency.layers_of(model)

    def require_layers(self, replica: int, layers: Span) -> None:
        """Raise AssertionError if these layers are not loaded yet."""
        endpoint, part = ("replica", replica), self.placement.part_of[replica]
        if not self.residency.has_layers(endpoint, part.model, *layers):
            there = part.first + self.residency.layers_there(endpoint, part)
            raise AssertionError(
                f"replica {replica} is to run layers {layers[0]} to {layers[1]}, and has {part.first} to "
                f"{there}"
            )

    def layers_there(self, replica: int) -> int:
        """How many layers a replica has, from its first layer on."""
        return self.residency.layers_there(("replica", replica), self.placement.part_of[replica])

    def _part(self, model: str, layers: Span | None) -> Part:
        return Part(model, *((0, self.residency.layers_of(model)) if layers is None else layers))

    def _place(self, action: AllocateGpus) -> None:
        """Overwrite what was on the GPUs, unless it is the replica's own parameters (``warm``)."""
        endpoint, part = ("replica", action.replica), self._part(action.model, action.layers)
        self.placement.place(action, part)
        self._layer_ready_ns.pop(action.replica, None)
        if action.warm:
            self.residency.put(endpoint, part)
        else:
            self.residency.clear(endpoint)

    def _tell(self, facts: Sequence[Event]) -> None:
        self._facts += facts

    def _load(self, now_s: float, action: Load) -> None:
        if self.outages and self.outages.refuses(action, self._part(action.model, action.layers)):
            return
        self.placement.begin(action)
        setup, part = self._setup, self._part(action.model, action.layers)
        self._check(action, part)
        stores = [kind for kind, _ in action.sources if kind in _STORES]
        loader = load_loader(self.starts.loader(action, setup.loader), _STORES[stores[0]]) if stores else None
        gpus_of = self.placement.gpus_of
        setup.shapes[action.model].require_tp(ranks_of(action, gpus_of))
        route = self.outages.way(action, gpus_of, loader, setup.bundled)
        if route is None:
            return
        units, chunks = self._cutter.cut(part, action.layers_first)
        delay_s = loader.constant_s if loader is not None else 0.0
        if action.cold:
            delay_s += self.starts.begin(now_s, action, part)
        feeders = self._feeders_of(now_s, action, part)
        chain = Chain(units, route.hops, ends=route.ends, chunks=chunks)
        run = LoadRun(
            action=action,
            part=part,
            chain=chain,
            residency=self.residency,
            requested_s=now_s,
            feeders=feeders,
            links=route.links,
        )
        self._loads[action.load] = run
        for endpoint in action.sources:
            self._read[endpoint] = self._read.get(endpoint, 0) + 1
        for target, endpoint in enumerate(action.targets):
            self.residency.begin(endpoint, part)
            self._coming.setdefault(endpoint, {})[part] = run, target
        self._wait(now_s, run, _BEGIN, delay_s)

    def _check(self, action: Load, part: Part) -> None:
        """Refuse a load that cannot be carried out."""
        self.placement.require_part(action, part)
        for endpoint in action.targets:
            for other, (run, _) in self._coming.get(endpoint, {}).items():
                assert not other.overlaps(part), (
                    f"load {action.load} is to {endpoint}, where load {run.action.load} is under way"
                )
        for kind, number in action.sources:
            endpoint = kind, number
            assert (
                kind != "replica" or self.residency.has(endpoint, part) or self._comes_to(endpoint, part)
            ), (
                f"load {action.load} has replica {number} as a source, which has no parameters: load it first"
                if not self.residency.layers_there(endpoint, part)
                else f"load {action.load} has replica {number} as a source, which has not all {part}"
            )

    def _comes_to(self, endpoint: Endpoint, part: Part) -> list[tuple[LoadRun, int]]:
        """Loads in progress that bring layers of a part to an endpoint."""
        return [run for other, run in self._coming.get(endpoint, {}).items() if other.overlaps(part)]

    def _feeders_of(self, now_s: float, action: Load, part: Part) -> list[tuple[LoadRun, int]]:
        """Loads in progress to a source of this load; from now on they send chunk by chunk."""
        for run in [run for endpoint in action.sources for run, _ in self._comes_to(endpoint, part)]:
            for step in self._by_chunks(now_s, run):
                self._follow(now_s, run, step)
        return [one for endpoint in action.sources for one in self._comes_to(endpoint, part)]

    def _by_chunks(self, now_s: float, run: LoadRun) -> list[LoadStep]:
        """Split the single flows of a load into chunks from now on; returns the chunks already complete."""
        parts = run.chain.part()
        steps = self._end_relays(now_s, run)
        for send in parts:
            flow = run.flows.pop(send.hop)
            del self._of_flow[flow]
            steps.append(run.chain.parted(send.hop, self.fabric.abort(flow, now_s)))
        return steps

    def _end_relays(self, now_s: float, run: LoadRun) -> list[LoadStep]:
        """Make the chunks of relays flows from now on."""
        steps = list[LoadStep]()
        for before in list(run.relays):
            flow = run.flows[before]
            _, send = self._of_flow[flow]
            assert send is not None
            chunk, step = self._relays.end(run, before, now_s)
            self._of_flow[flow] = run, send._replace(chunk=chunk)
            steps.append(step)
        return steps

    def _touched(self, now_s: float, run: LoadRun) -> None:
        """Another flow comes to a link of a relay of this load."""
        for step in self._end_relays(now_s, run):
            self._follow(now_s, run, step)

    def _wait(self, now_s: float, run: LoadRun, target: int, delay_s: float) -> None:
        """A flow without links, which only takes time. It ends by ``_flow_ended`` like any other."""
        flow = self.fabric.start(FlowSpec((), 0, latency_s=delay_s), now_s)
        run.waits[flow] = target
        self._of_flow[flow] = (run, None)

    def _start(self, now_s: float, run: LoadRun, sends: Iterable[ChunkSend]) -> None:
        for send in sends:
            flow = self.fabric.start(send.flow, now_s)
            run.flows[send.hop] = flow
            self._of_flow[flow] = (run, send)

    def _flow_ended(self, run: LoadRun, send: ChunkSend | None, flow: int, now_s: float) -> None:
        if send is None:
            waited_for = run.waits.pop(flow)
            if waited_for == _BEGIN:
                self._start(now_s, run, self._relays.begin(run))
                if run.relays and not self._relays.hold(run, partial(self._touched, run=run)):
                    self._touched(now_s, run)
            else:
                self._report_complete(run, waited_for)
            return
        del run.flows[send.hop]
        if run.relays:
            self._relays.arrived(run, send.hop)
        self._follow(now_s, run, run.chain.finished(send.hop, send.chunk))

    def _follow(self, now_s: float, run: LoadRun, step: LoadStep) -> None:
        """Start the flows that follow from an end, and report it."""
        steps = run.arrived(step, now_s)
        self._start(now_s, run, step.sends)
        for follower in run.followers:
            if follower.open:  # else it was stopped
                self._start(now_s, follower, follower.feed())
        for target, unit in steps:
            if not run.is_last(unit):
                if run.action.every_layer:
                    self._facts.append(run.more(target, unit))
            elif after_s := self.starts.after(now_s, run.action, target, run.part):
                self._wait(now_s, run, target, after_s)
            else:
                self._report_complete(run, target)

    def _report_complete(self, run: LoadRun, target: int) -> None:
        kind, number = run.action.targets[target]
        self._facts.append(run.fully_loaded(target))
        self._relayed = self._relayed or run.relayed
        self.residency.put(run.action.targets[target], run.part)
        self.records.append(run.record(target, self.fabric.now_s, True))
        self._end_target(run, target, True)
        if run.action.every_layer and kind == "replica":
            self._layer_ready_ns[number] = tuple([rounded_up_ns(at_s) for at_s in run.layers_s[target]])
        if not run.open:
            self._forget(run.action)

    def _end_target(self, run: LoadRun, target: int, complete: bool) -> None:
        """End the load to this target; its complete units stay."""
        del self._coming[run.action.targets[target]][run.part]
        self.starts.ended(self.fabric.now_s, run.action.load, target, complete)

    def _forget(self, action: Load) -> None:
        """Note that the load is no longer in progress."""
        del self._loads[action.load]
        for endpoint in action.sources:
            self._read[endpoint] -= 1

    def _stop_load(self, now_s: float, action: StopLoad) -> None:
        run = self._loads.get(action.load)
        if run is not None:  # else it ended at this moment
            self._end_early(now_s, run, action.reason)

    def _end_early(self, now_s: float, run: LoadRun, cause: str) -> None:
        """Stop the load and the loads that use its incomplete targets as sources."""
        action = run.action
        self._forget(action)
        for step in self._by_chunks(now_s, run):
            run.arrived(step, now_s)
        for flow in (*run.flows.values(), *run.waits):
            self.fabric.abort(flow, now_s)
            del self._of_flow[flow]
        for target in sorted(run.open):
            self.records.append(run.record(target, self.fabric.now_s, False))
            self._end_target(run, target, False)
        followers = [one for one in run.followers if one.open and one.needs(run)]
        self._facts += run.stopped(cause)
        for follower in followers:
            if follower.open:  # another one may have stopped it
                self._end_early(now_s, follower, f"load {action.load} to its source stopped: {cause}")

    def _loads_of(self, endpoint: Endpoint) -> list[int]:
        """The loads in progress from or to this endpoint; mostly none, whatever others are in progress."""
        if not self._read.get(endpoint) and not self._coming.get(endpoint):
            return []
        return [number for number, run in self._loads.items() if run.has_open(endpoint)]
