"""What is due by the clock: the next request, and the controller's wake."""

import pytest

from realexec.world.arrivals import Arrivals
from realexec.world.due import Due
from realexec.world.tracking import Tracker
from serving.vocabulary.events import Arrived, Event, Woke
from serving.vocabulary.request import Request
from tests.worlds.told_workers import NobodyRecords


class Asked:
    def __init__(self, wake_ns: int | None) -> None:
        self.wake_ns = wake_ns


def due(waker: Asked, *arrivals_ns: int) -> Due:
    requests = [(Request(number, at, 4, 8, "m"), 2) for number, at in enumerate(arrivals_ns)]
    return Due(Arrivals(requests, 0, 100), Tracker(NobodyRecords(), 1), waker)


@pytest.mark.parametrize(
    ("wake_ns", "arrival_ns", "now_ns", "first"),
    [
        (None, 50, 49, None),
        (None, 50, 50, Arrived),
        (40, 50, 39, None),
        (40, 50, 45, Woke),
        (40, 50, 60, Woke),
        (50, 50, 60, Arrived),
        (60, 50, 70, Arrived),
    ],
)
def test_the_earlier_is_taken_first_and_nothing_before_its_time(
    wake_ns: int | None, arrival_ns: int, now_ns: int, first: type[Event] | None
) -> None:
    waker = Asked(wake_ns)
    taken = due(waker, arrival_ns).take(now_ns)
    assert taken is None if first is None else isinstance(taken, first)
    assert waker.wake_ns == (None if first is Woke else wake_ns)


def test_a_controller_is_woken_after_the_last_arrival_and_told_once() -> None:
    waker = Asked(70)
    left = due(waker, 50, 60)
    assert left.times_ns() == [50, 70]
    events = [left.take(100) for _ in range(4)]
    assert [type(one) for one in events] == [Arrived, Arrived, Woke, type(None)]
    assert left.times_ns() == [] and not left.has_arrivals and list(left.lateness_ns) == [50, 40]
