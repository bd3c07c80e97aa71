"""QUART's placement and KeysManager: copies first, dispersion by KL, memory, LRU at 85 %."""

from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quart.free_room import FreeRoom
from policies.quart.keys import KeysManager
from policies.quart.placement import Placement, dispersed, divergence, plentiful, uniform_within
from policies.quart.settings import PlacementSettings
from serving.protocols.stage_answers import CheckedStageScaler
from serving.protocols.stages import (
    EvictCopy,
    KeepCopy,
    PipelineView,
    StageDecision,
    StageReplicaView,
    StartReplicas,
)
from tests.worlds.pipeline_views import GIB, host, pipeline, stage

SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=16).filter(lambda found: sum(found) > 0.1)


def placed(view: PipelineView, count: int, is_key: bool, index: int = 0) -> tuple[StartReplicas, ...]:
    """As the policy answers, held against the protocol."""
    starts = Placement().place(
        view, view.stages[index], count=count, is_key=is_key, room=FreeRoom(view), reason="slow"
    )
    CheckedStageScaler(Says(starts)).scale(view)
    return starts


class Says:
    def __init__(self, answer: tuple[StageDecision, ...]) -> None:
        self.answer = answer

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        return self.answer


def test_idle_gpus_beside_a_copy_come_first_then_other_idle_gpus() -> None:
    """A shared GPU beside a copy comes after an idle one that loads from SSD."""
    view = pipeline([stage(0)], [host(0, 4), host(1, 2, [("m", 0)]), host(2, 4, [("other", 0)])])
    cached, other = placed(view, 3, True)
    assert (cached.gpus, cached.source) == ((6, 7), "host")
    assert (other.gpus, other.source) == ((0,), "any")


def test_copies_first_takes_shared_gpus_beside_a_copy_before_idle_ones() -> None:
    view = pipeline([stage(0)], [host(0, 4), host(1, 2, [("m", 0)])])
    room = FreeRoom(view)
    (cached,) = Placement(copies_first=True).place(
        view, view.stages[0], count=3, is_key=True, room=room, reason="slow"
    )
    assert (cached.gpus, cached.source) == ((6, 7, 4), "host")


def test_without_idle_gpus_shared_ones_beside_a_copy_come_first() -> None:
    view = pipeline([stage(0, bytes=20 * GIB, maximum=99)], [host(0, 1), host(1, 1, [("m", 0)])])
    cached, other = placed(view, 9, True)
    assert (cached.gpus, cached.source) == ((7, 4, 5, 6, 7, 4, 5, 6), "host")
    assert (other.gpus, other.source) == ((3,), "any")


def test_key_stages_go_where_most_gpus_are_free() -> None:
    view = pipeline([stage(0, there=())], [host(0, 2), host(1, 4), host(2, 3)])
    assert plentiful(FreeRoom(view), 3)
    assert [start.gpus for start in placed(view, 1, True)] == [(4,)]
    assert [start.gpus for start in placed(view, 3, True)] == [(4, 9, 2)]  # a load on each host first


def test_others_are_packed() -> None:
    view = pipeline([stage(0, there=())], [host(0, 2), host(1, 4), host(2, 3)])
    assert [start.gpus for start in placed(view, 1, False)] == [(2,)]
    assert [start.gpus for start in placed(view, 4, False)] == [(2, 9, 4, 3)]


def test_hosts_that_load_come_last() -> None:
    loading = (StageReplicaView(0, 0, "loading"), StageReplicaView(1, 2, "serving"))
    view = pipeline([stage(0, there=loading)], [host(0, 2), host(1, 4), host(2, 3)])
    assert [start.gpus for start in placed(view, 1, False)] == [(9,)]


def test_under_contention_key_stages_are_dispersed() -> None:
    """Three replicas on host 0 already: new ones go to the others though host 0 has a free GPU too."""
    there = tuple(StageReplicaView(one, 0, "serving") for one in range(3))
    view = pipeline([stage(0, there=there)], [host(0, 1), host(1, 1), host(2, 1), host(3, 1)])
    assert not plentiful(FreeRoom(view), 3)
    (start,) = placed(view, 3, True)
    assert [gpu // 4 for gpu in start.gpus] == [1, 2, 3]


def test_only_as_many_as_memory_holds() -> None:
    view = pipeline([stage(0, bytes=30 * GIB, maximum=99)], [host(0, 1), host(1, 0)])
    for is_key in (True, False):
        (start,) = placed(view, 12, is_key)
        assert len(start.gpus) == len(set(start.gpus)) == start.count == 8
    full = pipeline([stage(0, bytes=49 * GIB)], [host(0, 4)])
    assert placed(full, 1, True) == placed(full, 1, False) == ()


def test_only_as_many_as_cores_hold() -> None:
    view = pipeline([stage(0)], [host(0, free_cores=1), host(1, free_cores=2)], cores_per_replica=2)
    assert sum(start.count for start in placed(view, 4, True)) == 1


@given(SHARES)
def test_gradient_steps_go_from_any_p_to_the_uniform_one(drawn: list[float]) -> None:
    shares = [one / sum(drawn) for one in drawn]
    found = dispersed(shares, [1.0] * len(shares))
    assert isclose(sum(found), 1)
    assert all(isclose(one, 1 / len(shares), abs_tol=0.01) for one in found)


@given(SHARES, st.data())
def test_gradient_steps_respect_memory(drawn: list[float], data: st.DataObject) -> None:
    shares = [one / sum(drawn) for one in drawn]
    limits = data.draw(st.lists(st.floats(0, 1), min_size=len(shares), max_size=len(shares)))
    if sum(limits) < 1 - 1e-9:  # rounding
        with pytest.raises(ValueError, match="cannot sum to 1"):
            dispersed(shares, limits)
        return
    found = dispersed(shares, limits)
    assert isclose(sum(found), 1, rel_tol=1e-6)
    assert all(0 <= share <= limit + 1e-9 for share, limit in zip(found, limits, strict=True))
    ideal = uniform_within(limits)
    assert all(isclose(share, even, abs_tol=0.02) for share, even in zip(found, ideal, strict=True))


def test_a_host_with_almost_no_room_gets_no_share() -> None:
    found = dispersed([0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 5e-324])
    assert found == pytest.approx((0.0, 0.5, 0.5, 0.0), abs=0.02) and found[3] == 0


def test_each_step_comes_closer() -> None:
    shares, ideal = [1.0, 0.0, 0.0, 0.0], [0.25] * 4
    apart = [
        divergence(dispersed(shares, [1.0] * 4, PlacementSettings(rate=0.02, steps=steps)), ideal)
        for steps in range(0, 60, 10)
    ]
    assert apart == sorted(apart, reverse=True)
    assert apart[0] > 1 > 0.1 > apart[-1]


def test_from_a_uniform_p_nothing_moves() -> None:
    assert dispersed([0.25] * 4, [1.0] * 4) == pytest.approx((0.25,) * 4, abs=1e-12)


def test_the_most_even_shares_within_limits() -> None:
    assert uniform_within([1.0, 0.1, 1.0, 0.2]) == (0.35, 0.1, 0.35, 0.2)
    assert uniform_within([1.0, 1.0]) == (0.5, 0.5)


def test_a_key_stage_is_kept_where_it_serves() -> None:
    replicas = (
        StageReplicaView(0, 0, "serving"),
        StageReplicaView(1, 0, "serving"),
        StageReplicaView(2, 1, "loading"),
    )
    view = pipeline([stage(0, there=replicas), stage(1)])
    (kept,) = KeysManager().manage(view, frozenset({0}))
    assert kept == KeepCopy(0, 0, "key stage 0 serves on host 0")
    assert KeysManager().manage(view, frozenset()) == ()


def test_what_is_there_is_not_kept_twice() -> None:
    view = pipeline([stage(0)], [host(0, copies=[("m", 0)])])
    assert KeysManager().manage(view, frozenset({0})) == ()


def test_above_85_percent_the_least_recently_used_goes() -> None:
    copies = [("a", 0), ("b", 0), ("c", 0)]
    full = host(0, copies=copies, memory_bytes=100 * GIB, used_bytes=91 * GIB)
    found = KeysManager().manage(pipeline([stage(0)], [full]), frozenset())
    assert [(type(one), one.model) for one in found if type(one) is EvictCopy] == [
        (EvictCopy, "a"),
        (EvictCopy, "b"),
    ]
    at = host(0, copies=copies, memory_bytes=100 * GIB, used_bytes=85 * GIB)
    assert KeysManager().manage(pipeline([stage(0)], [at]), frozenset()) == ()


def test_an_old_copy_makes_room_for_a_key_stage_and_another_key_stage_does_not() -> None:
    stages = [stage(0), stage(1, there=())]
    tight = {"memory_bytes": 100 * GIB, "used_bytes": 84 * GIB}
    view = pipeline(stages, [host(0, copies=[("other", 7)], **tight)])
    found = KeysManager().manage(view, frozenset({0}))
    assert [type(one) for one in found] == [EvictCopy, KeepCopy]
    view = pipeline(stages, [host(0, copies=[("m", 1)], **tight)])
    assert KeysManager().manage(view, frozenset({0, 1})) == ()


def test_a_copy_that_a_load_reads_is_not_given_up() -> None:
    """Its 5 GiB would not be free: the next oldest goes in its place."""
    copies = host(0, copies=[("m", 1), ("b", 0), ("c", 0)]).copies
    copies = (replace(copies[0], in_use=True), *copies[1:])
    full = replace(host(0, memory_bytes=100 * GIB, used_bytes=90 * GIB), copies=copies)
    found = KeysManager().manage(pipeline([stage(0), stage(1)], [full]), frozenset())
    assert [one.model for one in found if type(one) is EvictCopy] == ["b"]


@given(
    st.lists(st.integers(0, 6), max_size=7, unique=True),
    st.integers(40, 100),
    st.sets(st.integers(0, 3)),
)
def test_memory_in_use_comes_to_85_percent_at_most(kept: list[int], used: int, keys: set[int]) -> None:
    shown = host(
        0,
        copies=[("m", one) if one < 4 else ("other", one) for one in kept],
        memory_bytes=100 * GIB,
        used_bytes=used * GIB,
    )
    view = pipeline([stage(index) for index in range(4)], [shown])
    found = KeysManager().manage(view, frozenset(keys))
    CheckedStageScaler(Says(found)).scale(view)
    change = sum({KeepCopy: 5, EvictCopy: -5}[type(one)] for one in found)  # type: ignore[index]
    gone = sum(type(one) is EvictCopy for one in found)
    assert used + change <= 85 or gone == len(kept)
