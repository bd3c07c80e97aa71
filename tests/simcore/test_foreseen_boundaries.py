"""Two ends of a migration that halt by one question to the driver do as those that report every step."""

import json
from dataclasses import replace
from random import Random

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.controller import Controller
from serving.record.journal import header_text
from serving.record.replay import replay
from tests.worlds.drawing import on_drawn_seeds
from tests.worlds.drawn_reports import drawn_setting
from tests.worlds.migrating import SHAPE, Played, Setting, controller_of, play
from tests.worlds.migrating_cases import BUSY


def blind(controller: Controller) -> Controller:
    """The driver is not asked when a step ends, as one of real workers could not tell."""
    service: object = controller.services[SHAPE.name]
    service.migrations._foresees = False  # type: ignore[attr-defined]
    return controller


def played(setting: Setting, rule: str = "shipped", *, asks: bool = True, coalesce: bool = True) -> Played:
    wrap = (lambda one: one) if asks else blind
    return play(setting, coalesce, None, Llumnix(rule, 6.0, rounds=1), wrap, Freeness(rule))


def answers_of(line: str) -> list[int]:
    _, _, _, *answers = json.loads(line)
    return answers[0] if answers else []


def boundaries(told: Played) -> list[int]:
    """The answers that are boundaries, negated as they are written."""
    return [one for line in told.lines for one in answers_of(line) if one < 0]


BUSY_ONE = Setting(replace(BUSY, asynchronous=False), reports_at="step_ends", freeness=True)


@on_drawn_seeds((0, 60))
def test_asked_or_told_of_every_step_the_same_comes_out(seed: int) -> None:
    """Ten worlds from each seed on, with steps that a copy slows down in half of them."""
    for number in range(seed, seed + 10):
        random = Random(f"foreseen {number}")
        setting = replace(drawn_setting(random), slowdown_ppm=random.choice((0, 10_000, 700_000)))
        rule = random.choice(("shipped", "paper"))
        one = played(setting, rule)
        for other in (played(setting, rule, asks=False), played(setting, rule, coalesce=False)):
            assert one.records == other.records, f"seed {number}"
            assert one.recorder.done == other.recorder.done, f"seed {number}"
            assert sorted(one.recorder.all_gaps) == sorted(other.recorder.all_gaps), f"seed {number}"


def test_fewer_events_and_the_destination_is_not_halted() -> None:
    asked, told = played(BUSY_ONE), played(BUSY_ONE, asks=False)
    assert asked.records == told.records and len(asked.records) > 10
    assert asked.events < told.events - 2 * len(asked.records) // 3
    assert boundaries(asked) and not boundaries(told)


def test_an_asynchronous_engine_and_one_that_reports_every_step_are_not_asked() -> None:
    assert not boundaries(played(replace(BUSY_ONE, case=replace(BUSY, asynchronous=True))))
    assert not boundaries(played(BUSY_ONE, coalesce=False))


def test_journals_with_and_without_boundaries_replay() -> None:
    for asks in (True, False):
        told = played(BUSY_ONE, asks=asks)
        lines = [header_text({"carries_out": []}), *told.lines]
        fresh = controller_of(BUSY_ONE, migrator=Llumnix("shipped", 6.0, rounds=1), dispatcher=Freeness())
        report = replay(lines, fresh)
        assert (report.different, report.first_difference) == (0, None)


def test_a_boundary_that_is_not_asked_for_is_a_difference() -> None:
    told = played(BUSY_ONE)
    at = next(number for number, line in enumerate(told.lines) if min(answers_of(line), default=0) < 0)
    now_ns, event, answered, answers = json.loads(told.lines[at])
    lines = list(told.lines)
    lines[at] = json.dumps([now_ns, event, answered, [one for one in answers if one >= 0]])
    fresh = controller_of(BUSY_ONE, migrator=Llumnix("shipped", 6.0, rounds=1), dispatcher=Freeness())
    report = replay([header_text({"carries_out": []}), *lines], fresh)
    assert report.different and "a request migrates" in str(report.first_difference)
