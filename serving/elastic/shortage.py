"""Models that want instances while no GPUs are free, and when to ask the scaler about them again.

A model without any instance that can get none is *starved*: its load only grows, so its scaler would give the
same answer at every look of the load monitor. The scaler is asked again when a request for the model arrives
or GPUs can be had. So the cost of a look depends on the number of instances, however many models wait.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from serving.protocols.provisioning import MissingInstances
from serving.protocols.scaling import Obstacle, ScaleDecision


class Shortage:
    """The shortages of each model. ``starved``: names of starved models, ascending."""

    __slots__ = ("_recorded", "starved")

    def __init__(self) -> None:
        self.starved: list[str] = []
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
        place = bisect_right(self.starved, model) - 1
        if place < 0 or self.starved[place] != model:
            return False
        del self.starved[place]
        return True

    def in_turn(
        self,
        models: Sequence[str],
        any_gpus_obtainable: Callable[[], bool],
        gpus_obtainable: Callable[[str], bool],
    ) -> Iterator[str]:
        """The models to ask at a look, by name: ``models``, and starved ones that can get GPUs.

        ``any_gpus_obtainable``: whether any model can get GPUs; ``gpus_obtainable``: whether this model can.
        Both are called at the model's turn, after the models before it were served.
        """
        last = ""
        for model in (*models, None):
            while (obstacle := self._next(last, model, any_gpus_obtainable, gpus_obtainable)) is not None:
                last = obstacle
                yield obstacle
            if model is not None:
                last = model
                yield model

    def _next(
        self,
        after: str,
        before: str | None,
        any_gpus_obtainable: Callable[[], bool],
        gpus_obtainable: Callable[[str], bool],
    ) -> str | None:
        starved = self.starved
        if not starved or not any_gpus_obtainable():
            return None
        for place in range(bisect_right(starved, after), len(starved)):
            model = starved[place]
            if before is not None and model >= before:
                return None
            if gpus_obtainable(model):
                return model
        return None
