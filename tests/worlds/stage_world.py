"""A small world of models in stages: layers of one size, times that are given request by request."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hwmodels.models.layer_stack import LayerStack
from hwmodels.topology.cluster_file import load_cluster
from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from servetwin.assemble.elastic import cluster_map_of
from serving.composition import PipelineParts, ServiceOptions, compose
from serving.controller import Controller
from serving.elastic.stage_peers import PeerSetup
from serving.elastic.stage_setup import StageHosts, StageScaling
from serving.protocols.provisioning import Provisioner
from serving.protocols.stages import StageScaler
from serving.services.pipeline.service import Pipeline
from serving.services.pipeline.setup import PipelineSetup
from serving.services.pipeline.stage_log import FIELDS
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import StageQueues
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from serving.vocabulary.units import FRACTION_BITS
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.faults.plan import FaultPlan
from simcore.replica.stage_times import StageTimes
from simcore.sim_report import SimReport
from simcore.simulation import Simulation
from simcore.stage_passes import StagePlan
from tests.worlds.data_planes import NONE, ideal
from tests.worlds.journals import complete_journal
from tests.worlds.world import Checked, Collected

MS = 1_000_000
LAYER_BYTES = 1_000_000_000
CAPACITY_BYTES = 40_000_000_000


class Failing(Collected):
    """As it, where requests may fail."""

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        self.refusals[request.id] = reason


@dataclass
class StageCase:
    """``times_ns``: of each stage, a time per request. ``gpus``: of each stage's replicas, one GPU each."""

    arrivals_ns: Sequence[int]
    times_ns: Sequence[Sequence[int]]
    gpus: Sequence[Sequence[int]]
    activation_bytes: int = 0
    batch: int = 1
    queues: StageQueues = "stage"
    cpu_parts: int = 0
    batch_parts: int = 1024
    cores: int = 2
    cluster: str = "quart_2x4"
    model: str = "m"
    elastic: bool = False
    layer_bytes: int = LAYER_BYTES
    first_request: int = 0
    live: bool = False
    timeout_ns: int = 0

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Two layers a stage."""
        return tuple([(2 * stage, 2 * stage + 2) for stage in range(len(self.times_ns))])

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(self.model, *span) for span in self.spans)

    @property
    def stack(self) -> LayerStack:
        layers = 2 * len(self.times_ns)
        sizes = (self.layer_bytes,) * layers
        return LayerStack(
            name=self.model,
            layer_bytes=sizes,
            layer_s=(1.0,) * layers,
            tokens=1,
            activation_bytes=self.activation_bytes,
            cut=(),
            source="made up",
        )

    def replicas(self, first: int = 0) -> list[Replica]:
        pairs = [(span, gpu) for span, gpus in zip(self.spans, self.gpus, strict=True) for gpu in gpus]
        return [
            Replica(id=first + id, model=self.model, layers=LayerRange(*span), gpus=(gpu,), kv_blocks=1)
            for id, (span, gpu) in enumerate(pairs)
        ]

    def requests(self) -> list[tuple[Request, int]]:
        return [
            (Request(self.first_request + id, at_ns, 1, 1, self.model), 1)
            for id, at_ns in enumerate(self.arrivals_ns)
        ]

    def times(self) -> StageTimes:
        padding = [0] * self.first_request
        fixed = {
            span: [*padding, *(one << FRACTION_BITS for one in own)]
            for span, own in zip(self.spans, self.times_ns, strict=True)
        }
        return StageTimes(fixed, 2, self.cpu_parts, self.batch_parts)

    def setup(self) -> PipelineSetup:
        cores = self.cores if self.elastic else 0
        return PipelineSetup(
            parts=self.parts,
            activation_bytes=self.activation_bytes,
            batch=self.batch,
            queues=self.queues,
            cpu_cores=cores,
            elastic=self.elastic,
            live=self.live,
            timeout_ns=self.timeout_ns,
        )


@dataclass
class StageRun:
    """What came of it: the recorder, the report, every line of the journal, the controller."""

    recorder: Collected
    report: SimReport
    lines: list[str]
    controller: Controller

    def journal(self) -> list[str]:
        """All that a file of it would hold."""
        actions = sum(len(json.loads(text)[2]) for text in self.lines)
        return complete_journal({"source": "test", "carries_out": []}, self.lines, actions)

    def pipeline(self, model: str = "m") -> Pipeline:
        found = self.controller.services[model]
        assert isinstance(found, Pipeline)
        return found

    def log(self, model: str = "m") -> list[dict[str, int]]:
        """A row per pass of a request."""
        rows, width = self.pipeline(model).log.rows, len(FIELDS)
        return [dict(zip(FIELDS, rows[at : at + width], strict=True)) for at in range(0, len(rows), width)]


def scaling_of(
    cases: Sequence[StageCase],
    scaler: StageScaler,
    period_ns: int,
    host_bytes: int,
    provisioner: Provisioner | None = None,
    copies_share: float = 1.0,
) -> StageScaling:
    """At most 12 replicas of a model, looked at once per period, on the hosts of the cluster."""
    spec = load_cluster(cases[0].cluster)
    hosts = StageHosts(
        spec.hosts, spec.gpus_per_host, host_bytes or spec.host_memory_bytes, spec.cpu_cores or 100
    )
    peers = None
    if provisioner is not None:
        peers = PeerSetup(provisioner, cluster_map_of(ideal(cases[0].cluster)))
    exec_s = {
        part: sum(own) / len(own) / 1e9
        for case in cases
        for part, own in zip(case.parts, case.times_ns, strict=True)
    }
    return StageScaling(
        scaler=scaler,
        hosts=hosts,
        period_ns=period_ns,
        window_ns=5 * period_ns,
        slo_s=1.0,
        minimum=1,
        maximum=5,
        max_replicas=12,
        cores=cases[0].cores,
        exec_s=exec_s,
        sizes_bytes=sizes_of(cases),
        peers=peers,
        copies_share=copies_share,
    )


def sizes_of(cases: Sequence[StageCase]) -> dict[Part, int]:
    """Bytes of every stage."""
    return {part: len(part) * case.layer_bytes for case in cases for part in case.parts}


def controller_of(
    *cases: StageCase,
    scaler: StageScaler | None = None,
    period_ns: int = 10 * MS,
    host_bytes: int = 0,
    provisioner: Provisioner | None = None,
    copies_share: float = 1.0,
) -> Controller:
    """Of all these models on the same GPUs."""
    scaling = None
    if scaler is not None:
        scaling = scaling_of(cases, scaler, period_ns, host_bytes, provisioner, copies_share)
    setups = {case.model: case.setup() for case in cases}
    parts = PipelineParts(setups, GpuSeats(CAPACITY_BYTES, sizes_of(cases)), scaling)
    options = ServiceOptions(pipelines=parts)
    return compose(
        replicas_of(*cases),
        LeastOutstanding(),
        lambda _: ChunkedPrefill(1, 1),
        admission=AdmitAll(),
        service_options=options,
    )


def replicas_of(*cases: StageCase) -> list[Replica]:
    found: list[Replica] = []
    for case in cases:
        found += case.replicas(len(found))
    return found


def run(
    *cases: StageCase,
    faults: FaultPlan | None = None,
    scaler: StageScaler | None = None,
    period_ns: int = 10 * MS,
    host_bytes: int = 0,
    provisioner: Provisioner | None = None,
    copies_share: float = 1.0,
) -> StageRun:
    """In virtual time, with the invariants checked after every event."""
    more = {"period_ns": period_ns, "host_bytes": host_bytes, "copies_share": copies_share}
    controller = controller_of(*cases, scaler=scaler, provisioner=provisioner, **more)
    recorder, replicas = Failing(), replicas_of(*cases)
    checked = Checked(controller)
    times = {case.model: case.times() for case in cases}
    setup = DataPlaneSetup(
        topology=ideal(cases[0].cluster),
        shapes={case.model: case.stack for case in cases},
        model_of=[one.model for one in replicas],
        gpus_of=[one.gpus for one in replicas],
        loader="direct",
        start_up=NONE,
        layers_of={one.id: one.part.layers for one in replicas},
    )
    requests = sorted((one for case in cases for one in case.requests()), key=lambda one: one[0].arrival_ns)
    simulation = Simulation(
        checked,
        requests,
        [times[one.model] for one in replicas],
        recorder,
        journal=None,
        data_plane=DataPlane(setup),
        rows_of=times,
        faults=faults,
        stages=StagePlan(times, cases[0].cores),
    )
    return StageRun(recorder, simulation.run(), checked.lines, controller)
