"""What scaling costs, from made-up events."""

from typing import Any

import numpy as np
import pytest

from servetwin.report.table import flapping
from servetwin.results.control_cost import control_section, reversals_s
from serving.protocols.scaling import ScaleEvent
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.units import NS_PER_S


def event(at_s: float, act: str, replica: int = 1, role: Role = "both", model: str = "m") -> ScaleEvent:
    return ScaleEvent(round(at_s * NS_PER_S), act, model=model, role=role, replica=replica, reason="made up")


def placed(count: int = 1) -> list[Replica]:
    return [
        Replica(
            id=number,
            model="m",
            layers=LayerRange(0, 1),
            gpus=(2 * number, 2 * number + 1),
            kv_blocks=10,
        )
        for number in range(count)
    ]


def section_of(
    events: list[ScaleEvent], arrivals_s: list[float], work_gpu_s: float, span_s: float
) -> dict[str, Any]:
    arrival_ns = np.array([round(at_s * NS_PER_S) for at_s in arrivals_s], dtype=np.int64)
    return control_section(
        events,
        placed(),
        gpus_of={"m": 2},
        fewest_gpus=2,
        arrival_ns=arrival_ns,
        work_gpu_s=np.full(len(arrivals_s), work_gpu_s),
        span_s=span_s,
        gpu_seconds=300.0,
    )["control"]


def test_only_changes_that_turn_back_soon_are_reversals() -> None:
    """Of the same model and role; each change is compared with the one before it."""
    turned = [
        event(0, "load"), event(10, "ready"), event(20, "drain"),  # 1
        event(25, "load", role="prefill"), event(30, "drain", model="other"),
        event(319, "cancel_drain"),  # 2, 299 s after the drain
        event(320, "load"), event(621, "drain"),  # 301 s
    ]  # fmt: skip
    assert reversals_s(turned) == [20.0, 319.0]


def test_gpus_too_few_and_too_many_by_hand() -> None:
    """2 GPUs serve, 4 from 10 s to 20 s. Work of 20 GPU-seconds in each period wants 4, and 0 wants none."""
    events = [event(4, "load"), event(10, "ready"), event(20, "drain"), event(22, "released")]
    control = section_of(events, [1, 6, 11], 20.0, 30.0)
    assert control["under_provisioned_s"] == 10.0  # until the second instance serves
    assert control["overload_to_capacity_s"] == {"count": 1, "mean": 10.0, "max": 10.0}
    assert control["over_provisioned_s"] == 5.0  # from 15 s to 20 s; the fewest are never too many
    assert control["gpu_seconds_bound"] == 60.0 and control["over_bound"] == 5.0
    assert (control["starts"], control["stops"], control["reversals"]) == (1, 1, 1)


def test_the_fewest_instances_bound_an_idle_run() -> None:
    control = section_of([], [1], 1.0, 100.0)
    assert control["gpu_seconds_bound"] == 200.0 and control["over_bound"] == 1.5


@pytest.mark.parametrize(("gap_s", "constant"), [(1.0, True), (None, False)])
def test_flapping_is_said_at_constant_load_only(gap_s: float | None, constant: bool) -> None:
    arrivals = [float(at) for at in range(600)] if gap_s else [float(at % 60) for at in range(600)]
    turns = [event(100 + 10 * i, "load" if i % 2 else "drain") for i in range(5)]
    control = section_of(turns, arrivals, 0.1, 600.0)
    assert control["constant_load_reversals"] == (4 if constant else None)
    assert len(flapping({"control": control})) == constant
