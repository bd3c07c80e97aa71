"""The idle instance that each model would give up for another, kept up to date as instances change."""

from collections.abc import Callable
from heapq import heappop, heappush

from serving.elastic.instances import Instances
from serving.protocols.scale_answers import CheckedArbiter
from serving.protocols.scaling import Offer, ScalingView

_KEPT = 64  # offers that no longer stand are swept out of the heap above twice the others and these


class IdleOffers:
    """The arbiter is asked about a model's idle instances once they, or its requests, have changed."""

    __slots__ = ("_arbiter", "_heap", "_instances", "_is_busy", "_offers", "_stale", "_view")

    def __init__(
        self,
        arbiter: CheckedArbiter,
        instances: Instances,
        is_busy: Callable[[str, int], bool],
        view: Callable[[int, str], ScalingView],
    ) -> None:
        """``is_busy``: whether a model's instance has requests; ``view``: of a model, at a time."""
        self._arbiter, self._instances = arbiter, instances
        self._is_busy, self._view = is_busy, view
        self._stale = set[str]()
        self._offers: dict[str, Offer] = {}
        self._heap: list[Offer] = []  # with offers that no longer stand

    def touch(self, models: set[str]) -> None:
        """Note that instances or requests of these models have changed."""
        self._stale |= models

    def is_offered(self, now_ns: int, wanting: str = "") -> bool:
        """Whether a model other than ``wanting`` would give up an instance."""
        self._refresh(now_ns)
        offers = self._offers
        return len(offers) > (wanting in offers)

    def best(self, now_ns: int, wanting: str) -> Offer | None:
        """The offer that is taken for ``wanting``; None: there is none of another model."""
        self._refresh(now_ns)
        heap, own = self._heap, None
        while heap:
            offer = heap[0]
            if self._offers.get(offer.model) != offer:
                heappop(heap)
            elif offer.model == wanting:
                own = heappop(heap)
            else:
                break
        best = heap[0] if heap else None
        if own is not None:
            heappush(heap, own)
        return best

    def _refresh(self, now_ns: int) -> None:
        if self._stale:
            for model in sorted(self._stale):
                self._update(now_ns, model)
            self._stale.clear()
            if len(self._heap) > 2 * len(self._offers) + _KEPT:
                self._heap = sorted(self._offers.values())

    def _update(self, now_ns: int, model: str) -> None:
        self._offers.pop(model, None)
        for instance in self._instances.of(model):
            if instance.state == "serving" and not self._is_busy(model, instance.replica.id):
                break
        else:
            return
        offer = self._arbiter.offer(self._view(now_ns, model))
        if offer is not None:
            self._offers[model] = offer
            heappush(self._heap, offer)
