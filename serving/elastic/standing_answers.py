"""What a scaler said of models and would say again, so that it need not be asked: calm, and still."""

from collections.abc import Callable

from serving.elastic.scale_view import LastAnswer, loads_of
from serving.protocols.scale_answers import CheckedScaler
from serving.protocols.scaling import Calm, ScalingView
from serving.services.service import Service


class StandingAnswers:
    """``calm``: by model, the bounds below which nothing is decided (``CalmScaler``)."""

    __slots__ = ("_scaler", "_still", "calm")

    def __init__(self, scaler: CheckedScaler) -> None:
        self._scaler = scaler
        self.calm: dict[str, Calm] = {}
        self._still: dict[str, LastAnswer] = {}

    def is_calm(self, view: ScalingView) -> bool:
        """Whether the scaler names such bounds.

        They are kept: the model is not looked at until one of its loads is above its bound."""
        calm = None if self._scaler.calm is None else self._scaler.calm(view)
        if calm is None:
            self.calm.pop(view.model, None)
            return False
        self.calm[view.model] = calm
        return True

    def forget(self, model: str) -> None:
        """Something was decided."""
        self._still.pop(model, None)

    def keep(self, view: ScalingView, changes: int, short: bool) -> None:
        """Nothing was, or only what is short. ``changes``: of the model's instances until now."""
        if self._scaler.still_until_ns is not None:
            until_ns = self._scaler.still_until_ns(view)
            self._still[view.model] = LastAnswer(loads_of(view), changes, until_ns, short)

    def is_still(
        self, now_ns: int, model: str, changes: int, service: Service, gpus_obtainable: Callable[[], bool]
    ) -> bool:
        """Whether the scaler would say again what it said last, and nothing would come of it."""
        last = self._still.get(model)
        return (
            last is not None
            and now_ns < last.until_ns
            and last.changes == changes
            and last.loads == loads_of(service)
            and not (last.short and gpus_obtainable())
        )

    def until_ns(self) -> list[int] | None:
        """Until when the last answers hold; None: the scaler does not say."""
        if self._scaler.still_until_ns is None:
            return None
        return [last.until_ns for last in self._still.values()]
