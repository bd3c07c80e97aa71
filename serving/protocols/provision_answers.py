"""Asks a provisioner, and checks its answer against what it was shown."""

from collections.abc import Container
from math import isclose, isfinite
from typing import Any, Final, NoReturn, get_args

from serving.protocols.planning import Edge
from serving.protocols.policy_faults import Question, ask, refused, shown, wrong_reason
from serving.protocols.provisioning import Provision, Provisioned, Provisioner
from serving.protocols.scaling import Obstacle
from serving.vocabulary.actions import Endpoint, Shard

PROVISION: Final = Question(
    "provision",
    "a Provisioned: edges to at most as many free seats as wanted, each once, from sources that have or get "
    "the parameters, with shards whose shares sum to 1 (or without shards, from one source to one target); "
    "overlap True or False, every reason a str that is not empty",
)


_Gpus = tuple[int, ...]


class CheckedProvisioner:
    """A provisioner whose answers are checked."""

    __slots__ = ("_provisioner",)

    def __init__(self, provisioner: Provisioner) -> None:
        self._provisioner = provisioner

    def provision(self, wanted: Provision) -> Provisioned:
        """Return the checked answer. Raises PolicyError."""
        answer = ask(self._provisioner, PROVISION, wanted)
        self._check(wanted, answer)
        return answer  # type: ignore[no-any-return]

    def refuse_overlap(self, answer: Provisioned) -> NoReturn:
        """Refuse an answer with ``overlap`` from which system/live has chosen live instances."""
        self._refuse(
            answer,
            "a load with overlap cannot share layers, but system/live has chosen some of its instances",
        )

    def _check(self, wanted: Provision, answer: Any) -> None:
        if type(answer) is not Provisioned:
            self._refuse(answer, f"the answer is a {type(answer).__name__}")
        if type(answer.edges) is not tuple or type(answer.overlap) is not bool:
            self._refuse(answer, "edges is not a tuple, or overlap is neither True nor False")
        if type(answer.reason) is not str or not answer.reason:
            self._refuse(answer, wrong_reason(answer.reason))
        if answer.obstacle is not None and answer.obstacle not in get_args(Obstacle):
            self._refuse(answer, f"the obstacle {shown(answer.obstacle)} is unknown")
        places, started = _Places(wanted), set[Endpoint]()
        for edge in answer.edges:
            self._edge(edge, places, started)
            for target in edge.targets:
                if target in started:
                    self._refuse(answer, f"the edges start {target} twice")
                started.add(target)
        if len(started) > wanted.count:
            self._refuse(
                answer, f"the edges start {len(started)} instances, more than the {wanted.count} wanted"
            )

    def _edge(self, edge: Any, places: "_Places", started: Container[Endpoint]) -> None:
        if type(edge) is not Edge:
            self._refuse(edge, f"an edge is a {type(edge).__name__}, not an Edge")
        for name in ("sources", "targets", "shards"):
            if type(getattr(edge, name)) is not tuple:
                self._refuse(edge, f"the {name} of an edge must be a tuple")
        if not edge.sources or not edge.targets or not all(map(_is_endpoint, (*edge.sources, *edge.targets))):
            self._refuse(edge, "an edge must have a source and a target, each (kind, number)")
        slots = {target: places.slot(target) for target in edge.targets}
        for target, gpus in slots.items():
            if gpus is None:
                self._refuse(edge, f"{target} is not a free seat")
        senders = {
            source: places.slot(source) if source in started else places.sender(source)
            for source in edge.sources
        }
        for source, gpus in senders.items():
            if gpus is None or source in edge.targets or edge.sources.count(source) > 1:
                self._refuse(
                    edge,
                    f"{source} has no parameters at that time, is also a target, or is named twice",
                )
        if type(edge.rate_bytes_per_s) is not int or edge.rate_bytes_per_s < 0:
            self._refuse(edge, "rate_bytes_per_s must be an int of 0 or more")
        if type(edge.reason) is not str or not edge.reason:
            self._refuse(edge, wrong_reason(edge.reason))
        if not edge.shards and len(edge.sources) + len(edge.targets) > 2:
            self._refuse(edge, "an edge without shards must have one source and one target")
        if edge.shards and not _add_up(edge.shards):
            self._refuse(
                edge, "shards must be Shard with shares and rates above 0, and the shares must sum to 1"
            )
        giving = {gpu for gpus in senders.values() for gpu in gpus or ()}
        taking = {gpu for gpus in slots.values() for gpu in gpus or ()}
        for shard in edge.shards:
            if shard.source_gpu not in giving or shard.target_gpu not in taking:
                self._refuse(
                    edge,
                    f"{shown(shard)} must lead from a GPU of a source (-1: a host) to a GPU of a target",
                )

    def _refuse(self, answer: object, why: str) -> NoReturn:
        raise refused(self._provisioner, PROVISION, answer, why)


class _Places:
    """The GPUs of the endpoints that a provisioner was shown; those of a host's memory and stores are -1."""

    def __init__(self, wanted: Provision) -> None:
        self._wanted = wanted
        self._known = {
            source.endpoint: tuple([port.gpu for port in source.ports])
            for source in (*wanted.holders, *wanted.host_copies, *wanted.loading)
        }

    def slot(self, endpoint: Endpoint) -> _Gpus | None:
        """The GPUs of a free slot; None: there is no such slot."""
        kind, number = endpoint
        slot = self._wanted.slot(number) if kind == "replica" else None
        return None if slot is None else slot.gpus

    def sender(self, endpoint: Endpoint) -> _Gpus | None:
        """The GPUs of what has the parameters, or gets all of them from an earlier load; None: it has not."""
        gpus = self._known.get(endpoint)
        return (-1,) if gpus is None and self._stores(*endpoint) else gpus

    def _stores(self, kind: str, place: int) -> bool:
        """Whether a host's memory, its SSD or the remote store can feed a free slot."""
        wanted = self._wanted
        if kind == "host" and place >= 0:
            return bool(wanted.first_slots(1, cached=True, host=place))
        if kind == "ssd" and place >= 0:
            return "ssd" in wanted.stores and bool(wanted.first_slots(1, with_ssd=True, host=place))
        return (kind, place) == ("remote", 0) and "remote" in wanted.stores


def _is_endpoint(endpoint: Any) -> bool:
    return (
        type(endpoint) is tuple
        and len(endpoint) == 2
        and type(endpoint[0]) is str
        and type(endpoint[1]) is int
    )


def _add_up(shards: tuple[Any, ...]) -> bool:
    for shard in shards:
        if type(shard) is not Shard or type(shard.source_gpu) is not int or type(shard.target_gpu) is not int:
            return False
        numbers = shard.share, shard.rate_bytes_per_s
        if not all(type(number) in (int, float) and isfinite(number) and number > 0 for number in numbers):
            return False
    return isclose(sum([shard.share for shard in shards]), 1.0, rel_tol=1e-6)
