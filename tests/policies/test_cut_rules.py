"""Rules that cut a running pipeline anew, and how many replicas the new stages get."""

import re
from dataclasses import replace
from itertools import combinations

import pytest

from policies.quart.recut import BurstsByCv, Recutting, SlowestStage, even_layers, even_times, stage_seconds
from serving.protocols.policy_faults import PolicyError
from serving.protocols.stage_answers import CheckedStageScaler
from serving.protocols.stages import (
    CutAnew,
    CutView,
    PipelineView,
    StageDecision,
    StageGpuView,
    StageHostView,
    StageReplicaView,
    StageView,
    StopReplicas,
)

ROOM = 40_000_000_000


def view_of(times: tuple[float, ...], now_s: float = 0.0, cv: float = 1.0, gpus: int = 12) -> PipelineView:
    """Stages of four layers with a replica each, which compute so long for a request; 2 requests/s."""
    stages = tuple(
        StageView(
            index, (StageReplicaView(index, 0, "serving"),), 1, 8, 2.0, cv, 0, time, 0.0, None, time, ROOM,
            seat_bytes=ROOM, layers=(4 * index, 4 * index + 4),
        )
        for index, time in enumerate(times)
    )  # fmt: skip
    hosts = tuple(
        StageHostView(host, tuple(StageGpuView(4 * host + one, ROOM) for one in range(4)), 100, ROOM, 0)
        for host in range(gpus // 4)
    )
    cut = CutView(4 * len(times), 8)
    return PipelineView(round(now_s * 1e9), "m", stages, hosts, 10.0, 1.0, gpus, cut=cut)


class Nobody:
    """Says nothing. ``made``: how many there were."""

    memory_s = 1.0
    made = 0

    def __init__(self) -> None:
        Nobody.made += 1

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        return ()


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_equal_times_are_the_best_of_all_cuts(stages: int) -> None:
    layers = [3.0, 1.0, 1.0, 4.0, 1.0, 5.0, 2.0, 2.0]
    every = [(0, *inner) for inner in combinations(range(1, 8), stages - 1)]
    best = min(max(stage_seconds(layers, one)) for one in every)
    assert max(stage_seconds(layers, even_times(layers, stages))) == best


def test_the_slowest_stage_is_cut_after_it_was_slow_for_some_time() -> None:
    rule = SlowestStage(hold_s=10.0)
    slow = (0.1, 0.1, 0.4)
    assert rule.begins(view_of(slow, 0.0)) is None and rule.begins(view_of((0.1, 0.1, 0.1), 5.0)) is None
    assert rule.begins(view_of(slow, 6.0)) is None
    found = rule.begins(view_of(slow, 16.0))
    assert found is not None and found[0] == (0, 8, 10)  # 0.2, 0.2 and 0.2 s


def test_the_time_of_another_cut_begins_when_it_is_there() -> None:
    """Stages of other layers are looked at for as long again."""
    rule, slow = SlowestStage(hold_s=10.0), (0.1, 0.1, 0.4)
    assert rule.begins(view_of(slow, 0.0)) is None and rule.begins(view_of(slow, 10.0)) is not None
    for now_s, found in ((15.0, False), (24.0, False), (25.0, True)):
        view = view_of(slow, now_s)
        one = replace(view.stages[0], layers=(0, 5))
        two = replace(view.stages[1], layers=(5, 8))
        cut = replace(view, stages=(one, two, view.stages[2]))
        assert (rule.begins(cut) is not None) == found


def test_nothing_is_cut_for_a_small_gain() -> None:
    rule = SlowestStage(hold_s=0.0)
    assert rule.begins(view_of((0.1, 0.1, 0.124))) is None  # a layer more elsewhere would take as long


def test_bursts_make_many_stages_and_calm_few() -> None:
    rule = BurstsByCv(2, 8)
    assert rule.begins(view_of((0.1,) * 4, 0.0, 1.8)) is None
    found = rule.begins(view_of((0.1,) * 4, 1.0, 2.5))
    assert found is not None and found[0] == even_layers(16, 8) == (0, 2, 4, 6, 8, 10, 12, 14)
    assert rule.begins(view_of((0.1,) * 8, 30.0, 1.0)) is None  # the burst was 29 s ago
    assert rule.begins(view_of((0.1,) * 8, 31.0, 1.0)) is None
    found = rule.begins(view_of((0.1,) * 8, 61.0, 1.0))
    assert found is not None and found[0] == (0, 16)


def test_new_stages_have_no_fewer_replicas_in_all_and_gpus_of_different_hosts() -> None:
    scaler = CheckedStageScaler(Recutting(Nobody, BurstsByCv(2, 3)))
    (wish,) = scaler.scale(view_of((0.1,) * 4, 0.0, 3.0))
    assert isinstance(wish, CutAnew) and wish.begins == (0, 5, 10)
    assert wish.replicas == (2, 2, 2)  # four there were, each of three gets 1.33 of them
    assert [gpu // 4 for gpu in wish.gpus] == [0, 1, 2, 0, 1, 2]


def test_no_cut_without_gpus_for_a_replica_of_each_stage_or_with_too_many_layers() -> None:
    def asked(few: int, many: int, gpus: int) -> tuple[StageDecision, ...]:
        scaler = CheckedStageScaler(Recutting(Nobody, BurstsByCv(few, many)))
        return scaler.scale(view_of((0.1,) * 4, 0.0, 3.0, gpus))

    assert asked(2, 8, 8) and not asked(2, 8, 4) and not asked(1, 12, 8)
    calm = Recutting(Nobody, BurstsByCv(1, 8, hold_s=0.0))
    assert not calm.scale(view_of((0.1,) * 4, 5.0, 1.0))  # 16 layers fit on no GPU


def test_a_new_cut_has_a_scaler_of_its_own_and_while_it_comes_none_acts() -> None:
    Nobody.made = 0
    one = Recutting(Nobody, BurstsByCv(2, 8))
    assert one.memory_s == 31.0
    view = view_of((0.1,) * 4)
    one.scale(view)
    assert view.cut is not None
    assert one.scale(replace(view, cut=replace(view.cut, coming=(0, 8)))) == ()
    one.scale(view_of((0.1,) * 3))
    assert Nobody.made == 2


@pytest.mark.parametrize(
    "wish, why",
    [
        (CutAnew((1, 8), (1, 1), "x"), "stages must begin at 0"),
        (CutAnew((0, 9), (1, 1), "x"), "have 1 to 8 of 16 layers"),
        (CutAnew((0, 8, 8), (1, 1, 1), "x"), "stages must begin at 0"),
        (CutAnew((0, 4, 8, 12), (1, 1, 1, 1), "x"), "this is the present cut"),
        (CutAnew((0, 8), (1,), "x"), "replicas must be 1 or more of each stage"),
        (CutAnew((0, 8), (0, 1), "x"), "replicas must be 1 or more of each stage"),
        (CutAnew((0, 8), (8, 8), "x"), "12 in all"),
        (CutAnew((0, 8), (1, 1), "x", (0,)), "gpus must name 2 GPUs, one for each replica"),
        (CutAnew((0, 8), (1, 1), "x", (0, 99)), "gpus must be GPUs of the view"),
        (CutAnew((0, 8), (1, 1), ""), "reason"),
        (StopReplicas(0, (7,), "x"), "no replica 7"),
    ],
)
def test_wrong_cuts_are_refused(wish: StageDecision, why: str) -> None:
    class Says:
        def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
            return (wish,)

    with pytest.raises(PolicyError, match=re.escape(why)):
        CheckedStageScaler(Says()).scale(view_of((0.1,) * 4))


def test_a_model_that_is_not_to_be_cut_anew() -> None:
    class Says:
        def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
            return (CutAnew((0, 8), (1, 1), "x"),)

    view = view_of((0.1,) * 4)
    assert view.cut is not None
    with pytest.raises(PolicyError, match=r"pipeline[.]recut=none"):
        CheckedStageScaler(Says()).scale(replace(view, cut=None))
    with pytest.raises(PolicyError, match=r"another cut is in progress"):
        CheckedStageScaler(Says()).scale(replace(view, cut=replace(view.cut, coming=(0, 8))))
