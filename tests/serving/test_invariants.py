"""The invariants of serving/record see what they are for. Test names carry the invariant's number."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import RoundRobin
from serving.composition import compose
from serving.controller import Controller
from serving.engine.engine import Engine
from serving.engine.free_queue import Extent
from serving.engine.prefix_cache import PrefixCache
from serving.engine.progress import EngineState, Progress
from serving.record.invariants import InvariantError, check
from serving.vocabulary.actions import Run
from serving.vocabulary.events import Arrived, Lost, Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


def busy_controller() -> Controller:
    """Replica 0 decodes request 0 and has computed 7 of 20 tokens of request 2; 4 waits behind a full budget.
    Replica 1 has begun the prompt of request 1. Replica 2 is idle."""
    replicas = [
        Replica(id=id, model="m", layers=LayerRange(0, 2), gpus=(id,), kv_blocks=16, block_tokens=4)
        for id in range(3)
    ]
    controller = compose(replicas, RoundRobin(), lambda _: ChunkedPrefill(4, 8), admission=AdmitAll())
    for id, prompt_tokens in enumerate((8, 20, 1, 20, 20, 1, 3)):
        controller.handle(0, Arrived(Request(id, 0, prompt_tokens, 30, "m")))
    controller.handle(1, Ran(0, 0, 1, ()))
    controller.handle(2, Ran(0, 0, 1, ()))
    controller.handle(3, Ran(2, 0, 1, (2,)))
    controller.handle(4, Ran(2, 0, 1, (5,)))
    check(controller)
    return controller


def test_the_case_has_everything_to_break() -> None:
    controller = busy_controller()
    assert [engine.state for engine in controller.engines.values()] == [
        EngineState.RUNNING,
        EngineState.RUNNING,
        EngineState.IDLE,
    ]
    first = controller.engines[0]
    assert list(first.running) == [0, 3]
    assert list(first.prefilling) == [3] and first.prefilling[3].computed == 7
    assert [progress.id for progress in first.waiting] == [6]
    assert list(controller.requests) == [0, 1, 3, 4, 6]


def lose_a_request(controller: Controller) -> None:
    del controller.requests[6]


def count_a_finish_twice(controller: Controller) -> None:
    controller.finished += 1


def forget_a_waiting_request(controller: Controller) -> None:
    controller.engines[0].waiting.clear()


def queue_on_two_replicas(controller: Controller) -> None:
    controller.engines[1].waiting.append(controller.engines[0].waiting[0])


def queue_while_running(controller: Controller) -> None:
    first = controller.engines[0]
    first.waiting.clear()
    first.waiting.append(first.running[0])


def take_blocks_twice(controller: Controller) -> None:
    ledger = controller.engines[0].ledger
    ledger.reserve(3, 4 * 40)


def leak_blocks(controller: Controller) -> None:
    controller.engines[0].ledger.total_blocks += 1
    controller.engines[0].ledger._reserved += 2


def free_too_many(controller: Controller) -> None:
    controller.engines[2].ledger._reserved -= 1


def hold_without_admission(controller: Controller) -> None:
    controller.engines[0].ledger.reserve(6, 3)


def keep_blocks_of_the_departed(controller: Controller) -> None:
    controller.engines[2].ledger.reserve(2, 1)


def prefill_somebody_unknown(controller: Controller) -> None:
    first = controller.engines[0]
    first.prefilling[6] = first.waiting[0]
    del first.prefilling[3]


def decode_before_the_prompt_is_done(controller: Controller) -> None:
    controller.engines[0].ledger.start_decoding(3, 8)


def skip_a_prompt_position(controller: Controller) -> None:
    controller.engines[0].prefilling[3].computed = 20


def negative_prompt_position(controller: Controller) -> None:
    controller.engines[0].prefilling[3].computed = -1


def idle_with_a_queue(controller: Controller) -> None:
    controller.engines[2].waiting.append(controller.engines[0].waiting.pop())


def stop_with_work(controller: Controller) -> None:
    controller.engines[0].state = EngineState.IDLE


def keep_work_on_a_lost_replica(controller: Controller) -> None:
    controller.engines[1].state = EngineState.LOST


BROKEN = {
    1: (
        lose_a_request,
        count_a_finish_twice,
        forget_a_waiting_request,
        queue_on_two_replicas,
        queue_while_running,
    ),
    2: (
        take_blocks_twice,
        leak_blocks,
        free_too_many,
        hold_without_admission,
        keep_blocks_of_the_departed,
        prefill_somebody_unknown,
        decode_before_the_prompt_is_done,
    ),
    4: (skip_a_prompt_position, negative_prompt_position),
    10: (idle_with_a_queue, stop_with_work, keep_work_on_a_lost_replica),
}


@pytest.mark.parametrize(
    ("number", "damage"),
    [(number, damage) for number, damages in BROKEN.items() for damage in damages],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_invariant_is_named_by_number(number: int, damage: Callable[[Controller], None]) -> None:
    controller = busy_controller()
    damage(controller)
    with pytest.raises(InvariantError, match=rf"^invariant {number}: "):
        check(controller)


def test_a_fresh_controller_holds_every_invariant() -> None:
    replicas = [Replica(id=0, model="m", layers=LayerRange(0, 2), gpus=(0,), kv_blocks=16, block_tokens=4)]
    check(compose(replicas, RoundRobin(), lambda _: ChunkedPrefill(4, 8), admission=AdmitAll()))


MAX_NEW_TOKENS = 8


class World:
    """Answers runs with any number of steps that was allowed, finishes whom it likes and loses replicas."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.runs: dict[int, Run] = {}
        self.left: dict[int, int] = {}  # tokens that a request may still sample
        self.now_ns = 0

    def tell(self, event: Arrived | Ran | Lost) -> None:
        self.now_ns += 1
        for action in self.controller.handle(self.now_ns, event):
            if isinstance(action, Run):
                assert action.replica not in self.runs, "one pass at a time"
                self.runs[action.replica] = action
        check(self.controller)

    def arrive(self, id: int, prompt_tokens: int) -> None:
        self.left[id] = MAX_NEW_TOKENS
        self.tell(Arrived(Request(id, 0, prompt_tokens, MAX_NEW_TOKENS, "m")))

    def complete(self, replica: int, wanted_steps: int, leavers: set[int], goes_on: bool) -> None:
        """The run ends after as many steps as the caps allow; ``leavers`` finish if they sampled last."""
        run, engine = self.runs.pop(replica), self.controller.engines[replica]
        first = {id for id, start, tokens in run.chunks if start + tokens == engine.running[id].known_tokens}
        residents = set(engine.running) - set(engine.prefilling)
        later = first | residents
        first |= residents if run.decode else set()
        steps = min([wanted_steps, run.max_steps, *(self.left[id] + (id not in first) for id in later)])
        for id in later:
            self.left[id] -= steps - (id not in first)
        sampled_last = later if steps > 1 else first
        finished = sorted(id for id in sampled_last if id in leavers or not self.left[id])
        goes_on = goes_on and not run.until_finish and steps < run.max_steps and later > set(finished)
        if goes_on:
            self.runs[replica] = replace(run, chunks=(), decode=True, max_steps=run.max_steps - steps)
        self.tell(Ran(replica, run.epoch, steps, tuple(finished), goes_on))


def progress_of(engine: Engine) -> list[Progress]:
    return [*engine.running.values(), *engine.waiting]


@given(data=st.data())
@settings(max_examples=33)
def test_invariants_1_2_4_10_hold_whatever_the_world_does(data: st.DataObject) -> None:
    blocks = data.draw(st.integers(8, 20))
    replicas = [
        Replica(id=id, model="m", layers=LayerRange(0, 2), gpus=(id,), kv_blocks=blocks, block_tokens=4)
        for id in range(2)
    ]
    controller = compose(replicas, RoundRobin(), lambda _: ChunkedPrefill(4, 8), admission=AdmitAll())
    world = World(controller)
    for id in range(data.draw(st.integers(5, 40))):
        kind = data.draw(st.sampled_from(("arrive", "arrive", "run", "run", "run", "run", "lose", "late")))
        if kind == "arrive":
            world.arrive(id, data.draw(st.integers(1, 24)))
        elif kind == "run" and world.runs:
            replica = data.draw(st.sampled_from(sorted(world.runs)))
            leavers = data.draw(st.sets(st.integers(0, id), max_size=4))
            world.complete(replica, data.draw(st.integers(1, 9)), leavers, data.draw(st.booleans()))
        elif kind == "lose" and data.draw(st.integers(0, 5)) == 0:
            replica = data.draw(st.integers(0, 1))
            world.runs.pop(replica, None)
            world.tell(Lost(replica, "gone"))
            assert progress_of(controller.engines[replica]) == []
        elif kind == "late":
            for engine in controller.engines.values():
                if engine.state is EngineState.LOST:
                    world.tell(Ran(engine.replica.id, engine.epoch - 1, 1, (id,)))


def sharing_controller() -> Controller:
    """Request 0 decodes, 1 and 2 began behind its first 2 blocks, 3 has left 3 blocks in the free queue."""
    replica = Replica(
        id=0, model="m", layers=LayerRange(0, 2), gpus=(0,), kv_blocks=16, block_tokens=4, prefix_caching=True
    )
    controller = compose([replica], RoundRobin(), lambda _: ChunkedPrefill(4, 40), admission=AdmitAll())
    for id, prompt_tokens, prefix in ((3, 12, ()), (0, 10, ()), (1, 14, ((0, 10),)), (2, 12, ((0, 9),))):
        controller.handle(0, Arrived(Request(id, 0, prompt_tokens, 30, "m", shared_prefix=prefix)))
    controller.handle(1, Ran(0, 0, 1, (3,)))
    controller.handle(2, Ran(0, 0, 1, ()))
    check(controller)
    assert list(controller.engines[0].running) == [0, 1, 2]
    return controller


def cache_of(controller: Controller) -> PrefixCache:
    cache = controller.engines[0].ledger.cache
    assert cache is not None
    return cache


def count_a_user_twice(cache: PrefixCache) -> None:
    cache.index[0][0].users += 1


def find_a_block_too_many(cache: PrefixCache) -> None:
    cache.tables[1].cached_blocks += 1


def find_what_is_nowhere(cache: PrefixCache) -> None:
    cache.index[9] = [Extent(9, 9, (), start=0, stop=2, users=0, born=99)]


def lose_what_is_queued(cache: PrefixCache) -> None:
    cache.queue.remove(cache.index[3][0])


def count_shared_blocks_twice(cache: PrefixCache) -> None:
    cache.shared_blocks *= 2


@pytest.mark.parametrize(
    "damage",
    [
        count_a_user_twice,
        find_a_block_too_many,
        find_what_is_nowhere,
        lose_what_is_queued,
        count_shared_blocks_twice,
    ],
)
def test_a_broken_cache_is_named_by_invariant_2(damage: Callable[[PrefixCache], None]) -> None:
    controller = sharing_controller()
    damage(cache_of(controller))
    with pytest.raises(InvariantError, match=r"^invariant 2: "):
        check(controller)


def test_a_lost_replica_loses_what_could_be_found_there() -> None:
    controller = sharing_controller()
    ledger, request = controller.engines[0].ledger, Request(7, 0, 12, 1, "m", shared_prefix=((0, 12),))
    assert ledger.cached_prefix_tokens(request) == 8
    controller.handle(3, Lost(0, "unplugged"))
    check(controller)
    assert ledger.cached_prefix_tokens(request) == 0 and not cache_of(controller).index
    assert ledger.free_blocks == ledger.total_blocks == cache_of(controller).queue.blocks
