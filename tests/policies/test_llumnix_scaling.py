"""Auto-scaling in a band of average freeness, on reports whose numbers can be worked out by hand."""

from typing import Any

import pytest

from policies.llumnix.scaling import FreenessBand
from serving.protocols.load_report import LoadReport
from serving.protocols.scaling import FixedRole, InstanceView, ScalingView


def report(free: int, running: int, waiting: int = 0, waiting_tokens: int = 0) -> LoadReport:
    return LoadReport(100, 1, 16, free, running, waiting, 0, waiting_tokens, waiting_tokens)


def view(*instances: InstanceView, spare: int = 4, now_s: float = 200, **more: Any) -> ScalingView:
    role = FixedRole("both", instances, more.pop("least", 1), more.pop("most", 16))
    return ScalingView(round(now_s * 1e9), "m", (role,), 0, 1, 0, 1.0, 1, 1.0, spare, **more)


def serving(id: int, one: LoadReport) -> InstanceView:
    return InstanceView(id, "serving", one.running + one.waiting, None, one)


def draining(id: int, one: LoadReport) -> InstanceView:
    return InstanceView(id, "draining", one.running, None, one)


def acts(scaler: FreenessBand, seen: ScalingView) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(one.act, one.count, one.instances) for one in scaler.scale(seen)]


def test_nothing_is_decided_within_the_band() -> None:
    assert acts(FreenessBand(), view(serving(0, report(41, 2)), serving(1, report(61, 2)))) == []


def test_as_many_come_as_lift_the_average_to_the_band() -> None:
    """40 requests want 400 blocks; 2 x 9 are free: with 4 instances of 100 more there are 418."""
    seen = view(serving(0, report(10, 20)), serving(1, report(10, 20)))
    assert acts(FreenessBand(), seen) == [("load", 4, ())]
    assert acts(FreenessBand(), view(*seen.roles[0].in_state("serving"), spare=3)) == [
        ("load", 3, ()), ("shortage", 1, ()),
    ]  # fmt: skip
    assert acts(FreenessBand(), view(*seen.roles[0].in_state("serving"), most=3)) == [("load", 1, ())]


def test_all_who_wait_count_with_their_demand() -> None:
    """99 free blocks less 96 of a prompt that waits, over 2 requests; without it 99 over 1."""
    waits = report(100, 1, 1, 96 * 16)
    assert acts(FreenessBand(), view(serving(0, waits))) == [("load", 1, ())]


def test_nothing_more_comes_while_some_load() -> None:
    full = serving(0, report(10, 20))
    assert acts(FreenessBand(), view(full, InstanceView(1, "loading"))) == []


def test_one_that_drains_serves_on_before_another_loads() -> None:
    seen = view(serving(0, report(10, 20)), draining(1, report(60, 3)))
    assert acts(FreenessBand(), seen) == [("cancel_drain", 1, (1,))]


def test_the_highest_id_goes_when_the_others_have_room_for_its_requests() -> None:
    """3 x 90 - 100 free, less 2 watermarks, over 2 requests: 84 and above 60. Over 3: 56."""
    two = [serving(0, report(90, 1)), serving(1, report(90, 1)), serving(7, report(90, 0))]
    assert acts(FreenessBand(), view(*two)) == [("drain", 1, (7,))]
    three = [serving(0, report(90, 1)), serving(1, report(90, 1)), serving(7, report(90, 1))]
    assert acts(FreenessBand(), view(*three)) == []


def test_all_who_wait_count_with_their_demand_before_one_goes() -> None:
    """3 x 100 - 100 free, less 2 watermarks and 80 that two want, over 1 that runs and 1: 59. With 70: 64."""
    for waiting, drained in (([40, 40], []), ([35, 35], [("drain", 1, (7,))])):
        both = [serving(id, report(100, id, 1, blocks * 16)) for id, blocks in enumerate(waiting)]
        assert acts(FreenessBand(), view(*both, serving(7, report(100, 0)))) == drained


def test_one_drains_at_a_time_and_the_least_stay() -> None:
    idle = serving(0, report(100, 0))
    assert acts(FreenessBand(), view(idle)) == []
    assert acts(FreenessBand(), view(idle, serving(1, report(100, 0)), draining(2, report(90, 1)))) == []


def test_as_in_the_paper_the_one_with_the_fewest_running_requests_goes() -> None:
    """Freeness in iterations: 1,440 / 2, 1,440 / 1 and 1,440 / 3 tokens, on average 880."""
    seen = view(serving(0, report(90, 2)), serving(1, report(90, 1)), serving(2, report(90, 3)))
    assert acts(FreenessBand("paper"), seen) == [("drain", 1, (1,))]
    full = view(serving(0, report(5, 20)), serving(1, report(2, 20)))
    assert acts(FreenessBand("paper"), full) == [("load", 1, ())]


def test_before_the_first_look_only_the_least_come() -> None:
    scaler = FreenessBand(first_look_s=110)
    assert acts(scaler, view(serving(0, report(10, 20)), now_s=100)) == []
    assert acts(scaler, view(now_s=1)) == [("load", 1, ())]


def test_empty_instances_change_nothing_by_themselves() -> None:
    scaler = FreenessBand()
    assert scaler.no_change_until_ns(view(serving(0, report(100, 0)))) > 200e9
    assert scaler.no_change_until_ns(view(serving(0, report(90, 1)))) == 200e9


@pytest.mark.parametrize(("key", "value"), [("rule", "other"), ("low", -1.0), ("width", float("inf"))])
def test_parameters_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        FreenessBand(**{key: value})
