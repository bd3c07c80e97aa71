"""Models that want instances while no GPUs are free, and when to ask the scaler about them again.

A model without any instance that can get none is *starved*: its scaler would give the same answer at every
look of the load monitor. The scaler is asked again when a request for the model comes or goes, or GPUs can be
had. One with an instance that can get no other is *short*: its scaler is asked again as well when its
instances or loads change. So the cost of a look does not depend on how many models wait.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable

from serving.protocols.provisioning import MissingInstances
from serving.protocols.scaling import Obstacle, ScaleDecision


class Shortage:
    """The shortages of each model. ``starved``, ``short``: names of such models, ascending."""

    __slots__ = ("_recorded", "short", "starved")

    def __init__(self) -> None:
        self.starved: list[str] = []
        self.short: list[str] = []
        # Model -> (role, act) -> the last recorded shortage, so that it is not recorded again every period
        self._recorded: dict[str, dict[tuple[str, str], MissingInstances]] = {}

    def is_new_shortage(self, decision: ScaleDecision, missing: MissingInstances) -> bool:
        """Whether this differs from the last shortage of the model, role and act; record it if so."""
        recorded = self._recorded.setdefault(decision.model, {})
        if recorded.get((decision.role, decision.act)) == missing:
            return False
        recorded[decision.role, decision.act] = missing
        return True

    def ended(self, decision: ScaleDecision) -> None:
        """Forget the shortage: the decision was carried out in full."""
        self._recorded.get(decision.model, {}).pop((decision.role, decision.act), None)

    def update(self, model: str, decisions: Iterable[ScaleDecision]) -> None:
        """Forget the shortages of roles for which the scaler now wants nothing."""
        recorded = self._recorded.get(model)
        if recorded:
            wanted = {(decision.role, decision.act) for decision in decisions}
            self._recorded[model] = {key: missing for key, missing in recorded.items() if key in wanted}

    def obstacle_of_loads(self, model: str) -> Obstacle | None:
        """Why loads of this model could not begin; None if they could."""
        recorded = self._recorded.get(model, {})
        return next((missing.obstacle for (_, act), missing in recorded.items() if act == "load"), None)

    def starve(self, model: str) -> None:
        """Leave the model out of looks until a request for it arrives, or GPUs can be had."""
        insort(self.starved, model)

    def wake(self, model: str) -> bool:
        """Include the model in the next look again; False if it was not starved."""
        return _remove(self.starved, model)

    def is_starved(self, model: str) -> bool:
        """Whether the model is starved."""
        return _place(self.starved, model) >= 0

    def lacks(self, model: str) -> None:
        """Note that a model with an instance can get no other."""
        if _place(self.short, model) < 0:
            insort(self.short, model)

    def no_longer_short(self, model: str) -> None:
        """Note that the model lacks no instance, or has none."""
        _remove(self.short, model)

    def next_waiting(
        self,
        after: str,
        before: str | None,
        any_gpus_obtainable: Callable[[], bool],
        gpus_obtainable: Callable[[str], bool],
    ) -> str | None:
        """The first starved or short model, by name, that can get GPUs, between these two; None: no model.

        ``any_gpus_obtainable``: whether any model can get GPUs; ``gpus_obtainable``: whether this model can.
        """
        if not (self.starved or self.short) or not any_gpus_obtainable():
            return None
        found = None
        for waiting in (self.starved, self.short):
            for place in range(bisect_right(waiting, after), len(waiting)):
                model = waiting[place]
                if before is not None and model >= before:
                    break
                if gpus_obtainable(model):
                    found = before = model
                    break
        return found


def _place(names: list[str], model: str) -> int:
    """Where the model is among these names, ascending; -1: it is not."""
    place = bisect_right(names, model) - 1
    return place if place >= 0 and names[place] == model else -1


def _remove(names: list[str], model: str) -> bool:
    place = _place(names, model)
    if place >= 0:
        del names[place]
    return place >= 0
