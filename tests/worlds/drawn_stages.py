"""Small worlds of models in stages, each drawn from a seed: shared GPUs, batches, queues, losses."""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

from serving.record.replay import replay
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.stage_world import (
    CAPACITY_BYTES,
    LAYER_BYTES,
    MS,
    StageCase,
    StageRun,
    controller_of,
    replicas_of,
    run,
)

CLUSTER = "quart_2x4"
GPUS = 8
MOST_ON_ONE = CAPACITY_BYTES // (2 * LAYER_BYTES)  # stages have two layers


@dataclass(frozen=True)
class DrawnStages:
    cases: tuple[StageCase, ...]
    faults: tuple[Fault, ...]

    @property
    def plan(self) -> FaultPlan:
        gpus = tuple(one.gpus for one in replicas_of(*self.cases))
        return FaultPlan(self.faults, gpus, ideal(CLUSTER))


def drawn(seed: int, losses: bool) -> DrawnStages:
    """One or two models of 1 to 5 stages, up to 12 requests of each, up to 3 losses."""
    random, cases, first = Random(f"stages {seed}"), list[StageCase](), 0
    for number in range(random.choice((1, 1, 2))):
        stages, requests, now_ns, arrivals = random.randint(1, 5), random.randint(1, 12), 0, []
        for _ in range(requests):
            arrivals.append(now_ns)
            now_ns += random.choice((0, MS, random.randint(0, 30 * MS)))
        times = [[random.randint(1, 20) * MS for _ in range(requests)] for _ in range(stages)]
        gpus = [[random.randrange(GPUS) for _ in range(random.randint(1 + losses, 3))] for _ in range(stages)]
        cases.append(
            StageCase(
                arrivals,
                times,
                gpus,
                random.choice((0, 1_000_000, 50_000_000)),
                random.randint(1, 3),
                random.choice(("stage", "replica")),
                random.choice((0, 300)),
                random.choice((1024, 200)),
                cluster=CLUSTER,
                model=f"m{number}",
                first_request=first,
            )
        )
        first += requests
    kinds = ("replica", "replica", "host", "link")
    found = [
        Fault(random.randint(0, 200 * MS), random.choice(kinds), share=random.random())
        for _ in range(random.randint(1, 3) if losses else 0)
    ]
    return DrawnStages(tuple(cases), tuple(sorted(found, key=lambda one: one.at_ns)))


def check_drawn(seed: int, losses: bool) -> StageRun:
    """Every request ends once, through all stages in order; no GPU runs two passes; the journal replays."""
    world = drawn(seed, losses)
    found = run(*world.cases, faults=world.plan if losses else None)
    again = run(*world.cases, faults=world.plan if losses else None)
    assert found.lines == again.lines, "the same seed, the same journal"
    assert replay(found.journal(), controller_of(*world.cases)).first_difference is None
    for case in world.cases:
        check_order(case, found, losses)
    if not losses:
        assert len(found.recorder.done) == sum(len(case.arrivals_ns) for case in world.cases)
        check_gpus(world, found)
    return found


def check_order(case: StageCase, found: StageRun, losses: bool) -> None:
    rows, stages = found.log(case.model), len(case.times_ns)
    for request, _ in case.requests():
        own = [row for row in rows if row["request"] == request.id]
        passed = [row["stage"] for row in own]
        if request.id in found.recorder.done:
            assert passed[-stages:] == list(range(stages))
        if not losses:
            assert passed == list(range(stages))
        for before, after in pairwise(own):
            assert before["ended_ns"] <= after["arrived_ns"] <= after["began_ns"] < after["ended_ns"]


def check_gpus(world: DrawnStages, found: StageRun) -> None:
    """What GPUs ran fits into the time until the last pass, also where no input or CPU held a pass up."""
    gpu_of = {one.id: one.gpus[0] for one in replicas_of(*world.cases)}
    busy = dict.fromkeys(gpu_of.values(), 0)
    for replica, busy_ns in found.recorder.busy_ns.items():
        busy[gpu_of[replica]] += busy_ns
    last = max(row["ended_ns"] for case in world.cases for row in found.log(case.model))
    assert max(busy.values()) <= last
    for replica in gpu_of:
        passes = {
            (row["began_ns"], row["ended_ns"])
            for case in world.cases
            for row in found.log(case.model)
            if row["replica"] == replica
        }
        ordered = sorted(passes)
        assert all(one[1] <= other[0] for one, other in pairwise(ordered))
