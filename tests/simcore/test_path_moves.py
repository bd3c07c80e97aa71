"""Batches of language models in stages go over to other paths while they decode: KV moves stage by stage."""

from dataclasses import replace
from functools import partial

import pytest

from serving.protocols.stages import StopReplicas
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


def two_stages(kv_layer_bytes: int) -> LanguageCase:
    """Two replicas of each stage; a pass takes 10 ns; two requests, the first on replicas 0 and 2."""
    costs = ToyStages((FLAT, FLAT), 0, 0)
    requests = [(0, 100, 1500, 1500), (0, 100, 1500, 1500)]
    return LanguageCase(requests, costs, (2, 2), (10_000,) * 2, 1, 128, kv_layer_bytes=kv_layer_bytes)


STOP = Scaling(lambda: Scripted({2: (StopReplicas(1, (2,), "enough"),)}), period_ns=1000)


def released_ns(found: LanguageRun) -> int:
    (at_ns,) = [one.now_ns for one in found.controller.elastic.replicas.history if one.act == "released"]
    return at_ns


def test_a_replica_that_is_to_go_gives_its_kv_away_and_its_requests_decode_on() -> None:
    """It goes after two copies, and not when its request has ended; that request waits for the second one."""
    stays, moves = run(two_stages(0), scaling=STOP), run(two_stages(50), scaling=STOP)
    assert released_ns(stays) == stays.recorder.done[0][3]
    assert released_ns(moves) < released_ns(stays) / 5
    path_moves = moves.service.moves
    assert path_moves is not None and (path_moves.committed, path_moves.aborted) == (1, 0)
    assert set(moves.recorder.done) == {0, 1}
    tokens = [tokens for _, tokens, _, _, _ in moves.recorder.done.values()]
    assert tokens == [1500, 1500]
    pauses = sorted(gap for gap in moves.recorder.all_gaps)
    assert pauses[-1] > 20 * ONE  # it halted for the second copy


def test_all_kv_of_the_stage_is_sent_once_and_that_of_the_other_stage_stays() -> None:
    found = run(two_stages(50), scaling=STOP)
    sends = [line for line in found.lines if '"send"' in line]
    assert len(sends) == 2 and all(",2,3," in line for line in sends)
    assert found.service.moves is not None
    assert found.service.moves.moved_bytes % (2 * 50) == 0


@pytest.mark.parametrize("lost", [0, 2, 3])
def test_a_loss_in_the_middle_fails_none_but_who_was_there(lost: int) -> None:
    """Source, its neighbour, or destination of the KV, while the first copy is on the wire."""
    case = two_stages(4000)
    plan = FaultPlan((Fault(2020, "replica", lost),), [(gpu,) for gpu in range(8)], ideal(case.cluster))
    found = run(case, faults=plan, scaling=STOP)
    assert told(found) == told(run(case, False, plan, STOP))
    expected = {0: {1}, 2: {1}, 3: {0}}[lost]
    assert set(found.recorder.done) >= expected - {1 if lost == 0 else -1} and found.recorder.refusals


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(7))
def test_drawn_worlds_with_a_scaler_that_says_anything(seed: int, losses: bool) -> None:
    case, plan = drawn_language(seed, losses)
    case = replace(case, kv_layer_bytes=(50, 4000)[seed % 2])
    scaling = Scaling(partial(AnythingGoes, seed, 40_000))
    found = run(case, faults=plan, scaling=scaling)
    assert told(found) == told(run(case, False, plan, scaling))
    assert replay(found.journal(), controller_of(case, True, scaling)).first_difference is None
    if not losses:
        assert len(found.recorder.done) == len(case.requests)
        lengths = {id: output for id, (_, _, _, output) in enumerate(sorted(case.requests))}
        caps = {id: cap for id, (_, _, cap, _) in enumerate(sorted(case.requests))}
        assert {id: one[1] for id, one in found.recorder.done.items()} == {
            id: min(lengths[id], caps[id]) for id in lengths
        }


def test_drawn_worlds_move_batches() -> None:
    moved = 0
    for seed in range(6):
        case = replace(drawn_language(seed, False)[0], kv_layer_bytes=50)
        service = run(case, scaling=Scaling(partial(AnythingGoes, seed, 40_000))).service
        assert service.moves is not None
        moved += service.moves.committed
    assert moved > 3
