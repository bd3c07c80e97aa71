"""Detects a run in which only periodic looks of the load monitor are left: no request will be served."""

from collections.abc import Sequence
from typing import Final, Protocol

from serving.vocabulary.errors import UserError
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S

# Detects a simulation in which requests wait for stage replicas that no scaler will start.

STAGE_PATIENCE_NS: Final = 3600 * NS_PER_S
"""How long no request may get further by a scaler that does not say how long it remembers."""


class StageProgress(Protocol):
    """The progress of models in stages, as ``serving.elastic.stage_control.StageControl`` reports it."""

    @property
    def passes(self) -> int:
        """Number of passes that have ended, of all stages."""

    @property
    def changes(self) -> int:
        """Number of events that changed a replica."""

    @property
    def memory_ns(self) -> int | None:
        """How long past events can affect decisions; None if the scaler does not say."""

    def goes_on(self) -> bool:
        """Whether anything runs or loads that will let requests make progress."""

    def what_waits(self) -> str:
        """The first stage with queued requests."""


class StageStalls:
    """Tracks since when no request made progress, and since when nothing changed at all.

    A scaler sees rates of a window and remembers views of ``memory_s``. Once nothing has changed for as long,
    it repeats its answers. A scaler without ``memory_s``, or one that endlessly starts and stops replicas
    that no request waits for, has an hour.
    """

    __slots__ = ("_changes", "_control", "_passes", "_since_ns", "_still_ns")

    def __init__(self, control: StageProgress) -> None:
        self._control = control
        self._passes = self._changes = -1
        self._since_ns = self._still_ns = 0

    def is_stalled(self, now_ns: int, events: int, alone: bool) -> bool:
        """Whether the run is stalled, at a look after the last arrival. ``alone``: no other event is due."""
        control = self._control
        passes, changes = control.passes, control.changes
        if passes != self._passes or control.goes_on():
            self._since_ns = now_ns
        if passes != self._passes or changes != self._changes or not alone:
            self._still_ns = now_ns
        self._passes, self._changes = passes, changes
        memory_ns = control.memory_ns
        is_still = memory_ns is not None and now_ns - self._still_ns > memory_ns
        return is_still or now_ns - self._since_ns > STAGE_PATIENCE_NS

    def error(self, requests: Sequence[Request]) -> UserError:
        """The error about ``requests``, which will never be served."""
        return UserError(
            f"the simulation is stalled with {len(requests)} requests that can never be served: "
            f"{self._control.what_waits()}; give the cluster more GPUs and hosts, write a larger "
            "pipeline.max_replicas, or another system.stages"
        )


PATIENCE_NS: Final = 3600 * NS_PER_S
"""How long a scaler that does not say until when its answers hold may do nothing."""
LOOKS: Final = 4
"""A stall takes twice so many looks without change. The first half finds the latest time at which something
changes by itself (``PendingChanges.expiry_times_ns``); the second half is counted after that time."""


class PendingChanges(Protocol):
    """What can still change without events from outside: ``serving.elastic.elastic.Elastic``."""

    def change_counts(self) -> tuple[int, int]:
        """Counts that change whenever a decision is carried out or an instance changes."""

    def expiry_times_ns(self) -> list[int] | None:
        """When time-limited states end; None: unknown. The first of these times may be in the past."""


class StallDetector:
    """Tracks since when only looks were handled, and whether they can still change anything.

    Between looks only time changes what policies see: copies in host memory and parameters on free GPUs
    expire, and a scaler waits before it drains an instance. ``pending`` knows these times; None: unknown.
    """

    __slots__ = ("_events", "_looks", "_past", "_pending", "_settled_ns", "_since_ns", "_state")

    def __init__(self, pending: PendingChanges | None = None) -> None:
        self._pending = pending
        self._events = -1
        self._since_ns = 0
        self._looks = 0  # without change, while no other event was due
        self._past = 0  # those after the last expiry
        self._settled_ns: int | None = 0  # when the last expiry is; None: unknown
        self._state = (0, 0)

    def is_stalled(self, now_ns: int, events: int, alone: bool) -> bool:
        """Whether the run is stalled. ``events``: handled before, with looks; ``alone``: no other is due."""
        if events != self._events + 1:
            self._since_ns = now_ns
            self._looks = 0
        self._events = events
        if now_ns - self._since_ns > PATIENCE_NS:
            return True
        if not alone or self._pending is None:
            self._looks = 0
            return False
        return self._is_settled(now_ns, self._pending)

    def _is_settled(self, now_ns: int, pending: PendingChanges) -> bool:
        state = pending.change_counts()
        if self._looks == 0 or state != self._state:
            self._state, self._looks, self._past, self._settled_ns = state, 0, 0, now_ns
        self._looks += 1
        if self._settled_ns is None:
            return False
        if self._looks <= LOOKS:
            ends_ns, last_ns = pending.expiry_times_ns(), now_ns + PATIENCE_NS
            if ends_ns is not None:
                ends_ns = [end_ns for end_ns in ends_ns if end_ns <= last_ns]
            self._settled_ns = None if ends_ns is None else max(self._settled_ns, *ends_ns, now_ns)
            return False
        self._past += now_ns > self._settled_ns
        return self._past >= LOOKS

    def error(self, requests: Sequence[Request]) -> UserError:
        """The error about ``requests``, which will never be served."""
        first = requests[0]
        return UserError(
            f"the simulation is stalled with {len(requests)} requests that can never be served, the first is "
            f"request {first.id} of model {first.model!r}: its instances find no free GPUs or no parameters; "
            "give the cluster more GPUs, raise a role's minimum in system.instances, or write "
            "system/cache=pool"
        )
