"""Slots: the worker processes, one per GPU, and which replica occupies each of them now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from realexec.wire.messages import FromWorker, ToWorker
from serving.vocabulary.actions import AllocateGpus, Span
from serving.vocabulary.layers import Part


class Said(Protocol):
    """The methods of `realexec.wire.inbox.Inbox` used here."""

    def get(self, block: bool = True, timeout: float | None = None) -> tuple[int, FromWorker]:
        """Wait for (slot, message); queue.Empty if nothing came within ``timeout`` seconds."""

    def empty(self) -> bool:
        """Whether no message is waiting."""


class Worker(Protocol):
    """The methods of `realexec.driver.processes.WorkerProcess` used here."""

    process: Any

    def send(self, message: ToWorker) -> None:
        """Queue a message; returns at once."""

    def runs_since(self, since_ns: int) -> bool:
        """Whether it has sent a heartbeat later than ``since_ns`` (``time.monotonic_ns``)."""

    def cpu_ns(self) -> int:
        """CPU time of its process so far; 0 once it has exited."""


class Pool(Protocol):
    """The attributes of `realexec.driver.processes.WorkerPool` used here."""

    @property
    def inbox(self) -> Said:
        """Messages from workers."""

    @property
    def workers(self) -> Sequence[Any]:
        """A `Worker` for each slot."""


class Slots:
    """Slot n is worker n, GPU n and host n. ``dead``: slots whose process has exited."""

    def __init__(self, pool: Pool, replicas: Iterable[int], parts: Mapping[int, Part] | None = None) -> None:
        """``replicas``: the slot of each initial replica. ``parts``: the model parts that these have."""
        self._pool = pool
        self.part_of = dict(parts or {})
        self._slot_of = dict(enumerate(replicas))
        self._replica_at = {slot: replica for replica, slot in self._slot_of.items()}
        self.dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._pool.workers)

    def of(self, replica: int) -> int:
        """The slot that a replica occupies, or occupied last."""
        return self._slot_of[replica]

    def replica_at(self, slot: int) -> int | None:
        """The replica whose parameters are in a slot's memory; None if the slot had none yet."""
        return self._replica_at.get(slot)

    def layers_of(self, replica: int) -> Span | None:
        """The layers that a replica is to have, as far as the driver knows; None: all of its model's."""
        part = self.part_of.get(replica)
        return None if part is None else part.layers

    def allocate(self, action: AllocateGpus) -> int:
        """Give a GPU to a replica; returns its slot."""
        replica, gpus = action.replica, action.gpus
        if len(gpus) != 1 or not 0 <= gpus[0] < len(self):
            raise RuntimeError(
                f"replica {replica} is to have GPUs {list(gpus)}, and a real worker is one of 0 to "
                f"{len(self) - 1}"
            )
        (slot,) = gpus
        self._slot_of[replica] = slot
        self._replica_at[slot] = replica
        return slot

    def send(self, slot: int, message: ToWorker) -> None:
        """Send to the worker of a slot; if that worker has exited, the message is dropped."""
        self._pool.workers[slot].send(message)

    def tell(self, replica: int, message: ToWorker) -> None:
        """Send to the worker of a replica."""
        self.send(self._slot_of[replica], message)

    def runs_since(self, slot: int, since_ns: int) -> bool:
        """Whether the worker of a slot has sent a heartbeat later than ``since_ns``."""
        said: bool = self._pool.workers[slot].runs_since(since_ns)
        return said

    def unknown_since(self, since_ns: int) -> list[int]:
        """Slots whose workers are not known to be dead, and have sent no heartbeat since ``since_ns``."""
        live = (slot for slot in range(len(self)) if slot not in self.dead)
        return [slot for slot in live if not self.runs_since(slot, since_ns)]

    def end(self, slot: int) -> None:
        """Kill a worker that hangs; its exit is reported to the inbox like any other."""
        self._pool.workers[slot].process.kill()
