"""Measures the share of a loop's time in policies, and the slowest call, from another thread.

A thread samples the watched thread's position every ``PERIOD_S``. Between two samples nothing is measured, so
the loop pays for no clock. A call shorter than a period may be missed, one of several periods is not. Results
go only into summary and console, never into virtual time, the journal or the rows of requests.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, Final

from servetwin.config.policy.groups import POLICY_GROUPS
from serving.protocols.policy_faults import name_of
from serving.vocabulary.units import NS_PER_S

PERIOD_S: Final = 0.02
# Period beside real workers, whose runs last seconds with an idle loop: a sample wakes the process up.
SPARING_PERIOD_S: Final = 0.1
SLOW_SHARE: Final = 0.5
SLOW_CALL_MS: Final = 100.0
# Methods of policies. A policy in native code has no frame and is not seen: only this package has those.
_METHODS: Final = frozenset(method for group in POLICY_GROUPS.values() for method in group.method_names)
# Packages with own methods of these names; in the last one, the loop of a run over servers waits.
_ASKING: Final = frozenset(("serving", "simcore", "realexec", "servetwin", "selectors"))


@dataclass(frozen=True, slots=True)
class SlowCall:
    """``ms``: the time between the first and the last sample with the call; it took at least so long.

    ``at_ns``: the time in the run, virtual in a simulation, of the last sample with the call.
    """

    policy: str
    method: str
    ms: float
    at_ns: int


class PolicyWatch:
    """Samples the thread that enters it, until it leaves. ``now_ns``: the run's time, else since entry."""

    def __init__(self, now_ns: Callable[[], int] | None = None, period_s: float = PERIOD_S) -> None:
        self._began_s, self._period_s = monotonic(), period_s
        self._now_ns = now_ns or (lambda: int((monotonic() - self._began_s) * NS_PER_S))
        self._thread = 0
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="policy watch", daemon=True)
        self._call: FrameType | None = None  # the call that the last sample saw
        self._since_s = 0.0
        self.looks = self.looks_at_policies = 0
        self.slowest: SlowCall | None = None

    def __enter__(self) -> "PolicyWatch":
        self._thread = threading.get_ident()
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()
        self._call = None

    def look(self, now_s: float, frame: FrameType | None) -> None:
        """Count the watched thread's position. ``frame``: its innermost one."""
        self.looks += 1
        call = _outermost_call(frame)
        if call is None:
            self._call = None
            return
        self.looks_at_policies += 1
        if call is not self._call:
            self._call, self._since_s = call, now_s
            return
        ms = 1e3 * (now_s - self._since_s)
        if self.slowest is None or ms > self.slowest.ms:
            policy = call.f_locals[call.f_code.co_varnames[0]]
            self.slowest = SlowCall(name_of(policy), call.f_code.co_name, ms, self._now_ns())

    def section(self) -> dict[str, Any]:
        """Return for summary.json the share of samples in a policy, and the call seen longest."""
        slowest, shown = self.slowest, None
        if slowest is not None:
            shown = {
                "policy": slowest.policy,
                "method": slowest.method,
                "ms": slowest.ms,
                "at_s": slowest.at_ns / NS_PER_S,
            }
        share = self.looks_at_policies / self.looks if self.looks else None
        return {"time_share": share, "looks": self.looks, "slowest_call": shown}

    def _watch(self) -> None:
        while not self._over.wait(self._period_s):
            self.look(monotonic(), sys._current_frames().get(self._thread))


def slow_policies(section: Mapping[str, Any]) -> str:
    """Return remarks for the user about slow policies; empty if no policy is slow."""
    share, call = section.get("time_share"), section.get("slowest_call")
    remarks = []
    if share is not None and share > SLOW_SHARE and section["looks"] >= 1 / PERIOD_S:
        remarks.append(f"policies took {100 * share:.0f} % of the loop's time")
    if call is not None and (remarks or call["ms"] > SLOW_CALL_MS):
        remarks.append(
            f"the slowest call, {call['policy']}.{call['method']} at {call['at_s']:.6g} s of the run, took "
            f"{call['ms']:.0f} ms or more"
        )
    return "; ".join(remarks)


def _outermost_call(frame: FrameType | None) -> FrameType | None:
    """Return the policy call around the frame; if a policy calls another one, the outer call."""
    outermost = None
    while frame is not None:
        code = frame.f_code
        if code.co_name in _METHODS and code.co_argcount and _is_policy(frame):
            outermost = frame
        frame = frame.f_back
    return outermost


def _is_policy(frame: FrameType) -> bool:
    """Return whether the frame's method is a policy's, not one of the packages that call policies."""
    return frame.f_globals.get("__name__", "").partition(".")[0] not in _ASKING
