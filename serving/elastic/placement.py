"""Assigns GPUs and roles to instances, and informs the engine and the service."""

from collections.abc import Callable, Mapping

from serving.elastic.instances import Instances
from serving.elastic.scale_log import ScaleLog
from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK
from serving.parameters.cluster_map import ClusterMap
from serving.parameters.residency import Residency
from serving.services.service import Service
from serving.vocabulary.actions import Action, AllocateGpus, ReleaseGpus, SwitchRole
from serving.vocabulary.replica import Replica, Role


class Placement:
    """``instances``: which GPUs belong to which instance. ``place`` gives a replica its engine.

    ``park_ns``: how long parameters stay on reclaimed GPUs. ``residency``: where parameters are.
    """

    __slots__ = (
        "_cluster", "_engines", "_log", "_park_ns", "_place", "_residency", "_services", "instances",
    )  # fmt: skip

    def __init__(
        self,
        *,
        instances: Instances,
        cluster: ClusterMap,
        park_ns: int,
        engines: Mapping[int, Engine],
        services: Mapping[str, Service],
        place: Callable[[Replica, Role, bool], None],
        log: ScaleLog,
        residency: Residency,
    ) -> None:
        self.instances = instances
        self._residency = residency
        self._cluster = cluster
        self._park_ns = park_ns
        self._engines = engines
        self._services = services
        self._place = place
        self._log = log

    def host_of(self, number: int) -> int:
        """The host of a replica's GPUs."""
        return self._cluster.host_of(self.instances.replica(number).gpus[0])

    def service_of(self, number: int) -> Service:
        """The service of an instance's model."""
        return self._services[self.instances.live[number].replica.model]

    def occupy(self, number: int, role: Role, warm: bool, reason: str, actions: list[Action]) -> None:
        """Give GPUs to a replica; ``warm``: its parameters are already on them."""
        instance = self.instances.place(number, role, "serving" if warm else "loading")
        replica = instance.replica
        part, endpoint = replica.part, ("replica", number)
        actions.append(
            AllocateGpus(
                number, part.model, gpus=replica.gpus, role=role, warm=warm, reason=reason, layers=part.layers
            )
        )
        if warm:
            self._residency.put(endpoint, part)
        else:
            self._residency.clear(endpoint)
        self._place(replica, role, warm)

    def loaded(self, number: int, actions: list[Action]) -> None:
        """Let the instance run passes from now on."""
        self.instances.loaded(number)
        self._engines[number].ready(actions)

    def join(self, number: int, actions: list[Action]) -> None:
        """Let the instance take requests in its role."""
        instance = self.instances.live[number]
        self._services[instance.replica.model].join(instance.replica, instance.role, actions)

    def switch_role(self, number: int, role: Role, reason: str, actions: list[Action]) -> None:
        """Change the role of a serving instance."""
        self.instances.switch_role(number, role)
        actions.append(SwitchRole(number, role, reason))
        self.service_of(number).leave(number, actions)
        self.join(number, actions)

    def vacate(self, now_ns: int, number: int, reason: str, actions: list[Action]) -> None:
        """Free the GPUs of an empty instance; a complete set of parameters may stay on them for a while."""
        instance = self.instances.live[number]
        parks = self._park_ns and instance.state != "loading"
        self._log.happened(now_ns, "released", instance, reason)
        self.instances.free(number, now_ns + self._park_ns if parks else None)
        self._engines[number].vacate()
        self._residency.clear(("replica", number))
        actions.append(ReleaseGpus(number, reason))

    def at_work(self, number: int) -> bool:
        """Whether the instance is busy, so that a report will follow."""
        return self._engines[number].state in AT_WORK
