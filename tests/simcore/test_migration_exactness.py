"""Running requests migrate: coalesced = step by step, and no token is lost or repeated."""

from collections import Counter
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.vocabulary.events import Ran
from tests.worlds.migrating import Played, Setting, play
from tests.worlds.naive_engine import Case
from tests.worlds.strategies import cases
from tests.worlds.toy_rows import ToyRows

NS = 1 << 24
ROWS = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5)
BUSY = Case(
    "prefill_first", 3, 4, 40, 1, 8, 32, "round_robin",
    tuple((n * 7, 5 + n % 9, 30 + (n * 37) % 90, 120) for n in range(14)), ROWS,
)  # fmt: skip


@st.composite
def migrating(draw: st.DrawFn) -> Setting:
    """Any case on 2 to 4 instances; stages last less than a step or many of them.

    Nobody waits longer than 200 steps for the next arrival: pairs are made once in a few steps all the time.
    """
    case = draw(cases())
    step_ns = max(1, case.rows.intercept >> 24)
    now_ns, last_ns, requests = 0, 0, []
    for arrival_ns, *lengths in case.requests:
        now_ns += min(arrival_ns - last_ns, 200 * step_ns)
        last_ns = arrival_ns
        requests.append((now_ns, *lengths))
    case = replace(case, replicas=draw(st.integers(2, 4)), requests=tuple(requests))
    return Setting(
        case,
        seed=draw(st.integers(0, 2**16)),
        mode=draw(st.sampled_from(("live", "live", "live", "stop_and_copy", "recompute"))),
        last_stage_blocks=draw(st.sampled_from((1, 1, 2, 16))),
        max_stages=draw(st.integers(1, 4)),
        control_ns=draw(st.sampled_from((0, 1, step_ns, 10 * step_ns))),
        token_ns=step_ns * draw(st.sampled_from((0.02, 0.2, 1.0, 5.0))),
        period_ns=step_ns * draw(st.sampled_from((1, 3, 9))),
    )


def assert_whole(setting: Setting, played: Played) -> None:
    """Every request ended once with all its tokens, and its gaps add up; blocks are all free again."""
    outputs = {id: min(one[2], one[3]) for id, one in enumerate(setting.case.requests)}
    done, refused = played.recorder.done, played.recorder.refusals
    assert sorted([*done, *refused]) == sorted(outputs)
    assert all(outputs[id] == tokens for id, (_, tokens, _, _, _) in done.items())
    assert len(played.recorder.all_gaps) == sum(tokens - 1 for _, tokens, _, _, _ in done.values())
    spans_ns = sum(finish_ns - first_ns for _, _, first_ns, finish_ns, _ in done.values())
    assert abs(sum(played.recorder.all_gaps) - (spans_ns << 24)) <= len(done) << 24
    for engine in played.controller.engines.values():
        assert set(engine.ledger.holders()) <= set(engine.ended) and not engine.attached


@given(setting=migrating())
@settings(max_examples=300)
@example(setting=Setting(BUSY))
@example(setting=Setting(replace(BUSY, asynchronous=True)))
@example(setting=Setting(BUSY, mode="stop_and_copy"))
@example(setting=Setting(replace(BUSY, asynchronous=True), mode="recompute"))
def test_coalesced_equals_step_by_step(setting: Setting) -> None:
    coalesced, exact = play(setting), play(setting, coalesce=False)
    assert coalesced.records == exact.records
    assert coalesced.recorder.done == exact.recorder.done
    assert sorted(coalesced.recorder.all_gaps) == sorted(exact.recorder.all_gaps)
    assert_whole(setting, coalesced)


class CountsContexts:
    """A controller in exact mode: at its end a request has as much context as prompt and output make."""

    def __init__(self, inner, outputs: dict[int, int]) -> None:  # type: ignore[no-untyped-def]
        self.inner, self.outputs, self.counted = inner, outputs, 0

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self.inner, name)

    def handle(self, now_ns: int, event):  # type: ignore[no-untyped-def]
        if type(event) is Ran and event.steps == 1:
            ledger = self.inner.engines[event.replica].ledger
            for request in event.finished:
                if ledger.decodes(request):
                    prompt = self.inner.requests[request].prompt_tokens
                    assert ledger.context_tokens(request) + 1 == prompt + self.outputs[request]
                    self.counted += 1
        return self.inner.handle(now_ns, event)


@given(setting=migrating())
@settings(max_examples=100)
def test_the_ledger_counts_every_token_once(setting: Setting) -> None:
    outputs = {id: min(one[2], one[3]) for id, one in enumerate(setting.case.requests)}
    play(setting, coalesce=False, wrap=lambda one: CountsContexts(one, outputs))  # type: ignore[arg-type,return-value]


def test_a_busy_world_shows_commits_refusals_and_finishes() -> None:
    """What the drawn cases rest on: migrations do happen in such worlds."""
    found = Counter(one.outcome for one in play(Setting(BUSY)).records)
    assert found["committed"] > 5 and found["refused"] > 5 and found["finished"] > 0


def test_a_migration_costs_a_few_reports_and_none_per_token() -> None:
    """A copy that takes a thousand steps is told of no more often than one that takes ten."""
    case = Case(
        "prefill_first", 2, 16, 4000, 0, 8, 4096, "round_robin",
        ((0, 600, 3000, 3000), (0, 8, 3000, 3000), (1, 600, 3000, 3000)), ROWS,
    )  # fmt: skip
    short, long = [
        play(Setting(case, token_ns=token_ns, period_ns=30_000, max_stages=8, last_stage_blocks=4))
        for token_ns in (0.5, 10.0)
    ]
    assert {one.outcome for one in (*short.records, *long.records)} == {"committed"}
    assert max(one.ended_ns - one.begun_ns for one in long.records) > 5_000
    for played in (short, long):
        looks = sum('["woke"]' in line for line in played.lines)
        stages = sum(one.stages for one in played.records)
        # Three requests come and go, twice each; a stage is one transfer and at most four reports.
        assert played.events - looks < 14 + 5 * stages, (played.events, looks, stages)
