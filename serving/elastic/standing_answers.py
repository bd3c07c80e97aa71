"""Scaler answers that still hold: while loads are within bounds, or until a time."""

from collections.abc import Callable
from typing import NamedTuple

from serving.protocols.scale_answers import CheckedScaler
from serving.protocols.scaling import NoChangeBounds, ScalingView
from serving.services.service import Service


class LastAnswer(NamedTuple):
    """The inputs of the scaler's last answer for a model: while they are unchanged it is not asked again.

    ``loads``: see ``loads_of``. ``changes``: how often the model's instances had changed. ``until_ns``: when
    the answer expires. ``shortage``: the model lacked instances, so free GPUs also change the answer.
    """

    loads: tuple[int, int, int]
    changes: int
    until_ns: int
    short: bool


def loads_of(model: ScalingView | Service) -> tuple[int, int, int]:
    """Backlog, KV and migrating tokens."""
    return model.backlog_tokens, model.kv_tokens, model.migrating_tokens


class StandingAnswers:
    """``no_change_bounds``: for each model, the load bounds within which the scaler decides nothing."""

    __slots__ = ("_last", "_scaler", "no_change_bounds")

    def __init__(self, scaler: CheckedScaler) -> None:
        self._scaler = scaler
        self.no_change_bounds: dict[str, NoChangeBounds] = {}
        self._last: dict[str, LastAnswer] = {}

    def names_bounds(self, view: ScalingView) -> bool:
        """Whether the scaler names such bounds.

        The bounds are kept: the model is not looked at until one of its loads exceeds its bound.
        """
        ask = self._scaler.no_change_bounds
        bounds = None if ask is None else ask(view)
        if bounds is None:
            self.no_change_bounds.pop(view.model, None)
            return False
        self.no_change_bounds[view.model] = bounds
        return True

    def last(self, model: str) -> LastAnswer | None:
        """The model's last answer with no decision or only shortages."""
        return self._last.get(model)

    def forget(self, model: str) -> None:
        """Drop the model's answer: the scaler decided a change."""
        self._last.pop(model, None)

    def keep(self, view: ScalingView, changes: int, short: bool) -> None:
        """Keep an answer with no decision or only shortages. ``changes``: as in ``Instances``."""
        if self._scaler.no_change_until_ns is not None:
            until_ns = self._scaler.no_change_until_ns(view)
            self._last[view.model] = LastAnswer(loads_of(view), changes, until_ns, short)

    def holds(
        self, now_ns: int, model: str, changes: int, service: Service, gpus_obtainable: Callable[[], bool]
    ) -> bool:
        """Whether the scaler would repeat its last answer, and the answer would have no effect."""
        last = self._last.get(model)
        return (
            last is not None
            and now_ns < last.until_ns
            and last.changes == changes
            and last.loads == loads_of(service)
            and not (last.short and gpus_obtainable())
        )

    def until_ns(self) -> list[int] | None:
        """Until when the last answers hold; None if the scaler does not say."""
        if self._scaler.no_change_until_ns is None:
            return None
        return [last.until_ns for last in self._last.values()]
