"""Builds a stage scaler's view: the stages of a model during the last window, and all hosts."""

from collections import deque

from serving.elastic.stage_replicas import StageReplicas
from serving.elastic.stage_setup import StageScaling
from serving.protocols.stages import (
    CutView,
    HostCopyView,
    PipelineView,
    StageGpuView,
    StageHostView,
    StageReplicaView,
    StageView,
)
from serving.services.staged import StagedService
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import Stage
from serving.services.stages.stage_counts import StageCounts
from serving.vocabulary.layers import Part
from serving.vocabulary.units import NS_PER_S


class StageViews:
    """Views of one model. It keeps the counts of the looks in the window. ``keys``: key stages."""

    __slots__ = ("_looks", "_parts", "_replicas", "_seats", "_service", "_setup", "keys")

    def __init__(
        self, setup: StageScaling, service: StagedService, replicas: StageReplicas, seats: GpuSeats
    ) -> None:
        self._setup, self._service, self._replicas, self._seats = setup, service, replicas, seats
        self._looks: deque[tuple[int, list[StageCounts]]] = deque()
        self.keys: frozenset[int] = frozenset()
        self._parts = [stage.part for stage in service.stages]

    def view(self, now_ns: int) -> PipelineView:
        """The view at this look, which also begins a window of its own."""
        setup, stages = self._setup, self._service.stages
        parts = [stage.part for stage in stages]
        if parts != self._parts:
            self._cut_anew(parts)
        looks = self._looks
        if not looks:
            looks.append((0, [StageCounts() for _ in stages]))
        while len(looks) > 1 and looks[1][0] <= now_ns - setup.window_ns:
            looks.popleft()
        begun_ns, before = looks[0]
        window_s = max(now_ns - begun_ns, 1) / NS_PER_S
        there = self._by_stage()
        shown = tuple(
            [
                self._stage(stage, there[stage.index], stage.counts.since(earlier), window_s)
                for stage, earlier in zip(stages, before, strict=True)
            ]
        )
        looks.append((now_ns, [stage.counts.copy() for stage in stages]))
        return PipelineView(
            now_ns,
            self._service.model,
            stages=shown,
            hosts=self._hosts(),
            window_s=window_s,
            slo_s=setup.slo_s,
            max_replicas=setup.max_replicas,
            cores_per_replica=setup.cores,
            batch=self._service.batch,
            batch_cost=setup.batch_cost,
            cores_count=self._service.cores_count,
            cut=self._cut(),
        )

    def _cut_anew(self, parts: list[Part]) -> None:
        """After a new cut, keep only the arrivals of earlier looks, which are the model's."""
        self._parts, self.keys = parts, frozenset()
        self._looks = deque(
            [(at_ns, [before[0].arrivals_alone()] * len(parts)) for at_ns, before in self._looks]
        )

    def _cut(self) -> CutView | None:
        """Where the model may be cut; None if it may not."""
        changes = self._service.cut_changes
        if changes is None or not changes.most_layers:
            return None
        coming = tuple([stage.part.first for stage in changes.stages.coming])
        return CutView(self._service.stages[-1].part.last, changes.most_layers, coming)

    def _by_stage(self) -> list[list[int]]:
        """The replicas of each stage, by id."""
        found: list[list[int]] = [[] for _ in self._service.stages]
        for replica in sorted(self._replicas.states):
            index = self._service.index_of(replica)
            if index is not None:
                found[index].append(replica)
        return found

    def _stage(self, stage: Stage, there: list[int], seen: StageCounts, window_s: float) -> StageView:
        setup, exec_s = self._setup, self._setup.exec_s[stage.part]
        replicas = tuple(
            [
                StageReplicaView(
                    replica,
                    self._replicas.host_of(replica),
                    state=self._replicas.states[replica],
                    outstanding=self._service.outstanding(replica),
                    cpu_cores=self._replicas.cores_of(replica),
                    most=self._service.most_of(replica),
                )
                for replica in there
            ]
        )
        return StageView(
            stage.index,
            replicas,
            minimum=setup.minimum,
            maximum=setup.maximum,
            arrival_per_s=seen.arrivals / window_s,
            arrival_cv=seen.arrival_cv,
            queued=self._service.queued_at(stage),
            service_s=seen.pass_ns / seen.passes / NS_PER_S if seen.passes else exec_s,
            service_cv=seen.pass_cv,
            delay_s=seen.delay_ns / seen.passed / NS_PER_S if seen.passed else None,
            exec_s=exec_s,
            bytes=setup.sizes_bytes[stage.part],
            batch=seen.passed / seen.passes if seen.passed else 1.0,
            exec_cores=setup.cores,
            is_key=stage.index in self.keys,
            seat_bytes=self._seats.bytes_of(stage.part),
            layers=stage.part.layers,
            passed=seen.passed,
        )

    def _hosts(self) -> tuple[StageHostView, ...]:
        setup, resources, seats = self._setup.hosts, self._replicas.hosts, self._seats
        return tuple(
            [
                StageHostView(
                    host,
                    gpus=tuple(
                        [
                            StageGpuView(gpu, seats.free_bytes(gpu), len(seats.replicas_on(gpu)))
                            for gpu in setup.gpus(host)
                        ]
                    ),
                    free_cores=resources.free_cores(host),
                    memory_bytes=setup.memory_bytes,
                    used_bytes=resources.copies.caches.used_bytes[host],
                    copies=self._copies(host),
                )
                for host in range(setup.count)
                if host not in resources.lost
            ]
        )

    def _copies(self, host: int) -> tuple[HostCopyView, ...]:
        """Copies of this model's stages that the view can name; others by their own model's number."""
        views, copies = [], self._replicas.hosts.copies
        for part in copies.on(host):
            size, stage = self._setup.sizes_bytes[part], self._replicas.stage_number(part)
            used_ns, is_pinned = copies.caches.used_ns(host, part), copies.caches.is_pinned(host, part)
            views.append(HostCopyView(part.model, stage, size, used_ns, is_pinned))
        return tuple(views)
