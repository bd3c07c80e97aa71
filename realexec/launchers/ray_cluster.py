"""Workers on the nodes of a Ray cluster: an actor starts each process; no data of a run goes through Ray."""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from realexec.launchers.ray_actor import Where, WorkerActor, boot_id
from realexec.launchers.ray_process import RayProcess, first_line
from realexec.wire.listener import LOOPBACK
from serving.vocabulary.errors import UserError

# Watches which nodes of a Ray cluster are still alive.

LOOK_S: Final = 1.0
# Timeout in seconds for connecting to a node's raylet. A refused connection means that the node is gone.
_CONNECT_S: Final = 1.0


class Nodes:
    """A thread reads the cluster's list of nodes every second, until `close`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._listed: dict[str, Mapping[str, Any]] = {node["NodeID"]: node for node in ray.nodes()}
        self._lost: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self._thread.start()

    def lost(self, node: str) -> str | None:
        """Return why a node is gone; None while it is a member. Does not block."""
        return self._lost.get(node)

    def words(self, node: str) -> str:
        """Return the name of a node for messages."""
        listed = self._listed.get(node, {})
        return f"Ray node {node[:8]} ({listed.get('NodeManagerAddress', 'of no known address')})"

    def close(self) -> None:
        """Stop the watching thread."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            with suppress(Exception):  # the cluster's own service may be unreachable for a while
                for node in self._ray.nodes():
                    self._listed[node["NodeID"]] = node
            for number, node in self._listed.items():
                if number not in self._lost and not (node["Alive"] and _answers(node)):
                    self._lost[number] = f"{self.words(number)} is gone"


def _answers(node: Mapping[str, Any]) -> bool:
    """Whether its raylet accepts a connection: the cluster's list shows a dead node only seconds later."""
    try:
        at = node["NodeManagerAddress"], node["NodeManagerPort"]
        socket.create_connection(at, _CONNECT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # the node may only be slow; missing heart-beats show it
    return True


AUTO: Final = "auto"
# Seconds in which a cluster with room has to start the actors: each is a process that imports ray.
PLACE_S: Final = 60.0
CONNECT_S: Final = 5.0


class RayLauncher:
    """Starts workers on the cluster at ``address``. Each takes one GPU, or one CPU if it computes on CPUs."""

    def __init__(self, address: str = AUTO, on_gpus: bool = False, place_s: float = PLACE_S) -> None:
        """``place_s``: timeout in seconds to find room in the cluster, and to start the actors."""
        self.one_host = True
        self.places: tuple[str, ...] = ()
        self.addresses: tuple[str, ...] = ()
        self._address, self._kind, self._place_s = address, "GPU" if on_gpus else "CPU", place_s
        self._ray: Any = None
        self._attached = False
        self._group: Any = None
        self._nodes: Nodes | None = None
        self._actors: list[Any] = []
        self._where: list[Where] = []

    def open(self, workers: int) -> str | None:
        """Reserve places spread over the nodes, start an actor in each. Loopback if all are on this host."""
        ray = self._ray = imported()
        self._attached = attach(ray, self._address)
        self._nodes = Nodes(ray)
        self._group = self._placed(workers)
        self._actors = [self._actor(place) for place in range(workers)]
        try:
            answers = self._answers([actor.where.remote() for actor in self._actors])
        except ray.exceptions.RayError as error:
            raise UserError(
                f"a node of the Ray cluster cannot start workers ({first_line(error)}): install this version "
                "of servetwin[real,ray] on every node"
            ) from None
        self._where = [Where(*answer) for answer in answers]
        self.places = tuple([self._nodes.words(where.node) for where in self._where])
        here = ray.util.get_node_ip_address()
        self.one_host = all((where.address, where.boot) == (here, boot_id()) for where in self._where)
        self.addresses = tuple([LOOPBACK if self.one_host else where.address for where in self._where])
        return LOOPBACK if self.one_host else str(here)

    def start(self, worker: int, start: Mapping[str, Any]) -> RayProcess:
        """Start a worker. ``start``, with the run's secret in it, is sent to the actor as an argument."""
        assert self._nodes is not None
        where, actor = self._where[worker], self._actors[worker]
        (pid,) = self._answers([actor.start.remote(worker, dict(start))])
        lost = partial(self._nodes.lost, where.node)
        return RayProcess(actor, pid, where, where.boot != boot_id(), lost)

    def close(self) -> None:
        """End the actors, and with them any worker processes that still run."""
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor)
        self._actors = []
        if self._group is not None:
            with suppress(Exception):
                self._ray.util.remove_placement_group(self._group)
            self._group = None
        if self._attached:
            self._attached = False
            self._ray.shutdown()

    def _placed(self, workers: int) -> Any:
        group = self._ray.util.placement_group([{self._kind: 1.0}] * workers, strategy="SPREAD")
        if not group.wait(self._place_s):
            self._ray.util.remove_placement_group(group)
            has = self._ray.cluster_resources().get(self._kind, 0.0)
            free = self._ray.available_resources().get(self._kind, 0.0)
            raise UserError(
                f"the Ray cluster has {has:g} {self._kind}s, {free:g} of them free, and workers={workers} "
                "take one each: start fewer workers, or add nodes"
            )
        return group

    def _actor(self, place: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        cpus, gpus = (0, 1) if self._kind == "GPU" else (1, 0)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "scheduling_strategy": where}
        return self._ray.remote(**options)(WorkerActor).remote()

    def _answers(self, requests: list[Any]) -> list[Any]:
        try:
            answers: list[Any] = self._ray.get(requests, timeout=self._place_s)
        except self._ray.exceptions.GetTimeoutError:
            raise UserError(
                f"the Ray cluster did not start its actors within {self._place_s:g} s: end what else keeps "
                "its nodes busy, or start fewer workers"
            ) from None
        return answers


def attach(ray: Any, address: str) -> bool:
    """Make this process a driver of the cluster. Returns False if it is one already. Raises UserError."""
    if ray.is_initialized():
        return False
    refuse_unreached(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _unreached(address, first_line(error)) from None
    return True


def refuse_unreached(address: str) -> None:
    """Raise UserError if nothing listens at HOST:PORT: Ray would try for minutes. Ray resolves ``auto``."""
    if address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdecimal():
        raise UserError(
            f"ray.address={address} is no HOST:PORT: write that of the cluster's head, for the driver of "
            "real workers runs on one of its nodes"
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _unreached(address, str(error)) from None


def _unreached(address: str, why: str) -> UserError:
    return UserError(
        f"no Ray cluster is reached by ray.address={address} ({why}): start one with ray start --head, or "
        "write ray.address=HOST:PORT of one that runs"
    )


def imported() -> Any:
    """Import and return Ray; raises UserError if it is not installed."""
    try:
        import ray
        import ray.util
    except ImportError as error:
        raise UserError(f"launcher=ray needs {error.name}: pip install 'servetwin[ray]'") from None
    return ray
