"""Stage replicas of language models that come and go while requests decode over paths."""

import re
from functools import partial

import pytest

from serving.elastic.stage_control import StageControl
from serving.protocols.stages import StageDecision, StartReplicas, StopReplicas
from serving.record.replay import replay
from serving.vocabulary.units import FRACTION_BITS
from simcore.faults.plan import Fault, FaultPlan
from tests.worlds.data_planes import ideal
from tests.worlds.drawn_language import drawn_language
from tests.worlds.language_world import LanguageCase, LanguageRun, Scaling, controller_of, run
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.stage_scripts import AnythingGoes, Scripted
from tests.worlds.toy_rows import ToyRows

ONE = 1 << FRACTION_BITS
FLAT = ToyRows(10 * ONE, 0, 0, 10 * ONE, 0)


def told(one: LanguageRun) -> tuple[object, ...]:
    recorder = one.recorder
    return recorder.done, recorder.refusals, sorted(recorder.all_gaps), recorder.busy_ns


def history(found: LanguageRun) -> list[tuple[str, int]]:
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    return [(one.act, one.replica) for one in control.replicas.history]


def two_stages(requests: list[tuple[int, int, int, int]], replicas: int = 1) -> LanguageCase:
    """A pass takes 10 ns, a load of a stage some thousand; a batch has one request."""
    costs = ToyStages((FLAT, FLAT), 0, 0)
    return LanguageCase(requests, costs, (replicas,) * 2, (10_000,) * 2, 1, layer_bytes=1000)


def scripted(script: dict[int, tuple[StageDecision, ...]]) -> Scaling:
    return Scaling(lambda: Scripted(script), period_ns=1000)


def test_a_new_replica_serves_requests_that_begin_and_old_ones_stay() -> None:
    """Those that decode stay on their path; the next ones have replicas that fewer batches pass."""
    case = two_stages([(0, 4, 2000, 2000)] * 3 + [(9000, 4, 300, 300)])
    both = tuple(StartReplicas(stage, 1, "more", (2 + stage,)) for stage in (0, 1))
    found = run(case, scaling=scripted({1: both}))
    assert sorted(history(found)) == [("load", 2), ("load", 3), ("ready", 2), ("ready", 3)]
    assert [path for line in found.lines for path in re.findall(r"on replicas \((.*?)\)", line)] == [
        "0, 1", "0, 1", "2, 1", "2, 3",
    ]  # fmt: skip
    assert found.recorder.done[2][3] < run(case).recorder.done[2][3]


def test_one_that_is_to_go_ends_the_requests_whose_path_it_is_on() -> None:
    case = two_stages([(0, 4, 500, 500), (3000, 4, 50, 50), (12_000, 4, 50, 50)], replicas=2)
    found = run(case, scaling=scripted({1: (StopReplicas(1, (2,), "enough"),)}))
    assert history(found) == [("drain", 2), ("released", 2)]
    assert set(found.recorder.done) == {0, 1, 2}
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    released_ns = control.replicas.history[1].now_ns
    assert found.recorder.done[0][3] == released_ns  # it had the first request until its end
    assert found.service.seats.used_bytes[2] == 0


def test_what_one_gave_back_another_stage_gets() -> None:
    case = two_stages([(0, 4, 400, 400), (0, 4, 400, 400), (20_000, 4, 50, 50)], replicas=2)
    script: dict[int, tuple[StageDecision, ...]] = {
        1: (StopReplicas(0, (0,), "enough"),),
        15: (StartReplicas(1, 1, "more", (0,)),),
    }
    found = run(case, scaling=scripted(script))
    assert history(found) == [("drain", 0), ("released", 0), ("load", 4), ("ready", 4)]


def test_a_stage_without_replicas_waits_for_the_next_one() -> None:
    case = two_stages([(0, 4, 40, 40), (2500, 4, 40, 40), (6000, 4, 40, 40)])
    plan = FaultPlan((Fault(2000, "replica", 1),), [(gpu,) for gpu in range(8)], ideal(case.cluster))
    found = run(case, faults=plan, scaling=scripted({4: (StartReplicas(1, 1, "it has none", (5,)),)}))
    assert set(found.recorder.done) == {0, 1, 2} and not found.recorder.refusals


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(7))
def test_drawn_worlds_with_a_scaler_that_says_anything(seed: int, losses: bool) -> None:
    """Exact is coalesced, the journal replays, and no request is lost without a loss."""
    case, plan = drawn_language(seed, losses)
    scaling = Scaling(partial(AnythingGoes, seed, 40_000))
    found = run(case, faults=plan, scaling=scaling)
    assert told(found) == told(run(case, False, plan, scaling))
    assert replay(found.journal(), controller_of(case, True, scaling)).first_difference is None
    if not losses:
        assert len(found.recorder.done) == len(case.requests)


def test_drawn_worlds_have_replicas_that_come_and_go() -> None:
    acts = set[str]()
    for seed in range(6):
        case, plan = drawn_language(seed, seed % 2 == 1)
        scaling = Scaling(partial(AnythingGoes, seed, 40_000))
        acts |= {act for act, _ in history(run(case, faults=plan, scaling=scaling))}
    assert acts >= {"load", "ready", "drain", "released", "lost"}
