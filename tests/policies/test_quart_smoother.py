"""QUART's smoother and CPU compensator: Eq. 7, never below what is needed, cores before replicas."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quart.cpu import PAPER_POINTS, CpuCompensator, fitted
from policies.quart.cv import Measured
from policies.quart.queueing import delay_s
from policies.quart.settings import SmootherSettings
from policies.quart.smoother import Smoother, beta, smoothed
from serving.protocols.stages import StageReplicaView
from tests.worlds.pipeline_views import pipeline, stage

NOW = SmootherSettings(hold_s=0.0)


def test_eq_7_by_hand() -> None:
    assert smoothed((4, 1, 7), (0.5, 0.25, 1.0)) == (2.5, 0.25 + 0.75 * 5.5, 7.0)
    assert smoothed((4,), (0.0,)) == (4.0,)


def test_beta_in_both_forms() -> None:
    assert [beta(cv) for cv in (0.0, 1.0, 2.0)] == [0.0, 0.5, 0.8]
    assert (beta(1.0, "released"), round(beta(0.0, "released"), 3)) == (0.75, 0.634)


def test_a_calm_stage_between_small_neighbours_gives_replicas_back() -> None:
    stages = [stage(0, 2, arrival_cv=0.1), stage(1, 7), stage(2, 2)]
    found = Smoother(settings=NOW).smooth(pipeline(stages))
    assert [(one.stage, one.count, one.least) for one in found] == [(0, 1, 1), (1, 6, 1), (2, 1, 1)]


def test_when_requests_stop_all_stages_give_back() -> None:
    """Equal stages too, which Eq. 7 on what they have would leave as they are."""
    stages = [stage(index, 4, arrival_per_s=0.0) for index in range(3)]
    found = Smoother(settings=NOW).smooth(pipeline(stages))
    assert [(one.stage, one.count) for one in found] == [(0, 3), (1, 3), (2, 3)]


def test_neighbours_that_want_more_draw_a_stage_up() -> None:
    stages = [stage(0, 9, maximum=9, exec_s=0.3, service_s=0.3, arrival_per_s=9.0), stage(1, 9, maximum=9)]
    found = Smoother(Measured(), NOW).smooth(pipeline(stages))
    assert {one.stage: 9 - one.count for one in found} == {0: 4, 1: 3}


def test_a_bursty_stage_keeps_more() -> None:
    stages = [stage(0, 2), stage(1, 7, arrival_cv=4.0, arrival_per_s=1.0), stage(2, 2)]
    calm = [stage(0, 2), stage(1, 7, arrival_cv=0.1, arrival_per_s=1.0), stage(2, 2)]
    bursty_gives, calm_gives = (
        [one.count for one in Smoother(Measured(), NOW).smooth(pipeline(shown)) if one.stage == 1]
        for shown in (stages, calm)
    )
    assert sum(bursty_gives) < calm_gives[0]


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.floats(0, 60), st.floats(0, 9), st.floats(0, 2)),
        min_size=1,
        max_size=8,
    )
)
def test_nothing_goes_below_what_is_needed(drawn: list[tuple[int, float, float, float]]) -> None:
    stages = [
        stage(index, supply, arrival_per_s=rate, arrival_cv=cv, service_cv=service, minimum=min(2, supply))
        for index, (supply, rate, cv, service) in enumerate(drawn)
    ]
    for one in Smoother(Measured(), NOW).smooth(pipeline(stages)):
        shown = stages[one.stage]
        left = shown.supply - one.count
        assert left >= max(one.least, shown.minimum, 1)
        assert delay_s(shown.arrival_per_s, 10.0, left) <= 0.2 * (1 + 1e-12)


def test_a_queue_or_a_load_keeps_everything() -> None:
    loading = tuple(StageReplicaView(one, 0, "serving" if one else "loading") for one in range(7))
    for middle in (stage(1, 7, queued=1), stage(1, there=loading)):
        assert Smoother(settings=NOW).smooth(pipeline([stage(0, 1, arrival_cv=0.1), middle])) == ()


def test_what_was_needed_lately_stays() -> None:
    smoother = Smoother(settings=SmootherSettings(hold_s=10.0))

    def gives(second: int, rate: float) -> int:
        stages = [stage(0, 6, arrival_per_s=rate, arrival_cv=0.1), stage(1, 2)]
        found = smoother.smooth(pipeline(stages, now_ns=second * 1_000_000_000))
        return sum(one.count for one in found if one.stage == 0)

    assert [gives(second, 45.0 if second == 3 else 5.0) for second in range(0, 18, 3)] == [0, 0, 0, 0, 0, 5]


def test_the_papers_points_give_a_line_through_both() -> None:
    line = fitted(PAPER_POINTS)
    assert [round(line.latency(cores), 9) for cores in (2, 4)] == [1.0, 0.67]
    assert line.latency(64) > line.fixed > 0


@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_a_line_is_found_again(fixed: float, per_core: float) -> None:
    line = fitted([(cores, fixed + per_core / cores) for cores in (1, 2, 4, 8)])
    assert isclose(line.fixed, fixed, rel_tol=1e-6, abs_tol=1e-9)
    assert isclose(line.per_core, per_core, rel_tol=1e-6)


def test_one_core_count_is_no_line() -> None:
    with pytest.raises(ValueError, match="two different"):
        fitted([(2, 1.0), (2, 1.1)])


def test_cores_make_up_for_replicas() -> None:
    """Six replicas at 45 requests per second keep 0.11 s, five do with more cores than two."""
    shown = stage(0, 6, arrival_per_s=45.0)
    answer = CpuCompensator().compensate(shown, give=1, cv=1.0, target_s=0.105, now_cores=2, free_cores=20)
    assert (answer.give, answer.cores) == (1, 3)
    assert CpuCompensator().expected_s(shown, replicas=5, cores=3, cv=1.0, now_cores=2) <= 0.105
    assert CpuCompensator().expected_s(shown, replicas=5, cores=2, cv=1.0, now_cores=2) > 0.105


def test_without_cores_a_replica_less_is_given() -> None:
    shown = stage(0, 6, arrival_per_s=45.0)
    few = CpuCompensator().compensate(shown, give=1, cv=1.0, target_s=0.105, now_cores=2, free_cores=0)
    assert (few.give, few.cores) == (0, 2)
    capped = CpuCompensator(most_cores=2)
    assert capped.compensate(shown, give=1, cv=1.0, target_s=0.105, now_cores=2, free_cores=20).give == 0


def test_where_the_target_is_kept_no_core_is_added() -> None:
    answer = CpuCompensator().compensate(
        stage(0, 4), give=2, cv=1.0, target_s=0.2, now_cores=2, free_cores=20
    )
    assert (answer.give, answer.cores) == (2, 2)
