"""The data plane's record of replicas: their part of a model, GPUs, CUDA contexts, connections."""

from collections.abc import Iterable, Sequence

from hwmodels.loading.startup import ConnectionPool, ContextPool, StartUp, StartUpTimes, start
from serving.vocabulary.actions import AllocateGpus, Load, ReleaseGpus, Send
from serving.vocabulary.layers import Part


class ReplicaPlacement:
    """Replicas from ``AllocateGpus`` to ``ReleaseGpus``.

    part_of, gpus_of: the part of a model and the GPUs of each initial replica. contexts: CUDA contexts kept
    ready from the start on; connected: whether the GPUs of each initial replica have their connections.
    """

    __slots__ = ("_connections", "_contexts", "_start_up", "_there", "gpus_of", "lost", "part_of")

    def __init__(
        self,
        part_of: Sequence[Part],
        gpus_of: Sequence[tuple[int, ...]],
        start_up: StartUp,
        contexts: int,
        connected: bool,
    ) -> None:
        self.part_of: dict[int, Part] = dict(enumerate(part_of))
        self.gpus_of: dict[int, tuple[int, ...]] = dict(enumerate(gpus_of))
        self._start_up = start_up
        self._contexts = ContextPool(contexts)
        self._connections = ConnectionPool(ready=gpus_of if connected else ())
        self._there = set(self.gpus_of)
        self.lost: set[int] = set()  # replicas lost with their GPUs

    def place(self, action: AllocateGpus, part: Part) -> None:
        """Give the GPUs to the replica, which will hold ``part``."""
        number = action.replica
        known = self.gpus_of.setdefault(number, action.gpus)
        assert known == action.gpus, (
            f"replica {number} was on GPUs {known} and is placed on {action.gpus}: give it another number"
        )
        if action.warm and number not in self._there:
            for _ in action.gpus:
                self._contexts.take(0.0)
        before = self.part_of.setdefault(number, part)
        assert before == part, (
            f"replica {number} was to hold {before} and is placed for {part}: give it another number"
        )
        self._there.add(number)

    @property
    def placed(self) -> dict[int, tuple[int, ...]]:
        """The replicas that own GPUs now."""
        return {number: self.gpus_of[number] for number in self._there}

    def lose(self, replica: int) -> None:
        """Remove a lost replica and its GPUs; it cannot be placed again."""
        self._there.discard(replica)
        self.lost.add(replica)

    def release_gpus(self, action: ReleaseGpus, busy: Iterable[int]) -> None:
        """Release the replica's GPUs. busy: loads from or to it, which must be empty."""
        number = action.replica
        assert number in self._there, f"replica {number} is reclaimed, but was never placed"
        loads = ", ".join(map(str, busy))
        assert not loads, f"replica {number} is reclaimed while load {loads} needs it: stop that first"
        self._there.discard(number)
        for _ in self.gpus_of[number]:
            self._contexts.give_back()

    def begin(self, load: Load) -> None:
        """Refuse a load from or to a replica that does not exist, or is of another model."""
        for kind, number in (*load.sources, *load.targets):
            if kind != "replica":
                continue
            assert number in self._there, (
                f"load {load.load} names replica {number}, which is not placed: place it first"
            )
            model = self.part_of[number].model
            assert model == load.model, (
                f"load {load.load} is of {load.model}, and replica {number} of {model}"
            )

    def require_part(self, load: Load, part: Part) -> None:
        """Refuse a load of layers that do not belong to a target replica's part."""
        for kind, number in (*load.sources, *load.targets):
            assert kind != "replica" or self.part_of[number].has(*part.layers), (
                f"load {load.load} is of {part}, and replica {number} is to hold {self.part_of[number]}"
            )

    def require_ends(self, send: Send) -> None:
        """Refuse KV of layers that do not belong to an end; for activations only the target is checked."""
        number, wanted = send.transfer, len(send.requests)
        assert not send.positions or len(send.positions) == wanted, (
            f"transfer {number} has positions of {len(send.positions)} requests: write those of all {wanted}"
        )
        if send.layers is None:
            return
        first, last = send.layers
        for replica in (send.source, send.target) if send.what == "kv" else (send.target,):
            part = self.part_of[replica]
            assert part.has(first, last), (
                f"transfer {number} is of layers {first} to {last}, and replica {replica} is to hold {part}"
            )

    def start(self, replica: int) -> StartUpTimes:
        """Start the replica's processes now."""
        return start(self._start_up, self._contexts, self._connections, self.gpus_of[replica])
