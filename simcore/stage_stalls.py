"""Detects a simulation in which requests wait for stage replicas that no scaler will start."""

from collections.abc import Mapping
from typing import Final

from serving.elastic.stage_control import StageControl
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S
from simcore.replica.lifetime import Lifetime

STAGE_PATIENCE_NS: Final = 3600 * NS_PER_S
"""How long no request may get further by a scaler that does not say how long it remembers."""


class StageStalls:
    """Tracks since when no request made progress, and since when nothing changed at all.

    A scaler sees rates of a window and remembers views of ``memory_s``. Once nothing has changed for as long,
    it repeats its answers. A scaler without ``memory_s``, or one that endlessly starts and stops replicas
    that no request waits for, has an hour.
    """

    __slots__ = ("_changes", "_control", "_passes", "_since_ns", "_still_ns")

    def __init__(self, control: StageControl) -> None:
        self._control = control
        self._passes = self._changes = -1
        self._since_ns = self._still_ns = 0

    def is_stalled(self, now_ns: int, events: int, alone: bool) -> bool:
        """Whether the run is stalled, at a look after the last arrival. ``alone``: no other event is due."""
        control = self._control
        passes, changes = control.passes, control.replicas.changes
        if passes != self._passes or control.goes_on():
            self._since_ns = now_ns
        if passes != self._passes or changes != self._changes or not alone:
            self._still_ns = now_ns
        self._passes, self._changes = passes, changes
        memory_ns = control.memory_ns
        is_still = memory_ns is not None and now_ns - self._still_ns > memory_ns
        return is_still or now_ns - self._since_ns > STAGE_PATIENCE_NS

    def error(self, lives: Mapping[int, Lifetime]) -> UserError:
        """The error about requests that will never be served."""
        return UserError(
            f"the simulation is stalled with {len(lives)} requests that can never be served: "
            f"{self._control.what_waits()}; give the cluster more GPUs and hosts, write a larger "
            "pipeline.max_replicas, or another system.stages"
        )
