"""A Deployment through the API: its replicas, which are restored at the end, and its pods.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/deployment-v1/
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from realexec.kubernetes.api import FORBIDDEN, NOT_FOUND, Body, KubernetesApi, Refused
from realexec.kubernetes.pod import DELETION_COST, FIRST_TO_GO, pod_of, pull_s_of
from serving.vocabulary.errors import UserError

BEFORE: Final = "servetwin/replicas-before-the-run"  # annotation of the Deployment while a run scales it
_SHORT_GRACE_S: Final = 1  # 0 would forget the pod although its node may not have ended it


class Deployment:
    """``before``: the replicas to restore; None: nothing is to be. ``port``: the first of its containers."""

    def __init__(self, api: KubernetesApi, namespace: str, name: str) -> None:
        self._api, self.namespace, self.name = api, namespace, name
        self._path = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(name)}"
        self._pods = f"/api/v1/namespaces/{quote(namespace)}/pods"
        self.before: int | None = None
        self.selector = ""
        self.port: int | None = None

    async def open(self) -> None:
        """Read it, and note its replicas in an annotation of its own. Raises UserError."""
        scale = await self._api.get(f"{self._path}/scale")
        self.selector = str((scale.get("status") or {}).get("selector") or "")
        if not self.selector:
            raise UserError(f"the scale of {self} names no selector of pods: check http.deployment")
        await self._refuse_other_scalers()
        found = await self._api.change(self._path, self._noted)
        self.before = int(found["metadata"]["annotations"][BEFORE])
        containers = found["spec"]["template"]["spec"]["containers"]
        ports = [port["containerPort"] for one in containers for port in one.get("ports") or ()]
        self.port = ports[0] if ports else None

    def __str__(self) -> str:
        return f"Deployment {self.namespace}/{self.name}"

    @staticmethod
    def _noted(found: Body) -> Body | None:
        """The note of a run that was killed stays: its replicas are not those of the user."""
        if BEFORE in (found["metadata"].get("annotations") or {}):
            return None
        return {"metadata": {"annotations": {BEFORE: str(found["spec"].get("replicas", 1))}}}

    async def _refuse_other_scalers(self) -> None:
        path = f"/apis/autoscaling/v2/namespaces/{quote(self.namespace)}/horizontalpodautoscalers"
        try:
            found = await self._api.get(path)
        except Refused as error:
            if error.status in (FORBIDDEN, NOT_FOUND):
                return  # not ours to see
            raise
        for one in found.get("items") or ():
            target = one["spec"]["scaleTargetRef"]
            if (target.get("kind"), target.get("name")) == ("Deployment", self.name):
                raise UserError(
                    f"the HorizontalPodAutoscaler {one['metadata']['name']} scales {self} too: delete it (of "
                    "KEDA: pause its ScaledObject), or name a Deployment of the run's own in http.deployment"
                )

    async def scale(self, replicas: int) -> None:
        """Ask for so many pods."""
        await self._api.patch(f"{self._path}/scale", {"spec": {"replicas": replicas}})

    async def restore(self) -> None:
        """Give it the replicas that it had, and take back what was written to it and to its pods."""
        if self.before is None:
            return
        annotations = {BEFORE: None}
        await self._api.patch(
            self._path, {"metadata": {"annotations": annotations}, "spec": {"replicas": self.before}}
        )
        self.before = None
        for data in (await self._api.get(f"{self._pods}?labelSelector={quote(self.selector)}"))["items"]:
            pod = pod_of(data)
            if pod.marked and not pod.going:
                await self.unmark(pod.name)

    # Pods.

    async def mark(self, pod: str) -> None:
        """Make it the first of the ready pods that a smaller scale deletes."""
        await self._annotate(pod, FIRST_TO_GO)

    async def unmark(self, pod: str) -> None:
        """Make it a pod like the others again."""
        await self._annotate(pod, None)

    async def _annotate(self, pod: str, cost: str | None) -> None:
        body: dict[str, Any] = {"metadata": {"annotations": {DELETION_COST: cost}}}
        with _unless_gone():
            await self._api.patch(f"{self._pods}/{quote(pod)}", body)

    async def kill(self, pod: str) -> None:
        """End the grace period of a pod that is being deleted."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": _SHORT_GRACE_S}
        with _unless_gone():
            await self._api.delete(f"{self._pods}/{quote(pod)}", body)

    async def pull_s(self, pod: str) -> float | None:
        """Return how long its image was pulled, by its events; None if they do not say."""
        chosen = quote(f"involvedObject.name={pod},reason=Pulled")
        path = f"/api/v1/namespaces/{quote(self.namespace)}/events?fieldSelector={chosen}"
        try:
            found = await self._api.get(path)
        except Refused:
            return None  # events may not be ours to see
        times_s = [pull_s_of(str(event.get("message", ""))) for event in found.get("items") or ()]
        known_s = [time_s for time_s in times_s if time_s is not None]
        return max(known_s) if known_s else None


@contextmanager
def _unless_gone() -> Iterator[None]:
    """Pass over a pod that is not there any more."""
    try:
        yield
    except Refused as error:
        if error.status != NOT_FOUND:
            raise
