"""Asks a live scheduler how a target and the sources share the layers of batches, and when."""

from collections.abc import Sequence

from serving.live.host import LiveCounts, LiveSetup
from serving.protocols.live import LiveScheduler, LiveView
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S


class LivePlans:
    """By target: its loading speed, and when an answer requested ahead is ready."""

    __slots__ = ("_asked_ns", "_begun_ns", "_counts", "_layer_ns", "_setup")

    def __init__(self, setup: LiveSetup, counts: LiveCounts) -> None:
        self._setup = setup
        self._counts = counts
        self._begun_ns: dict[int, int] = {}  # when its load began
        self._layer_ns: dict[int, int] = {}  # load time of a layer; 0 while not known
        self._asked_ns: dict[int, int] = {}  # when the scheduler was asked ahead

    @property
    def scheduler(self) -> LiveScheduler:
        """The policy's scheduler."""
        return self._setup.policy.scheduler

    def begin(self, now_ns: int, target: int, load_ns: int | None) -> None:
        """Begin a load of ``load_ns``, None if unknown; a scheduler that plans ahead starts to solve now."""
        self._begun_ns[target] = now_ns
        self._layer_ns[target] = (load_ns or 0) // self._setup.layers
        if self.scheduler.ahead > 1:
            self._asked_ns[target] = now_ns

    def end(self, target: int) -> None:
        """Forget this instance."""
        for books in (self._begun_ns, self._layer_ns, self._asked_ns):
            books.pop(target, None)

    def layers_loaded(self, now_ns: int, target: int, layers: int) -> None:
        """If the load time of a layer was not known, set it to the mean so far, including start-up."""
        if not self._layer_ns[target]:
            self._layer_ns[target] = (now_ns - self._begun_ns[target]) // max(1, layers)

    def is_late(self, now_ns: int, target: int, layers: int) -> bool:
        """Whether an answer requested ahead is not ready; solving during the first layer costs nothing."""
        asked_ns = self._asked_ns.get(target)
        late = asked_ns is not None and now_ns < asked_ns + self.scheduler.solve_ns
        self._counts.plans_late += late and layers == 1
        return late

    def is_due(self, target: int) -> bool:
        """Whether the answer requested ahead is to be used now; true once."""
        return self._asked_ns.pop(target, None) is not None

    def quotas(self, target: int, loaded: int, batches: Sequence[tuple[Request, ...]]) -> list[int | None]:
        """How many layers of each batch the target runs; None: as many as it gets to."""
        setup, count = self._setup, self._setup.layers
        if not 1 <= loaded < count:
            return [None for _ in batches]
        per_ns = setup.prefill_tokens_per_s * count / NS_PER_S
        costs = [sum([request.prompt_tokens for request in batch]) / per_ns for batch in batches]
        batch_layer_ns = tuple([max(1, round(cost)) for cost in costs])
        view = LiveView(count, max(1, self._layer_ns[target]), batch_layer_ns, loaded=loaded)
        plan = self.scheduler.plan(view)
        self._counts.plans_refused += plan.refused
        if plan.rule != "split":
            return [None for _ in batches]
        self._counts.plans_used += 1
        return list(plan.target_layers)
