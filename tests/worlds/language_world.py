"""A small world of language models in stages: toy step times, a GPU for each replica."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hwmodels.models.layer_stack import LayerStack
from hwmodels.models.llm_shape import LlmShape
from hwmodels.topology.cluster_file import load_cluster
from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from serving.composition import PipelineParts, ServiceOptions, compose
from serving.controller import Controller
from serving.elastic.stage_setup import StageHosts, StageScaling
from serving.protocols.stages import StageScaler
from serving.services.language.service import LanguagePipeline
from serving.services.language.setup import LanguageSetup
from serving.services.language.stage_work import StageWork
from serving.services.stages.gpu_seats import GpuSeats
from serving.vocabulary.actions import Span
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.faults.plan import FaultPlan
from simcore.pipeline.circuits import PathCosts
from simcore.pipeline.stage_costs import StageCosts
from simcore.sim_report import SimReport
from simcore.simulation import Simulation
from simcore.stage_passes import StagePlan
from tests.worlds.data_planes import NONE, ideal
from tests.worlds.journals import complete_journal
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.stage_world import Failing
from tests.worlds.toy_spans import ToySpans
from tests.worlds.world import Checked


@dataclass
class LanguageCase:
    """``requests``: (arrival, prompt, max_new_tokens, output). ``replicas``: of each stage.

    ``blocks``: of the replicas of each stage, 4 tokens each.
    """

    requests: Sequence[tuple[int, int, int, int]]
    costs: ToyStages
    replicas: Sequence[int]
    blocks: Sequence[int]
    max_num_seqs: int = 4
    batch_tokens: int = 64
    cluster: str = "quart_2x4"
    layer_bytes: int = 1_000_000
    kv_layer_bytes: int = 0
    stage_layers: int = 2
    live: bool = False
    recut: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        of = self.stage_layers
        return tuple([Part("m", of * stage, of * stage + of) for stage in range(len(self.replicas))])

    @property
    def layers(self) -> int:
        return self.stage_layers * len(self.replicas)

    def costs_of(self, gpus: tuple[int, ...], spans: tuple[Span, ...]) -> StageCosts:
        """Of other stages than the case's, layer by layer."""
        if spans == tuple([part.layers for part in self.parts]):
            return self.costs
        return ToySpans(self.costs, self.stage_layers, spans)

    def prototype(self, first: int, last: int) -> Replica:
        """Of any layers: it has the blocks of the stage in which these begin."""
        blocks = self.blocks[first // self.stage_layers]
        return Replica(
            id=-1, model="m", layers=LayerRange(first, last), gpus=(), kv_blocks=blocks, block_tokens=4
        )

    def placed(self) -> list[Replica]:
        stages = [stage for stage, count in enumerate(self.replicas) for _ in range(count)]
        return [replace(self.of_stage(stage), id=id, gpus=(id,)) for id, stage in enumerate(stages)]

    def of_stage(self, stage: int) -> Replica:
        return self.prototype(*self.parts[stage].layers)

    def arrivals(self) -> list[tuple[Request, int]]:
        return [
            (Request(id, at_ns, prompt, cap, "m"), output)
            for id, (at_ns, prompt, cap, output) in enumerate(sorted(self.requests))
        ]


@dataclass
class LanguageRun:
    """What came of it."""

    recorder: Failing
    report: SimReport
    lines: list[str]
    controller: Controller

    def journal(self) -> list[str]:
        actions = sum(len(json.loads(text)[2]) for text in self.lines)
        return complete_journal({"source": "test", "carries_out": []}, self.lines, actions)

    @property
    def service(self) -> LanguagePipeline:
        found = self.controller.services["m"]
        assert isinstance(found, LanguagePipeline)
        return found


@dataclass
class Scaling:
    """Who starts and stops replicas; looked at once per ``period_ns``."""

    scaler: Callable[[], StageScaler]
    period_ns: int = 200
    maximum: int = 3
    slo_s: float = 1.0

    def setup(self, case: LanguageCase) -> StageScaling:
        spec = load_cluster(case.cluster)
        hosts = StageHosts(spec.hosts, spec.gpus_per_host, spec.host_memory_bytes, spec.cpu_cores or 100)
        parts = any_parts(case)
        work, bytes_ = dict.fromkeys(parts, 1e-6), {one: len(one) * case.layer_bytes for one in parts}
        return StageScaling(
            scaler=self.scaler(),
            hosts=hosts,
            period_ns=self.period_ns,
            window_ns=5 * self.period_ns,
            slo_s=self.slo_s,
            minimum=1,
            maximum=self.maximum,
            max_replicas=spec.gpus,
            cores=1,
            exec_s=work,
            sizes_bytes=bytes_,
        )


def any_parts(case: LanguageCase) -> list[Part]:
    return [Part("m", first, last) for last in range(1, case.layers + 1) for first in range(last)]


def shape_of(case: LanguageCase, layers: int) -> LayerStack | LlmShape:
    """One with KV where that moves: its layers have some 400 bytes."""
    if case.kv_layer_bytes:
        return LlmShape(
            name="m",
            layers=layers,
            hidden=4,
            heads=1,
            kv_heads=1,
            head_dim=4,
            intermediate=8,
            vocab=4,
            tied_embeddings=False,
            bytes_per_parameter=2,
            max_context_tokens=1 << 20,
            source="made up",
        )
    return LayerStack(
        name="m",
        layer_bytes=(case.layer_bytes,) * layers,
        layer_s=(1.0,) * layers,
        tokens=1,
        activation_bytes=0,
        cut=(),
        source="made up",
    )


def controller_of(case: LanguageCase, coalesce: bool = True, scaling: Scaling | None = None) -> Controller:
    setup = LanguageSetup(
        parts=case.parts,
        max_num_seqs=case.max_num_seqs,
        max_num_batched_tokens=case.batch_tokens,
        coalesce=coalesce,
    )
    setup = replace(setup, kv_layer_bytes=case.kv_layer_bytes, live=case.live)
    parts = any_parts(case)
    if scaling is not None:
        prototypes = {part: case.prototype(*part.layers) for part in parts}
        work = dict.fromkeys(parts, StageWork(1e-8, 1e-8))
        setup = replace(setup, prototypes=prototypes, work=work, most_layers=case.recut * case.layers)
    elastic = None if scaling is None else scaling.setup(case)
    pipelines = PipelineParts({"m": setup}, GpuSeats(1 << 40, dict.fromkeys(parts, 1 << 40)), elastic)
    return compose(
        case.placed(),
        LeastOutstanding(),
        lambda _: ChunkedPrefill(1, 1),
        admission=AdmitAll(),
        service_options=ServiceOptions(pipelines=pipelines),
    )


def run(
    case: LanguageCase,
    coalesce: bool = True,
    faults: FaultPlan | None = None,
    scaling: Scaling | None = None,
) -> LanguageRun:
    """In virtual time, with the invariants checked after every event."""
    controller = controller_of(case, coalesce, scaling)
    recorder, replicas, checked = Failing(), case.placed(), Checked(controller)
    setup = DataPlaneSetup(
        topology=ideal(case.cluster),
        shapes={"m": shape_of(case, case.layers)},
        model_of=[one.model for one in replicas],
        gpus_of=[one.gpus for one in replicas],
        loader="direct",
        start_up=NONE,
        layers_of={one.id: one.part.layers for one in replicas},
    )
    rows = case.costs.rows[0]
    simulation = Simulation(
        checked,
        case.arrivals(),
        [rows] * len(replicas),
        recorder,
        journal=None,
        data_plane=DataPlane(setup),
        rows_of={"m": rows},
        faults=faults,
        stages=StagePlan({}, 0, {"m": PathCosts(case.costs_of)}),
    )
    return LanguageRun(recorder, simulation.run(), checked.lines, controller)
