"""Slow policies are told, from looks that cost the loop nothing."""

import sys
import time
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from policies.dispatch import LeastOutstanding
from servetwin.config.compose.compose import load_config
from servetwin.config.policy.watch import PolicyWatch, slow_policies
from servetwin.report.table import print_summary
from servetwin.run.simulate import execute, prepare
from serving.protocols.scale_answers import CheckedScaler
from tests.worlds.faulty_policies import VIEW

STATIC = [
    "engine.front_end=none",
    "trace=azure_conv_like",
    "trace.requests=12",
    "trace.tokens_scale=0.2",
    "cluster=a100_x2",
    "system=vllm",
]
DISPATCH = f"system/dispatch={__name__}:Watched"


class Watched:
    """The shipped dispatcher, looked at from inside, with a clock of the test's own."""

    watch = PolicyWatch()
    now_ns = 0

    def dispatch(self, request: Any, fleet: Any) -> Any:
        frame = sys._getframe()
        Watched.now_ns = request.arrival_ns
        self.watch.look(10.0 * request.id, frame)
        self.watch.look(10.0 * request.id + (0.25 if request.id == 3 else 0.001), frame)
        return LeastOutstanding().dispatch(request, fleet)


def test_looks_find_the_policy_the_call_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(load_config([*STATIC, DISPATCH, "out=unused"], "simulate"))
    watch = PolicyWatch(lambda: Watched.now_ns)
    monkeypatch.setattr(Watched, "watch", watch)
    execute(prepared)
    watch.look(1000.0, sys._getframe())
    found = watch.section()
    assert (watch.looks, watch.looks_at_policies) == (25, 24) and found["time_share"] == 24 / 25
    call = found["slowest_call"]
    assert call["policy"] == f"{__name__}:Watched" and call["method"] == "dispatch"
    assert call["ms"] == pytest.approx(250) and call["at_s"] == pytest.approx(
        prepared.workload.arrival_ns[3] / 1e9
    )
    assert slow_policies(found).startswith(
        f"the slowest call, {__name__}:Watched.dispatch at {call['at_s']:.6g} s of the run"
    )


def test_a_scaler_is_found_by_what_it_is_asked() -> None:
    watch = PolicyWatch(lambda: 0)

    class Slow:
        def scale(self, view: Any) -> Any:
            for now_s in (0.0, 0.3):
                watch.look(now_s, sys._getframe())
            return ()

    CheckedScaler(Slow()).scale(VIEW)
    assert watch.slowest is not None and (watch.slowest.method, watch.slowest.at_ns) == ("scale", 0)
    assert watch.slowest.policy.endswith("Slow")


def test_the_thread_looks_where_the_loop_is() -> None:
    class Sleeps:
        def scale(self, view: Any) -> Any:
            began_s = time.monotonic()
            while watch.looks_at_policies < 3 and time.monotonic() < began_s + 60:
                time.sleep(0.01)
            return ()

    with PolicyWatch() as watch:
        CheckedScaler(Sleeps()).scale(VIEW)
    assert watch.slowest is not None and watch.slowest.policy.endswith("Sleeps") and watch.slowest.ms > 0


@pytest.mark.parametrize(
    ("share", "looks", "ms", "told"),
    [
        (0.6, 100, 1.0, "policies took 60 % of the loop's time; the slowest call"),
        (0.6, 10, 1.0, ""),  # too few looks to say so
        (0.4, 100, 99.0, ""),
        (0.4, 100, 101.0, "the slowest call, m:P.scale at 1 s of the run, took 101 ms or more"),
    ],
)
def test_it_is_told_when_it_matters(share: float, looks: int, ms: float, told: str) -> None:
    call = {"policy": "m:P", "method": "scale", "ms": ms, "at_s": 1.0}
    found = {"time_share": share, "looks": looks, "slowest_call": call}
    assert slow_policies(found).startswith(told) and bool(slow_policies(found)) == bool(told)
    console = Console(file=StringIO(), width=200)
    print_summary({"sim": {"policies": found}}, console)
    # Type: ignore[attr-defined]
    assert (told in console.file.getvalue()) and bool(told) == ("slowest" in console.file.getvalue())
    assert slow_policies({}) == ""
