"""How much of a loop's time policies take, and which call was slow, seen from beside.

A thread looks every ``PERIOD_S`` where the watched thread is. Between two looks nothing is measured, so the
loop pays for no clock; a call of less than a period may be missed, one of several periods is not. What is
seen goes into summary and console only, never into virtual time, the journal or the rows of requests.
"""

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

from serving.batch import CHOOSE, chosen
from serving.controller import Controller
from serving.fleet import ADMIT, DISPATCH, dispatched, refusal
from serving.policy_faults import Question, ask, event_text, name_of

PERIOD_S: Final = 0.02
SLOW_SHARE: Final = 0.5
SLOW_CALL_MS: Final = 100.0
# The functions that ask policies; what ``ask`` asks is in its frame.
_ASKING: Final[Mapping[CodeType, Question | None]] = {
    dispatched.__code__: DISPATCH,
    refusal.__code__: ADMIT,
    chosen.__code__: CHOOSE,
    ask.__code__: None,
}
_HANDLE: Final = Controller.handle.__code__


@dataclass(frozen=True, slots=True)
class SlowCall:
    """``ms``: between the first look that saw the call and the last, so it took at least that."""

    policy: str
    method: str
    ms: float
    event: str


class PolicyWatch:
    """Looks at the thread that enters it, until it leaves."""

    def __init__(self) -> None:
        self._thread = 0
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="policy watch", daemon=True)
        self._call: FrameType | None = None  # the call that the last look saw
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
        """Count where the watched thread is; ``frame``: its innermost."""
        self.looks += 1
        while frame is not None and frame.f_code not in _ASKING:
            frame = frame.f_back
        if frame is None:
            self._call = None
            return
        self.looks_at_policies += 1
        if frame is not self._call:
            self._call, self._since_s = frame, now_s
            return
        ms = 1e3 * (now_s - self._since_s)
        if self.slowest is None or ms > self.slowest.ms:
            question = _ASKING[frame.f_code] or frame.f_locals["question"]
            self.slowest = SlowCall(name_of(frame.f_locals["policy"]), question.method, ms, _event_of(frame))

    def section(self) -> dict[str, Any]:
        """For summary.json: the share of looks that saw a policy, and the call seen longest."""
        slowest = self.slowest
        told = None
        if slowest is not None:
            told = {
                "policy": slowest.policy,
                "method": slowest.method,
                "ms": slowest.ms,
                "event": slowest.event,
            }
        share = self.looks_at_policies / self.looks if self.looks else None
        return {"time_share": share, "looks": self.looks, "slowest_call": told}

    def _watch(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.look(monotonic(), sys._current_frames().get(self._thread))


def slow_policies(section: Mapping[str, Any]) -> str:
    """What of it a user should know; empty where policies are quick."""
    share, call = section.get("time_share"), section.get("slowest_call")
    told = []
    if share is not None and share > SLOW_SHARE and section["looks"] >= 1 / PERIOD_S:
        told.append(f"policies took {100 * share:.0f} % of the loop's time")
    if call is not None and (told or call["ms"] > SLOW_CALL_MS):
        told.append(
            f"the slowest call, {call['policy']}.{call['method']} at event {call['event']}, took "
            f"{call['ms']:.0f} ms or more"
        )
    return "; ".join(told)


def _event_of(frame: FrameType | None) -> str:
    while frame is not None and frame.f_code is not _HANDLE:
        frame = frame.f_back
    return "none" if frame is None else event_text(frame.f_locals["now_ns"], frame.f_locals["event"])
