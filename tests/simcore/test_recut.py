"""Language models in stages that are cut anew while requests decode: none is lost, every token comes once."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from serving.elastic.stage_control import StageControl
from serving.protocols.stages import CutAnew, StageDecision, StartReplicas
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
FLAT = ToyRows(40 * ONE, 0, 0, 40 * ONE, 0)
REQUESTS = [(0, 4, 1000, 1000), (100, 4, 900, 900), (9000, 4, 50, 50)]


def told(one: LanguageRun) -> tuple[object, ...]:
    recorder = one.recorder
    return recorder.done, recorder.refusals, sorted(recorder.all_gaps), recorder.busy_ns


def history(found: LanguageRun) -> list[tuple[str, int]]:
    control = found.controller.elastic
    assert isinstance(control, StageControl)
    return [(one.act, one.replica) for one in control.replicas.history]


def two_stages(requests: list[tuple[int, int, int, int]]) -> LanguageCase:
    """Four layers each, a layer of a pass 10 ns; batches have one request."""
    case = LanguageCase(requests, ToyStages((FLAT, FLAT), 0, 0), (1, 1), (10_000,) * 2, 1)
    return replace(case, kv_layer_bytes=400, stage_layers=4, recut=True)


def scripted(script: dict[int, tuple[StageDecision, ...]]) -> Scaling:
    return Scaling(lambda: Scripted(script), period_ns=1000)


THREE = {1: (CutAnew((0, 4, 6), (1, 1, 1), "three"),)}


def test_requests_that_decode_go_over_to_a_path_of_the_new_cut() -> None:
    """The stage that both cuts have stays; the other one goes when nobody passes it any more."""
    found = run(two_stages(REQUESTS), scaling=scripted(THREE))
    assert history(found) == [
        ("load", 2), ("load", 3), ("ready", 2), ("ready", 3), ("recut", -1), ("drain", 1), ("released", 1),
    ]  # fmt: skip
    moves = found.service.moves
    assert moves is not None and (moves.committed, moves.aborted) == (2, 0)
    assert [stage.part.layers for stage in found.service.stages] == [(0, 4), (4, 6), (6, 8)]
    assert any("on replicas (0, 2, 3)" in line for line in found.lines)
    assert sorted(found.recorder.done) == [0, 1, 2]
    assert found.service.seats.used_bytes[1] == 0


def test_every_output_token_comes_once_and_a_pass_takes_as_long_as_its_layers() -> None:
    """Cut anew or not, a request alone has its tokens 80 ns apart, but where its batch halted."""
    alone = [(0, 4, 1000, 1000)]
    found, whole = run(two_stages(alone), scaling=scripted(THREE)), run(two_stages(alone))
    gaps, before = Counter(found.recorder.all_gaps), Counter(whole.recorder.all_gaps)
    assert gaps.total() == before.total() == before[80 * ONE] == 999
    assert gaps[80 * ONE] == 998  # the batch halts once


def test_a_request_that_comes_later_sees_the_new_cut_and_the_scaler_too() -> None:
    scaler = Scripted(THREE)
    run(two_stages(REQUESTS), scaling=Scaling(lambda: scaler, period_ns=1000))
    cuts = [tuple(stage.layers for stage in view.stages) for view in scaler.views]
    assert cuts[0] == ((0, 4), (4, 8)) and cuts[-1] == ((0, 4), (4, 6), (6, 8))
    coming = [view.cut.coming for view in scaler.views if view.cut is not None]
    assert coming[0] == () and coming[1] == (0, 4, 6) and coming[-1] == ()
    assert scaler.views[-1].stages[1].arrival_per_s == scaler.views[-1].stages[0].arrival_per_s


def test_a_cut_whose_replica_is_lost_while_it_loads_is_given_up() -> None:
    plan = FaultPlan((Fault(1300, "replica", 3),), [(gpu,) for gpu in range(8)], ideal("quart_2x4"))
    found = run(two_stages(REQUESTS), faults=plan, scaling=scripted(THREE))
    assert ("recut", -1) not in history(found) and ("shortage", -1) in history(found)
    assert [stage.part.layers for stage in found.service.stages] == [(0, 4), (4, 8)]
    assert sorted(found.recorder.done) == [0, 1, 2] and not found.recorder.refusals
    assert found.service.cut_changes.refused == 1 and sum(found.service.seats.used_bytes.values()) == 2 << 40


def test_a_cut_for_which_no_gpu_is_free_is_not_begun() -> None:
    script = {1: (CutAnew((0, 2, 4, 6), (2, 2, 2, 2), "more than there is room for"),)}
    found = run(two_stages(REQUESTS), scaling=scripted(script))
    assert ("shortage", -1) in history(found) and ("recut", -1) not in history(found)
    assert sorted(found.recorder.done) == [0, 1, 2]


def test_back_to_the_first_cut() -> None:
    script: dict[int, tuple[StageDecision, ...]] = {
        **THREE, 12: (CutAnew((0, 4), (1, 1), "two"),), 30: (StartReplicas(1, 1, "more"),),
    }  # fmt: skip
    requests = [*REQUESTS, (25_000, 4, 300, 300)]
    found = run(two_stages(requests), scaling=scripted(script))
    assert [stage.part.layers for stage in found.service.stages] == [(0, 4), (4, 8)]
    assert found.service.cut_changes.made == 2 and len(found.recorder.done) == 4


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_drawn_worlds_that_are_cut_anew(seed: int, losses: bool, live: bool) -> None:
    """Exact is coalesced, the journal replays, and no request is lost without a loss."""
    case, plan = drawn_language(seed, losses)
    case = replace(case, kv_layer_bytes=400, stage_layers=4, recut=True, live=live)
    scaling = Scaling(partial(AnythingGoes, seed, 40_000))
    found = run(case, faults=plan, scaling=scaling)
    assert told(found) == told(run(case, False, plan, scaling))
    assert replay(found.journal(), controller_of(case, True, scaling)).first_difference is None
    if not losses:
        assert len(found.recorder.done) == len(case.requests)


def test_drawn_worlds_are_cut_anew_while_requests_decode() -> None:
    made = given_up = committed = 0
    for seed in range(8):
        case, plan = drawn_language(seed, seed % 2 == 1)
        case = replace(case, kv_layer_bytes=400, stage_layers=4, recut=True)
        found = run(case, faults=plan, scaling=Scaling(partial(AnythingGoes, seed, 40_000)))
        moves = found.service.moves
        assert moves is not None
        made += found.service.cut_changes.made
        given_up += found.service.cut_changes.refused
        committed += moves.committed
    assert made > 8 and given_up > 0 and committed > 4
