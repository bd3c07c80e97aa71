"""Replicas that are loading parameters: a run requested of one is held until the load has ended."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from serving.vocabulary.actions import AllocateGpus, Endpoint, Interrupt, Load, Run
from serving.vocabulary.events import Loaded
from simcore.data_plane.data_plane import DataPlane
from simcore.replica.machine import Machine
from simcore.timers import Timer

COMPLETION_RANK: Final = 5  # + replica id
LOADING_RANK: Final = 1 << 32  # + COMPLETION_RANK + replica id, while the replica lacks parameters


class RunHooks(NamedTuple):
    """Hooks called before runs begin: ``takes`` is called for runs of the replicas in ``looked_at``.

    It returns whether it begins the run itself. An ``Interrupt`` of a replica in ``held`` goes to
    ``interrupts``.
    """

    looked_at: set[int]
    held: dict[int, Any]
    takes: Callable[[int, Run], bool]
    interrupts: Callable[[int, Interrupt], None]


class ColdReplicas:
    """``lacking``: replicas without parameters; ``held``: runs requested of them, and when."""

    __slots__ = ("_cut", "_data_plane", "_machines", "_targets", "_timers", "held", "lacking")

    def __init__(
        self, machines: dict[int, Machine], timers: dict[int, Timer], data_plane: DataPlane | None
    ) -> None:
        self._machines, self._timers, self._data_plane = machines, timers, data_plane
        self.lacking: set[int] = set()
        self.held: dict[int, tuple[int, Run]] = {}
        self._cut: set[int] = set()  # the interrupted ones in ``held``
        self._targets: dict[int, tuple[Endpoint, ...]] = {}

    def hooks(self) -> RunHooks:
        """Hooks for runs of replicas that lack parameters."""
        return RunHooks(self.lacking, self.held, self.is_held, self.interrupt)

    def place(self, action: AllocateGpus) -> None:
        """Note a placed replica, with or without parameters."""
        if not action.warm:
            self.lacking.add(action.replica)
        rank = COMPLETION_RANK + action.replica
        self._timers[action.replica].rank = rank + (0 if action.warm else LOADING_RANK)

    def load(self, action: Load) -> None:
        """Note a load and its targets."""
        self._targets[action.load] = action.targets

    def is_held(self, now_ns: int, run: Run) -> bool:
        """Hold a run of a replica that lacks parameters, except a run over loaded layers."""
        assert run.replica not in self.held, "one pass at a time"
        if run.layers is None:
            self.held[run.replica] = now_ns, run
            return True
        assert self._data_plane is not None
        self._data_plane.require_layers(run.replica, run.layers)
        return False

    def interrupt(self, now_ns: int, action: Interrupt) -> None:
        """Let a held run end at its first boundary."""
        self._cut.add(action.replica)

    def warm(self, now_ns: int, fact: Loaded) -> None:
        """Handle a fully loaded replica; a run that overlapped with the load ends as its layers allow."""
        kind, replica = self._targets[fact.load][fact.target]
        if kind != "replica":
            return
        self.lacking.discard(replica)
        self._timers[replica].rank = COMPLETION_RANK + replica
        held = self.held.pop(replica, None)
        if held is None:
            return
        assert self._data_plane is not None
        asked_ns, run = held
        machine = self._machines[replica]
        # Each layer runs once it is loaded and the layer before it is done. The result is as if all ran
        # without a pause at the end of that time.
        layers_ns = self._data_plane.layer_ready_ns(replica)
        machine.start(asked_ns, run)
        count, step_ns = len(layers_ns), machine.first_step_ns
        ends_ns = [ready + step_ns * (count - layer) // count for layer, ready in enumerate(layers_ns)]
        machine.postpone(max(0, max(*ends_ns, now_ns) - step_ns - asked_ns))
        if replica in self._cut:
            self._cut.discard(replica)
            machine.interrupt(now_ns, 0)
        self._timers[replica].at(max(machine.due_ns, now_ns))

    def lose(self, replica: int) -> None:
        """Forget a lost replica and its held run."""
        self.lacking.discard(replica)
        self.held.pop(replica, None)
        self._cut.discard(replica)
