"""The interface that stage scaling needs of a service whose model is in stages, with KV or without."""

from collections.abc import Sequence
from typing import Protocol

from serving.services.language.cut_changes import CutChanges
from serving.services.language.path_live import LiveStages
from serving.services.stages.stage import Stage
from serving.vocabulary.actions import Action
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, Role


class StagedService(Protocol):
    """A service in stages. ``cores``: CPU cores of replicas with another number than the default.

    ``batch``: requests of a pass at most. ``cores_count``: whether a pass is faster with more cores.
    ``live_stages``: replicas that work while they load; None: none do.
    """

    model: str
    cores: dict[int, int]

    @property
    def live_stages(self) -> LiveStages | None: ...

    @property
    def stages(self) -> list[Stage]: ...

    @property
    def cut_changes(self) -> CutChanges | None:
        """Re-cuts the model; None: the model is not re-cut."""

    @property
    def batch(self) -> int: ...

    @property
    def cores_count(self) -> bool: ...

    def most_of(self, replica: int) -> int:
        """Requests of the replica's next pass at most."""

    def set_batches(self, replicas: Sequence[int], most: int) -> None:
        """Set the requests of a pass at most, from each replica's next pass on."""

    def forget(self, replica: int) -> None:
        """Forget a removed replica's cores and batch."""

    def replica_of(self, part: Part, number: int, gpu: int) -> Replica:
        """A new replica of a stage."""

    def index_of(self, replica: int) -> int | None:
        """Index of the replica's stage; None: the replica is of another model."""

    def queued_at(self, stage: Stage) -> int:
        """Requests that have yet to pass the stage and that no replica of it has."""

    def computes(self, stage: Stage) -> bool:
        """Whether a replica of the stage works, or will work without a further decision."""

    def outstanding(self, replica: int) -> int:
        """Requests that the replica runs, keeps KV of, or will run next."""

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let a replica take requests of its stage."""

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire a replica: it finishes its requests and takes no new ones."""
