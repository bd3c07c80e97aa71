"""When a loss counts as recovered does not depend on which events the world reports in between."""

from typing import Any

import pytest

from servetwin.results.faults_summary import RecoveryWatch
from serving.vocabulary.events import Event, Lost, Woke


class Serves:
    """A controller after whose events a written number of instances serve."""

    elastic = step_counts = None

    def __init__(self, counts: dict[tuple[int, type], int], first: int) -> None:
        self.counts, self.serving = counts, first

    def handle(self, now_ns: int, event: Event) -> tuple[()]:
        self.serving = self.counts.get((now_ns, type(event)), self.serving)
        return ()


def recovered(counts: dict[tuple[int, type], int], events: list[tuple[int, Event]], first: int = 2) -> Any:
    controller = Serves(counts, first)
    watch = RecoveryWatch(controller)  # type: ignore[arg-type]
    watch._serving = lambda: controller.serving  # type: ignore[method-assign]
    for now_ns, event in events:
        watch.handle(now_ns, event)
    return watch.recovered_ns


LOST, TICK = Lost(0, "gone"), Woke()


@pytest.mark.parametrize("ticks", [[], [TICK], [TICK, TICK]])
def test_a_loss_that_takes_nobody_who_serves_is_recovered_at_once(ticks: list[Event]) -> None:
    events = [(100, LOST), *((200 + n, tick) for n, tick in enumerate(ticks)), (900, TICK)]
    assert recovered({}, events) == {100: 100}


def test_the_losses_of_one_moment_count_together() -> None:
    """The first takes one that loads, the second one that serves."""
    events = [(100, LOST), (100, TICK), (500, TICK), (800, TICK)]
    assert recovered({(100, Woke): 1, (800, Woke): 2}, events) == {100: 800}


def test_without_as_many_it_never_recovers() -> None:
    assert recovered({(100, Lost): 1}, [(100, LOST), (900, TICK)]) == {100: None}
