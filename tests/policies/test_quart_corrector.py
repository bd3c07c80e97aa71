"""QUART's corrector: growth by PID within budgets, no wind-up, its sign, key stages."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quart.corrector import Corrector, within_budget
from policies.quart.pid import Gains, Pid
from policies.quart.settings import DEFAULTS, REFERENCE, RELEASED, CorrectorSettings
from serving.protocols.stages import StageReplicaView
from tests.worlds.pipeline_views import pipeline, stage

NS = 1_000_000_000
OUTSTANDING = CorrectorSettings(key_rule="outstanding")


def test_a_stage_within_its_target_stays() -> None:
    found = Corrector().correct(pipeline([stage(0, 2), stage(1, 2)]))
    assert [one.growth for one in found] == [0, 0]
    assert [one.target_s for one in found] == [0.2, 0.2]


def test_an_unstable_stage_gets_the_smallest_stable_number() -> None:
    """25 requests per second at 10 per replica: three replicas, whatever the gains."""
    found = Corrector().correct(pipeline([stage(0, 1, arrival_per_s=25.0), stage(1, 3)]))
    assert [(one.growth, one.delay_s) for one in found[:1]] == [(2, inf)]


def test_a_queue_counts_though_the_rate_is_low() -> None:
    """40 wait, to be served within 2 s: 25 requests per second, for which three replicas are stable."""
    found = Corrector().correct(pipeline([stage(0, 2, queued=40), stage(1, 2)]))
    assert [one.growth for one in found] == [1, 0]
    assert (found[0].is_key, found[1].is_key) == (True, False)


def test_what_comes_to_the_first_stage_will_come_to_all() -> None:
    """Later stages grow with it, and not one after the other as requests get there."""
    stages = [stage(0, 1, arrival_per_s=25.0), stage(1, 1), stage(2, 1)]
    assert [one.growth for one in Corrector().correct(pipeline(stages))] == [2, 2, 2]


def test_the_pid_is_cut_off_at_what_the_target_needs() -> None:
    """At 95 % load it waits 2 s for a target of 0.2 s: an error of 9, and two replicas are enough."""
    view = pipeline([stage(0, 1, arrival_per_s=9.5), stage(1, 2)])
    assert [one.growth for one in Corrector().correct(view)] == [1, 0]
    plain = Corrector(CorrectorSettings(bounded=False)).correct(view)
    assert [one.growth for one in plain] == [7, 0]  # 9 + 0.9, rounded up, and eight replicas at most


def test_a_delay_that_no_formula_sees_adds_one_at_a_time() -> None:
    slow = stage(0, 2, delay_s=3.0, queued=1)
    assert [one.growth for one in Corrector().correct(pipeline([slow, stage(1, 2)]))] == [1, 0]


def test_targets_are_shares_of_the_slo_by_execution_time() -> None:
    view = pipeline([stage(0), stage(1, exec_s=0.3, service_s=0.3, arrival_per_s=1)], slo_s=1.2)
    assert [round(one.target_s, 9) for one in Corrector().correct(view)] == [0.3, 0.9]


def test_a_target_that_no_replica_reaches_is_a_pass_and_a_tenth() -> None:
    """At an SLO of once the execution time stages would else grow for ever."""
    view = pipeline([stage(0, 8, maximum=64, arrival_per_s=0.1)], slo_s=0.1)
    assert [(one.target_s, one.growth) for one in Corrector().correct(view)] == [(0.11000000000000001, 0)]


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 9)), min_size=1, max_size=8), st.integers(0, 40))
def test_growth_never_exceeds_budget_or_want(stages: list[tuple[int, float]], budget: int) -> None:
    wants = [want for want, _ in stages]
    given_ = within_budget(wants, [delay for _, delay in stages], budget)
    assert sum(given_) == min(budget, sum(wants))
    assert all(0 <= one <= want for one, want in zip(given_, wants, strict=True))


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 6), st.integers(0, 50)), min_size=1, max_size=5),
    st.integers(0, 30),
)
def test_no_stage_passes_its_maximum_and_no_pipeline_its_budget(
    stages: list[tuple[float, int, int]], budget: int
) -> None:
    view = pipeline(
        [
            stage(index, supply, arrival_per_s=rate, queued=queued)
            for index, (rate, supply, queued) in enumerate(stages)
        ],
        max_replicas=budget,
    )
    found = Corrector().correct(view)
    assert sum(one.growth for one in found) <= max(budget - view.supply, 0)
    for one, shown in zip(found, view.stages, strict=True):
        assert 0 <= one.growth <= max(shown.maximum - shown.supply, 0)


class Closed:
    """One stage under a load, second by second: work queues as a fluid, new replicas serve after a while."""

    def __init__(self, settings: CorrectorSettings, loads_after_s: int = 3) -> None:
        self.corrector = Corrector(settings)
        self.ready = [0]
        self.loads_after_s = loads_after_s
        self.queue = 0.0
        self.queues: list[float] = []
        self.supplies: list[int] = []

    def second(self, now_s: int, arrival_per_s: float, maximum: int = 40) -> None:
        serving = sum(at <= now_s for at in self.ready)
        self.queue = max(self.queue + arrival_per_s - 10 * serving, 0.0)
        replicas = tuple(
            StageReplicaView(one, 0, "serving" if at <= now_s else "loading")
            for one, at in enumerate(self.ready)
        )
        shown = stage(0, there=replicas, maximum=maximum, arrival_per_s=arrival_per_s, queued=int(self.queue))
        for one in self.corrector.correct(pipeline([shown], now_ns=now_s * NS)):
            self.ready += [now_s + self.loads_after_s] * one.growth
        self.queues.append(self.queue)
        self.supplies.append(len(self.ready))

    def run(self, rates: list[float]) -> "Closed":
        for now_s, rate in enumerate(rates):
            self.second(now_s, rate)
        return self


BURST = [5.0] * 10 + [60.0] * 10 + [5.0] * 40


def test_the_controller_settles_after_a_burst_and_does_not_wind_up() -> None:
    world = Closed(REFERENCE).run(BURST)
    assert world.queues[-1] == 0
    assert max(world.supplies) <= 40
    ended = next(second for second in range(20, 60) if world.queues[second] == 0)
    assert len(set(world.supplies[ended:])) == 1  # nothing is started once the queue is gone


def test_the_printed_sign_diverges() -> None:
    """Algorithm 1, line 2: what is too slow gets nothing, so its queue grows without end."""
    printed = Closed(CorrectorSettings(sign="printed")).run([9.9] * 5 + [11.0] * 200)
    ours = Closed(REFERENCE).run([9.9] * 5 + [11.0] * 200)
    assert ours.queues[-1] == 0
    growth = [later - earlier for earlier, later in zip(printed.queues, printed.queues[50:], strict=False)]
    assert min(growth[10:]) > 0
    assert printed.supplies[-1] == 1


def test_the_printed_sign_adds_to_who_needs_nothing() -> None:
    idle = pipeline([stage(0, 4, arrival_per_s=1.0)])
    assert [one.growth for one in Corrector(CorrectorSettings(sign="printed")).correct(idle)] == [1]
    assert [one.growth for one in Corrector().correct(idle)] == [0]


def test_the_integral_stands_still_at_a_bound_and_ends_with_the_error() -> None:
    loop = Pid(Gains(1.0, 0.5, 0.0))
    assert [loop.step(4.0, 1.0, most=2) for _ in range(50)] == [2] * 50
    assert loop.integral == 0
    assert loop.step(1.0, 1.0, most=9) == 1.5
    assert loop.step(1.0, 1.0, most=9) == 2.0
    assert (loop.step(-0.1, 1.0, most=9), loop.integral) == (0, 0)


def test_the_integral_waits_for_what_loads() -> None:
    loop = Pid(Gains(1.0, 1.0, 0.0))
    for _ in range(20):
        loop.step(1.0, 1.0, most=9, hold=True)
    assert loop.integral == 0


def test_a_derivative_answers_a_rise() -> None:
    loop = Pid(Gains(0.0, 0.0, 2.0))
    assert [loop.step(error, 0.5, most=99) for error in (1.0, 2.0, 2.0)] == [0, 4, 0]


@pytest.mark.parametrize("why", ["maximum", "cool-down"])
def test_the_loop_is_told_of_errors_while_nothing_may_be_added(why: str) -> None:
    """A stage that was well meanwhile begins anew, without an integral of before."""
    gains = Gains(1.0, 1.0, 0.0)
    settings = CorrectorSettings(gains=gains, bounded=False, cool_down_s=1.5 if why == "cool-down" else 0.0)
    corrector = Corrector(settings)

    def growth(now_s: int, delay_s: float, maximum: int = 8) -> int:
        stages = [stage(0, 2, arrival_per_s=0.1, delay_s=delay_s, maximum=maximum)]
        return corrector.correct(pipeline(stages, now_ns=now_s * NS))[0].growth

    assert growth(0, 0.3) == 1  # an error of 0.5 and an integral of 0.5
    assert growth(1, 0.1, 2 if why == "maximum" else 8) == 0
    assert growth(2, 0.3) == 1  # the same; with the integral of before it would be 2


def test_after_an_endless_delay_there_is_no_slope() -> None:
    loop = Pid(Gains(0.0, 0.0, 1.0))
    assert [loop.step(error, 1.0, most=9) for error in (1.0, inf, 5.0, 6.0)] == [0, 9, 0, 1]


def test_gains_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Gains(1.0, -0.1, 0.0)


def test_a_stage_that_grows_is_a_key_stage() -> None:
    """Section 6.1: a stage to which the corrector adds replicas joins the list, however others fare."""
    stages = [stage(index, arrival_per_s=9.5 if index != 3 else 1.0) for index in range(5)]
    stages[0] = stage(0, arrival_per_s=1.0)
    found = Corrector().correct(pipeline([stage(0, 9, arrival_per_s=9.5), *stages[1:]]))
    assert (
        [one.is_key for one in found] == [one.growth > 0 for one in found] == [False, True, True, True, True]
    )
    full = Corrector().correct(pipeline(stages, max_replicas=5))
    assert not any(one.growth or one.is_key for one in full)


def test_long_passes_by_chance_make_no_key_stage() -> None:
    """Stage 1's few passes took 0.14 s, at 6 per second 0.9 s by the formula: nothing was so slow."""
    noisy = [stage(index, arrival_per_s=6.0, delay_s=0.12, passed=6) for index in range(5)]
    noisy[1] = stage(1, arrival_per_s=6.0, service_s=0.14, delay_s=0.25, passed=6)
    found = Corrector(OUTSTANDING).correct(pipeline(noisy))
    assert found[1].growth > 0 and found[1].delay_s > 2 * found[1].target_s
    assert not any(one.is_key for one in found)


@pytest.mark.parametrize(
    ("delay_s", "passed", "is_key"), [(0.25, 20, True), (0.25, 19, False), (0.19, 90, False)]
)
def test_a_key_stage_was_measured_to_be_behind_its_target(delay_s: float, passed: int, is_key: bool) -> None:
    """Target 0.2 s. 9.5 per second of 10: by the formula every stage is far behind, and grows."""
    stages = [stage(index, arrival_per_s=9.5, delay_s=0.12, passed=90) for index in range(5)]
    stages[2] = stage(2, arrival_per_s=9.5, delay_s=delay_s, passed=passed)
    found = Corrector(OUTSTANDING).correct(pipeline(stages))
    assert all(one.growth for one in found)
    assert [one.stage for one in found if one.is_key] == ([2] if is_key else [])


def test_the_stage_where_the_queue_is_is_the_key_stage() -> None:
    stages = [stage(index, queued=9 if index == 2 else 0) for index in range(5)]
    found = Corrector(OUTSTANDING).correct(pipeline(stages))
    assert [one.stage for one in found if one.is_key] == [2]


def test_the_released_rule_marks_by_violation_and_rate() -> None:
    settings = CorrectorSettings(key_rule="released", target_s=0.5)
    stages = [stage(0, delay_s=0.53), stage(1, delay_s=0.53, arrival_per_s=9.0, replicas=2)]
    assert [one.is_key for one in Corrector(settings).correct(pipeline(stages))] == [False, True]


def test_the_released_defaults_look_every_30_s_and_cool_down_for_120_s() -> None:
    corrector = Corrector(RELEASED)
    slow = [stage(0, 1, queued=20)]
    grown = [
        sum(one.growth for one in corrector.correct(pipeline(slow, now_ns=second * NS)))
        for second in range(0, 130, 10)
    ]
    assert [index * 10 for index, growth in enumerate(grown) if growth] == [0, 120]
    assert max(grown) <= 7  # up to 8 replicas


def test_both_sets_of_defaults_have_names() -> None:
    assert DEFAULTS == {"reference": REFERENCE, "released": RELEASED}
    assert REFERENCE.gains == Gains(1.0, 0.1, 0.0)
    assert RELEASED.gains == Gains(2.0, 0.3, 0.1)


def test_with_the_pid_off_a_stage_only_stays_stable() -> None:
    corrector = Corrector(CorrectorSettings(control="rate"))
    stages = [stage(0, queued=9), stage(1, arrival_per_s=25.0), stage(2, 3, arrival_per_s=25.0)]
    assert [one.growth for one in corrector.correct(pipeline(stages))] == [0, 2, 0]


def test_while_a_replica_loads_the_measured_delay_does_not_count() -> None:
    loading = (StageReplicaView(0, 0, "serving"), StageReplicaView(1, 0, "loading"))
    still = stage(0, 2, delay_s=3.0)
    assert Corrector().expected_s(still, 5.0) == 3.0
    assert Corrector().expected_s(stage(0, there=loading, delay_s=3.0), 5.0) < 0.2
