"""Small worlds with migrations in which replicas, hosts and links are lost, each drawn from a seed."""

from dataclasses import dataclass, replace
from random import Random

from serving.engine.progress import Order
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.migrating import Played, Setting, gpus_of, play
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24
STEP_NS = 6
TOPOLOGY = ideal("blitz_b")


@dataclass(frozen=True)
class World:
    setting: Setting
    faults: tuple[Fault, ...]
    notice_ns: int = 0

    @property
    def plan(self) -> FaultPlan:
        gpus = gpus_of(self.setting.case.replicas)
        return FaultPlan(self.faults, gpus, TOPOLOGY, notice_ns=self.notice_ns)


def drawn_world(seed: int) -> World:
    """2 to 5 instances, up to 16 requests that decode for a while, up to 4 losses at any time.

    In a third of the worlds the global scheduler is lost for a while, once or twice.
    """
    random = Random(f"migrations and losses {seed}")
    replicas, now_ns, requests = random.choice((2, 3, 3, 4, 5)), 0, []
    for _ in range(random.randint(3, 16)):
        requests.append((now_ns, random.randint(1, 40), random.randint(1, 120), random.choice((20, 60, 120))))
        now_ns += random.choice((0, 0, STEP_NS, random.randint(0, 60)))
    chunked = random.random() < 0.5
    rows = ToyRows(5 * NS, NS // 3, NS // random.choice((20, 50)), 6 * NS, NS // 5)
    block, watermark, seats = random.choice((1, 4, 16)), random.randint(0, 2), random.choice((2, 4, 8))
    longest = max(-(-(prompt + most) // block) for _, prompt, _, most in requests)
    blocks = watermark + longest + random.choice((0, 2, longest, 4 * longest))
    case = Case(
        "chunked" if chunked else "prefill_first", replicas, block, blocks, watermark, seats, 32,
        random.choice(("round_robin", "least_outstanding")), tuple(requests), rows,
        prefix_caching=random.random() < 0.5, asynchronous=random.random() < 0.5,
    )  # fmt: skip
    case, order = _with_priorities(_with_sequences(case, seed), seed)
    setting = Setting(
        case, seed, random.choice(("live", "live", "stop_and_copy", "recompute")), random.choice((1, 2, 16)),
        random.randint(1, 4), random.choice((0, 3, 40)), random.choice((0.1, 1.0, 6.0)),
        STEP_NS * random.choice((1, 3, 9)), order=order,
    )  # fmt: skip
    faults = [
        Fault(random.randint(0, now_ns + 900), random.choice(("replica", "replica", "link", "host")),
              share=random.random())
        for _ in range(random.choice((0, 1, 1, 2, 4)))
    ]  # fmt: skip
    scheduler = Random(f"schedulers {seed}")
    faults += [
        Fault(scheduler.randint(0, now_ns), "scheduler", duration_ns=scheduler.choice((1, 60, 600)))
        for _ in range(scheduler.choice((0, 0, 0, 0, 1, 2)))
    ]
    # Of asynchronous engines none: what is dispatched again is seen by the time of its arrival there.
    notice_ns = 0 if case.asynchronous else Random(f"notices {seed}").choice((0, 40, 400))
    return World(setting, tuple(sorted(faults, key=lambda one: one.at_ns)), notice_ns)


def _with_sequences(case: Case, seed: int) -> Case:
    """Requests of half of the worlds hold blocks of windows and states besides."""
    random = Random(f"sequences {seed}")
    own = random.choice((0, 0, 1, 4))
    return replace(case, sequence_blocks=own, total_blocks=case.total_blocks + own * random.choice((1, 3)))


def _with_priorities(case: Case, seed: int) -> tuple[Case, Order]:
    """Some requests of two worlds in five come before others."""
    random = Random(f"priorities {seed}")
    if random.random() < 0.6:
        return case, "fcfs"
    priorities = tuple([random.choice((0, 0, 1)) for _ in case.requests])
    caching = case.prefix_caching and case.batcher != "chunked"
    order: Order = random.choice(("priority", "before_last"))
    return replace(case, priorities=priorities, prefix_caching=caching), order


def check_world(seed: int) -> Played:
    """Step by step as coalesced, every request ended once, nothing is left in any ledger."""
    world = drawn_world(seed)
    played, exact = (play(world.setting, coalesce, world.plan) for coalesce in (True, False))
    assert played.records == exact.records, f"seed {seed}"
    told, alone = played.recorder, exact.recorder
    assert (told.done, told.refusals, told.failures) == (alone.done, alone.refusals, alone.failures)
    if not told.failures and not any(fault.what not in ("link", "scheduler") for fault in world.faults):
        # What a lost replica ran since its last report is not told of.
        assert sorted(told.all_gaps) == sorted(alone.all_gaps)
    outputs = {id: min(one[2], one[3]) for id, one in enumerate(world.setting.case.requests)}
    assert sorted([*told.done, *told.refusals, *told.failures]) == sorted(outputs)
    assert all(outputs[id] == tokens for id, (_, tokens, _, _, _) in told.done.items())
    if not played.controller.closed:
        for engine in played.controller.engines.values():
            assert set(engine.ledger.holders()) <= set(engine.ended) and not engine.attached, f"seed {seed}"
        assert not any(engine.halts for engine in played.controller.engines.values()), f"seed {seed}"
    return played
