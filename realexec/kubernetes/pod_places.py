"""Which pod is which instance, and which pods Kubernetes is about to delete."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from realexec.kubernetes.pod import Pod


@dataclass(slots=True)
class PodPlaces:
    """``wanted``: the instances that are to have a pod. ``pod_of``: those that have one."""

    wanted: set[int] = field(default_factory=set)
    pod_of: dict[int, str] = field(default_factory=dict)

    def surplus(self, pods: Mapping[str, Pod]) -> int:
        """How many more pods there are than wanted: Kubernetes deletes so many."""
        return max(0, sum(not pod.going for pod in pods.values()) - len(self.wanted))

    def unassigned(self, pods: Mapping[str, Pod]) -> list[Pod]:
        """The pods of no instance that are not being deleted."""
        taken = set(self.pod_of.values())
        return [pod for pod in pods.values() if not pod.going and pod.name not in taken]

    def free(self, pods: Mapping[str, Pod]) -> list[Pod]:
        """The ready pods that an instance can have, because Kubernetes deletes none of them.

        Of ready pods it deletes those with the lowest deletion cost first, so the marked ones; pods that are
        not ready go before all. While it may choose among unmarked ones none is free.
        """
        spare = sorted(self.unassigned(pods), key=lambda pod: not pod.marked)
        surplus = self.surplus(pods)
        if surplus > sum(pod.marked for pod in spare):
            return []
        return [pod for pod in spare[surplus:] if pod.ready]
