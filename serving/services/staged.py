"""What scaling of stages needs of a service whose model is in stages, with KV or without."""

from collections.abc import Sequence
from typing import Protocol

from serving.services.cut_changes import CutChanges
from serving.services.path_live import LiveStages
from serving.services.stage import Stage
from serving.vocabulary.actions import Action
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, Role


class StagedService(Protocol):
    """``cores``: CPU cores of replicas that have others than all. ``batch``: requests of a pass at most.

    ``cores_count``: whether a pass is faster with more cores. ``live_stages``: replicas that work while they
    load; None: none do.
    """

    model: str
    cores: dict[int, int]

    @property
    def live_stages(self) -> LiveStages | None: ...

    @property
    def stages(self) -> list[Stage]: ...

    @property
    def cut_changes(self) -> CutChanges | None:
        """Who cuts it anew; None: it stays as it is."""

    @property
    def batch(self) -> int: ...

    @property
    def cores_count(self) -> bool: ...

    def most_of(self, replica: int) -> int:
        """Requests of its next pass at most."""

    def set_batches(self, replicas: Sequence[int], most: int) -> None:
        """Each takes so many from its next pass on."""

    def forget(self, replica: int) -> None:
        """It is gone: it has no cores and no batch of its own any more."""

    def replica_of(self, part: Part, number: int, gpu: int) -> Replica:
        """A new replica of a stage."""

    def index_of(self, replica: int) -> int | None:
        """Of the stage that a replica is of; None: it is another model's."""

    def queued_at(self, stage: Stage) -> int:
        """Requests that have yet to pass a stage, and that no replica of it has."""

    def computes(self, stage: Stage) -> bool:
        """Whether some replica of the stage works, or will without anybody deciding anything."""

    def outstanding(self, replica: int) -> int:
        """Requests that it runs, keeps KV of, or will run next."""

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """A replica takes requests of its stage."""

    def leave(self, replica: int, actions: list[Action]) -> None:
        """A replica ends what it has and takes nothing new."""
