"""Where requests wait whose instances do both: at one door, or where they were dispatched at arrival."""

from dataclasses import replace
from random import Random

import pytest

from serving.engine.engine import Engine
from serving.engine.progress import EngineState
from serving.services.colocated.service import Queue
from serving.vocabulary.actions import Action, Assign, Fail, Interrupt, Run
from tests.worlds.drawn_elastic import Drawn, draw_requests, on_links, simulate
from tests.worlds.elastic_world import MS, Setting, StepWorld, Told, Whims

PASS_TOKENS = 16


def static(queue: Queue | None, instances: int = 2, **more: int) -> Told:
    """Two instances that do both, 16 prompt tokens a pass, two seats."""
    more = {"max_num_seqs": 2, **more}
    # Type: ignore[arg-type]
    return Told(Setting(elastic=False, start={"both": instances}, queue=queue, **more))


def backlog(told: Told, count: int = 8) -> list[int]:
    """Requests of a pass each come at once; who waits at each instance."""
    for id in range(count):
        told.arrive(id, prompt=PASS_TOKENS)
    return [len(told.controller.engines[replica].waiting) for replica in (0, 1)]


def assigned(actions: list[Action]) -> list[tuple[int, int]]:
    return [(one.request, one.replica) for one in actions if isinstance(one, Assign)]


def test_by_default_a_static_system_dispatches_everybody_at_arrival() -> None:
    assert backlog(static(None)) == backlog(static("per_instance")) == [3, 3]


def test_with_a_common_queue_an_instance_has_one_pass_waiting_and_takes_the_next_when_it_begins_it() -> None:
    told = static("common")
    assert backlog(told) == [1, 1]
    assert told.controller.services["m"].queued == 4
    assert assigned(told.ran(1)) == [(4, 1)]  # it has begun what waited there
    assert assigned(told.ran(1)) == []  # both seats are taken: the queue stands still
    assert assigned(told.ran(0)) == [(5, 0)]


def test_a_common_queue_leaves_no_instance_without_work() -> None:
    """The second instance is slow; in queues of their own half of the requests would wait for it."""
    told = static("common", max_num_seqs=1)
    backlog(told)
    for id in (0, 2, 4, 5):
        told.ran(0, id)
    assert {one.id for one in told.controller.engines[1].waiting} == {3}
    assert assigned(told.ran(0, 6)) == []
    assert sorted(told.controller.requests) == [1, 3, 7]


def test_the_last_instance_takes_those_at_the_door_with_it() -> None:
    told = static("common", instances=1)
    for id in range(5):
        told.arrive(id, prompt=PASS_TOKENS)
    assert told.controller.services["m"].queued == 3
    assert told.lose(0) == [Fail(id, "") for id in range(5)]
    assert told.controller.requests == {}


@pytest.mark.parametrize("queue", [None, "per_instance"])
def test_who_waits_at_a_lost_instance_is_dispatched_again_if_that_was_asked_for(queue: Queue | None) -> None:
    told = static(queue)
    backlog(told)
    actions = told.lose(0)
    if queue is None:
        assert actions == [Fail(id, "") for id in (0, 2, 4, 6)]
        return
    assert actions == [Fail(0, ""), *[Assign(id, 1, "") for id in (2, 4, 6)]]
    assert [one.id for one in told.controller.engines[1].waiting] == [3, 5, 7, 2, 4, 6]
    assert {type(one) for one in told.lose(1)} == {Fail}
    assert told.controller.requests == {}


def draining() -> tuple[Told, Engine, list[Action]]:
    """An elastic system; instance 1 drains with a running request and one that waits. 0 has the same."""
    told = Told(Setting(start={"both": 2}, max_num_seqs=1, queue="per_instance"))
    for id in range(4):
        told.arrive(id)
    told.ran(0), told.ran(1)
    actions: list[Action] = []
    told.deployment.drains.drain(told.now_ns, 1, actions)
    return told, told.controller.engines[1], actions


def test_who_waits_at_a_draining_instance_is_dispatched_again() -> None:
    told, engine, actions = draining()
    assert (list(engine.running), len(engine.waiting)) == ([1], 0)
    assert assigned(actions) == [(3, 0)]
    assert told.states[1] == ("both", "draining")


def test_a_run_that_nobody_waits_for_any_more_ends_at_its_next_boundary() -> None:
    """An arrival did not change it while somebody waited; now it may, if the drain is cancelled."""
    _, engine, actions = draining()
    assert [one for one in actions if isinstance(one, Interrupt)] == [Interrupt(1, "arrival")]
    assert engine.state is EngineState.STOPPING


def test_without_an_instance_they_wait_at_the_door_and_the_next_one_takes_all() -> None:
    told, _, _ = draining()
    actions: list[Action] = []
    told.deployment.drains.drain(told.now_ns, 0, actions)
    service = told.controller.services["m"]
    assert (assigned(actions), service.queued) == ([], 2)
    told.deployment.drains.cancel(0, actions)
    assert assigned(actions) == [(2, 0), (3, 0)]


def test_a_preempted_request_stays_where_its_tokens_are_known() -> None:
    told = static("per_instance", kv_blocks=8, max_num_seqs=4)
    told.arrive(0, prompt=14, cap=18), told.arrive(1, prompt=1), told.arrive(2, prompt=14, cap=18)
    told.ran(0), told.ran(0)
    engine = told.controller.engines[0]
    for _ in range(6):
        if not engine.waiting:
            told.ran(0)
    assert [one.id for one in engine.waiting if one.was_preempted] == [2]
    failed = told.lose(0)
    assert failed == [Fail(0, ""), Fail(2, "")]


# Drawn cases


def drawn(seed: int, queue: Queue) -> Drawn:
    """Whoever has work may be drained by a whim where instances come and go."""
    random = Random(seed)
    setting = Setting(
        elastic=queue == "per_instance",
        start={"both": random.choice([1, 2, 3])},
        bounds={"both": (1, 6)},
        gpus_per_host=4,
        queue=queue,
        kv_blocks=random.choice([8, 16, 40]),
        max_num_seqs=random.choice([1, 2, 4]),
        max_num_batched_tokens=random.choice([8, 16]),
        prefill_tokens_per_s=random.choice([20.0, 100.0]),
        whims=lambda: Whims(Random(seed)),
        period_ns=random.choice([10, 40]) * MS,
    )
    if queue == "per_instance" and seed % 2:  # one burst, so that somebody waits wherever there is a drain
        burst = [
            (replace(one, arrival_ns=one.id * MS), tokens) for one, tokens in draw_requests(random, setting)
        ]
        return Drawn(replace(setting, max_num_seqs=1), tuple(burst))
    return Drawn(setting, draw_requests(random, setting))


@pytest.mark.parametrize("queue", ["common", "per_instance"])
@pytest.mark.parametrize("seed", range(10))
def test_coalesced_equals_step_by_step(seed: int, queue: Queue) -> None:
    case = on_links(drawn(seed, queue))
    (ran, _, _), (exact, _, _) = simulate(case), simulate(case, coalesce=False)
    assert ran.done == exact.done and len(ran.done) == len(case.requests)
    assert ran.busy_ns == exact.busy_ns


@pytest.mark.parametrize("queue", ["common", "per_instance"])
@pytest.mark.parametrize("seed", range(10))
def test_requests_are_conserved_whatever_is_lost(seed: int, queue: Queue) -> None:
    """Invariants after every event; in a static system everybody ends."""
    case, random = drawn(seed, queue), Random(seed)
    longest = {"step": 30, "load": 400, "send": 60}
    world = StepWorld(
        replace(case.setting, coalesce=False), lambda kind: random.randint(1, longest[kind]) * MS
    )
    for request, output_tokens in case.requests:
        world.arrive(request, output_tokens)
    for _ in range(2):
        world.lose(random.randint(0, 1500) * MS, random.randint(0, 3))
    world.run(case.requests[-1][0].arrival_ns + 100_000 * MS)
    assert sum(world.ended.values()) == len(case.requests)


def test_the_drawn_cases_reach_what_they_are_for() -> None:
    """Drains of instances with somebody waiting, and doors with somebody at them."""
    again = queued = 0
    for seed in range(20):
        case = on_links(drawn(seed, "per_instance"))
        again += sum(line.count('"assign"') for line in simulate(case)[2].lines) > len(case.requests)
        world = StepWorld(replace(drawn(seed, "common").setting, coalesce=False), lambda _: 20 * MS)
        for request, output_tokens in drawn(seed, "common").requests:
            world.arrive(request, output_tokens)
        world.run()
        queued += any(isinstance(one, Assign) and "from the queue" in one.reason for one in world.actions)
        assert any(isinstance(one, Run) for one in world.actions)
    assert again > 2 and queued > 2
