"""One queue before the prefill instances: who takes what, roles that change, no work left lying."""

from dataclasses import replace
from random import Random

import pytest

from serving.record.invariants import InvariantError, check
from serving.services.disaggregated.service import Disaggregated
from serving.vocabulary.actions import Assign, Reject, Run
from serving.vocabulary.replica import Role
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.drawn_elastic import draw_requests
from tests.worlds.elastic_world import MS, Setting, StepWorld, Told
from tests.worlds.told_systems import prompts, send, static


def test_the_lowest_idle_instance_takes_as_many_whole_prompts_as_a_pass_has() -> None:
    told = static(prefill=2)
    assert told.arrive(0, prompt=6) == [Assign(0, 0, ""), prompts(0, (0, 6))]
    assert told.arrive(1, prompt=6) == [Assign(1, 1, ""), prompts(1, (1, 6))]
    for id in (2, 3, 4):
        assert told.arrive(id, prompt=6) == []
    taken = [Assign(2, 1, ""), Assign(3, 1, "")]  # the third would make 18 tokens of 16
    assert told.ran(1) == [send(0, (1,), 1, 2, 6), *taken, prompts(1, (2, 6), (3, 6))]


def test_a_prompt_longer_than_a_pass_runs_alone_and_in_its_turn() -> None:
    told = static()
    told.arrive(0)
    for id, prompt in ((1, 2), (2, 30), (3, 2)):
        told.arrive(id, prompt=prompt)
    assert told.ran(0)[1:] == [Assign(1, 0, ""), prompts(0, (1, 2))]
    assert told.ran(0) == [Assign(2, 0, ""), prompts(0, (2, 30))]
    assert told.ran(0) == [Assign(3, 0, ""), prompts(0, (3, 2))]


def test_too_long_a_request_is_refused() -> None:
    (refused,) = static().arrive(0, prompt=60, cap=5)
    assert isinstance(refused, Reject)
    assert isinstance(static().arrive(0, prompt=60, cap=4)[0], Assign)


def test_one_beyond_the_context_is_refused_and_the_next_is_served() -> None:
    told = static(max_model_len=40)
    (refused,) = told.arrive(0, prompt=36, cap=5)
    assert isinstance(refused, Reject)
    assert isinstance(told.arrive(1, prompt=36, cap=4)[0], Assign)


def test_a_lost_prefill_instance_takes_its_prompts_with_it_and_no_others() -> None:
    told = static(prefill=2)
    for id in range(4):
        told.arrive(id, prompt=10)
    told.lose(0)
    service = told.controller.services["m"]
    assert (sorted(told.controller.requests), service.queued, service.backlog_tokens) == ([1, 2, 3], 2, 30)
    assert told.ran(1)[1:] == [Assign(2, 1, ""), prompts(1, (2, 10))]


def test_the_books_are_right_when_an_instance_is_lost_in_the_pass_in_which_it_turned() -> None:
    """Its pass was to be handed over, so no room was kept for it."""
    told = static(prefill=2)
    told.arrive(0), told.arrive(1, prompt=5)
    service, engine = told.controller.services["m"], told.controller.engines[1]
    service.leave(1, [])
    service.join(engine.replica, "decode", [])
    told.lose(1)
    assert (service.backlog_tokens, service.kv_tokens, service.migrating_tokens) == (6, 0, 0)


def test_a_role_of_both_is_refused() -> None:
    told = static()
    with pytest.raises(AssertionError, match="does both"):
        told.controller.services["m"].join(told.controller.engines[0].replica, "both", [])


@on_drawn_seeds(range(8))
def test_the_queue_is_work_conserving(seed: int) -> None:
    """Nobody waits in it while an instance that prefills could compute the first prompt in it."""
    random = Random(seed)
    start: dict[Role, int] = {"prefill": random.randint(1, 3), "decode": random.randint(1, 3)}
    setting = Setting(
        elastic=False, hosts=6, start=start, kv_blocks=random.choice([8, 16, 40]), coalesce=False
    )
    longest = {"step": 30, "send": 60}
    world = StepWorld(setting, lambda kind: random.randint(1, longest[kind]) * MS)
    for request, output_tokens in draw_requests(random, setting):
        world.arrive(request, output_tokens)
    service = world.controller.services["m"]
    tell = world.tell

    def told(event: object) -> None:
        tell(event)  # type: ignore[arg-type]
        engines = [world.controller.engines[number] for number in range(start["prefill"])]
        waiting = service.queue.requests  # type: ignore[attr-defined]
        first = waiting[0].prompt_tokens if waiting else 1 << 30
        for engine in engines:
            assert engine.running or engine.ledger.free_blocks < -(-first // setting.block_tokens)

    world.tell = told  # type: ignore[method-assign]
    world.run()
    assert world.ended["finished"] == world.controller.arrived > 0


@on_drawn_seeds(range(5))
def test_little_holds_of_the_requests_in_the_system(seed: int) -> None:
    """The time integral of those in flight is the sum of their times in the system, exactly."""
    random = Random(seed)
    setting = replace(Setting(), elastic=False, coalesce=False)
    world = StepWorld(setting, lambda kind: random.randint(1, 20) * MS)
    arrived_ns = {}
    for request, output_tokens in draw_requests(random, setting):
        arrived_ns[request.id] = request.arrival_ns
        world.arrive(request, output_tokens)
    area = sojourns = since_ns = 0
    tell = world.tell

    def told(event: object) -> None:
        nonlocal area, sojourns, since_ns
        area += len(world.controller.requests) * (world.now_ns - since_ns)
        since_ns = world.now_ns
        before = set(world.controller.requests)
        tell(event)  # type: ignore[arg-type]
        sojourns += sum(world.now_ns - arrived_ns[id] for id in before - set(world.controller.requests))

    world.tell = told  # type: ignore[method-assign]
    world.run()
    assert area == sojourns > 0


def test_a_pass_that_is_cut_into_chunks_is_handed_over_when_it_is_whole() -> None:
    """A batcher that cuts prompts: the second chunk completes it."""
    from policies.batching import ChunkedPrefill

    told = static()
    told.controller.engines[0].batcher = ChunkedPrefill(8, 16)
    told.arrive(0, prompt=20)
    assert told.ran(0) == [Run(0, 0, ((0, 16, 4),), True, 1, True, "", True)]
    assert told.ran(0) == [send(0, (0,), 0, 1, 20)]


def test_a_told_world_is_fresh() -> None:
    assert Told(Setting()).states == {0: ("prefill", "serving"), 1: ("decode", "serving")}


def decoding() -> Told:
    """Request 0 decodes on replica 1, request 1 is computed on replica 0, request 2 waits."""
    told = static()
    told.arrive(0, prompt=16), told.ran(0), told.sent(0), told.arrive(1, prompt=16), told.arrive(2, prompt=16)
    return told


@pytest.mark.parametrize("key", ["backlog_tokens", "migrating_tokens", "demand_tokens", "demands"])
def test_invariant_12_names_sums_that_are_not_those_of_the_requests(key: str) -> None:
    told = decoding()
    service = told.controller.services["m"]
    assert isinstance(service, Disaggregated)
    if key == "demands":
        service.hand_overs.demands[1] += 4
    else:
        owner = service.queue if key == "backlog_tokens" else service.hand_overs
        setattr(owner, key, getattr(owner, key) + 1)
    with pytest.raises(InvariantError, match=r"^invariant 12: "):
        check(told.controller)


def test_invariant_11_names_a_prefill_replica_that_decodes() -> None:
    told = decoding()
    told.controller.engines[1].hands_over = True
    with pytest.raises(InvariantError, match=r"^invariant 11: prefill replica 1 decodes"):
        check(told.controller)
