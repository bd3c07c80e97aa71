"""Llumnix with priorities: coalesced = step by step."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.engine.progress import Order
from tests.worlds.migrating import Played, Setting, play
from tests.worlds.migrating_cases import BUSY, migrating
from tests.worlds.naive_engine import Case


def played(setting: Setting, coalesce: bool, rule: str, target_tokens: int) -> Played:
    migrator = Llumnix(rule, 2.0, rounds=1, high_priority_target_tokens=target_tokens)
    dispatcher = Freeness(rule, high_priority_target_tokens=target_tokens)
    return play(setting, coalesce, migrator=migrator, dispatcher=dispatcher)


def assert_same(setting: Setting, rule: str, target_tokens: int) -> Played:
    coalesced, exact = (played(setting, coalesce, rule, target_tokens) for coalesce in (True, False))
    assert coalesced.records == exact.records
    assert coalesced.recorder.done == exact.recorder.done
    assert sorted(coalesced.recorder.all_gaps) == sorted(exact.recorder.all_gaps)
    return coalesced


def lasts(setting: Setting) -> bool:
    """Whether every step takes a nanosecond: else several reports come at one instant, in another order."""
    rows = setting.case.rows
    return min(rows.intercept, rows.mixed_intercept) >= 1 << 24


@given(
    setting=migrating().filter(lasts),
    rule=st.sampled_from(("shipped", "paper")),
    target_tokens=st.sampled_from((1, 16, 200)),
    urgent=st.lists(st.sampled_from((0, 0, 1)), min_size=40, max_size=40),
    order=st.sampled_from(("priority", "before_last")),
)
@settings(max_examples=30)
def test_both_modes_do_the_same(
    setting: Setting, rule: str, target_tokens: int, urgent: list[int], order: Order
) -> None:
    priorities = tuple(urgent[: len(setting.case.requests)])
    case = replace(setting.case, priorities=priorities)
    assert_same(replace(setting, case=case, order=order), rule, target_tokens)


CROWDED: Case = replace(BUSY, priorities=tuple(int(n % 5 == 2) for n in range(len(BUSY.requests))))


def test_in_a_busy_world_requests_move_in_both_modes_alike() -> None:
    done, before_last = (
        assert_same(Setting(CROWDED, order=order), "paper", 16) for order in ("priority", "before_last")
    )
    assert (
        sorted(done.recorder.done) == sorted(before_last.recorder.done) == list(range(len(CROWDED.requests)))
    )
    assert [one.outcome for one in done.records].count("committed") > 0
    assert done.recorder.done != before_last.recorder.done
