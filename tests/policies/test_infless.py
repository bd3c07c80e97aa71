"""INFless, approximated: whole models on the rate, each with a batch of its own within the objective."""

from dataclasses import replace
from typing import Any

import pytest

from policies.quart.infless import Infless, planned
from policies.quart.options import infless
from serving.protocols.stages import PipelineView, SetBatch, StartReplicas, StopReplicas
from tests.worlds.pipeline_views import GIB, host, pipeline, stage

NS = 1_000_000_000


def at(second: int, rate: float, *supplies: int, **other: Any) -> PipelineView:
    stages = [stage(index, supply, arrival_per_s=rate) for index, supply in enumerate(supplies)]
    return pipeline(stages, [host(0), host(1), host(2)], now_ns=second * NS, **other)


def starts(answer: tuple[object, ...]) -> dict[int, int]:
    return {one.stage: one.count for one in answer if isinstance(one, StartReplicas)}


def stops(answer: tuple[object, ...]) -> dict[int, int]:
    return {one.stage: len(one.replicas) for one in answer if isinstance(one, StopReplicas)}


def test_infless_starts_whole_models_from_ssd() -> None:
    answer = Infless().scale(at(0, 23.0, 1, 1, 1))
    assert starts(answer) == {0: 2, 1: 2, 2: 2}
    assert {one.source for one in answer if isinstance(one, StartReplicas)} == {"ssd"}


def test_infless_counts_what_a_pass_batches() -> None:
    view = at(0, 23.0, 1, 1)
    batched = replace(view, stages=tuple(replace(one, batch=4.0) for one in view.stages))
    assert starts(Infless().scale(batched)) == {}


def test_infless_starts_no_part_of_a_model() -> None:
    """Two GPUs for three stages: nothing starts."""
    stages = [stage(index, 1, arrival_per_s=23.0, bytes=30 * GIB) for index in range(3)]
    view = pipeline(stages, [host(0, 2, free_cores=2)])
    assert Infless().scale(view) == ()


def test_infless_lets_go_what_was_not_needed_for_a_minute() -> None:
    policy = Infless()
    policy.scale(at(0, 23.0, 3, 3))
    assert [stops(policy.scale(at(second, 1.0, 3, 3))) for second in (30, 59, 60)] == [{}, {}, {0: 2, 1: 2}]


# Batches. A pass of one request takes 0.1 s, each other one of it 0.02 s more.


def batching(rate: float, slo_s: float, replicas: int = 1, **other: Any) -> PipelineView:
    return at(0, rate, replicas, slo_s=slo_s, **({"batch": 8, "batch_cost": 0.2} | other))


@pytest.mark.parametrize(
    ("slo_s", "largest"),
    [(0.19, 1), (0.2, 1), (0.24, 2), (0.3, 3), (0.479, 7), (0.481, 8), (9.0, 8)],
)
def test_a_batch_takes_half_of_the_objective_at_most(slo_s: float, largest: int) -> None:
    """2 (0.1 + 0.02 (b - 1)) <= SLO."""
    assert planned(batching(1000.0, slo_s), 1000.0, 1.0)[0] == largest


def test_a_batch_is_taken_where_the_rate_fills_it_in_time() -> None:
    """Batches of 8 take 0.24 s: 33.3 per second at most, 8 / (0.6 - 0.24) = 22.2 at least."""
    assert planned(batching(70.0, 0.6), 70.0, 1.0) == [8, 8, 1]
    assert planned(batching(22.0, 0.6), 22.0, 1.0) == [7]
    assert planned(batching(2.0, 0.6), 2.0, 1.0) == [1]
    assert planned(batching(0.0, 0.6), 0.0, 1.0) == [1]


def test_batches_of_a_function_are_not_uniform() -> None:
    """33.3 + 33.3 of 90 leave 23.3, which fills another 8; 88 leave 21.3, which fills a 7."""
    assert planned(batching(90.0, 0.6), 90.0, 1.0) == [8, 8, 8]
    assert planned(batching(88.0, 0.6), 88.0, 1.0) == [8, 8, 7]


def test_passes_slower_than_expected_batch_less() -> None:
    view = batching(1000.0, 0.3)
    slow = replace(view, stages=tuple(replace(one, service_s=0.15) for one in view.stages))
    assert planned(slow, 1000.0, 1.0)[0] == 1


def test_units_get_their_batches_and_as_many_start_as_are_planned() -> None:
    view = at(0, 88.0, 2, slo_s=0.6, batch=8, batch_cost=0.2)
    answer = Infless(utilization=1.0).scale(view)
    assert starts(answer) == {0: 1}
    assert [(one.replicas, one.most) for one in answer if isinstance(one, SetBatch)] == [((0, 1), 8)]
    told = next(one.reason for one in answer)
    assert told == "88.0 requests/s are 3 models, 2 in supply, batches of 8 8 7"


def test_uniform_batches_are_the_pipeline_s_own() -> None:
    view = at(0, 88.0, 2, slo_s=0.6, batch=8, batch_cost=0.2)
    assert not any(isinstance(one, SetBatch) for one in Infless(batching="uniform").scale(view))
    with pytest.raises(ValueError, match="batching=some is unknown: write one of non_uniform, uniform"):
        infless(batching="some")
