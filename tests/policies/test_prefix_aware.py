"""Prefix-aware dispatch: what a router knows of sent prompts, and match against load."""

import pytest

from policies.dispatch import PrefixAware
from serving.engine.fleet import Fleet
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request


def replica_of(id: int, blocks: int = 1000, caching: bool = True) -> Replica:
    return Replica(
        id=id,
        model="m",
        layers=LayerRange(0, 2),
        gpus=(id,),
        kv_blocks=blocks,
        block_tokens=16,
        prefix_caching=caching,
    )


def fleet_of(replicas: int, blocks: int = 1000, caching: bool = True) -> Fleet:
    fleet = Fleet("m", [replica_of(id, blocks, caching) for id in range(replicas)])
    fleet.prompt_tokens(0)  # from here on it is kept
    return fleet


def request_of(id: int, prompt_tokens: int, *shared: tuple[int, int]) -> Request:
    return Request(id, 0, prompt_tokens, 100, "m", shared_prefix=shared)


def send(fleet: Fleet, replica: int, *requests: Request) -> None:
    for request in requests:
        fleet.assigned(replica, request)


def sent_and_gone(fleet: Fleet, replica: int, *requests: Request) -> None:
    send(fleet, replica, *requests)
    for request in requests:
        fleet.departed(replica, request)


def test_a_prompt_that_was_sent_before_is_cached_in_whole_blocks_but_its_last_token() -> None:
    fleet = fleet_of(2)
    sent_and_gone(fleet, 1, request_of(5, 100), request_of(9, 200, (5, 100)))
    assert fleet.cached_tokens(1, request_of(10, 300, (5, 100), (9, 180))) == 176
    assert fleet.cached_tokens(1, request_of(10, 300, (5, 70))) == 64
    assert fleet.cached_tokens(1, request_of(10, 160, (5, 100), (9, 160))) == 144
    # Of what request 9 was answered nothing is known.
    assert fleet.cached_tokens(1, request_of(10, 300, (5, 100), (9, 260))) == 192
    assert fleet.cached_tokens(1, request_of(10, 300, (4, 50), (5, 100))) == 0
    assert fleet.cached_tokens(0, request_of(10, 300, (5, 100))) == 0


def test_prompts_used_longest_ago_go_when_the_memory_is_full_the_common_part_last() -> None:
    fleet = fleet_of(1, blocks=20)  # 320 tokens
    sent_and_gone(fleet, 0, request_of(1, 160), request_of(2, 160, (1, 80)))
    assert fleet.cached_tokens(0, request_of(3, 170, (1, 160))) == 160
    sent_and_gone(fleet, 0, request_of(4, 100))
    assert fleet.cached_tokens(0, request_of(5, 170, (1, 80), (2, 160))) == 80  # the second's own part went
    assert fleet.cached_tokens(0, request_of(5, 101, (4, 100))) == 96
    assert fleet.cached_tokens(0, request_of(5, 170, (1, 160))) == 160


def test_nothing_is_cached_without_prefix_caching_or_after_a_loss() -> None:
    off, lost = fleet_of(1, caching=False), fleet_of(2)
    sent_and_gone(off, 0, request_of(1, 160))
    assert off.cached_tokens(0, request_of(2, 170, (1, 160))) == 0
    sent_and_gone(lost, 1, request_of(1, 160))
    lost.lose(1)
    lost.add(replica_of(1))
    assert lost.cached_tokens(1, request_of(2, 170, (1, 160))) == 0 == lost.prompt_tokens(1)


def test_a_replica_that_retired_still_counts_down_and_may_come_back() -> None:
    fleet = fleet_of(2)
    send(fleet, 1, request_of(1, 160))
    fleet.retire(1)
    fleet.departed(1, request_of(1, 160))
    fleet.add(replica_of(1))
    assert fleet.prompt_tokens(1) == 0


def test_match_wins_while_the_loads_are_near() -> None:
    fleet, dispatcher = fleet_of(3), PrefixAware()
    sent_and_gone(fleet, 2, request_of(1, 1600))
    send(fleet, 2, request_of(2, 500))
    turn = request_of(3, 2000, (1, 1600))
    assert dispatcher.dispatch(turn, fleet) == (2, "1600 of 2000 prompt tokens cached, 500 outstanding")
    assert PrefixAware(overlap_weight=0.0).dispatch(turn, fleet)[0] == 0


def test_load_wins_over_match() -> None:
    fleet, dispatcher = fleet_of(3), PrefixAware()
    sent_and_gone(fleet, 2, request_of(1, 1600))
    send(fleet, 2, request_of(2, 1000), request_of(4, 601))
    turn = request_of(3, 2000, (1, 1600))
    assert dispatcher.dispatch(turn, fleet) == (0, "0 of 2000 prompt tokens cached, 0 outstanding")
    assert PrefixAware(overlap_weight=2.0).dispatch(turn, fleet)[0] == 2


def test_an_overlap_weight_that_is_none_is_refused() -> None:
    for weight in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="overlap_weight must be finite"):
            PrefixAware(weight)


def test_a_fleet_that_is_not_asked_keeps_no_prompts() -> None:
    fleet = Fleet("m", [replica_of(0)])
    sent_and_gone(fleet, 0, request_of(1, 160))
    assert fleet._sent is None
    assert fleet.cached_tokens(0, request_of(2, 170, (1, 160))) == 0
