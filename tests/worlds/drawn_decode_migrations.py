"""Worlds with decode instances between which requests migrate, each drawn from a seed, with losses."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hwmodels.loading.startup import load_start_up
from policies.llumnix.migration import Llumnix
from policies.migration import LeastLoadedPairs
from policies.migration_defragment import Defragment
from serving.composition import MigrationParts
from serving.kv.migration_log import MigrationRecord
from serving.kv.migration_rules import MigrationRules
from serving.services.disaggregated.decode_migrating import DecodeMigrating
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import Request
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.faults.plan import Fault, FaultPlan
from simcore.simulation import Simulation
from tests.worlds.drawn_elastic import ROWS, SHAPE, Drawn, draw_setting, on_links, topology
from tests.worlds.elastic_world import MS, Setting, Whims
from tests.worlds.migrating import DrawnPairs, Told
from tests.worlds.world import Checked


@dataclass(frozen=True)
class World:
    case: Drawn
    faults: tuple[Fault, ...]
    notice_ns: int = 0


@dataclass
class Played:
    recorder: Told
    records: list[MigrationRecord]
    checked: Checked
    controller: Any


def drawn_world(seed: int) -> World:
    """Fixed or elastic; up to two losses; by chance, by load, or for who waits."""
    random = Random(f"decode migrations {seed}")
    drawn, fixed = draw_setting(random), random.random() < 0.5
    start: Any = {"prefill": random.choice((1, 2)), "decode": random.choice((2, 3))}
    whims, least = random.getrandbits(32), random.choice((0, 1, 1, 2))
    one_model, most = random.random() < 0.7, random.choice((2, 4, 8))
    setting = replace(
        drawn,
        models={"m": 1} if one_model else drawn.models,
        start=start if one_model else dict.fromkeys(start, 1),
        elastic=not fixed,
        bounds=dict.fromkeys(start, (least, 4)),
        copies="everywhere" if drawn.provision == "host" else drawn.copies,
        queue=None,
        kv_blocks=random.choice((16, 16, 24, 60)),
        max_num_seqs=most,
        whims=(lambda: Whims(Random(whims))) if random.random() < 0.6 else None,
        migration=_migration(random, most),
    )
    drawn_case = Drawn(setting, _requests(random, setting, random.choice((0, 0, 0, 4))))
    case = on_links(drawn_case, Random(f"sequences {seed}"))
    kinds = ("host", "link")[: random.choice((0, 0, 1, 2))]  # one host of two stays
    faults = [
        Fault(random.randint(0, 3000) * MS, random.choice(("replica", "link", last)), share=random.random())
        for last in kinds
    ]
    notice_ns = random.choice((0, 0, 100, 1000)) * MS
    return World(case, tuple(sorted(faults, key=lambda one: one.at_ns)), notice_ns)


def _requests(random: Random, setting: Setting, reserved: int) -> tuple[tuple[Request, int], ...]:
    """They come close together and decode for a while, so that decode instances are full."""
    arrival_ns, found = 0, list[tuple[Request, int]]()
    room = setting.kv_blocks * setting.block_tokens
    for id in range(random.randint(5, 40)):
        arrival_ns += random.choice((0, 1, 10, 20, random.choice((1, 200)))) * MS
        prompt, cap = random.randint(1, 16), random.choice((4, 12, 40))
        model = random.choice(sorted(setting.models))
        one = Request(id, arrival_ns, prompt, min(cap, room - prompt - 4), model, 0, reserved)
        found.append((one, random.randint(1, 40)))
    return tuple(found)


def _migration(random: Random, most: int) -> Any:
    mode: Any = random.choice(("live", "live", "stop_and_copy", "recompute"))
    rules = MigrationRules(
        mode, random.choice((1, 2, 16)), random.randint(2, 4), random.choice((0, 3, 20)) * MS,
        KvBytes(SHAPE.kv_bytes_per_token * random.choice((1, 1, 10_000))), most,
    )  # fmt: skip
    seed, chance = random.getrandbits(32), random.choice((0.3, 0.9))
    who = random.choice(("drawn", "drawn", "defragment", "defragment", "least_loaded", "llumnix"))
    policies = {
        "drawn": lambda: DrawnPairs(seed, chance),
        "defragment": Defragment,
        "least_loaded": LeastLoadedPairs,
        "llumnix": Llumnix,
    }

    def make() -> MigrationParts:
        return MigrationParts(policies[who](), 7 * MS, dict.fromkeys(("m", "a", "b"), rules))

    return make


def play(world: World, coalesce: bool = True) -> Played:
    setting = replace(world.case.setting, coalesce=coalesce)
    controller, recorder = setting.controller(), Told()
    checked: Any = Checked(controller)
    checked.elastic = controller.elastic  # by which the world notices that nothing can come any more
    placed = setting.placed()
    gpus, shapes = [one.gpus for one in placed], dict.fromkeys(setting.models, SHAPE)
    models = [one.model for one in placed]
    data_plane = DataPlane(
        DataPlaneSetup(
            topology=topology(),
            shapes=shapes,
            model_of=models,
            gpus_of=gpus,
            loader="direct",
            start_up=load_start_up("none"),
        )
    )
    plan = FaultPlan(world.faults, gpus, topology(), notice_ns=world.notice_ns)
    simulation = Simulation(
        checked, world.case.requests, [ROWS] * len(placed), recorder, journal=None, data_plane=data_plane,
        rows_of=dict.fromkeys(setting.models, ROWS), faults=plan if world.faults else None,
    )  # fmt: skip
    simulation.run()
    records = list[MigrationRecord]()
    for service in controller.services.values():
        assert isinstance(service, DecodeMigrating)
        records += service.migrations.log.records
    return Played(recorder, records, checked, controller)


def check_world(seed: int) -> Played:
    """Step by step as coalesced, every request ended once, nothing is kept for a migration at the end.

    Where less room is kept than is written, decode instances preempt, and runs are never coalesced
    (``servetwin.assemble.build``).
    """
    world = drawn_world(seed)
    exact = play(world, coalesce=False)
    preempts = any(request.reserved_tokens for request, _ in world.case.requests)
    played = exact if preempts else play(world)
    told, alone = played.recorder, exact.recorder
    assert played.records == exact.records, f"seed {seed}"
    assert (told.done, told.refusals, told.failures) == (alone.done, alone.refusals, alone.failures), (
        f"seed {seed}"
    )
    ids = sorted(request.id for request, _ in world.case.requests)
    assert sorted([*told.done, *told.refusals, *told.failures]) == ids, f"seed {seed}"
    if not played.controller.closed:
        for service in played.controller.services.values():
            assert not service.migrations.of_replica and not service.migrations.moves.senders()
            assert not any(service.inner.hand_overs.demands.values()), f"seed {seed}"
            assert not any(service.inner.hand_overs.reserved_requests.values()), f"seed {seed}"
        for engine in played.controller.engines.values():
            assert set(engine.ledger.holders()) <= set(engine.ended) and not engine.halts, f"seed {seed}"
    return played
