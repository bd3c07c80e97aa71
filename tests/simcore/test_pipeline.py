"""Replicas in stages: coalesced = step by step = a naive pipeline; closed forms of the bubble."""

from dataclasses import replace
from json import dumps, loads

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.pool import EngineOptions
from serving.record.journal import action_text, event_text, parse_action, parse_event
from serving.vocabulary.actions import Run
from serving.vocabulary.events import Event, Ran
from simcore.pipeline.pipelines import PipelinePlan
from simcore.pipeline.replica import PipelinedReplica
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case
from tests.worlds.naive_pipeline import ToyStages, run_naive_pipeline
from tests.worlds.strategies import NS, cases
from tests.worlds.told_outcomes import assert_told
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, controller_of, requests_of


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Case, ToyStages]:
    """Stages of one shape, of which some are slower by a factor."""
    case = draw(cases())
    while case.batcher != "chunked":
        case = draw(cases())
    rows = case.rows
    assert isinstance(rows, ToyRows)
    stages = [
        replace(
            rows,
            intercept=rows.intercept * factor,
            slope=rows.slope * draw(st.integers(0, 3)),
            mixed_intercept=rows.mixed_intercept * draw(st.integers(1, 3)),
            output_token=0,
        )
        for factor in draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    ]
    per_hop, per_token = draw(st.integers(0, 3 * NS)), draw(st.integers(0, NS))
    case = replace(case, asynchronous=False, prefix_caching=False)
    return case, ToyStages(tuple(stages), per_hop, per_token)


def simulate(
    case: Case, stages: ToyStages, coalesce: bool = True
) -> tuple[Collected, list[PipelinedReplica], Checked, int]:
    options = EngineOptions(
        coalesce=coalesce,
        pipeline_stages=stages.stages,
        max_num_batched_tokens=case.max_num_batched_tokens,
    )
    checked, recorder = Checked(controller_of(case, options=options)), Collected()
    plans = [PipelinePlan(replica, stages) for replica in range(case.replicas)]
    rows = [case.rows] * case.replicas
    simulation = Simulation(checked, requests_of(case), rows, recorder, pipelines=plans)  # type: ignore[arg-type]
    report = simulation.run()
    return recorder, list(simulation.pipelines.of.values()), checked, report.events


def assert_same(case: Case, stages: ToyStages, coalesce: bool = True) -> None:
    recorder, replicas, _, _ = simulate(case, stages, coalesce)
    outcomes, naive = run_naive_pipeline(case, stages)
    assert_told(recorder, outcomes)
    assert [one.shop.computed() for one in replicas] == [one.work for one in naive]


@settings(max_examples=50, deadline=None)
@given(pipelines())
def test_all_agree_with_the_naive_pipeline(drawn: tuple[Case, ToyStages]) -> None:
    assert_same(*drawn)


@settings(max_examples=50, deadline=None)
@given(pipelines())
def test_step_by_step_agrees_too(drawn: tuple[Case, ToyStages]) -> None:
    assert_same(*drawn, coalesce=False)


FLAT = ToyRows(1000 * NS, 0, 0, 1000 * NS, 0)
"""A decode step takes 1,000 ns at a stage, one with prompts too."""


def flat_case(prompts: int, output: int, tokens: int = 64) -> Case:
    """So many prompts of as many tokens as a step may have, which come while one step runs."""
    requests = ((0, 1, 1, 1), *[(1, tokens, output, output)] * prompts)
    return Case("chunked", 1, 16, 10_000, 0, 8, tokens, "round_robin", requests, FLAT)


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_prefill_takes_micro_batches_plus_stages_less_one(micro_batches: int, stages: int) -> None:
    """One prompt of so many chunks, which follow each other through the stages."""
    requests = ((0, 64 * micro_batches, 1, 1),)
    case = Case("chunked", 1, 16, 10_000, 0, 8, 64, "round_robin", requests, FLAT)
    recorder, (replica,), _, _ = simulate(case, ToyStages((FLAT,) * stages, 0, 0))
    assert recorder.done[0][3] == (micro_batches + stages - 1) * 1000
    idle = stages * replica.used_fixed - replica.shop.computed()
    assert idle == stages * (stages - 1) * 1000 * NS, "the bubble of a pipeline that fills and drains"


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4])
def test_steady_decode_gives_each_micro_batch_a_token_per_round_of_all_stages(micro_batches: int) -> None:
    """With fewer micro-batches than stages the others stand still; with as many none does."""
    case = flat_case(micro_batches, 500)
    recorder, (replica,), _, events = simulate(case, ToyStages((FLAT,) * 4, 0, 0))
    assert set(recorder.all_gaps) == {4000 * NS}
    busy = replica.shop.computed() / (4 * replica.used_fixed)
    assert busy == pytest.approx(micro_batches / 4, abs=0.01)
    assert events <= 4 * micro_batches + 6


def test_the_slowest_stage_sets_the_pace_when_all_micro_batches_are_there() -> None:
    """Four micro-batches wait for the stage that takes three times as long: a token every 12 steps."""
    slow = replace(FLAT, intercept=3000 * NS, mixed_intercept=3000 * NS)
    recorder, _, _, _ = simulate(flat_case(4, 400), ToyStages((FLAT, slow, FLAT, FLAT), 0, 0))
    gaps = sorted(recorder.all_gaps)
    assert gaps[len(gaps) // 2] == 12_000 * NS


def test_activations_take_their_way_between_stages() -> None:
    recorder, _, _, _ = simulate(flat_case(1, 20), ToyStages((FLAT,) * 3, 40 * NS, NS))
    assert set(recorder.all_gaps) == {(3000 + 2 * (40 + 1)) * NS}
    assert recorder.done[1][2] - recorder.done[0][2] == 3000 + 2 * (40 + 64)


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_events_do_not_grow_with_the_output(micro_batches: int) -> None:
    growing = ToyStages((replace(FLAT, slope=NS // 7), replace(FLAT, slope=NS // 5)) * 2, NS, NS // 3)
    few, many = (simulate(flat_case(micro_batches, output), growing)[3] for output in (100, 5000))
    assert few == many


def test_prompts_that_are_computed_and_requests_that_end_need_no_new_run() -> None:
    """Where nobody waits: it comes, is taken in at the end of a step, and ends."""
    requests = ((0, 8, 400, 400), *[(9_000 * number, 30, 40, 40) for number in range(1, 41)])
    case = Case("chunked", 1, 16, 10_000, 0, 8, 64, "round_robin", requests, FLAT)
    _, _, checked, events = simulate(case, ToyStages((FLAT,) * 3, 0, 0))
    assert events <= 3 * len(requests)
    runs = sum([text.count('["run",') for text in checked.lines])
    assert runs <= len(requests) + 3
    assert_same(case, ToyStages((FLAT,) * 3, 0, 0))


def test_a_request_that_ends_with_its_prompt_had_chunks_in_batches_that_are_booked_later() -> None:
    """The first micro-batch is empty again when the second takes the first chunk: it gets the last one."""
    requests = ((0, 1, 30, 30), (1, 64, 60, 60), (80_000, 100, 1, 1))
    case = Case("chunked", 1, 16, 10_000, 0, 8, 64, "round_robin", requests, FLAT)
    assert_same(case, ToyStages((FLAT,) * 2, 0, 0))


def test_reports_and_runs_of_micro_batches_come_back_from_the_journal() -> None:
    run = Run(3, 0, ((1, 0, 5),), True, 7, True, "chunked", micro_batch=2)
    ran = Ran(3, 0, 4, (1,), False, -1, (), 2, (1, 0, 4))
    assert parse_action(loads(action_text(run))) == run
    assert parse_event(loads(event_text(ran))) == ran


def test_a_journal_replays() -> None:
    growing = ToyStages((replace(FLAT, slope=NS // 7), FLAT), NS, 0)
    case = flat_case(3, 90)
    _, _, checked, _ = simulate(case, growing)
    fresh = controller_of(case, options=OPTIONS)
    for text in checked.lines:
        now_ns, event, actions = loads_line(text)
        assert [action_text(one) for one in fresh.handle(now_ns, event)] == actions


OPTIONS = EngineOptions(pipeline_stages=2, max_num_batched_tokens=64)


def loads_line(text: str) -> tuple[int, Event, list[str]]:
    now_ns, event, actions = loads(text)
    return now_ns, parse_event(event), [dumps(one, separators=(",", ":")) for one in actions]
