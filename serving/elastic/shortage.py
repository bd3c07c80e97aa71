"""Models that want instances for which no GPUs are free, and when it is worth asking about them again.

A model without any instance that can get none is *starved*: its load only grows, so its scaler would say the
same at every look of the load monitor. It is asked again when a request of it comes, or when there is
something to be had. So a look costs as much as there are instances, however many models wait.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from serving.protocols.provisioning import Missing
from serving.protocols.scaling import Obstacle, ScaleDecision


class Shortage:
    """What the models are short of. ``starved``: names, ascending."""

    __slots__ = ("_told", "starved")

    def __init__(self) -> None:
        self.starved: list[str] = []
        self._told: dict[str, dict[tuple[str, str], Missing]] = {}  # model -> (role, act) -> what it was told

    def is_news(self, decision: ScaleDecision, missing: Missing) -> bool:
        """Whether it is another shortage than the last one of this model, role and act, which it now is."""
        told = self._told.setdefault(decision.model, {})
        if told.get((decision.role, decision.act)) == missing:
            return False
        told[decision.role, decision.act] = missing
        return True

    def ended(self, decision: ScaleDecision) -> None:
        """The decision was carried out in full."""
        self._told.get(decision.model, {}).pop((decision.role, decision.act), None)

    def update(self, model: str, decisions: Iterable[ScaleDecision]) -> None:
        """Forget the shortages of roles for which the scaler, asked now, wants nothing any more."""
        told = self._told.get(model)
        if told:
            wanted = {(one.role, one.act) for one in decisions}
            self._told[model] = {key: missing for key, missing in told.items() if key in wanted}

    def obstacle_of_loads(self, model: str) -> Obstacle | None:
        """Why loads of this model could not begin; None: they could."""
        told = self._told.get(model, {})
        return next((missing.obstacle for (_, act), missing in told.items() if act == "load"), None)

    def starve(self, model: str) -> None:
        """Leave the model out of looks until a request of it arrives, or GPUs can be had."""
        insort(self.starved, model)

    def wake(self, model: str) -> bool:
        """The model is to be asked again at the next look; False when it was not starved."""
        place = bisect_right(self.starved, model) - 1
        if place < 0 or self.starved[place] != model:
            return False
        del self.starved[place]
        return True

    def in_turn(
        self, asked: Sequence[str], has_something: Callable[[], bool], can_get: Callable[[str], bool]
    ) -> Iterator[str]:
        """The models to ask at a look, by name: those of ``asked``, and the starved that can get something.

        ``has_something``: whether anybody could; ``can_get``: whether this model could. Both are called when
        its turn comes, after the models before it have got what they get.
        """
        last = ""
        for model in (*asked, None):
            while (found := self._next(last, model, has_something, can_get)) is not None:
                last = found
                yield found
            if model is not None:
                last = model
                yield model

    def _next(
        self,
        after: str,
        before: str | None,
        has_something: Callable[[], bool],
        can_get: Callable[[str], bool],
    ) -> str | None:
        starved = self.starved
        if not starved or not has_something():
            return None
        for place in range(bisect_right(starved, after), len(starved)):
            model = starved[place]
            if before is not None and model >= before:
                return None
            if can_get(model):
                return model
        return None
