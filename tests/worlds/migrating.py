"""Small worlds in which running requests migrate over the links of a cluster: cases of the naive engine."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from policies.admission import AdmitAll
from policies.dispatch import LeastOutstanding, RoundRobin
from policies.llumnix.dispatch import Freeness
from policies.migration_victims import NextVictim, StopsAtReserve
from serving.composition import MigrationParts, ServiceOptions, compose
from serving.controller import Controller
from serving.engine.fleet import Dispatcher
from serving.engine.pool import EngineOptions
from serving.engine.progress import Order
from serving.kv.migration_log import MigrationRecord
from serving.kv.migration_rules import MigrationRules
from serving.protocols.batch import Batcher
from serving.protocols.load_report import ReportsAt
from serving.protocols.migration import InstancesView, Migrator, Pair, SourceView
from serving.services.colocated.migrating import Migrating
from serving.services.colocated.victim_moves import VictimParts
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from simcore.faults.plan import FaultPlan
from simcore.simulation import Simulation
from tests.worlds.data_planes import SHAPE, plane
from tests.worlds.naive_engine import Case
from tests.worlds.world import Checked, Collected, batcher_of, requests_of

LAYERS = SHAPE.layers
# On the links of ``plane`` 12.5 bytes go in a ns.
BYTES_PER_NS = 12.5


class DrawnPairs:
    """Pairs and requests by chance, whatever it is good for. What it draws depends on what is asked alone."""

    def __init__(self, seed: int, chance: float = 0.7) -> None:
        self._random, self._chance = Random(seed), chance

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        ready = [one for one in (*view.taking, *view.leaving) if not view.engaged(one)]
        targets = [one for one in (*view.taking, *view.loading) if not view.engaged(one)]
        if len(ready) < 2 or not targets or self._random.random() > self._chance:
            return ()
        destination = self._random.choice(targets)
        source = self._random.choice([one for one in ready if one != destination])
        return (Pair(source, destination, "drawn"),)

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        found = sorted(view.decoding())
        if not found or self._random.random() < 0.05:
            return None
        return self._random.choice(found), f"drawn of {len(found)}"


@dataclass(frozen=True)
class Setting:
    """``token_ns``: what the KV of a token takes on the wire. ``freeness``: requests go to the freest."""

    case: Case
    seed: int = 0
    mode: str = "live"
    last_stage_blocks: int = 1
    max_stages: int = 3
    control_ns: int = 3
    token_ns: float = 1.0
    period_ns: int = 20
    chance: float = 0.7
    freeness: bool = False
    reports_at: ReportsAt = "changes"
    victims_reserve: int = 0  # blocks; 0: who would be preempted is
    order: Order = "priority"  # of queues, where the case has priorities
    slowdown_ppm: int = 0
    last_within_step: bool = False

    @property
    def rules(self) -> MigrationRules:
        bytes_per_token = max(1, round(self.token_ns * BYTES_PER_NS))
        stages = self.last_stage_blocks, self.max_stages
        kv_bytes = KvBytes(bytes_per_token, 100 * self.case.sequence_blocks)
        return MigrationRules(  # type: ignore[arg-type]
            self.mode, *stages, self.control_ns, kv_bytes, self.case.max_num_seqs,
            slowdown_ppm=self.slowdown_ppm, last_within_step=self.last_within_step,
        )  # fmt: skip


def controller_of(
    setting: Setting,
    coalesce: bool = True,
    migrator: Migrator | None = None,
    dispatcher: Dispatcher | None = None,
) -> Controller:
    case = setting.case
    replicas = [
        Replica(
            id=id,
            model=SHAPE.name,
            layers=LayerRange(0, LAYERS),
            gpus=(id,),
            kv_blocks=case.total_blocks,
            block_tokens=case.block_tokens,
            watermark_blocks=case.watermark_blocks,
            prefix_caching=case.prefix_caching,
            swap_blocks=case.swap_blocks,
            swap_block_ns=case.swap_block_ns,
            sequence_blocks=case.sequence_blocks,
        )
        for id in range(case.replicas)
    ]
    if dispatcher is None:
        dispatcher = RoundRobin() if case.dispatch == "round_robin" else LeastOutstanding()
        dispatcher = Freeness() if setting.freeness else dispatcher
    who = DrawnPairs(setting.seed, setting.chance) if migrator is None else migrator
    reserve = setting.victims_reserve
    victims = VictimParts(NextVictim(), {SHAPE.name: reserve}) if reserve else None
    parts = MigrationParts(who, setting.period_ns, {SHAPE.name: setting.rules}, victims)

    def batcher_for(_: Replica) -> Batcher:
        return StopsAtReserve(batcher_of(case), reserve) if reserve else batcher_of(case)

    options = ServiceOptions(
        migration=parts,
        reports_period_ns=setting.period_ns,
        reports_at=setting.reports_at,
        bypass=RoundRobin(),
    )
    order: Order = setting.order if case.priorities else "fcfs"
    engine_options = EngineOptions(coalesce=coalesce, asynchronous=case.asynchronous, order=order)
    return compose(
        replicas,
        dispatcher,
        batcher_for,
        admission=AdmitAll(),
        engine_options=engine_options,
        service_options=options,
    )


class Told(Collected):
    """That also keeps who failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[int, str] = {}

    def failed(self, request, now_ns: int, reason: str) -> None:  # type: ignore[no-untyped-def]
        assert request.id not in self.done and request.id not in self.failures
        self.failures[request.id] = reason


def gpus_of(replicas: int) -> list[tuple[int, ...]]:
    """On two hosts in turns."""
    return [(number % 2 * 8 + number // 2,) for number in range(replicas)]


@dataclass
class Played:
    recorder: Told
    records: Sequence[MigrationRecord]
    lines: Sequence[str]
    controller: Controller
    events: int


def play(
    setting: Setting,
    coalesce: bool = True,
    faults: FaultPlan | None = None,
    migrator: Migrator | None = None,
    wrap: Callable[[Controller], Controller] = lambda one: one,
    dispatcher: Dispatcher | None = None,
) -> Played:
    """A run with all invariants checked after every event."""
    case = setting.case
    controller = controller_of(setting, coalesce, migrator, dispatcher)
    checked, recorder = Checked(wrap(controller)), Told()
    gpus = gpus_of(case.replicas)
    requests: Iterable = [(replace(one, model=SHAPE.name), output) for one, output in requests_of(case)]
    world = Simulation(
        checked,
        requests,
        [case.rows] * case.replicas,
        recorder,
        journal=None,
        data_plane=plane(gpus_of=gpus),
        faults=faults,
    )  # type: ignore[arg-type]
    events = world.run().events
    (service,) = controller.services.values()
    assert isinstance(service, Migrating)
    return Played(recorder, service.migrations.log.records, checked.lines, controller, events)


def assert_whole(setting: Setting, played: Played) -> None:
    """Every request ended once with all its tokens, and its gaps add up; blocks are all free again."""
    outputs = {id: min(one[2], one[3]) for id, one in enumerate(setting.case.requests)}
    done, refused = played.recorder.done, played.recorder.refusals
    assert sorted([*done, *refused]) == sorted(outputs)
    assert all(outputs[id] == tokens for id, (_, tokens, _, _, _) in done.items())
    assert len(played.recorder.all_gaps) == sum(tokens - 1 for _, tokens, _, _, _ in done.values())
    spans_ns = sum(finish_ns - first_ns for _, _, first_ns, finish_ns, _ in done.values())
    assert abs(sum(played.recorder.all_gaps) - (spans_ns << 24)) <= len(done) << 24
    for engine in played.controller.engines.values():
        assert set(engine.ledger.holders()) <= set(engine.ended) and not engine.attached
