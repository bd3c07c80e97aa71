"""Who serves a request: ties, orders kept by change, and no copy per decision."""

from random import Random
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.dispatch import LeastKv, LeastOutstanding, PowerOfTwoChoices, RoundRobin
from serving.engine.fleet import Dispatcher, Fleet
from serving.engine.least_index import LeastIndex
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


def fleet_of(*ids: int, model: str = "m") -> Fleet:
    return Fleet(
        model, [Replica(id=id, model=model, layers=LayerRange(0, 2), gpus=(id,), kv_blocks=64) for id in ids]
    )


def request_of(prompt_tokens: int = 1, max_new_tokens: int = 1, model: str = "m") -> Request:
    return Request(0, 0, prompt_tokens, max_new_tokens, model)


def dispatched(dispatcher: Dispatcher, fleet: Fleet, request: Request) -> tuple[int, str]:
    """What the controller does with an arrival."""
    replica, reason = dispatcher.dispatch(request, fleet)
    fleet.assigned(replica, request)
    return replica, reason


# --- the policies ---


@pytest.mark.parametrize("dispatcher", [LeastOutstanding(), LeastKv()], ids=lambda d: type(d).__name__)
def test_least_loaded_ties_go_to_the_lowest_id(dispatcher: Dispatcher) -> None:
    fleet = fleet_of(9, 4, 6)
    assert [dispatched(dispatcher, fleet, request_of())[0] for _ in range(7)] == [4, 6, 9, 4, 6, 9, 4]


def test_least_outstanding_counts_requests_and_tells_the_load() -> None:
    fleet = fleet_of(0, 1)
    long, short = request_of(1000), request_of(1)
    assert dispatched(LeastOutstanding(), fleet, long) == (0, "0 outstanding")
    assert dispatched(LeastOutstanding(), fleet, short) == (1, "0 outstanding")
    assert dispatched(LeastOutstanding(), fleet, short) == (0, "1 outstanding")
    fleet.departed(1, short)
    assert dispatched(LeastOutstanding(), fleet, short) == (1, "0 outstanding")


def test_least_kv_counts_prompt_and_cap_and_tells_the_demand() -> None:
    fleet = fleet_of(0, 1)
    assert dispatched(LeastKv(), fleet, request_of(100, 50)) == (0, "0 KV tokens demanded")
    for _ in range(3):
        assert dispatched(LeastKv(), fleet, request_of(30, 20))[0] == 1
    # 150 tokens each: the lower id, and it says so.
    assert dispatched(LeastKv(), fleet, request_of(1, 1)) == (0, "150 KV tokens demanded")
    assert dispatched(LeastKv(), fleet, request_of(1, 1)) == (1, "150 KV tokens demanded")
    fleet.departed(0, request_of(100, 50))
    assert dispatched(LeastKv(), fleet, request_of(1, 1)) == (0, "2 KV tokens demanded")


def test_round_robin_turns_per_model() -> None:
    dispatcher = RoundRobin()
    one, other = fleet_of(0, 2, 4, model="a"), fleet_of(1, 3, model="b")
    turns = [
        dispatched(dispatcher, fleet, request_of(model=fleet.model))
        for fleet in (one, other, one, other, one, other, one)
    ]
    assert turns == [(id, "its turn") for id in (0, 1, 2, 3, 4, 1, 0)]


def test_round_robin_finds_one_that_comes_back_at_its_own_place() -> None:
    dispatcher, fleet = RoundRobin(), fleet_of(0, 1, 2)
    fleet.retire(1)
    fleet.add(Replica(id=1, model="m", layers=LayerRange(0, 2), gpus=(1,), kv_blocks=64))
    assert [dispatched(dispatcher, fleet, request_of())[0] for _ in range(4)] == [0, 1, 2, 0]


def test_round_robin_goes_on_when_replicas_are_lost() -> None:
    dispatcher, fleet = RoundRobin(), fleet_of(0, 1, 2)
    for _ in range(2):
        dispatched(dispatcher, fleet, request_of())
    fleet.lose(2)
    assert [dispatched(dispatcher, fleet, request_of())[0] for _ in range(3)] == [0, 1, 0]


def test_power_of_two_choices_takes_the_less_loaded_of_its_draws() -> None:
    fleet = fleet_of(*range(8))
    dispatcher = PowerOfTwoChoices(Random(5))
    drawn = Random(5)
    for _ in range(200):
        pair = [int(drawn.random() * 8), int(drawn.random() * 8)]
        loads = {id: fleet.load(id, "outstanding") for id in pair}
        best = min(loads, key=lambda id: (loads[id], id))
        reason = f"{loads[best]} outstanding, drawn {pair[0]} and {pair[1]}"
        assert dispatched(dispatcher, fleet, request_of()) == (best, reason)


def test_power_of_two_choices_is_deterministic_in_its_seed() -> None:
    def choices(seed: int) -> list[tuple[int, str]]:
        fleet, dispatcher = fleet_of(*range(16)), PowerOfTwoChoices(Random(seed))
        return [dispatched(dispatcher, fleet, request_of()) for _ in range(50)]

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


def test_power_of_two_choices_draws_every_alive_replica_and_no_other() -> None:
    fleet = fleet_of(*range(0, 24, 2))
    for lost in (0, 10, 22):
        fleet.lose(lost)
    dispatcher = PowerOfTwoChoices(Random(0))
    chosen = {dispatched(dispatcher, fleet, request_of())[0] for _ in range(500)}
    assert chosen == {2, 4, 6, 8, 12, 14, 16, 18, 20}


@pytest.mark.parametrize(
    "dispatcher", [LeastOutstanding(), LeastKv(), RoundRobin(), PowerOfTwoChoices(Random(0))]
)
def test_the_last_replica_serves_everyone(dispatcher: Dispatcher) -> None:
    fleet = fleet_of(0, 1, 2)
    dispatched(dispatcher, fleet, request_of())
    fleet.lose(0)
    fleet.lose(2)
    assert {dispatched(dispatcher, fleet, request_of())[0] for _ in range(9)} == {1}


# --- the order behind ``least`` ---


class Group:
    """Loads with an order over them, changed as a fleet does it."""

    def __init__(self, loads: dict[int, int]) -> None:
        self.loads = loads
        self.index = LeastIndex(loads)

    def set(self, member: int, load: int) -> None:
        self.index.move(member, self.loads[member], load)
        self.loads[member] = load

    def remove(self, member: int) -> None:
        self.index.remove(member, self.loads.pop(member))

    def expected(self) -> tuple[int, int]:
        load, member = min((load, member) for member, load in self.loads.items())
        return member, load


change = st.tuples(st.just("change"), st.integers(0, 11), st.integers(0, 4))
remove = st.tuples(st.just("remove"), st.integers(0, 11), st.just(0))


@given(
    loads=st.dictionaries(st.integers(0, 11), st.integers(0, 4), min_size=1),
    operations=st.lists(st.one_of(change, change, change, remove), max_size=300),
    patience=st.integers(1, 9),
)
@settings(max_examples=50)
def test_least_index_is_min_by_load_and_id(
    loads: dict[int, int], operations: list[tuple[str, int, int]], patience: int
) -> None:
    """Asked after every change, or only now and then, so that empty loads gather."""
    group = Group(loads)
    for turn, (kind, member, load) in enumerate(operations):
        if kind == "change" and member in loads:
            group.set(member, load)
        elif kind == "remove" and member in loads and len(loads) > 1:
            group.remove(member)
        if turn % patience == 0:
            assert group.index.least() == group.expected()
    assert group.index.least() == group.expected()


def test_least_index_of_nobody() -> None:
    group = Group({3: 0})
    group.remove(3)
    with pytest.raises(IndexError):
        group.index.least()


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("jump", [1, 10**6])
def test_least_index_stays_about_as_small_as_its_group(ask: bool, jump: int) -> None:
    """Also when nearly every load is one that nobody had before, as KV demand is."""
    random = Random(0)
    group = Group(dict.fromkeys(range(20), 0))
    largest = 0
    for _ in range(5000):
        member = random.randrange(20)
        group.set(member, group.loads[member] + random.randint(-jump, jump))
        largest = max(largest, len(group.index._heap), len(group.index._masks))
        if ask:
            assert group.index.least() == group.expected()
    assert largest <= 4 * 20 + 64 + 1


class Unwalkable(dict[int, int]):
    """Loads that refuse to be gone through."""

    def refuse(self) -> NoReturn:
        raise AssertionError("a decision went through every replica")

    __iter__ = keys = values = items = refuse  # type: ignore[assignment]


def test_a_fleet_of_1024_decides_without_going_through_its_replicas() -> None:
    """Once the order exists, a decision reads one mask, and the heap holds a load or two."""
    fleet = fleet_of(*range(1024))
    fleet.least("outstanding")
    assert fleet._by_outstanding is not None
    fleet._outstanding = Unwalkable(fleet._outstanding)
    for turn in range(2048):
        assert dispatched(LeastOutstanding(), fleet, request_of())[0] == turn % 1024
        assert len(fleet._by_outstanding._heap) <= 3
    assert [fleet.load(id, "outstanding") for id in range(1024)] == [2] * 1024


def test_an_order_nobody_asked_for_is_not_kept() -> None:
    fleet = fleet_of(0, 1)
    dispatched(RoundRobin(), fleet, request_of())
    assert fleet._by_outstanding is None and fleet._by_kv_demand is None
    fleet.least("kv_demand")
    assert fleet._by_outstanding is None and fleet._by_kv_demand is not None


@pytest.mark.parametrize("ask", ["load", "least"])
def test_a_signal_that_is_not_there_is_told(ask: str) -> None:
    fleet: Any = fleet_of(0, 1)
    with pytest.raises(ValueError, match="the signal 'free' is unknown: write outstanding or kv_demand"):
        fleet.load(0, "free") if ask == "load" else fleet.least("free")
