"""Servers on the nodes of a Ray cluster: each has an actor where Ray finds room; no request passes it."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from realexec.http.client import Address
from realexec.http.instance_launcher import NotReady
from realexec.http.kept_server import Seen
from realexec.http.ray_server import Place, ServerActor, ServerLook
from realexec.launchers.ray_actor import Where, boot_id
from realexec.launchers.ray_cluster import AUTO, LOOK_S, Nodes, attach, imported
from realexec.launchers.ray_process import ActorLooks, first_line
from serving.vocabulary.errors import UserError

_PAUSE_S: Final = 0.05
# An actor ends with its node, and which of the two is gone is known after two looks at the nodes.
_NODE_SAYS_S: Final = 2 * LOOK_S


@dataclass(frozen=True, slots=True)
class Share:
    """What Ray is to set aside for each server, in CPUs and GPUs."""

    cpus: int = 1
    gpus: int = 0

    def __str__(self) -> str:
        both = (("CPU", self.cpus), ("GPU", self.gpus))
        return " and ".join([f"{count} {kind}{'s' * (count > 1)}" for kind, count in both if count])


def share_of(cores: int | None, gpus: int | None) -> Share:
    """Return what a server that declares these takes: one CPU if it declares neither."""
    return Share(cores or (0 if gpus else 1), gpus or 0)


def room_for(share: Share, nodes: Iterable[Mapping[str, Any]]) -> int:
    """Return how many servers fit on the nodes, as ``ray.nodes()`` lists them, if nothing else is there."""
    return sum([_fitting(share, node["Resources"]) for node in nodes if node["Alive"]])


def _fitting(share: Share, has: Mapping[str, float]) -> int:
    wanted = {"CPU": share.cpus, "GPU": share.gpus}
    return min([int(has.get(kind, 0.0) // count) for kind, count in wanted.items() if count])


class RayHosts:
    """The nodes of the cluster at ``address``: ``Hosts``. ``servers``: how many there are at most."""

    end_s: Final = 2 * _NODE_SAYS_S

    def __init__(self, address: str | None, share: Share, servers: int) -> None:
        self._address, self._share, self._servers = address or AUTO, share, servers
        self._ray: Any = None
        self._attached = False
        self._nodes: Nodes | None = None

    def open(self) -> None:
        """Become a driver of the cluster. Raises UserError if it has no room for all servers."""
        ray = self._ray = imported()
        self._attached = attach(ray, self._address)
        room = room_for(self._share, ray.nodes())
        if room < self._servers:
            raise UserError(
                f"the Ray cluster has room for {room} servers of {self._share} each, and there may be "
                f"{self._servers}: write fewer workers, less in http.cores and http.gpus, or add nodes"
            )
        self._nodes = Nodes(ray)

    def close(self) -> None:
        """End what Ray still holds for this process."""
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None
        if self._attached:
            self._attached = False
            self._ray.shutdown()

    async def seat(self, until_ns: int) -> "RaySeat":
        """Wait for an actor in a place that Ray finds. Raises NotReady."""
        assert self._nodes is not None, "the hosts were not opened"
        share = {"num_cpus": self._share.cpus, "num_gpus": self._share.gpus}
        options = {**share, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        actor = self._ray.remote(**options)(ServerActor).remote()
        try:
            place = await self._place(actor.place.remote(), until_ns)
        except BaseException:
            self._end(actor)
            raise
        node = place.where.node
        return RaySeat(
            actor,
            place,
            self._share,
            node=self._nodes.words(node),
            node_lost=partial(self._nodes.lost, node),
            end=partial(self._end, actor),
        )

    async def _place(self, asked: Any, until_ns: int) -> Place:
        while not self._ray.wait([asked], timeout=0)[0]:
            if time.monotonic_ns() >= until_ns:
                raise NotReady(
                    f"Ray has started no actor in time: no node has {self._share} free, or they are too busy"
                )
            await asyncio.sleep(_PAUSE_S)
        try:
            where, port, gpus = self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            raise NotReady(
                f"a node of the Ray cluster cannot start servers ({first_line(error)}): install this version "
                "of servetwin[real,ray] on every node"
            ) from None
        return Place(Where(*where), port, tuple(gpus))

    def _end(self, actor: Any) -> None:
        with suppress(Exception):  # it is gone already
            self._ray.kill(actor)


class RaySeat:
    """A place on a node, and the actor in it: a ``Seat``.

    ``node``: its name for messages. ``node_lost``: why the node is lost. ``end``: ends the actor.
    """

    def __init__(
        self,
        actor: Any,
        place: Place,
        share: Share,
        *,
        node: str,
        node_lost: Callable[[], str | None],
        end: Callable[[], None],
    ) -> None:
        self.address = Address("http", place.where.address, place.port)
        self.placed_ns: int | None = time.monotonic_ns()
        self._actor, self._place, self._share = actor, place, share
        self._node, self._node_lost, self._end = node, node_lost, end
        self._one_clock = place.where.boot == boot_id()
        self._looks = ActorLooks(actor, node_lost)
        self._log: Path | None = None
        self._seen = Seen(None, "")
        self._gone_s: float | None = None  # when the actor was first seen to be gone

    def facts(self) -> dict[str, Any]:
        """Return its node, address and share of the node."""
        told = {"node": self._node, "host": self.address.host, "port": self.address.port}
        return {**told, "cpus": self._share.cpus, "gpus": list(self._place.gpus)}

    def start(self, command: Sequence[str], log: Path) -> None:
        """Have the actor start the server's process."""
        self._log = log
        self._actor.start.remote(list(command))

    def look(self) -> Seen:
        """Return what the actor last said, a moment ago, and ask it again."""
        if self._seen.ended or self._log is None:
            return self._seen
        answer = self._looks.next()
        if answer is not None:
            self._take(ServerLook(*answer), self._log)
        elif gone := self._lost():
            self._seen = Seen(self._seen.began_ns, gone)
        return self._seen

    def _take(self, look: ServerLook, log: Path) -> None:
        began_ns = look.began_ns
        if began_ns is not None and not self._one_clock:
            began_ns = self._seen.began_ns or time.monotonic_ns() - (look.now_ns - began_ns)
        self._seen = Seen(began_ns, look.ended)
        if look.log:
            with log.open("ab") as file:
                file.write(look.log)

    def _lost(self) -> str | None:
        """Why nothing can be heard of the server; the actor's own end is told if its node stays."""
        lost = self._node_lost()
        if lost is not None or self._looks.lost is None:
            return lost
        if self._gone_s is None:
            self._gone_s = time.monotonic()
        return self._looks.lost if time.monotonic() > self._gone_s + _NODE_SAYS_S else None

    def tell(self, what: bytes) -> None:
        """Have the actor tell the keeper."""
        with suppress(Exception):  # it is gone
            self._actor.tell.remote(what)

    def free(self) -> None:
        """End the actor; what Ray had set aside is free."""
        self._end()
