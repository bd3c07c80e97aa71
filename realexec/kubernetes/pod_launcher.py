"""Starts and ends instances as pods: scales a Deployment, takes ready pods, and gives back what it found."""

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from realexec.http.client import Address
from realexec.http.instance_launcher import NOWHERE, NotReady, first_answer
from realexec.http.probe import Server
from realexec.http.start_book import StartBook
from realexec.kubernetes.api import KubernetesApi
from realexec.kubernetes.deployment import Deployment
from realexec.kubernetes.kubeconfig import Access
from realexec.kubernetes.pod import CONTAINER, READY, SCHEDULED, Pod
from realexec.kubernetes.pod_places import PodPlaces
from realexec.kubernetes.pod_watch import CREATED, PodWatch
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

LOOK_S: Final = 0.05
RAN_ALREADY: Final = "ran already"
_END_S: Final = 1.0  # for the API to tell why a server does not answer
_GONE_S: Final = 60.0  # after its grace period a pod that is still listed is waited for no longer
_PHASES: Final = (CREATED, SCHEDULED, CONTAINER, READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """``deployment``: NAMESPACE/NAME, or NAME. ``port``: None: the first of the Deployment's containers.

    ``model``, ``key``: see probe. ``timeout_s``: until a pod must have answered a request; ``kill_s``: the
    longest grace period of a pod that is deleted.
    """

    deployment: str
    port: int | None
    model: str | None
    key: str | None
    timeout_s: float
    kill_s: float


class PodLauncher:
    """Pods of a Deployment: an ``InstanceLauncher``.

    Use as a context manager: at its end the Deployment has the replicas that it had before.
    """

    def __init__(self, rules: PodRules, servers: int, access: Access) -> None:
        self.what, self.servers = f"pod of http.deployment={rules.deployment}", servers
        self.like: Server | None = None
        self.model, self.key = rules.model, rules.key
        self._rules, self._book, self._places = rules, StartBook(), PodPlaces()
        namespace, _, name = rules.deployment.rpartition("/")
        self._api = KubernetesApi(access)
        self._deployment = Deployment(self._api, namespace or access.namespace, name)
        self._addresses: dict[int, Address] = {}
        self._asked: int | None = None  # replicas, as last asked for
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> "PodLauncher":
        asyncio.run(self._opened())
        return self

    async def _opened(self) -> None:
        try:
            await self._deployment.open()
            self._port = self._rules.port or self._deployment.port
            if self._port is None:
                raise UserError(f"the containers of {self._deployment} name no port: write http.pod_port=N")
        except BaseException:
            await self._deployment.restore()
            raise
        self._watch = PodWatch(self._api, self._deployment.namespace, self._deployment.selector)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = self._deployment.before
        try:
            asyncio.run(self._deployment.restore())
        except UserError as failed:
            one = self._deployment
            first = f"{error}; and " if isinstance(error, UserError) else ""
            raise UserError(
                f"{first}{one} is not as it was: kubectl --namespace {one.namespace} scale deployment "
                f"{one.name} --replicas={before} ({failed})"
            ) from error

    # As the run asks.

    @property
    def running(self) -> Collection[int]:
        """The servers that have or await a pod."""
        return self._places.wanted

    @property
    def gives_up(self) -> bool:
        """Whether starts have failed so often that another would fail too."""
        return self._book.gives_up

    def address(self, number: int) -> Address:
        """Where a server is, or was last; ``NOWHERE`` if it never had a pod."""
        return self._addresses.get(number, NOWHERE)

    async def start(self, number: int) -> None:
        """Ask for one more pod, and wait until a pod has answered a request. Raises NotReady."""
        began_ns = time.monotonic_ns()
        until_ns = began_ns + round(self._rules.timeout_s * NS_PER_S)
        await self._watching()
        served = {pod.name for pod in self._watch.pods.values() if pod.ready}
        self._places.wanted.add(number)
        try:
            await self._scaled()
            asked_ns = time.monotonic_ns()
            pod = await self._taken(number, until_ns)
            await first_answer(self._addresses[number], self.model, self.key, until_ns)
        except BaseException as error:
            await asyncio.shield(self.stop(number, failed=isinstance(error, NotReady)))
            raise
        pod_seen_ns = self._watch.seen_ns[pod.name]
        # A pod may be seen before the answer to the request for it is.
        asked_ns = min(asked_ns, max(began_ns, pod_seen_ns.get(CREATED, asked_ns)))
        seen_ns = {"asked_s": asked_ns, **pod_seen_ns, "ready_s": time.monotonic_ns()}
        ran = pod.name in served
        phases = ("asked_s", *(() if ran else _PHASES), "ready_s")
        times_s = {
            one: (seen_ns[one] - began_ns) / NS_PER_S for one in phases if seen_ns.get(one, 0) >= began_ns
        }
        told = {"pod": pod.name, "node": pod.node, **times_s}
        told["cluster_says"] = {} if ran else await self._cluster_says(pod)
        self._book.started(number, told, RAN_ALREADY if ran else None)

    async def _cluster_says(self, pod: Pod) -> dict[str, float]:
        """Seconds since the pod's creation by the cluster's clocks, in whole seconds, and of the pull."""
        pull_s = await self._deployment.pull_s(pod.name)
        return {**pod.reached, **({} if pull_s is None else {"pull_s": pull_s})}

    async def stop(self, number: int, failed: bool = False) -> None:
        """Ask for one pod less, that of the server; nothing if it has and awaits none."""
        if number not in self._places.wanted:
            return
        began_s = time.monotonic()
        await self._watching()
        self._places.wanted.discard(number)
        name = self._places.pod_of.pop(number, None)
        for pod in self._places.unassigned(self._watch.pods):
            if not pod.marked:
                await self._deployment.mark(pod.name)
        await self._scaled()
        killed = name is not None and await self._ended(name)
        if failed:
            self._book.failed()
        elif name is not None:
            self._book.ended(killed, time.monotonic() - began_s)

    async def why_ended(self, number: int) -> str:
        """What the API says of the pod of a server that does not answer; empty if it is ready."""
        name = self._places.pod_of.get(number)
        with suppress(UserError):  # nothing is told where the API is not reached
            await self._watching()
        until_s = time.monotonic() + _END_S
        while name is not None and time.monotonic() < until_s:
            pod = self._watch.pods.get(name)
            if pod is None or pod.going:
                return f"its pod {name} was deleted"
            if not pod.ready and pod.ended:
                return f"its pod {name} does not serve: {pod.ended}"
            await asyncio.sleep(LOOK_S)
        return ""

    def report(self) -> dict[str, Any]:
        """What summary.json says in ``real.starts``."""
        asked = {"requests_repeated": self._api.repeated, "pods_listed": self._watch.lists}
        return {**self._book.report(), "kubernetes": {"deployment": str(self._deployment), **asked}}

    # Pods.

    async def _watching(self) -> None:
        """Follow the pods in the loop that runs now. Raises what ended the following of them."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._scaling = loop, asyncio.Lock()
            self._lists = self._watch.lists
            self._following = loop.create_task(self._watch.follow())
        while self._watch.lists == self._lists:
            self._check_watch()
            await asyncio.sleep(LOOK_S)
        self._check_watch()

    def _check_watch(self) -> None:
        if self._following.done():
            self._following.result()

    async def _scaled(self) -> None:
        """Ask for as many pods as are wanted by now."""
        async with self._scaling:
            wanted = len(self._places.wanted)
            if wanted != self._asked:
                await self._deployment.scale(wanted)
                self._asked = wanted

    async def _taken(self, number: int, until_ns: int) -> Pod:
        """Wait for a ready pod and make it the server's. Raises NotReady."""
        while time.monotonic_ns() < until_ns:
            self._check_watch()
            if free := self._places.free(self._watch.pods):
                pod = free[0]
                self._places.pod_of[number] = pod.name
                assert self._port is not None, "the launcher was not entered"
                self._addresses[number] = Address("http", pod.address, self._port)
                if pod.marked:
                    await self._deployment.unmark(pod.name)
                return pod
            await asyncio.sleep(LOOK_S)
        spare = self._places.unassigned(self._watch.pods)
        told = [
            f"{pod.name}: {pod.trouble or pod.ended or 'it has no address'}" for pod in spare if not pod.ready
        ]
        raise NotReady(f"no pod is ready in time; {'; '.join(told) or 'Kubernetes made none'}")

    async def _ended(self, name: str) -> bool:
        """Wait until a pod is gone, or another one went in its place. Returns whether it had to be killed."""
        kill_s, killed = self._rules.kill_s, False
        until_s, going_s = time.monotonic() + self._rules.timeout_s, None
        while (now_s := time.monotonic()) < until_s:
            self._check_watch()
            pod = self._watch.pods.get(name)
            if pod is None:
                return killed
            if not pod.going and not self._places.surplus(self._watch.pods):
                return False  # it stays, and is the next that a start gets
            if pod.going and going_s is None:
                going_s, until_s = now_s, now_s + kill_s + _GONE_S
            if going_s is not None and not killed and now_s >= going_s + kill_s:
                await self._deployment.kill(name)
                killed = True
            await asyncio.sleep(LOOK_S)
        return killed
