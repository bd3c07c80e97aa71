"""Stage replicas of language models that run layers while they load: split paths, joined KV, exactness."""

import re
from dataclasses import replace
from functools import partial

import pytest

from serving.protocols.stages import StartReplicas, StopReplicas
from serving.record.replay import replay
from serving.vocabulary.units import FRACTION_BITS
from simcore.faults.plan import FaultPlan
from tests.worlds.drawn_language import drawn_language
from tests.worlds.language_world import LanguageCase, LanguageRun, Scaling, controller_of, run
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.stage_scripts import AnythingGoes, Scripted
from tests.worlds.toy_rows import ToyRows

ONE = 1 << FRACTION_BITS
FLAT = ToyRows(40 * ONE, 0, 0, 40 * ONE, 0)


def worlds(seed: int, losses: bool) -> tuple[LanguageCase, FaultPlan | None]:
    """Drawn ones, with stages of four layers."""
    case, plan = drawn_language(seed, losses)
    return replace(case, kv_layer_bytes=400, stage_layers=4, live=True), plan


def told(one: LanguageRun) -> tuple[object, ...]:
    recorder = one.recorder
    return recorder.done, recorder.refusals, sorted(recorder.all_gaps), recorder.busy_ns


def paths(found: LanguageRun) -> list[str]:
    """That requests joined."""
    return [path for line in found.lines for path in re.findall(r"on replicas \((.*?),?\)", line)]


def spans(found: LanguageRun) -> list[str]:
    """Of batches that pass a split stage, as the journal has them."""
    return [one for line in found.lines for one in re.findall(r"\],(\[\[\d+,\d+\].*?\]\])", line)]


def one_stage(requests: list[tuple[int, int, int, int]], live: bool = True) -> LanguageCase:
    """A pass of a stage's four layers takes 40 ns, a load some hundred a layer; batches have one request."""
    costs = ToyStages((FLAT,), 0, 0)
    case = LanguageCase(requests, costs, (1,), (10_000,), 1)
    return replace(case, kv_layer_bytes=400, stage_layers=4, live=live)


MORE = {1: (StartReplicas(0, 1, "more", (4,)),)}


def scripted(script: dict[int, tuple[StartReplicas | StopReplicas, ...]] = MORE) -> Scaling:
    return Scaling(lambda: Scripted(script), period_ns=1000)


def test_a_request_that_waits_begins_on_the_layers_that_are_there() -> None:
    case = one_stage([(0, 4, 1000, 1000), (1500, 4, 1000, 1000)])
    found, whole = run(case, scaling=scripted()), run(replace(case, live=False), scaling=scripted())
    assert paths(found) == ["0", "1, 0"] and paths(whole) == ["0", "1"]
    assert found.recorder.done[1][2] < whole.recorder.done[1][2]  # its first token
    assert spans(found)[0] == "[[0,1],[1,4]]" and set(spans(found)) == {"[[0,1],[1,4]]", "[[0,2],[2,4]]"}
    moves = found.service.moves
    assert moves is not None and moves.joined == moves.committed == 2  # one layer more, then all
    assert sorted(found.recorder.done) == [0, 1]


def test_no_batch_begins_over_layers_that_load_while_another_one_takes_the_request() -> None:
    """It would share the passes of the replica that serves; they take as long with one as with two."""
    case = one_stage([(0, 4, 1000, 1000), (1500, 4, 1000, 1000)])
    found = run(replace(case, max_num_seqs=2), scaling=scripted())
    assert paths(found) == ["0", "0"] and not spans(found)


def test_each_replica_has_the_blocks_of_a_request_whose_layers_it_runs() -> None:
    """The invariants, which are checked after every event, see blocks at both; at the end nobody has any."""
    found = run(one_stage([(0, 4, 300, 300), (1500, 4, 300, 300)]), scaling=scripted())
    for engine in found.controller.engines.values():
        assert engine.ledger.free_blocks == engine.ledger.total_blocks


def test_a_load_that_is_given_up_leaves_its_layers_to_the_other() -> None:
    script = {**MORE, 3: (StopReplicas(0, (1,), "enough"),)}
    case = one_stage([(0, 4, 1000, 1000), (1500, 4, 1000, 1000)])
    found = run(case, scaling=scripted(script))
    assert sorted(found.recorder.done) == [0, 1] and paths(found) == ["0", "1, 0"]
    assert "[[0,4]]" not in spans(found) and told(found) == told(run(case, False, scaling=scripted(script)))
    assert found.service.seats.used_bytes[4] == 0


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(7))
def test_drawn_worlds_with_replicas_that_work_while_they_load(seed: int, losses: bool) -> None:
    """Exact is coalesced, the journal replays, and no request is lost without a loss."""
    case, plan = worlds(seed, losses)
    scaling = Scaling(partial(AnythingGoes, seed, 40_000))
    found = run(case, faults=plan, scaling=scaling)
    assert told(found) == told(run(case, False, plan, scaling))
    assert replay(found.journal(), controller_of(case, True, scaling)).first_difference is None
    if not losses:
        assert len(found.recorder.done) == len(case.requests)


def test_drawn_worlds_have_batches_that_pass_a_stage_that_loads() -> None:
    joined = begun = 0
    for seed in range(6):
        case, plan = worlds(seed, False)
        found = run(case, faults=plan, scaling=Scaling(partial(AnythingGoes, seed, 40_000)))
        assert found.service.moves is not None and found.service.live_stages is not None
        joined += found.service.moves.joined
        begun += found.service.live_stages.begun
    assert begun >= 3 and joined >= 3
