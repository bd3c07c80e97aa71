"""The engine as a state machine: facts in, whole action lists out, for cases worked out by hand.

Memory in these cases is 16 blocks of 4 tokens unless a case says otherwise. A run of decodes is promised
``free blocks // requests`` rounds of 4 steps, and where there is no room for a round, the steps to the first
one that lacks a block.
"""

import pytest

from policies.batching import PrefillFirst
from serving.engine.layer_pass import LayerPass
from serving.engine.progress import EngineState, Progress
from serving.engine.request_state import RequestState
from serving.vocabulary.actions import Action, Fail, Interrupt, JoinBatch, Run
from serving.vocabulary.events import Ran
from serving.vocabulary.request import Request
from tests.worlds.engine_script import (
    INTERRUPT,
    Script,
    adopted,
    chunk_run,
    chunked,
    decode_run,
    preempt,
    prefill_run,
    run,
)  # fmt: skip
from tests.worlds.refusals import refuses
from tests.worlds.request_states import state_of


def test_arrival_on_idle_starts_the_prompt_and_the_decoding_after_it() -> None:
    script = Script(chunked())
    # 6 tokens take 2 blocks; 14 // 1 rounds of 4 steps follow the step with the prompt.
    assert script.arrive(0, 6) == [chunk_run((0, 0, 6), max_steps=57)]
    assert script.engine.state is EngineState.RUNNING


def test_a_prompt_that_uses_up_the_budget_is_one_step() -> None:
    script = Script(chunked())
    assert script.arrive(0, 8) == [chunk_run((0, 0, 8))]
    assert script.ran(1) == [decode_run(56)]


def test_arrival_during_interruptible_decode_interrupts_once() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    script.ran(1)
    assert script.arrive(1, 2) == [INTERRUPT]
    assert script.engine.state is EngineState.STOPPING
    assert script.arrive(2, 20) == []
    assert script.engine.state is EngineState.STOPPING


def test_arrival_during_a_prompt_with_decoding_after_it_interrupts_once() -> None:
    script = Script(chunked())
    script.arrive(0, 6)
    assert script.arrive(1, 2) == [INTERRUPT]
    assert script.arrive(2, 2) == []
    # One step ran: the prompt is computed, and both arrivals join the next step.
    assert script.ran(1) == [chunk_run((1, 0, 2), (2, 0, 2), max_steps=1 + 12 // 3 * 4)]


def test_ran_after_an_interrupt_admits_with_the_budget_that_decodes_leave() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    script.ran(1)
    script.arrive(1, 2)
    script.arrive(2, 20)
    # Request 0 decodes (1 token of 8), request 1 is whole, request 2 gets the other 5.
    assert script.ran(3) == [chunk_run((1, 0, 2), (2, 0, 5))]
    assert script.engine.state is EngineState.RUNNING
    assert script.queue() == []


def test_arrival_during_a_chunk_step_only_queues() -> None:
    script = Script(chunked())
    script.arrive(0, 20)
    assert script.arrive(1, 1) == []
    assert script.engine.state is EngineState.RUNNING
    assert script.queue() == [1]


def test_no_interrupt_when_every_seat_is_taken() -> None:
    script = Script(chunked(max_num_seqs=1))
    assert script.arrive(0, 6) == [chunk_run((0, 0, 6), max_steps=57, until_finish=True)]
    assert script.arrive(1, 2) == []
    assert script.ran(1) == [decode_run(56, until_finish=True)]
    assert script.arrive(2, 2) == []
    assert script.engine.state is EngineState.RUNNING
    assert script.ran(5, 0) == [chunk_run((1, 0, 2))]


def test_no_interrupt_when_every_seat_is_taken_and_nobody_waits() -> None:
    script = Script(chunked(max_num_seqs=1))
    script.arrive(0, 8)
    # A finish must be told at once, for whoever comes until then waits for that seat.
    assert script.ran(1) == [decode_run(56, until_finish=True)]
    assert script.arrive(1, 2) == []
    assert script.engine.state is EngineState.RUNNING


def test_a_run_that_goes_on_past_a_finish_needs_no_answer() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    script.arrive(1, 2)
    assert script.ran(1) == [chunk_run((1, 0, 2), max_steps=1 + 12 // 2 * 4)]
    assert script.ran(3, 1, goes_on=True) == []
    assert script.engine.state is EngineState.RUNNING
    assert list(script.engine.running) == [0]
    # Request 0 holds 8 + 3 positions: 3 blocks.
    assert script.free == 13
    assert script.arrive(2, 2) == [INTERRUPT]
    assert script.ran(2) == [chunk_run((2, 0, 2), max_steps=1 + 11 // 2 * 4)]


def test_a_run_that_goes_on_reports_only_the_steps_since() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    script.arrive(1, 2)
    script.ran(1)
    script.ran(3, 1, goes_on=True)
    assert script.ran(22) == [decode_run((16 - 9) * 4)]
    assert script.free == 16 - 9  # 8 + 25 positions


def test_an_interrupted_run_may_report_a_finish_before_it_stops() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    script.arrive(1, 2)
    script.ran(1)
    assert script.arrive(2, 2) == [INTERRUPT]
    assert script.ran(3, 1, goes_on=True) == []
    assert script.engine.state is EngineState.STOPPING
    assert script.arrive(3, 2) == []
    assert script.ran(0) == [chunk_run((2, 0, 2), (3, 0, 2), max_steps=1 + 11 // 3 * 4)]


def test_no_interrupt_while_the_head_of_the_queue_is_blocked() -> None:
    script = Script(chunked(4, 16), blocks=4)
    script.arrive(0, 5)
    script.arrive(1, 12)
    # 3 blocks are wanted and 2 are free: they do for two rounds of request 0, which nobody interrupts.
    assert script.ran(1) == [decode_run(2 * 4, until_finish=True)]
    assert script.arrive(2, 1) == []
    assert script.engine.state is EngineState.RUNNING
    assert script.queue() == [1, 2]
    assert script.ran(5, 0) == [chunk_run((1, 0, 12), (2, 0, 1))]


def test_exact_mode_takes_one_step_at_a_time_and_never_interrupts() -> None:
    script = Script(chunked(), coalesce=False)
    assert script.arrive(0, 6) == [chunk_run((0, 0, 6))]
    assert script.ran(1) == [decode_run(1)]
    assert script.arrive(1, 2) == []
    assert script.ran(1) == [chunk_run((1, 0, 2))]
    assert script.ran(1) == [decode_run(1)]


def test_a_request_that_finishes_with_its_prompt_leaves_an_idle_engine() -> None:
    script = Script(chunked())
    script.arrive(0, 6)
    assert script.ran(1, 0) == []
    assert script.engine.state is EngineState.IDLE
    assert (script.free, dict(script.engine.running)) == (16, {})


def test_a_request_that_finishes_in_a_later_step_of_its_first_run() -> None:
    script = Script(chunked())
    script.arrive(0, 6)
    script.arrive(1, 1)
    # 3 steps: prompt, 2 decodes; it held 8 positions, which are free again.
    assert script.ran(3, 0) == [chunk_run((1, 0, 1), max_steps=61)]
    assert script.ran(1, 1) == []
    assert script.free == 16


def test_a_run_cut_before_its_first_step_is_asked_for_again() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    script.ran(1)
    script.arrive(1, 2)
    assert script.ran(0) == [chunk_run((1, 0, 2), max_steps=1 + 12 // 2 * 4)]


def test_a_prompt_cut_before_its_first_step_is_asked_for_again() -> None:
    script = Script(chunked())
    run = script.arrive(0, 6)
    assert script.ran(0) == run
    script = Script(chunked())
    run = script.arrive(0, 20)
    script.arrive(1, 2)
    assert script.ran(0) == run


def test_a_whole_prompt_cut_before_its_first_step_is_asked_for_again() -> None:
    script = Script(PrefillFirst(4, 8))
    script.arrive(0, 6)
    assert script.arrive(1, 2) == [INTERRUPT]
    assert script.ran(0) == [run(((0, 0, 6),), False, 1, None, "prefill again")]
    assert script.ran(1) == [prefill_run((1, 0, 2), max_steps=1 + 13 // 2 * 4)]


def test_prefill_first_is_not_interrupted_for_a_queue_it_already_declined() -> None:
    script = Script(PrefillFirst(4, 16), blocks=6, watermark=2)
    script.arrive(0, 4)
    script.arrive(1, 13)
    script.ran(1)
    assert script.arrive(2, 1) == []
    assert script.engine.state is EngineState.RUNNING


def test_losing_a_replica_fails_running_and_waiting_requests_ascending() -> None:
    script = Script(chunked(max_num_seqs=2))
    script.arrive(5, 6)
    script.arrive(3, 20)
    script.ran(1)
    script.arrive(4, 1)
    script.arrive(1, 1)
    failed, actions = script.lose("host gone")
    assert failed == [1, 3, 4, 5]
    assert actions == [Fail(1, "host gone"), Fail(3, "host gone"), Fail(4, "host gone"), Fail(5, "host gone")]
    assert (script.engine.state, script.engine.epoch) == (EngineState.LOST, 1)
    assert (script.free, script.engine.ledger.decoding) == (16, 0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_who_waits_for_parameters_is_served_when_they_are_there(asynchronous: bool) -> None:
    script = Script(chunked(), loaded=False, asynchronous=asynchronous)
    assert script.arrive(0, 5) == [] and script.arrive(1, 2) == []
    assert script.queue() == [0, 1]
    (run,) = script.ready()
    assert isinstance(run, Run) and run.chunks == ((0, 0, 5), (1, 0, 2))
    if asynchronous:
        script.arrive(2, 2)
        assert [waiting.id for waiting in script.engine.unseen_arrivals] == [2]


@pytest.mark.parametrize(("fits", "answer"), [(True, JoinBatch), (False, Interrupt)])
def test_one_whose_memory_may_not_last_joins_no_run_in_progress(fits: bool, answer: type) -> None:
    script, actions = Script(PrefillFirst(4, 8)), list[Action]()
    script.arrive(0, 4), script.ran(1)
    progress = Progress(Request(1, 0, 4, 30, "m"))
    progress.computed = 4
    script.engine.reserve(1, 4)
    script.engine.join_batch([progress], actions, fits)
    assert [type(action) for action in actions] == [answer]


def test_who_comes_while_layers_run_waits_though_all_parameters_are_there() -> None:
    script, actions = Script(PrefillFirst(4, 8), loaded=False), list[Action]()
    script.engine.run_layers(LayerPass(((9, 0, 3),), (0, 1), "live"), actions)
    assert [type(action) for action in actions] == [Run]
    assert script.ready() == [] and script.arrive(0, 3) == []
    script.engine.layers_ran()
    actions.clear()
    script.engine.freed(actions)
    assert [action.chunks for action in actions if isinstance(action, Run)] == [((0, 0, 3),)]


@pytest.mark.parametrize(
    "steps",
    [
        2,
        -1,
    ],
)
def test_a_world_cannot_run_other_steps_than_it_was_asked_for(steps: int) -> None:
    script = Script(chunked())
    script.arrive(0, 20)
    with pytest.raises(AssertionError):
        script.ran(steps)


def test_a_run_without_requests_cannot_go_on() -> None:
    script = Script(chunked())
    script.arrive(0, 6)
    refuses(AssertionError, "a run continues without requests", script.ran, 1, 0, goes_on=True)


def test_a_run_without_steps_left_cannot_go_on() -> None:
    script = Script(chunked())
    script.arrive(0, 20)
    with pytest.raises(AssertionError):
        script.ran(1, goes_on=True)


def test_an_old_epoch_is_ignored_even_by_a_running_engine() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    assert script.ran(1, 0, epoch=-1) == []
    assert list(script.engine.running) == [0]
    refuses(AssertionError, "not begun", script.ran, 1, 0, epoch=3)


def test_nobody_finishes_without_a_step_or_before_its_prompt_is_computed() -> None:
    script = Script(chunked())
    script.arrive(0, 8)
    refuses(AssertionError, "without a step", script.ran, 0, 0)
    script = Script(chunked())
    script.arrive(0, 10_000)  # longer than a step's budget
    refuses(AssertionError, "before its prompt", script.ran, 1, 0)


# --- where a request stands ---


def test_a_request_is_seen_where_it_stands_from_its_arrival_to_its_end() -> None:
    script = Script(chunked(), asynchronous=True)
    assert state_of(script.engine, 0) is RequestState.ABSENT
    script.arrive(0, 12)
    assert state_of(script.engine, 0) is RequestState.PREFILLING
    script.arrive(1, 12)
    assert state_of(script.engine, 1) is RequestState.WAITING
    began = Ran(script.engine.id, 0, 1, (), False, last_step_ns=1)  # after request 1 came
    script.engine.ran(began, [])
    assert state_of(script.engine, 1) is RequestState.PREFILLING
    script.ran(1)
    assert state_of(script.engine, 0) is RequestState.DECODING
    script.ran(1, 0)
    assert state_of(script.engine, 0) is RequestState.FINISHED
    script.ran(1)
    assert state_of(script.engine, 0) is RequestState.ABSENT


def test_a_request_is_seen_from_its_reservation_until_it_leaves_with_its_kv() -> None:
    script, progress = Script(chunked(), loaded=False), Progress(Request(5, 0, 6, 30, "m"))
    script.engine.reserve(5, 6)
    assert state_of(script.engine, 5) is RequestState.RESERVED
    script.engine.attach([progress], outgoing=True)
    assert (state_of(script.engine, 5), script.free) == (RequestState.OUTGOING, 14)
    script.engine.detach([progress], keeps_kv=True)
    assert (state_of(script.engine, 5), script.free) == (RequestState.RESERVED, 14)
    script.engine.attach([progress])
    assert state_of(script.engine, 5) is RequestState.ATTACHED
    actions = script.ready()  # with requests to serve a pass begins at once, as those who wait have it
    script.engine.freed(later := [])
    assert not later and (actions[0], state_of(script.engine, 5)) == (adopted(5), RequestState.DECODING)
    other = Progress(Request(6, 0, 6, 30, "m"))
    script.engine.reserve(6, 6), script.engine.attach([other], outgoing=True), script.engine.detach([other])
    assert (state_of(script.engine, 6), len(script.engine.ledger.holders())) == (RequestState.ABSENT, 1)


def test_a_preempted_request_waits_again() -> None:
    script = Script(chunked(), blocks=3)
    script.arrive(0, 4), script.arrive(1, 4)
    script.ran(1)
    assert preempt(1) in script.ran(1)
    assert [state_of(script.engine, request) for request in (0, 1)] == [
        RequestState.DECODING,
        RequestState.WAITING,
    ]


def test_requests_attached_while_it_loaded_decode_when_it_is_ready_and_not_before() -> None:
    script = Script(PrefillFirst(4, 16), loaded=False)
    assert script.join_batch(7, 6) == []
    assert script.engine.state is EngineState.LOADING and not script.engine.ledger.decodes(7)
    assert script.ready() == [adopted(7), run((), True, 56, None, "decode")]
    assert script.engine.ledger.decodes(7) and not script.engine.attached


def test_with_a_pass_over_layers_under_way_they_wait_for_its_end() -> None:
    script = Script(PrefillFirst(4, 16), loaded=False)
    script.engine.run_layers(LayerPass(((9, 0, 4),), (0, 1), ""), [])
    script.join_batch(7, 6)
    assert script.ready() == []
    script.engine.layers_ran()
    script.engine.freed(actions := list[Action]())
    assert actions[0] == adopted(7)


def test_a_run_may_report_before_it_has_read_the_last_join() -> None:
    """Real workers do: the join follows with the run's next report, and counts from there on."""
    script = Script(PrefillFirst(4, 16))
    script.arrive(0, 4)
    script.ran(1)
    assert script.join_batch(7, 6) == [adopted(7)] and script.join_batch(8, 6) == [adopted(8)]
    engine = script.engine
    engine.ran(Ran(0, 0, 3, (), True, joins=(2,)), [])
    assert engine.ledger.decodes(7) and not engine.ledger.decodes(8)
    assert [progress.id for progress in engine.attached] == [8]
    engine.ran(Ran(0, 0, 2, (), True, joins=(1,)), [])
    assert engine.ledger.decodes(8) and not engine.attached
    contexts = [engine.ledger.context_tokens(request) for request in (0, 7, 8)]
    assert contexts == [4 + 1 + 5, 6 + 1 + 3, 6 + 1 + 1]
