"""The pods of a Deployment as the API last told: listed, then watched from the list's version on.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

from realexec.http.client import BrokenStream
from realexec.kubernetes.api import AGAIN, GONE, KubernetesApi, Refused
from realexec.kubernetes.pod import Pod, pod_of
from serving.record.json_text import json_data
from serving.vocabulary.errors import UserError

CREATED: Final = "pod_s"
_WATCH_S: Final = 240  # the API server ends a watch then; it may end it earlier
_LATE_S: Final = 30.0  # a watch that has not ended so long after that is cut off
_PAUSE_S: Final = 0.2  # before a watch that broke is begun again


class PodWatch:
    """``pods``: by name. ``seen_ns``: when each phase of a pod was first seen. ``lists``: how often all were
    listed."""

    def __init__(self, api: KubernetesApi, namespace: str, selector: str) -> None:
        self._api, self._path = api, f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
        self.pods: dict[str, Pod] = {}
        self.seen_ns: dict[str, dict[str, int]] = {}
        self.lists = 0

    async def follow(self) -> None:
        """Keep ``pods`` current, until cancelled. Raises UserError if the API refuses."""
        version: str | None = None
        while True:
            if version is None:
                version = await self._list()
            try:
                version = await self._watched(version)
            except Refused as error:
                if error.status in AGAIN:
                    await asyncio.sleep(_PAUSE_S)
                elif error.status == GONE:
                    version = None
                else:
                    raise
            except (OSError, ValueError):
                await asyncio.sleep(_PAUSE_S)  # the connection broke: go on from the last version

    async def _list(self) -> str:
        found = await self._api.get(self._path)
        self.lists += 1
        self.pods = {}
        for data in found.get("items") or ():
            self._put(data)
        return str(found["metadata"]["resourceVersion"])

    async def _watched(self, version: str) -> str | None:
        """Take changes until the watch ends; return the last version, None if it is too old to go on from."""
        more = (
            f"&watch=true&allowWatchBookmarks=true&timeoutSeconds={_WATCH_S}&resourceVersion={quote(version)}"
        )
        async with self._api.watch(self._path + more) as answer, aclosing(answer.lines()) as lines:
            try:
                async with asyncio.timeout(_WATCH_S + _LATE_S):
                    async for line in lines:
                        if not line.strip():
                            continue
                        kind, data = _event_in(line)
                        if kind == "ERROR" and data.get("code") == GONE:
                            return None
                        if kind == "ERROR":
                            raise BrokenStream(str(data.get("message")))
                        version = self._took(kind, data)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
        return version

    def _took(self, kind: str, data: Mapping[str, Any]) -> str:
        """Take a change; return the version after it."""
        if kind == "DELETED":
            self.pods.pop(data["metadata"]["name"], None)
        elif kind != "BOOKMARK":
            self._put(data)
        return str(data["metadata"]["resourceVersion"])

    def _put(self, data: Mapping[str, Any]) -> None:
        try:
            pod, now_ns = pod_of(data), time.monotonic_ns()
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"the Kubernetes API names a pod that cannot be read ({type(error).__name__}: {error}): "
                "check that http.kubeconfig names a Kubernetes API"
            ) from None
        self.pods[pod.name] = pod
        seen = self.seen_ns.setdefault(pod.name, {})
        for phase in (CREATED, *pod.reached):
            seen.setdefault(phase, now_ns)


def _event_in(line: bytes) -> tuple[str, Mapping[str, Any]]:
    event = json_data(line.decode())
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ValueError(f"no event: {line[:50]!r}")
    return str(event.get("type")), event["object"]
