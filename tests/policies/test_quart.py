"""QUART put together, with single parts off: within budgets whatever it is shown."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.quart.baselines import Cocktail, InferLine
from policies.quart.cpu import CpuCompensator
from policies.quart.infless import Infless
from policies.quart.keys import KeysManager
from policies.quart.placement import Placement
from policies.quart.quart import Quart
from policies.quart.settings import SmootherSettings
from policies.quart.smoother import Smoother
from serving.protocols.stage_answers import CheckedStageScaler
from serving.protocols.stages import (
    KeepCopy,
    MarkKeyStages,
    PipelineView,
    SetCores,
    StageReplicaView,
    StageScaler,
    StartReplicas,
    StopReplicas,
)
from tests.worlds.pipeline_views import GIB, host, pipeline, stage

NS = 1_000_000_000
NOW = SmootherSettings(hold_s=0.0)


def quart(**parts: Any) -> Quart:
    """All parts, with no wait before anything shrinks."""
    whole = {
        "smoother": Smoother(settings=NOW),
        "compensator": CpuCompensator(),
        "keys": KeysManager(),
        "placement": Placement(),
    }
    return Quart(**(whole | parts))


def kinds(answer: tuple[object, ...]) -> list[str]:
    return [type(one).__name__ for one in answer]


HOT = pipeline(
    [stage(0, 1), stage(1, 1, queued=9), stage(2, 7, arrival_cv=0.1), stage(3, 1)],
    [host(0, 3), host(1), host(2, copies=[("m", 1)])],
)


def test_a_hot_stage_becomes_key_and_grows_at_its_copies_and_a_cold_one_shrinks() -> None:
    """Host 2 has a copy; host 0, where the stage serves, gets one before the stage grows."""
    answer = quart().scale(HOT)
    assert kinds(answer) == ["MarkKeyStages", "KeepCopy", "StartReplicas", "StopReplicas"]
    mark, keep, start, stop = answer
    assert isinstance(mark, MarkKeyStages) and mark.stages == (1,)
    assert isinstance(start, StartReplicas) and (start.stage, start.source) == (1, "host")
    assert {gpu // 4 for gpu in start.gpus} == {2}
    assert isinstance(stop, StopReplicas) and (stop.stage, len(stop.replicas)) == (2, 6)
    assert isinstance(keep, KeepCopy) and (keep.stage, keep.host) == (1, 0)
    assert start.reason == "delay 2000 ms, target 200 ms; its hosts have a copy"


def test_a_stage_loads_from_the_copy_that_it_is_given_when_it_becomes_key() -> None:
    """Section 6.1: a key stage is forked where it serves, so its new replicas there read no SSD."""
    view = pipeline([stage(0, 1, queued=9), stage(1)], [host(0, 3), host(1, 4)])
    answer = CheckedStageScaler(quart(smoother=None)).scale(view)
    assert kinds(answer) == ["MarkKeyStages", "KeepCopy", "StartReplicas"]
    start = answer[2]
    assert isinstance(start, StartReplicas) and (start.gpus, start.source) == ((1,), "host")


def test_each_part_can_be_off() -> None:
    off = {name: kinds(quart(**{name: None}).scale(HOT)) for name in ("smoother", "keys", "placement")}
    assert off["smoother"] == ["MarkKeyStages", "KeepCopy", "StartReplicas"]
    assert off["keys"] == ["MarkKeyStages", "StartReplicas", "StopReplicas"]
    (start,) = [one for one in quart(placement=None).scale(HOT) if type(one) is StartReplicas]
    assert (start.source, {gpu // 4 for gpu in start.gpus}) == ("any", {1})


def test_a_key_stage_stays_one_for_a_while() -> None:
    policy = quart(key_for_s=60.0)
    calm = [stage(index, 2, arrival_per_s=1.0) for index in range(4)]
    policy.scale(HOT)
    marks = [
        (second, one.stages)
        for second in (20, 60, 75, 90)
        for one in policy.scale(pipeline(calm, now_ns=second * NS))
        if type(one) is MarkKeyStages
    ]
    assert marks == [(75, ())]


def test_cores_go_to_who_stays() -> None:
    """Seven replicas of two cores at 45 requests per second; the neighbours need one each."""
    there = tuple(StageReplicaView(one, 0, "serving", 0, 2) for one in range(7))
    middle = stage(1, there=there, arrival_per_s=45.0)
    view = pipeline([stage(0, 1, arrival_cv=0.1, arrival_per_s=1.0), middle, stage(2, 1, arrival_per_s=1.0)])
    answer = quart().scale(view)
    stops = [one for one in answer if type(one) is StopReplicas]
    cores = [one for one in answer if type(one) is SetCores]
    assert [len(one.replicas) for one in stops] == [2]
    assert [(one.cpu_cores, one.replicas) for one in cores] == [(3, (0, 1, 2, 3, 4))]
    uncompensated = quart(compensator=None).scale(view)
    assert [len(one.replicas) for one in uncompensated if type(one) is StopReplicas] == [1]
    assert "SetCores" not in kinds(uncompensated)


DRAWN = st.tuples(
    st.integers(0, 6),  # replicas
    st.sampled_from(("serving", "loading", "draining")),
    st.floats(0, 80),  # arrivals per second
    st.floats(0, 8),  # their CV
    st.integers(0, 60),  # queued
    st.integers(1, 40),  # GiB
)


def scalers() -> list[StageScaler]:
    return [quart(), quart(placement=None), Infless(), InferLine(), Cocktail()]


@settings(max_examples=30)
@given(st.lists(DRAWN, min_size=1, max_size=6), st.integers(0, 4), st.integers(0, 40), st.integers(0, 9))
def test_no_scaler_ever_answers_what_it_may_not(
    drawn: list[tuple[int, Any, float, float, int, int]], free: int, budget: int, cores: int
) -> None:
    """Through the check that a service applies: bounds, budget, GPU memory, cores, host memory."""
    stages = []
    for index, (count, state, rate, cv, queued, size) in enumerate(drawn):
        there = tuple(
            StageReplicaView(index * 10 + one, 0, "serving" if one else state, one, 1) for one in range(count)
        )
        stages.append(
            stage(
                index,
                there=there,
                arrival_per_s=rate,
                arrival_cv=cv,
                queued=queued,
                bytes=size * GIB,
                minimum=0,
            )
        )
    hosts = [host(0, free, [("m", 0), ("x", 1)], free_cores=cores), host(1, 4 - free, used_bytes=900 * GIB)]
    for scaler in scalers():
        checked = CheckedStageScaler(scaler)
        for second in (10, 30, 31):
            checked.scale(pipeline(stages, hosts, max_replicas=budget, now_ns=second * NS))


def at(second: int, rate: float, *supplies: int, **other: Any) -> PipelineView:
    stages = [stage(index, supply, arrival_per_s=rate) for index, supply in enumerate(supplies)]
    return pipeline(stages, [host(0), host(1), host(2)], now_ns=second * NS, **other)


def starts(answer: tuple[object, ...]) -> dict[int, int]:
    return {one.stage: one.count for one in answer if isinstance(one, StartReplicas)}


def stops(answer: tuple[object, ...]) -> dict[int, int]:
    return {one.stage: len(one.replicas) for one in answer if isinstance(one, StopReplicas)}


def test_least_cost_follows_from_the_slo_by_the_formula() -> None:
    """A pass of 0.1 s at 25 requests/s: by Erlang C 3 replicas wait 0.1404 s, 4 wait 0.0213 s."""
    for slo_s, replicas in ((0.7, 3), (0.46, 4), (0.3, 4), (0.23, 5)):
        view = at(0, 25.0, 1, 1, slo_s=slo_s)
        assert starts(InferLine(sizing="slo").scale(view)) == {0: replicas - 1, 1: replicas - 1}
        assert starts(Infless(sizing="slo").scale(view)) == {0: replicas - 1, 1: replicas - 1}


def test_inferline_plans_for_a_mean_rate_and_follows_the_envelope() -> None:
    policy = InferLine(planned_per_s=14.0)
    assert starts(policy.scale(at(0, 1.0, 1, 1))) == {0: 1, 1: 1}
    assert starts(policy.scale(at(1, 30.0, 2, 2))) == {0: 3, 1: 3}
    quiet = [stops(policy.scale(at(second, 1.0, 5, 5))) for second in (10, 20, 30, 31)]
    assert quiet == [{}, {}, {}, {0: 3, 1: 3}]


def test_inferline_without_a_plan_takes_the_first_rate() -> None:
    policy = InferLine()
    assert policy.scale(at(0, 0.0, 1, 1)) == ()
    assert starts(policy.scale(at(1, 14.0, 1, 1))) == {0: 1, 1: 1}


def test_cocktail_looks_ahead_and_keeps_a_spare() -> None:
    policy = Cocktail()
    assert starts(policy.scale(at(0, 8.0, 1, 1))) == {0: 1, 1: 1}
    answer = policy.scale(at(10, 16.0, 2, 2))
    assert round(policy.forecast_per_s(0), 2) == round((8 + 2 * 16) / 3 + 0.8 * 10, 2)
    assert starts(answer) == {0: 2, 1: 2}


def test_cocktail_scales_each_stage_by_its_own_rate() -> None:
    stages = [stage(0, 1, arrival_per_s=20.0), stage(1, 1, arrival_per_s=4.0)]
    assert starts(Cocktail(spares=0).scale(pipeline(stages))) == {0: 2}
