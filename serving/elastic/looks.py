"""Which models the load monitor looks at: those about which something has changed since their last look.

At a look the models take turns by name. A model whose scaler's answer stands is left out; one that lacks
instances (short, or starved: ``serving.elastic.shortage``) has a turn when GPUs can be had for it.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from serving.elastic.shortage import Shortage
from serving.elastic.standing_answers import LastAnswer

_KEPT = 64  # times that no longer count are swept out above twice the others and these


class Looks:
    """``active``: models that are not at rest. ``touched``: models about which something has changed.

    ``touched`` is emptied from time to time into ``changed``, the models that have a turn at the next look.
    """

    __slots__ = ("_entered", "_expiries", "_shortage", "_turn", "_turns", "active", "changed", "touched")

    def __init__(self, shortage: Shortage, touched: set[str]) -> None:
        self._shortage = shortage
        self.active = set[str]()
        self.touched = touched
        self.changed = set[str]()
        self._turns: list[str] | None = None  # during a look: a heap of models that have a turn
        self._turn = ""  # the model whose turn it is
        self._expiries: list[tuple[int, str]] = []  # a heap: (when an answer ends, model)
        self._entered: dict[str, int] = {}  # model -> the time of its entry there

    def add(self, model: str) -> None:
        """Look at the model from now on."""
        self.active.add(model)
        self.changed.add(model)

    def remove(self, model: str) -> None:
        """Look at the model no more: it is at rest, within bounds, or starved."""
        self.active.discard(model)
        self._shortage.no_longer_short(model)

    def answered(self, model: str, last: LastAnswer | None) -> None:
        """Leave an active model out of looks while its ``last`` answer stands; None: it does not."""
        if last is None:
            self.changed.add(model)
            self._shortage.no_longer_short(model)
            return
        if last.short:
            self._shortage.lacks(model)
        else:
            self._shortage.no_longer_short(model)
        if self._entered.get(model) != last.until_ns:
            self._entered[model] = last.until_ns
            heappush(self._expiries, (last.until_ns, model))
            if len(self._expiries) > 2 * len(self._entered) + _KEPT:
                self._expiries = sorted((until_ns, name) for name, until_ns in self._entered.items())

    def note(self) -> None:
        """Empty ``touched``: these models have a turn, at this look if it is still to come."""
        self.changed |= self.touched
        if self._turns is not None:
            for model in self.touched:
                if model > self._turn and model in self.active:
                    heappush(self._turns, model)
        self.touched.clear()

    def in_turn(
        self,
        now_ns: int,
        any_gpus_obtainable: Callable[[], bool],
        gpus_obtainable: Callable[[str], bool],
        note: Callable[[], None],
    ) -> Iterator[str]:
        """The models that have a turn at this look, by name.

        ``any_gpus_obtainable``: whether any model can get GPUs; ``gpus_obtainable``: whether this model can.
        Both are called at the model's turn, after the models before it were served. ``note`` calls that of
        this object, and tells others of the models as well.
        """
        note()
        self._turn, self._turns = "", self._begun(now_ns)
        turns = self._turns
        while True:
            note()
            last = self._turn
            while turns and turns[0] <= last:
                heappop(turns)
            before = turns[0] if turns else None
            model = self._shortage.next_waiting(last, before, any_gpus_obtainable, gpus_obtainable)
            if model is None:
                if before is None:
                    self._turns = None
                    return
                model = heappop(turns)
            self._turn = model
            self.changed.discard(model)
            yield model

    def _begun(self, now_ns: int) -> list[str]:
        """A heap of the models that have a turn whether or not GPUs can be had."""
        active, is_starved = self.active, self._shortage.is_starved
        turns = [model for model in self.changed if model in active or is_starved(model)]
        self.changed = set(turns)
        expiries = self._expiries
        while expiries and expiries[0][0] <= now_ns:
            until_ns, model = heappop(expiries)
            if self._entered.get(model) == until_ns:
                del self._entered[model]
                if model in active:
                    turns.append(model)
        heapify(turns)
        return turns
