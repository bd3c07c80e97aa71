"""Preempted requests whose KV goes to host memory: as the naive engine, coalesced, while others migrate."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings

from policies.admission import AdmitAll
from policies.batching import PrefillFirst
from policies.dispatch import RoundRobin
from serving.composition import compose
from serving.engine.engine import Engine
from serving.engine.pool import EngineOptions
from serving.record.journal import action_text, header_text, parse_action
from serving.record.replay import replay
from serving.vocabulary.actions import Action, JoinBatch, Preempt, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from simcore.simulation import Simulation
from tests.worlds.migrating import Setting, assert_whole, play
from tests.worlds.migrating_cases import migrating
from tests.worlds.naive_engine import Case, run_naive
from tests.worlds.strategies import swapping_cases
from tests.worlds.told_outcomes import assert_told
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected, batcher_of, controller_of, requests_of, simulate

NS = 1 << 24
ROWS = ToyRows(10 * NS, 0, 0, 100 * NS, 0)  # a decode step takes 10 ns, a prompt 100
# Two requests with 8 blocks of 4 tokens; the second goes when the first wants the last block.
TWO = Case(
    "prefill_first", 1, 4, 8, 0, 4, 64, "round_robin", ((0, 8, 20, 20), (0, 8, 20, 20)), ROWS,
    swap_blocks=8, swap_block_ns=7,
)  # fmt: skip


@given(case=swapping_cases())
@settings(max_examples=75)
def test_coalesced_equals_naive(case: Case) -> None:
    assert_told(simulate(case)[0], run_naive(case))


@given(case=swapping_cases())
@settings(max_examples=50)
def test_step_by_step_equals_naive_and_a_replay_asks_for_the_same(case: Case) -> None:
    recorder, _, checked = simulate(case, coalesce=False)
    assert_told(recorder, run_naive(case))
    report = replay([header_text({"carries_out": []}), *checked.lines], controller_of(case, coalesce=False))
    assert report.different == 0, report.first_difference


@given(setting=migrating())
@settings(max_examples=50)
def test_coalesced_equals_step_by_step_while_others_migrate(setting: Setting) -> None:
    case = replace(
        setting.case, batcher="prefill_first", reserve_full_prompt=False, prefix_caching=False,
        asynchronous=False, swap_blocks=6, swap_block_ns=3,
    )  # fmt: skip
    setting = replace(setting, case=case)
    coalesced, exact = play(setting), play(setting, coalesce=False)
    assert coalesced.records == exact.records
    assert coalesced.recorder.done == exact.recorder.done
    assert sorted(coalesced.recorder.all_gaps) == sorted(exact.recorder.all_gaps)
    assert_whole(setting, coalesced)


def losses(case: Case, coalesce: bool = True) -> tuple[dict[int, int], Collected, list[Engine]]:
    replica = Replica(
        id=0,
        model="m",
        layers=LayerRange(0, 1),
        gpus=(0,),
        kv_blocks=case.total_blocks,
        block_tokens=case.block_tokens,
        swap_blocks=case.swap_blocks,
        swap_block_ns=case.swap_block_ns,
    )
    options = EngineOptions(coalesce=coalesce)
    controller = compose(
        [replica], RoundRobin(), lambda _: batcher_of(case), admission=AdmitAll(), engine_options=options
    )
    recorder = Collected()
    world = Simulation(controller, iter(requests_of(case)), [case.rows], recorder)  # type: ignore[arg-type]
    world.run()
    return world.preemption_losses_ns(), recorder, list(controller.engines.values())


def test_a_swap_lasts_from_the_preemption_until_the_kv_is_back() -> None:
    """Both wait for the copies, and its tokens are not computed again: its longest gap is one step more."""
    found, recorder, (engine,) = losses(TWO)
    assert found == losses(TWO, False)[0] and list(found) == [1]
    assert recorder.done[1][4] == 1 and engine.host.out == 1 and engine.host.full == 0
    assert max(recorder.all_gaps) == (found[1] + 10) * NS
    assert engine.host.waited_ns % 7 == 0 and engine.host.waited_ns > 0 and engine.host.holders() == ()
    slower = losses(replace(TWO, swap_block_ns=70))
    more = 63 * engine.host.waited_ns // 7
    assert slower[1].done[1][3] == recorder.done[1][3] + more, "the second ends so much later"
    assert slower[0][1] == found[1] + more


def test_where_host_memory_is_full_the_victim_is_computed_again() -> None:
    full, plain = losses(replace(TWO, swap_blocks=1)), losses(replace(TWO, swap_blocks=0))
    assert full[2][0].host.full == 1 and full[2][0].host.out == 0
    assert full[0] == plain[0] and full[1].done == plain[1].done


class Told:
    """An engine and the actions of its last event."""

    def __init__(self, swap_blocks: int) -> None:
        replica = Replica(
            id=0,
            model="m",
            layers=LayerRange(0, 1),
            gpus=(0,),
            kv_blocks=8,
            block_tokens=4,
            swap_blocks=swap_blocks,
            swap_block_ns=7,
        )
        self.engine = Engine(replica, PrefillFirst(4, 64))
        self.actions: list[Action] = []
        for request in (0, 1):
            self.engine.enqueue(Request(request, 0, 8, 20, "m"), self.actions)

    def ran(self, steps: int, finished: Iterable[int] = ()) -> list[Action]:
        self.actions = []
        self.engine.ran(Ran(0, 0, steps, tuple(finished), False, 0), self.actions)
        return self.actions


def test_exactly_these_actions_are_asked_for() -> None:
    """Both prompts have two blocks; after eight tokens each all are taken, and the next two find none."""
    told = Told(8)
    assert told.actions[0] == Run(0, 0, ((0, 0, 8),), False, 25, False, "prefill")
    told.ran(1)
    told.ran(1)
    told.ran(8)
    preempt, run = told.actions
    assert preempt == Preempt(0, 1, "no free KV block", 4 * 7)
    assert run == Run(0, 0, (), True, 1, True, "decode after preemption")
    (again,) = told.ran(1)
    assert again == Run(0, 0, (), True, 12, True, "decode"), "nobody comes back while there is no room"
    join, decode = told.ran(11, (0,))
    assert join == JoinBatch(0, (1,), "back from host memory", None, 4 * 7)
    assert decode == Run(0, 0, (), True, 1, True, "decode with who has come back")
    assert told.engine.ledger.context_tokens(1) == 17, "8 of its prompt and 9 made"


@pytest.mark.parametrize(
    "action", [Preempt(0, 1, "why", 9), JoinBatch(0, (1, 2), "why", None, 9), Preempt(0, 1, "why")]
)
def test_the_journal_has_them(action: Action) -> None:
    assert parse_action(json.loads(action_text(action))) == action
