"""How soon new instances take over a running request."""

from servetwin.results.migration_summary import spans
from serving.protocols.scaling import ScaleEvent


def events(*acts: tuple[int, str]) -> list[ScaleEvent]:
    return [ScaleEvent(at_ns, act, "m", "both", 3, "why") for at_ns, act in acts]


def test_it_counts_from_the_decision_and_from_the_load_to_the_first_commit() -> None:
    came = events((10, "load"), (50, "ready"))
    assert spans(came, [5, 60, 90]) == [(50, 10)]
    assert spans(came, [5, 40]) == [] and spans(came, []) == []


def test_each_time_that_it_comes_counts_for_itself() -> None:
    own = events((10, "load"), (50, "ready"), (80, "released"), (100, "load"), (130, "ready"))
    assert spans(own, [70, 150]) == [(60, 20), (50, 20)]
    assert spans(own, [150]) == [(50, 20)], "the first time nobody came"
    assert spans(events((10, "load"), (20, "lost"), (30, "load"), (40, "ready")), [41]) == [(11, 1)]
