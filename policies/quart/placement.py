"""QUART's placement of new replicas (section 6.2): next to a copy first, key stages apart, others packed."""

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Final

from policies.quart.free_room import FreeRoom, greedy
from policies.quart.settings import PlacementSettings
from serving.protocols.stages import PipelineView, StageView, StartReplicas

# Dispersion of key stages over hosts under contention: gradient steps on KL(P || Q), Eq. 8 to 10.

# Rounding of sums of shares; a host whose limit is below it gets no share.
_ROUNDING: Final = 1e-9


def divergence(shares: Sequence[float], ideal: Sequence[float]) -> float:
    """KL(P || Q), Eq. 8."""
    return sum(p * log(p / q) for p, q in zip(shares, ideal, strict=True) if p > 0)


def uniform_within(limits: Sequence[float]) -> tuple[float, ...]:
    """The most even shares that exceed no limit and sum to 1: Q, uniform if every limit allows it.

    Raises ValueError if the limits sum to less than 1.
    """
    if sum(limits) < 1 - _ROUNDING:
        raise ValueError(f"the limits of all hosts sum to {sum(limits):g}: shares cannot sum to 1")
    open_hosts, left = set(range(len(limits))), 1.0
    while True:
        even = left / len(open_hosts)
        full = {host for host in open_hosts if limits[host] < even - 1e-15}
        if not full or full == open_hosts:
            break
        open_hosts -= full
        left -= sum(limits[host] for host in full)
    return tuple([even if index in open_hosts else limits[index] for index in range(len(limits))])


def dispersed(
    shares: Sequence[float], limits: Sequence[float], settings: PlacementSettings | None = None
) -> tuple[float, ...]:
    """P after the gradient steps: it approaches the most even shares that the limits allow.

    P begins at ``shares`` + ``start``. After each step of Eq. 10 all shares are shifted by the same amount,
    and cut off at 0 and at their limit, until they sum to 1. Dividing by their sum instead would undo the
    step: near the uniform P the 1 of the gradient 1 + log(P/Q) then cancels all of it. A step that comes no
    closer is repeated at half its rate: where P is near 0 its logarithm has no bound, and P would swing for
    ever. A uniform P never moves.
    """
    settings = settings or PlacementSettings()
    ideal = uniform_within(limits)
    hosts = [index for index in range(len(limits)) if ideal[index] > _ROUNDING]
    bounds, goal = [limits[host] for host in hosts], [ideal[host] for host in hosts]
    shifted_shares = _shifted([shares[host] + settings.start for host in hosts], bounds)
    apart, rate = divergence(shifted_shares, goal), settings.rate
    for _ in range(settings.steps):
        if apart < settings.tolerance:
            break
        stepped = _shifted(
            [
                p - rate * (1 + log(max(p, settings.start * q) / q))
                for p, q in zip(shifted_shares, goal, strict=True)
            ],
            bounds,
        )
        closer = divergence(stepped, goal)
        if closer < apart:
            shifted_shares, apart = stepped, closer
        else:
            rate /= 2
    result = [0.0] * len(limits)
    for one, share in zip(hosts, shifted_shares, strict=True):
        result[one] = share
    return tuple(result)


def _shifted(shares: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """The nearest shares that sum to 1: each moved by the same amount, cut off at 0 and at its bound."""
    low, high = -max(shares), max(bounds) - min(shares)
    for _ in range(60):
        middle = (low + high) / 2
        total = sum([min(max(one + middle, 0.0), most) for one, most in zip(shares, bounds, strict=True)])
        low, high = (middle, high) if total < 1 else (low, middle)
    return [min(max(share + high, 0.0), most) for share, most in zip(shares, bounds, strict=True)]


class Placement:
    """Chooses GPUs. It keeps no state; GPUs taken within one decision are in ``FreeRoom``.

    ``copies_first``: a shared GPU of a host with a copy comes before an idle GPU elsewhere. The text below
    Figure 5 can be read so: "Key stages of a model would be prioritized to be scheduled on servers with
    available cache parameters."
    """

    def __init__(self, settings: PlacementSettings | None = None, copies_first: bool = False) -> None:
        self._settings, self._copies_first = settings or PlacementSettings(), copies_first

    def place(
        self, view: PipelineView, stage: StageView, *, count: int, is_key: bool, room: FreeRoom, reason: str
    ) -> tuple[StartReplicas, ...]:
        """Start at most ``count`` replicas; those on a host with a copy load from host memory.

        A GPU without replicas comes before one that is shared, and among each kind those of hosts with a
        copy come first. Section 6.2: copies go "from server memory to new GPUs", for which servers with key
        stages keep idle GPUs; replicas that share a GPU disturb each other.
        """
        holders = tuple([host for host in room.hosts if host.has_copy(view.model, stage.index)])
        idle = 0 if self._copies_first else min(count, sum([room.free_gpus(host) for host in room.hosts]))
        cached = greedy(room, stage, idle, holders, apart=True, idle_only=True)
        others = self._elsewhere(stage, idle - len(cached), is_key, room, idle_only=True)
        cached += greedy(room, stage, count - len(cached) - len(others), holders, apart=True)
        others += self._elsewhere(stage, count - len(cached) - len(others), is_key, room)
        starts = []
        if cached:
            why = f"{reason}; its hosts have a copy"
            starts.append(StartReplicas(stage.index, len(cached), why, gpus=cached, source="host"))
        if others:
            starts.append(StartReplicas(stage.index, len(others), reason, gpus=others))
        return tuple(starts)

    def _elsewhere(
        self, stage: StageView, count: int, is_key: bool, room: FreeRoom, idle_only: bool = False
    ) -> tuple[int, ...]:
        """GPUs for at most ``count`` replicas, wherever copies are: key stages apart, others packed."""
        if is_key and not plentiful(room, count):
            return self._dispersed_gpus(stage, count, room, idle_only)
        return greedy(room, stage, count, room.hosts, apart=is_key, idle_only=idle_only)

    def _dispersed_gpus(
        self, stage: StageView, count: int, room: FreeRoom, idle_only: bool
    ) -> tuple[int, ...]:
        """Choose by the shares of KL's gradient: each replica goes to the host furthest below its share."""
        here = Counter(replica.host for replica in stage.replicas if replica.state != "draining")
        most = {host.id: room.fits(host, stage) for host in room.hosts}
        if idle_only:
            most = {host.id: min(most[host.id], room.free_gpus(host)) for host in room.hosts}
        count = min(count, sum(most.values()))
        if not count:
            return ()
        total = sum(here.values()) + count
        shares = [here[host.id] / max(total - count, 1) for host in room.hosts]
        limits = [(here[host.id] + most[host.id]) / total for host in room.hosts]
        wanted = dispersed(shares, limits, self._settings)
        gpus: list[int] = []
        while len(gpus) < count:
            options = [
                (here[host.id] - share * total, host.id, host, gpu)
                for host, share in zip(room.hosts, wanted, strict=True)
                if (gpu := room.gpu_for(host, stage)) is not None and (room.is_free(gpu) or not idle_only)
            ]
            if not options:
                break
            _, _, host, gpu = min(options, key=lambda option: option[:2])
            room.take(host, gpu, stage)
            here[host.id] += 1
            gpus.append(gpu)
        return tuple(gpus)


def plentiful(room: FreeRoom, count: int) -> bool:
    """Whether free GPUs hold all wanted replicas and leave one per host (the paper sets no threshold)."""
    free = sum(room.free_gpus(host) for host in room.hosts)
    return free >= count + len(room.hosts)
