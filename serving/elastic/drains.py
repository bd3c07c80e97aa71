"""Draining instances take no new requests and leave once they are empty and no load needs them.

With a grace period, what an instance still serves at its end fails, as in a pod that Kubernetes kills.
"""

from serving.elastic.load_progress import LoadProgress
from serving.elastic.placement import Placement
from serving.parameters.cache_answers import CheckedCopies
from serving.vocabulary.actions import Action


class Drains:
    """Drains instances. ``drained``: those whose GPUs are released as soon as possible.

    ``grace_ns``: how long a drained instance may go on with its requests; None: until they are served.
    """

    __slots__ = ("_copies", "_grace_ns", "_loads", "_placement", "_until_ns", "drained")

    def __init__(
        self,
        placement: Placement,
        loads: LoadProgress,
        copies: CheckedCopies,
        grace_ns: int | None = None,
    ) -> None:
        self._placement, self._grace_ns = placement, grace_ns
        self._until_ns: dict[int, int] = {}  # of drained instances with a grace period: its end
        self._loads = loads
        self._copies = copies
        self.drained: set[int] = set()

    def drain(self, now_ns: int, number: int, actions: list[Action]) -> None:
        """Drain an instance: it takes no new requests and is released when it is empty."""
        self._placement.instances.drain(number)
        self.drained.add(number)
        if self._grace_ns is not None:
            self._until_ns[number] = now_ns + self._grace_ns
        self._placement.service_of(number).leave(number, actions)
        self.release_gpus(now_ns, number, actions)

    def overdue(self, now_ns: int) -> list[int]:
        """The instances whose grace period is over."""
        return [number for number, until_ns in self._until_ns.items() if until_ns <= now_ns]

    def requests_of(self, number: int) -> list[int]:
        """Requests that a draining instance still has."""
        return self._placement.requests_of(number)

    def terminate(self, number: int, actions: list[Action]) -> None:
        """Stop new requests to an instance that will be lost; it keeps its GPUs until then."""
        leaves = self._placement.instances.live[number].state == "serving"
        self._placement.instances.terminate(number)
        self.forget(number)
        if leaves:  # else it has left its service already
            self._placement.service_of(number).leave(number, actions)

    def cancel(self, number: int, actions: list[Action]) -> None:
        """Cancel a drain: the instance takes requests again."""
        self.forget(number)
        self._placement.instances.cancel_drain(number)
        self._placement.join(number, actions)

    def give_up(self, now_ns: int, number: int, reason: str, actions: list[Action]) -> None:
        """Release an instance whose load stopped, once other instances have finished what it began."""
        if self._placement.service_of(number).outstanding(number):
            self.drained.add(number)
        else:
            self._placement.vacate(now_ns, number, reason, actions)

    def release_gpus(self, now_ns: int, number: int, actions: list[Action]) -> None:
        """Free the GPUs of a drained instance if it is empty and its parameters are not needed."""
        instance = self._placement.instances.live[number]
        part = instance.replica.part
        if self._placement.service_of(number).outstanding(number):
            return
        if instance.state == "loading":
            self.drained.discard(number)
            reason = "its load stopped, and what it had begun is over"
            self._placement.vacate(now_ns, number, reason, actions)
            return
        self.drained.add(number)
        reload = self._copies.before_release(part, number, now_ns)
        if reload is not None:
            self._loads.reload(now_ns, (reload,), actions)
        if self._loads.needs(number) or not self._copies.may_release(part, number):
            return
        self.forget(number)
        self._copies.left(part, number, now_ns)
        self._placement.vacate(now_ns, number, "empty", actions)

    def reclaim_all(self, now_ns: int, actions: list[Action]) -> None:
        """Try again to release every instance that had to wait."""
        for number in sorted(self.drained):
            self.release_gpus(now_ns, number, actions)

    def reclaim_of(self, now_ns: int, model: str, actions: list[Action]) -> None:
        """Retry this model's draining instances, which may have waited for what is lost."""
        for instance in self._placement.instances.of(model):
            if instance.state == "draining":
                self.release_gpus(now_ns, instance.replica.id, actions)

    def forget(self, number: int) -> None:
        """Drop an instance that drains no longer."""
        self.drained.discard(number)
        self._until_ns.pop(number, None)

    def waits(self) -> bool:
        """Whether a drained instance needs a tick to be checked; busy ones are checked at their reports."""
        return bool(self._until_ns) or not all(map(self._placement.at_work, self.drained))
