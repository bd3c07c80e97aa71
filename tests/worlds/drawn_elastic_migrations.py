"""Elastic worlds in which running requests migrate, hosts and links are lost, each drawn from a seed."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hwmodels.loading.startup import StartUp
from serving.composition import MigrationParts
from serving.kv.migration_log import MigrationRecord
from serving.kv.migration_rules import MigrationRules
from serving.services.colocated.migrating import Migrating
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.faults.plan import Fault, FaultPlan
from simcore.simulation import Simulation
from tests.worlds.drawn_elastic import (
    ROWS,
    SHAPE,
    Drawn,
    draw_requests,
    draw_setting,
    on_links,
    topology,
)
from tests.worlds.elastic_world import MS, Setting, Whims
from tests.worlds.migrating import DrawnPairs, Told
from tests.worlds.world import Checked


@dataclass(frozen=True)
class World:
    case: Drawn
    faults: tuple[Fault, ...]
    notice_ns: int = 0
    start_up_s: float = 0.0  # of an instance, beside its parameters


@dataclass
class Played:
    recorder: Told
    records: list[MigrationRecord]
    checked: Checked
    controller: Any
    released: int


def drawn_world(seed: int) -> World:
    """Instances come and go by whim or by load; up to two losses."""
    random = Random(f"elastic migrations {seed}")
    drawn = draw_setting(random)
    start_up_s = Random(f"into loading {seed}").choice((0.0, 0.0, 0.03, 0.1, 0.4))
    least = random.choice((0, 1, 1, 2))
    copies = "everywhere" if drawn.provision == "host" else drawn.copies
    whims = random.getrandbits(32)
    setting = replace(
        drawn,
        start={"both": least},
        bounds={"both": (least, 6)},
        copies=copies,
        queue="per_instance",
        freeness=random.random() < 0.5,
        kv_blocks=random.choice((16, 40)),
        whims=(lambda: Whims(Random(whims))) if random.random() < 0.7 else None,
        migration=_migration(random, drawn, start_up_s > 0),
    )
    requests = draw_requests(random, setting)
    if start_up_s:  # they decode for as long as a load may take
        setting = replace(setting, kv_blocks=random.choice((40, 80)))
        requests = _long_requests(random, setting)
    case = on_links(Drawn(setting, requests), Random(f"sequences {seed}"))
    faults = [
        Fault(random.randint(0, 3000) * MS, random.choice(("replica", "link", last)), share=random.random())
        for last in ("host", "link")[: random.choice((0, 0, 1, 2))]  # one host of two stays
    ]  # fmt: skip
    notice_ns = Random(f"notices {seed}").choice((0, 0, 100, 1000)) * MS
    return World(case, tuple(sorted(faults, key=lambda one: one.at_ns)), notice_ns, start_up_s)


def _long_requests(random: Random, setting: Setting) -> tuple[tuple[Request, int], ...]:
    """Up to 20, close together, of a hundred tokens."""
    arrival_ns, found = 0, list[tuple[Request, int]]()
    for id in range(random.randint(4, 20)):
        arrival_ns += random.choice((0, 1, 20, 100)) * MS
        model, prompt = random.choice(sorted(setting.models)), random.randint(1, 30)
        one = Request(id, arrival_ns, prompt, random.choice((20, 100)), model)
        found.append((one, random.randint(1, 100)))
    return tuple(found)


def _migration(random: Random, setting: Setting, into_loading: bool) -> Any:
    mode: Any = random.choice(("live", "live", "stop_and_copy", "recompute"))
    rules = MigrationRules(
        mode, random.choice((1, 2, 16)), random.randint(2, 4), random.choice((0, 3, 20)) * MS,
        KvBytes(SHAPE.kv_bytes_per_token * random.choice((1, 10_000))), setting.max_num_seqs,
        into_loading and mode == "live",
    )  # fmt: skip
    seed, chance = random.getrandbits(32), random.choice((0.3, 0.9))

    def make() -> MigrationParts:
        return MigrationParts(DrawnPairs(seed, chance), 7 * MS, dict.fromkeys(setting.models, rules))

    return make


def play(world: World, coalesce: bool = True) -> Played:
    setting = replace(world.case.setting, coalesce=coalesce)
    controller, recorder = setting.controller(), Told()
    checked: Any = Checked(controller)
    checked.elastic = controller.elastic  # by which the world notices that nothing can come any more
    placed = setting.placed()
    gpus, shapes = [one.gpus for one in placed], dict.fromkeys(setting.models, SHAPE)
    models = [one.model for one in placed]
    start_up = StartUp(
        process_s=world.start_up_s, cuda_context_s=0.0, connections_s=0.0, engine_init_s=0.0, source="a test"
    )
    data_plane = DataPlane(
        DataPlaneSetup(
            topology=topology(),
            shapes=shapes,
            model_of=models,
            gpus_of=gpus,
            loader="direct",
            start_up=start_up,
        )
    )
    plan = FaultPlan(world.faults, gpus, topology(), notice_ns=world.notice_ns)
    faults = plan if world.faults else None
    simulation = Simulation(
        checked, world.case.requests, [ROWS] * len(placed), recorder, journal=None, data_plane=data_plane,
        rows_of=dict.fromkeys(setting.models, ROWS), faults=faults,
    )  # fmt: skip
    simulation.run()
    records = list[MigrationRecord]()
    for service in controller.services.values():
        assert isinstance(service, Migrating)
        records += service.migrations.log.records
    elastic: Any = controller.elastic
    released = Counter(one.act for one in elastic.deployment.log.events)["released"]
    return Played(recorder, records, checked, controller, released)


def check_world(seed: int) -> Played:
    """Step by step as coalesced, every request ended once, nothing is kept for a migration at the end."""
    world = drawn_world(seed)
    played, exact = play(world), play(world, coalesce=False)
    assert played.records == exact.records, f"seed {seed}"
    told, alone = played.recorder, exact.recorder
    assert (told.done, told.refusals, told.failures) == (alone.done, alone.refusals, alone.failures), (
        f"seed {seed}"
    )
    ids = sorted(request.id for request, _ in world.case.requests)
    assert sorted([*told.done, *told.refusals, *told.failures]) == ids, f"seed {seed}"
    if not played.controller.closed:
        for service in played.controller.services.values():
            assert not service.migrations.of_replica and not service.migrations.moves.senders(), (
                f"seed {seed}"
            )
        for engine in played.controller.engines.values():
            assert set(engine.ledger.holders()) <= set(engine.ended) and not engine.halts, f"seed {seed}"
    return played
