"""Replicas as the data plane knows them: GPUs, CUDA contexts, connections, whether parameters are there."""

from collections.abc import Iterable, Sequence

from hwmodels.loading.startup import ConnectionPool, ContextPool, StartUp, StartUpTimes, start
from serving.vocabulary.actions import Load, Place, Reclaim, Stop


class Places:
    """Replicas from ``Place`` to ``Reclaim``; those that exist at the start have all their parameters.

    model_of, gpus_of: those replicas' model and GPUs. contexts: CUDA contexts that are kept ready, from the
    start on; connected: whether the GPUs of each of them have their connections.
    """

    __slots__ = ("_connections", "_contexts", "_lacking", "_start_up", "_there", "gpus_of", "model_of")

    def __init__(
        self,
        model_of: Sequence[str],
        gpus_of: Sequence[tuple[int, ...]],
        start_up: StartUp,
        contexts: int,
        connected: bool,
    ) -> None:
        self.model_of: dict[int, str] = dict(enumerate(model_of))
        self.gpus_of: dict[int, tuple[int, ...]] = dict(enumerate(gpus_of))
        self._start_up = start_up
        self._contexts = ContextPool(contexts)
        self._connections = ConnectionPool(ready=gpus_of if connected else ())
        self._there = set(self.gpus_of)
        self._lacking: set[int] = set()  # replicas that lack parameters, which no load is bringing

    @property
    def contexts_ready(self) -> int:
        """CUDA contexts that nobody has."""
        return self._contexts.ready

    def place(self, action: Place) -> None:
        """The GPUs are the replica's; one that is warm has what it needs."""
        number = action.replica
        known = self.gpus_of.setdefault(number, action.gpus)
        assert known == action.gpus, (
            f"replica {number} was on GPUs {known} and comes back to {action.gpus}: give it another number"
        )
        if action.warm and number not in self._there:
            for _ in action.gpus:
                self._contexts.take(0.0)
        self.model_of[number] = action.model
        self._there.add(number)
        if action.warm:
            self._lacking.discard(number)
        else:
            self._lacking.add(number)

    def reclaim(self, action: Reclaim, busy: Iterable[int]) -> None:
        """The replica leaves its GPUs. busy: loads to or from it, of which there must be none."""
        number = action.replica
        assert number in self._there, f"replica {number} is reclaimed, but was never placed"
        loads = ", ".join(map(str, busy))
        assert not loads, f"replica {number} is reclaimed while load {loads} needs it: stop that first"
        self._there.discard(number)
        for _ in self.gpus_of[number]:
            self._contexts.give_back()

    def begin(self, load: Load) -> None:
        """Refuse what cannot be carried out; what a load brings to its targets lacks no longer."""
        for kind, number in (*load.sources, *load.targets):
            if kind != "replica":
                continue
            assert number in self._there, (
                f"load {load.load} names replica {number}, which does not exist: place it first"
            )
            assert self.model_of[number] == load.model, (
                f"load {load.load} is of {load.model}, and replica {number} of {self.model_of[number]}"
            )
        for kind, number in load.sources:
            assert kind != "replica" or number not in self._lacking, (
                f"load {load.load} has replica {number} as a source, which has no parameters: load it first"
            )
        self._lacking.difference_update(replicas(load.targets))

    def ended_early(self, target: Stop) -> None:
        """A target did not get everything."""
        if target[0] == "replica":
            self._lacking.add(target[1])

    def start(self, replica: int) -> StartUpTimes:
        """The replica's processes start now."""
        return start(self._start_up, self._contexts, self._connections, self.gpus_of[replica])


def replicas(stops: Iterable[Stop]) -> list[int]:
    """The numbers of the replicas among these."""
    return [number for kind, number in stops if kind == "replica"]
