"""What a preemption costs: the time until the request's tokens are computed again, told per request."""

from policies.admission import AdmitAll
from policies.dispatch import RoundRobin
from serving.composition import compose
from serving.engine.pool import EngineOptions
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected, batcher_of, requests_of

NS = 1 << 24
ROWS = ToyRows(10 * NS, 0, 0, 100 * NS, 0)  # a decode step takes 10 ns, a prompt 100


def losses(case: Case, coalesce: bool) -> tuple[dict[int, int], Collected]:
    replicas = [
        Replica(
            id=0,
            model="m",
            layers=LayerRange(0, 1),
            gpus=(0,),
            kv_blocks=case.total_blocks,
            block_tokens=case.block_tokens,
        )
    ]
    options = EngineOptions(coalesce=coalesce)
    controller = compose(
        replicas, RoundRobin(), lambda _: batcher_of(case), admission=AdmitAll(), engine_options=options
    )
    recorder = Collected()
    world = Simulation(controller, iter(requests_of(case)), [case.rows], recorder)  # type: ignore[arg-type]
    world.run()
    return world.preemption_losses_ns(), recorder


def test_it_lasts_from_the_preemption_until_the_prompt_is_computed_again() -> None:
    """Two requests with 8 blocks of 4 tokens; the second goes when the first wants the last block."""
    requests = ((0, 8, 20, 20), (0, 8, 20, 20))
    case = Case("prefill_first", 1, 4, 8, 0, 4, 64, "round_robin", requests, ROWS)
    found, recorder = losses(case, True)
    assert found == losses(case, False)[0]
    (first, second) = (recorder.done[one] for one in (0, 1))
    assert first[4] == 0 and second[4] == 1 and list(found) == [1]
    # Then the first ends alone, and the second is computed again: its longest gap.
    assert found[1] == max(recorder.all_gaps) // NS


def test_nobody_preempted_loses_nothing() -> None:
    case = Case("prefill_first", 1, 4, 40, 0, 4, 64, "round_robin", ((0, 8, 20, 20), (0, 8, 20, 20)), ROWS)
    assert losses(case, True)[0] == {}
