"""A Kubernetes API as far as a Deployment needs it, written from its public documentation, on loopback.

https://kubernetes.io/docs/reference/kubernetes-api/ (objects, paths), /docs/reference/using-api/api-concepts/
(lists, watches, 410 Gone), /docs/concepts/workloads/controllers/replicaset/ (which pods a smaller scale
deletes), /docs/concepts/workloads/pods/pod-lifecycle/ (conditions, grace). Pods are made-up servers, each at
an address of its own in 127.0.0.0/8. It was never held beside a real cluster.
"""

import json
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.worlds.fake_openai import FakeServer, Settings

NAMESPACE, NAME = "llm", "vllm"
COST = "controller.kubernetes.io/pod-deletion-cost"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
_BACK_OFF_S = 1.0  # a container that ended starts again then
Object = dict[str, Any]


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(kw_only=True)
class Cluster:
    """``step_s``: between two phases of a pod's start; ``nodes``: of one pod each. ``stop_s``: what a server
    takes to end after SIGTERM, ``grace_s``: the pods' terminationGracePeriodSeconds.

    ``ignores_cost``: of ready pods the newest goes, whatever its cost: the annotation is best effort.
    """

    replicas: int = 0
    step_s: float = 0.05
    nodes: int = 8
    stop_s: float = 0.05
    grace_s: int = 30
    port_named: bool = True
    ignores_cost: bool = False
    settings: Settings = field(default_factory=lambda: Settings(step_s=0.01, kv_blocks=128))


@dataclass(eq=False)
class _Container:
    """What runs in a pod. ``next_s``: when its next phase is due."""

    server: FakeServer
    next_s: float
    phase: int = 0
    gone_s: float | None = None
    last: Object | None = None  # how it ended before


class FakeKubernetes:
    """Use as a context manager. ``asked``: (method, path, body) of every request, in order."""

    def __init__(
        self, cluster: Cluster | None = None, tls: ssl.SSLContext | None = None, token: str = ""
    ) -> None:
        self.cluster, self.token = cluster or Cluster(), token
        self.asked: list[tuple[str, str, Any]] = []
        self.faults: deque[tuple[str, str, int]] = deque()  # (method, part of a path, status), each once
        self.autoscalers: list[Object] = []
        self.pods: dict[str, Object] = {}
        self.changed = threading.Condition(threading.RLock())
        self.gone_as_status = False  # whether a version that is too old is told by the answer's status
        self._events: list[Object] = []
        self._history: list[tuple[int, str, Object]] = []
        self._oldest = self._version = 1
        self._cuts = 0  # how often all watches were ended
        self._containers: dict[str, _Container] = {}
        self._net = f"127.{random.randrange(1, 250)}.{random.randrange(1, 250)}"
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.pod_port: int = found.getsockname()[1]
        self.deployment = self._deployment()
        self._closing = threading.Event()
        handler = type("Handler", (_Handler,), {"world": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._threads = [
            threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True),
            threading.Thread(target=self._control, daemon=True),
        ]

    def _deployment(self) -> Object:
        ports = [{"containerPort": self.pod_port}] if self.cluster.port_named else []
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "resourceVersion": "1"},
            "spec": {
                "replicas": self.cluster.replicas,
                "selector": {"matchLabels": {"app": NAME}},
                "template": {"spec": {"containers": [{"name": "server", "ports": ports}]}},
            },
        }

    def __enter__(self) -> "FakeKubernetes":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.cut_watches()
        self._http.shutdown()
        self._threads[1].join(10)
        self._http.server_close()
        for container in self._containers.values():
            container.server.__exit__()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}"

    def kubeconfig(self, folder: Path, authority: str = "") -> Path:
        """A file as kubectl has it, in YAML."""
        file = folder / "kubeconfig"
        ca = f"    certificate-authority-data: {authority}\n" if authority else ""
        file.write_text(
            f"apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: here\n  context:\n"
            f"    cluster: fake\n    user: me\n    namespace: {NAMESPACE}\nclusters:\n- name: fake\n"
            "  cluster:\n"
            f"    server: {self.url}\n{ca}users:\n- name: me\n  user:\n    token: {self.token or 'none'}\n"
        )
        return file

    # What tests do to it.

    @property
    def replicas(self) -> int:
        return int(self.deployment["spec"]["replicas"])

    @property
    def ready(self) -> list[str]:
        """The names of the pods that are ready and not being deleted."""
        with self.changed:
            return [name for name, pod in self.pods.items() if _is_ready(pod) and not _is_going(pod)]

    def forget_history(self) -> None:
        """Versions so far are too old to watch from, as after etcd's compaction; all watches end."""
        with self.changed:
            self._version += 1
            self._oldest = self._version
            self._history.clear()
        self.cut_watches()

    def cut_watches(self) -> None:
        """End every watch."""
        with self.changed:
            self._cuts += 1
            self.changed.notify_all()

    def delete(self, name: str, grace_s: float | None = None) -> None:
        """As DELETE of a pod does: SIGTERM, and SIGKILL after the grace period; it only gets shorter."""
        with self.changed:
            container, most_s = self._containers[name], self.cluster.grace_s if grace_s is None else grace_s
            until_s = time.monotonic() + min(self.cluster.stop_s, most_s)
            container.gone_s = min(until_s, container.gone_s or until_s)
            if not _is_going(self.pods[name]):
                self._change(
                    name, {"metadata": {"deletionTimestamp": now(), "deletionGracePeriodSeconds": most_s}}
                )

    def crash(self, name: str) -> None:
        """Its container ends; the kubelet starts another in the same pod."""
        with self.changed:
            container = self._containers[name]
            container.server.__exit__()
            container.server = FakeServer(
                self.cluster.settings, self.pod_port, self.pods[name]["status"]["podIP"]
            )
            container.phase, container.next_s = 1, time.monotonic() + _BACK_OFF_S
            container.last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
            self._change(
                name, {"status": _status(ready=False, waiting="CrashLoopBackOff", last=container.last)}
            )

    # The store.

    def _stored(self, kind: str, pod: Object) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, kind, deepcopy(pod)))
        self.changed.notify_all()

    def _change(self, name: str, patch: Object) -> None:
        self.pods[name] = merged(self.pods[name], patch)
        self._stored("MODIFIED", self.pods[name])

    # The controllers: of ReplicaSets, the scheduler and the kubelets.

    def _control(self) -> None:
        while not self._closing.wait(0.01):
            with self.changed:
                live = [pod for pod in self.pods.values() if not _is_going(pod)]
                for _ in range(self.replicas - len(live)):
                    self._create()
                surplus = len(live) - self.replicas
                for pod in sorted(live, key=self._order)[: max(0, surplus)]:
                    self.delete(pod["metadata"]["name"])
                for name in list(self.pods):
                    self._advance(name, self._containers[name])

    def _order(self, pod: Object) -> tuple[Any, ...]:
        """Which pod goes first: not assigned, pending, not ready, cheaper, newer."""
        status, meta = pod["status"], pod["metadata"]
        cost = 0 if self.cluster.ignores_cost else int(meta.get("annotations", {}).get(COST, "0"))
        scheduled = "nodeName" in pod["spec"]
        return scheduled, status["phase"] == "Running", _is_ready(pod), cost, -int(meta["uid"])

    def _create(self) -> None:
        number = self._version = self._version + 1
        name, place = f"{NAME}-{number:05d}", f"{self._net}.{number % 250 + 1}"
        self.pods[name] = {
            "metadata": {
                "name": name,
                "uid": str(number),
                "labels": {"app": NAME},
                "creationTimestamp": now(),
            },
            "spec": {"containers": [{"name": "server"}]},
            "status": {"phase": "Pending", "conditions": []},
        }
        server = FakeServer(self.cluster.settings, self.pod_port, place)
        self._containers[name] = _Container(server, time.monotonic() + self.cluster.step_s)
        self._stored("ADDED", self.pods[name])

    def _advance(self, name: str, one: _Container) -> None:
        at_s = time.monotonic()
        if one.gone_s is not None:
            if at_s >= one.gone_s:
                if one.phase >= 2:
                    one.server.__exit__()
                pod = self.pods.pop(name)
                del self._containers[name]
                self._stored("DELETED", pod)
            return
        if at_s < one.next_s or one.phase == 3:
            return
        if one.phase == 0 and not self._schedule(name):
            return
        if one.phase == 1:
            self._run(name, one)
        elif one.phase == 2:
            self._change(name, {"status": _status(ready=True, last=one.last)})
        one.phase, one.next_s = one.phase + 1, at_s + self.cluster.step_s

    def _schedule(self, name: str) -> bool:
        if sum("nodeName" in pod["spec"] for pod in self.pods.values()) < self.cluster.nodes:
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
            self._change(
                name, {"spec": {"nodeName": f"node-{name[-1]}"}, "status": {"conditions": [scheduled]}}
            )
            return True
        if not self.pods[name]["status"]["conditions"]:
            why = {
                "reason": "Unschedulable",
                "message": "0/8 nodes are available: 8 Insufficient nvidia.com/gpu.",
            }
            condition = {"type": "PodScheduled", "status": "False"} | why
            self._change(name, {"status": {"conditions": [condition]}})
        return False

    def _run(self, name: str, one: _Container) -> None:
        one.server.__enter__()
        message = 'Successfully pulled image "vllm/vllm-openai" in 1m2.5s (1m2.6s including waiting).'
        self._events.append({"reason": "Pulled", "message": message, "involvedObject": {"name": name}})
        place = urlsplit(one.server.url).hostname
        self._change(
            name, {"status": _status(ready=False, last=one.last) | {"phase": "Running", "podIP": place}}
        )

    # Requests.

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Object]:
        """Status and object."""
        with self.changed:
            if path == DEPLOYMENT:
                return self._deployment_answer(method, body)
            if path == f"{DEPLOYMENT}/scale":
                return self._scale_answer(method, body)
            if path == PODS and method == "GET":
                listed = {
                    "metadata": {"resourceVersion": str(self._version)},
                    "items": list(self.pods.values()),
                }
                return 200, {"kind": "PodList"} | listed
            if path == EVENTS:
                name = query["fieldSelector"].removeprefix("involvedObject.name=").split(",")[0]
                return 200, {"items": [one for one in self._events if one["involvedObject"]["name"] == name]}
            if path == HPAS:
                return 200, {"items": self.autoscalers}
            name = path.removeprefix(f"{PODS}/")
            if name not in self.pods:
                return 404, {"kind": "Status", "code": 404, "message": f'"{path}" not found'}
            if method == "PATCH":
                self._change(name, body)
            elif method == "DELETE":
                self.delete(name, (body or {}).get("gracePeriodSeconds"))
            return 200, self.pods[name]

    def _deployment_answer(self, method: str, body: Any) -> tuple[int, Object]:
        if method == "PATCH":
            meta = self.deployment["metadata"]
            if (
                body.get("metadata", {}).get("resourceVersion", meta["resourceVersion"])
                != meta["resourceVersion"]
            ):
                return 409, {"kind": "Status", "code": 409, "message": "the object has been modified"}
            self.touch(body)
        return 200, self.deployment

    def touch(self, patch: Object) -> None:
        """Change the Deployment: it has a new version."""
        with self.changed:
            self._version += 1
            self.deployment = merged(self.deployment, patch)
            self.deployment["metadata"]["resourceVersion"] = str(self._version)

    def _scale_answer(self, method: str, body: Any) -> tuple[int, Object]:
        if method == "PATCH":
            self.touch({"spec": {"replicas": body["spec"]["replicas"]}})
        scale = {
            "spec": {"replicas": self.replicas},
            "status": {"replicas": len(self.pods), "selector": f"app={NAME}"},
        }
        return 200, {"kind": "Scale", "apiVersion": "autoscaling/v1"} | scale

    def too_old(self, version: int) -> bool:
        """Whether changes after this version are not known any more."""
        return version < self._oldest

    def events_after(self, version: int, until_s: float) -> Iterator[Object]:
        """A watch's events, until it ends."""
        cuts = self._cuts
        while time.monotonic() < until_s:
            with self.changed:
                if self._cuts != cuts:
                    return
                new = [one for one in self._history if one[0] > version]
                if not new:
                    self.changed.wait(0.1)
                    told = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
                    new = [(version, "BOOKMARK", told)]
            for version_of, kind, pod in new:
                version = version_of
                yield {"type": kind, "object": pod}


def _is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"]["conditions"])


def _status(ready: bool, waiting: str = "", last: Object | None = None) -> Object:
    """Of a pod that is scheduled."""
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {"startedAt": now()}}
    more = {} if last is None else {"lastState": last}
    return {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()},
            {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now()},
        ],
        "containerStatuses": [{"name": "server", "ready": ready, "state": state} | more],
    }


class _Handler(BaseHTTPRequestHandler):
    world: FakeKubernetes
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing on the tests' output."""

    def _answered(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        world, self.close_connection = self.world, True
        world.asked.append((self.command, self.path, body))
        if world.token and self.headers.get("Authorization") != f"Bearer {world.token}":
            self._say(401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
        elif (status := self._fault()) is not None:
            self._say(status, {"kind": "Status", "code": status, "message": "not now"})
        elif self.command == "PATCH" and self.headers["Content-Type"] != "application/merge-patch+json":
            self._say(415, {"kind": "Status", "code": 415, "message": "the body of the request was unknown"})
        elif "watch" in query:
            self._watch(int(query["resourceVersion"]), float(query["timeoutSeconds"]))
        else:
            self._say(*world.answer(self.command, parts.path, query, body))

    do_GET = do_PATCH = do_DELETE = _answered

    def _fault(self) -> int | None:
        for fault in list(self.world.faults):
            method, part, status = fault
            if method == self.command and part in self.path:
                self.world.faults.remove(fault)
                return status
        return None

    def _say(self, status: int, data: Object) -> None:
        with self.world.changed:
            payload = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(payload)

    def _watch(self, version: int, timeout_s: float) -> None:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        too_old = self.world.too_old(version)
        if too_old and self.world.gone_as_status:
            self._say(410, gone)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        until_s = time.monotonic() + timeout_s
        events = [{"type": "ERROR", "object": gone}] if too_old else self.world.events_after(version, until_s)
        try:
            for event in events:
                self._line(event)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass  # the client has left

    def _line(self, event: Object) -> None:
        line = json.dumps(event).encode() + b"\n"
        half = len(line) // 2  # a line may come in pieces
        for piece in (line[:half], line[half:]):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
