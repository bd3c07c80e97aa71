"""The data plane in virtual time: loads and transfers become flows, their ends become facts.

It knows the fabric, not SimPy: ``next_ns`` says when it wants to be asked, ``collect`` what happened by then.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import ACTIVATIONS, KV, FlowSpec
from hwmodels.llm_shape import LlmShape
from hwmodels.loading.loader import load_loader
from hwmodels.loading.plan import Send
from hwmodels.loading.ranks import tensor_parallel
from hwmodels.loading.startup import ConnectionPool, ContextPool, StartUp, start
from hwmodels.loading.state import reshard
from hwmodels.topology.link import gpu
from hwmodels.topology.topology import Topology
from serving.actions import Action, Load, StopLoad, StopSend
from serving.actions import Send as SendState
from serving.events import Event, Sent
from serving.units import NS_PER_S
from simcore.loading import LoadRun
from simcore.ways import way

_SLACK_NS: Final = 1e-3  # float noise of a time in seconds; a completion is reported at the next whole ns
_STORES: Final = {"host": "dram", "ssd": "ssd", "remote": "remote"}


@dataclass(frozen=True, slots=True)
class DataPlaneSetup:
    """What is fixed: the cluster, model shapes by name, model and GPUs of each replica, loader and start-up.

    loader: a name of loaders.yaml. contexts: CUDA contexts made beforehand (None: one for every GPU);
    connected: whether the GPUs of each replica have their connections.
    """

    topology: Topology
    shapes: Mapping[str, LlmShape]
    model_of: Sequence[str]
    gpus_of: Sequence[tuple[int, ...]]
    loader: str
    start_up: StartUp
    contexts: int | None = None
    connected: bool = False


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """What one stop of a load took: from the wish to the moment it could run a step, or was given up."""

    load: int
    stop: int
    seconds: float
    whole: bool


@dataclass(slots=True)
class _Transfer:
    action: SendState
    flows: dict[int, float]  # the fabric's number -> bytes


class DataPlane:
    """Carries out Load, StopLoad, Send and StopSend. Raises HardwareError for a way that does not exist."""

    def __init__(self, setup: DataPlaneSetup) -> None:
        self._setup = setup
        self.topology = topology = setup.topology
        self.records: list[LoadRecord] = []
        self.fabric = Fabric([link.rate_bytes_per_s for link in topology.links])
        count = len(topology.gpus)
        self._contexts = ContextPool(count if setup.contexts is None else setup.contexts)
        self._connections = ConnectionPool(ready=setup.gpus_of if setup.connected else ())
        self._owner: dict[int, tuple[LoadRun, Send | None] | _Transfer] = {}
        self._loads: dict[int, LoadRun] = {}
        self._transfers: dict[int, _Transfer] = {}
        self._facts: list[Event] = []  # of now, not yet collected

    def carry_out(self, now_ns: int, action: Action) -> None:
        """Begin or stop what the action asks for."""
        now_s = max(now_ns / NS_PER_S, self.fabric.now_s)
        if type(action) is Load:
            self._load(now_s, action)
        elif type(action) is SendState:
            self._send(now_s, action)
        elif type(action) is StopLoad:
            self._stop_load(now_s, action)
        else:
            assert type(action) is StopSend, f"{action} is nothing that moves"
            self._stop_send(now_s, action)

    def next_ns(self) -> int | None:
        """When something ends or may change next, in whole ns, rounded up; None: never by itself."""
        if self._facts:
            return math.ceil(self.fabric.now_s * NS_PER_S - _SLACK_NS)
        next_s = self.fabric.next_completion_s()
        return None if math.isinf(next_s) else math.ceil(next_s * NS_PER_S - _SLACK_NS)

    def collect(self, now_ns: int) -> list[Event]:
        """The facts up to now, in order of time and then of begin.

        What follows an end begins at its exact time, though it is told of at the next whole ns.
        """
        fabric = self.fabric
        while (next_s := fabric.next_completion_s()) * NS_PER_S - _SLACK_NS <= now_ns:
            for done in fabric.advance(max(next_s, fabric.now_s)):
                owner = self._owner.pop(done.flow)
                if isinstance(owner, _Transfer):
                    self._part_sent(owner, done.flow)
                else:
                    self._load_went_on(*owner, done.flow, fabric.now_s)
        facts, self._facts = self._facts, []
        return facts

    def _load(self, now_s: float, action: Load) -> None:
        setup, first = self._setup, action.stops[0][0]
        loader = load_loader(setup.loader, _STORES[first]) if first in _STORES else None
        route = way(setup.topology, action.stops, setup.gpus_of, loader, spread=action.load)
        ranks = tensor_parallel(setup.shapes[action.model], route.hops, places=route.stop_of)
        delay_s = loader.constant_s if loader is not None else 0.0
        after_s: dict[int, float] = {}
        if action.cold:
            before_s, after_s = self._start_up(action)
            delay_s += before_s
        run = LoadRun(action, ranks, after_s, now_s)
        self._loads[action.load] = run
        self._wait(now_s, run, 0, delay_s)

    def _start_up(self, action: Load) -> tuple[float, dict[int, float]]:
        """(seconds until every replica can take parameters, stop -> seconds from the last to a step)."""
        before_s, after_s = 0.0, {}
        for stop, (kind, number) in enumerate(action.stops):
            if stop and kind == "replica":
                gpus = self._setup.gpus_of[number]
                times = start(self._setup.start_up, self._contexts, self._connections, gpus)
                before_s = max(before_s, times.before_load_s)
                after_s[stop] = times.after_load_s
        return before_s, after_s

    def _wait(self, now_s: float, run: LoadRun, stop: int, delay_s: float) -> None:
        """A flow without links: time alone. It ends by ``_load_went_on`` like any other."""
        flow = self.fabric.start(FlowSpec((), 0, latency_s=delay_s), now_s)
        run.waits[flow] = stop
        self._owner[flow] = (run, None)

    def _start(self, now_s: float, run: LoadRun, sends: Sequence[Send]) -> None:
        for send in sends:
            flow = self.fabric.start(send.flow, now_s)
            run.sent(send, flow)
            self._owner[flow] = (run, send)

    def _load_went_on(self, run: LoadRun, send: Send | None, flow: int, now_s: float) -> None:
        if send is None:
            stop = run.waits.pop(flow)
            if stop:
                self._whole(run, stop)
            else:
                self._start(now_s, run, run.ranks.begin())
            return
        step = run.finished(send)
        self._start(now_s, run, step.sends)
        for stop, whole in run.arrived(step):
            if not whole:
                if run.action.every_layer:
                    self._facts.append(run.report(stop, False))
            elif run.ready_at_end_s.get(stop):
                self._wait(now_s, run, stop, run.ready_at_end_s[stop])
            else:
                self._whole(run, stop)

    def _whole(self, run: LoadRun, stop: int) -> None:
        self._facts.append(run.report(stop, True))
        self._record(run, stop, True)
        if not run.open:
            del self._loads[run.action.load]

    def _stop_load(self, now_s: float, action: StopLoad) -> None:
        run = self._loads.pop(action.load, None)
        if run is None:
            return  # it ended at this very moment
        for flow in (*run.flows.values(), *run.waits):
            self.fabric.abort(flow, now_s)
            del self._owner[flow]
        for stop in sorted(run.open):
            self._record(run, stop, False)
        self._facts += run.stopped(action.reason)

    def _record(self, run: LoadRun, stop: int, whole: bool) -> None:
        seconds = self.fabric.now_s - run.wished_s
        self.records.append(LoadRecord(run.action.load, stop, seconds, whole))

    def _send(self, now_s: float, action: SendState) -> None:
        setup = self._setup
        source, target = setup.gpus_of[action.source], setup.gpus_of[action.target]
        transfer = _Transfer(action, {})
        self._transfers[action.transfer] = transfer
        kind = KV if action.what == "kv" else ACTIVATIONS
        for out, to, share in self._shares(action, source, target):
            path = setup.topology.path(gpu(out), gpu(to), spread=action.transfer)
            size_bytes = float(action.size_bytes * share)
            latency_s = setup.topology.latency_s(path)
            flow = self.fabric.start(FlowSpec(path, size_bytes, kind, latency_s=latency_s), now_s)
            transfer.flows[flow] = size_bytes
            self._owner[flow] = transfer

    def _shares(
        self, action: SendState, source: tuple[int, ...], target: tuple[int, ...]
    ) -> list[tuple[int, int, Fraction]]:
        """(from GPU, to GPU, share): KV by heads, activations in equal parts to every rank of the target.

        That the ranks then gather the activations over their scale-up links is not timed.
        """
        if action.what != "kv":
            parts = range(len(target))
            return [(source[part % len(source)], target[part], Fraction(1, len(target))) for part in parts]
        shape = self._setup.shapes[self._setup.model_of[action.source]]
        shares = reshard(shape, len(source), len(target))
        return [(source[one.source_rank], target[one.target_rank], one.share) for one in shares]

    def _part_sent(self, transfer: _Transfer, flow: int) -> None:
        del transfer.flows[flow]
        if not transfer.flows:
            action = transfer.action
            del self._transfers[action.transfer]
            self._facts.append(Sent(action.transfer, action.size_bytes, ""))

    def _stop_send(self, now_s: float, action: StopSend) -> None:
        transfer = self._transfers.pop(action.transfer, None)
        if transfer is None:
            return  # it ended at this very moment
        left_bytes = 0.0
        for flow, size_bytes in transfer.flows.items():
            left_bytes += size_bytes - self.fabric.abort(flow, now_s)
            del self._owner[flow]
        moved = math.floor(transfer.action.size_bytes - left_bytes)
        self._facts.append(Sent(action.transfer, max(0, moved), action.reason))
