"""Virtual engines over pipeline stages: coalesced = step by step = a naive pipeline; the bubble."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.pool import EngineOptions
from simcore.pipeline.pipelines import PipelinePlan
from simcore.pipeline.replica import PipelinedReplica
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case
from tests.worlds.naive_pipeline import ToyStages
from tests.worlds.naive_virtual import run_naive_virtual
from tests.worlds.strategies import NS, cases
from tests.worlds.told_outcomes import assert_told
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected, controller_of, requests_of


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Case, ToyStages]:
    """Stages of one shape, of which some are slower by a factor; a part of the blocks holds what came in."""
    case = draw(cases())
    rows = case.rows
    assert isinstance(rows, ToyRows)
    stages = tuple(
        replace(
            rows,
            intercept=rows.intercept * factor,
            slope=rows.slope * draw(st.integers(0, 3)),
            mixed_intercept=rows.mixed_intercept * draw(st.integers(1, 3)),
            output_token=0,
        )
        for factor in draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    )
    blocks = case.total_blocks * len(stages) + draw(st.integers(0, 3))
    plain = replace(case, batcher="prefill_first", reserve_full_prompt=False, priorities=())
    spare = draw(st.booleans())
    case = replace(
        plain, asynchronous=False, prefix_caching=False, total_blocks=blocks, decode_spare_block=spare,
        watermark_blocks=case.watermark_blocks * len(stages),
    )  # fmt: skip
    hop, token = draw(st.integers(0, 3 * NS)), draw(st.integers(0, NS))
    return case, ToyStages(stages, hop, token, draw(st.sampled_from((0, 0, NS // 3))))


def simulate(
    case: Case, stages: ToyStages, coalesce: bool = True
) -> tuple[Collected, list[PipelinedReplica], int]:
    options = EngineOptions(coalesce=coalesce, pipeline_stages=stages.stages)
    controller = controller_of(case, options=options, kv_pools=stages.stages)
    checked, recorder = Checked(controller), Collected()
    plans = [PipelinePlan(replica, stages, True) for replica in range(case.replicas)]
    rows = [case.rows] * case.replicas
    simulation = Simulation(checked, requests_of(case), rows, recorder, pipelines=plans)  # type: ignore[arg-type]
    report = simulation.run()
    return recorder, list(simulation.pipelines.of.values()), report.events


def assert_same(case: Case, stages: ToyStages, coalesce: bool = True) -> None:
    recorder, replicas, _ = simulate(case, stages, coalesce)
    outcomes, naive = run_naive_virtual(case, stages)
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
"""A step takes 1,000 ns at a stage."""


def flat_case(prompts: int, output: int) -> Case:
    """So many prompts at one moment; each is handed to the virtual engine with the fewest requests."""
    requests = ((0, 1, 1, 1), *[(1, 64, output, output)] * prompts)
    return Case("prefill_first", 1, 16, 10_000, 0, 8, 4096, "round_robin", requests, FLAT)


@pytest.mark.parametrize("requests", [1, 2, 3, 4])
def test_each_virtual_engine_has_a_token_per_round_of_all_stages(requests: int) -> None:
    """Four stages: m requests are m micro-batches, each stage computes m / 4 of the time."""
    recorder, (replica,), events = simulate(flat_case(requests, 500), ToyStages((FLAT,) * 4, 0, 0))
    assert set(recorder.all_gaps) == {4000 * NS}
    assert replica.shop.computed() / (4 * replica.used_fixed) == pytest.approx(requests / 4, abs=0.01)
    assert events <= 4 * requests + 6


def test_with_more_requests_than_stages_no_stage_stands_still() -> None:
    """Twelve requests are four micro-batches of three; no bubble, but for filling and draining."""
    recorder, (replica,), _ = simulate(flat_case(12, 500), ToyStages((FLAT,) * 4, 0, 0))
    assert replica.shop.computed() / (4 * replica.used_fixed) > 0.99
    assert sorted(recorder.all_gaps)[len(recorder.all_gaps) // 2] == 4000 * NS


def test_the_slowest_stage_sets_the_pace() -> None:
    slow = replace(FLAT, intercept=3000 * NS, mixed_intercept=3000 * NS)
    recorder, _, _ = simulate(flat_case(4, 400), ToyStages((FLAT, slow, FLAT, FLAT), 0, 0))
    gaps = sorted(recorder.all_gaps)
    assert gaps[len(gaps) // 2] == 12_000 * NS


def test_a_request_has_a_part_of_the_memory() -> None:
    """100 blocks of 16 tokens in four parts: 25 each, so 400 tokens are the longest."""
    for tokens, refused in ((200, False), (201, True)):
        case = Case("prefill_first", 1, 16, 100, 0, 8, 4096, "round_robin", ((0, 200, tokens, tokens),), FLAT)
        recorder, _, _ = simulate(case, ToyStages((FLAT,) * 4, 0, 0))
        assert bool(recorder.refusals) == refused


@pytest.mark.parametrize("requests", [1, 2, 4])
def test_events_do_not_grow_with_the_output(requests: int) -> None:
    growing = ToyStages((replace(FLAT, slope=NS // 7), replace(FLAT, slope=NS // 5)) * 2, NS, NS // 3)
    few, many = (simulate(flat_case(requests, output), growing)[2] for output in (100, 5000))
    assert few == many
