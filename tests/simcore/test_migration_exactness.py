"""Running requests migrate: coalesced = step by step, and no token is lost or repeated."""

from collections import Counter
from dataclasses import replace

from hypothesis import example, given, settings

from serving.vocabulary.events import Ran
from tests.worlds.migrating import Setting, assert_whole, play
from tests.worlds.migrating_cases import BUSY, ROWS, migrating
from tests.worlds.naive_engine import Case


@given(setting=migrating())
@settings(max_examples=75)
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
@settings(max_examples=33)
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
