"""QUART's placement of new replicas (section 6.2): next to a copy first, key stages apart, others packed."""

from collections import Counter

from policies.quart.dispersion import dispersed
from policies.quart.free_room import FreeRoom, greedy, packed
from policies.quart.settings import PlacementSettings
from serving.protocols.stages import PipelineView, StageView, StartReplicas


class Placement:
    """Chooses GPUs. It keeps no state; GPUs taken within one decision are in ``FreeRoom``."""

    def __init__(self, settings: PlacementSettings | None = None) -> None:
        self._settings = settings or PlacementSettings()

    def place(
        self, view: PipelineView, stage: StageView, count: int, is_key: bool, room: FreeRoom, reason: str
    ) -> tuple[StartReplicas, ...]:
        """Start at most ``count`` replicas; those on a host with a copy load from host memory."""
        holders = tuple([host for host in room.hosts if host.has_copy(view.model, stage.index)])
        cached = greedy(room, stage, count, holders, apart=True)
        rest = count - len(cached)
        if not is_key:
            others = packed(room, stage, rest)
        elif plentiful(room, rest):
            others = greedy(room, stage, rest, room.hosts, apart=True)
        else:
            others = self._dispersed(stage, rest, room)
        starts = []
        if cached:
            why = f"{reason}; its hosts have a copy"
            starts.append(StartReplicas(stage.index, len(cached), why, cached, "host"))
        if others:
            starts.append(StartReplicas(stage.index, len(others), reason, others))
        return tuple(starts)

    def _dispersed(self, stage: StageView, count: int, room: FreeRoom) -> tuple[int, ...]:
        """Choose by the shares of KL's gradient: each replica goes to the host furthest below its share."""
        here = Counter(one.host for one in stage.replicas if one.state != "draining")
        most = {host.id: room.fits(host, stage) for host in room.hosts}
        count = min(count, sum(most.values()))
        if not count:
            return ()
        total = sum(here.values()) + count
        shares = [here[host.id] / max(total - count, 1) for host in room.hosts]
        limits = [(here[host.id] + most[host.id]) / total for host in room.hosts]
        wanted = dispersed(shares, limits, self._settings)
        found: list[int] = []
        while len(found) < count:
            options = [
                (here[host.id] - share * total, host.id, host, gpu)
                for host, share in zip(room.hosts, wanted, strict=True)
                if (gpu := room.gpu_for(host, stage)) is not None
            ]
            if not options:
                break
            _, _, host, gpu = min(options, key=lambda one: one[:2])
            room.take(host, gpu, stage)
            here[host.id] += 1
            found.append(gpu)
        return tuple(found)


def plentiful(room: FreeRoom, count: int) -> bool:
    """Whether free GPUs hold all wanted replicas and leave one per host (the paper sets no threshold)."""
    free = sum(room.free_gpus(host) for host in room.hosts)
    return free >= count + len(room.hosts)
