"""The ordered senders and receivers a multicast planner works on, and their rates."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Literal

from serving.protocols.planning import Port, ScaleUp, Source, Target
from serving.vocabulary.actions import Endpoint, Shard
from serving.vocabulary.fact import fact

Grouping = Literal["domain", "instance"]


@fact
class Holder:
    """A sender or receiver: per rank (GPU, bytes/s of its own); its rate is the sum."""

    endpoint: Endpoint
    leaf: int
    lanes: tuple[tuple[int, int], ...]
    rate: int


@fact
class Group:
    """Targets that load together, and the leaf of the first of them."""

    leaf: int
    targets: tuple[Target, ...]


def in_play(wanted: ScaleUp, prune: bool, behind: Sequence[Source] = ()) -> tuple[list[Source], str]:
    """Line 1 of Fig. 11, first half: the sources to use, and the reason.

    Running replicas and the loading replicas ``behind``; without any, host copies. With ``prune`` sources
    with a busy out-link come last.
    """
    running = [source for source in wanted.sources if source.endpoint[0] == "replica"]
    hosts = [source for source in wanted.sources if source.endpoint[0] != "replica"]
    everyone = [*running, *behind]
    if not prune:
        return (everyone, "running instances, busy or not") if everyone else (hosts, "host copies")
    free = [source for source in running if not source.out_busy]
    ahead = [source for source in behind if not source.out_busy]
    if free or ahead:
        also = f", {len(ahead)} that load" if ahead else ""
        return [*free, *ahead], f"{len(free)} running instances, {len(running) - len(free)} pruned{also}"
    free = [source for source in hosts if not source.out_busy]
    if free:
        return free, f"host copies, {len(everyone)} running instances pruned"
    return (everyone, "running instances, all busy") if everyone else (hosts, "host copies, all busy")


def senders(sources: Sequence[Source], gpus_per_instance: int, behind: Sequence[Source] = ()) -> list[Holder]:
    """Line 1, second half: grouped by leaf, leaves by total bandwidth, then ids; replicas ``behind`` last.

    Sources that share a NIC share its bandwidth. A host's copy sends any rank, an equal part to each.
    """
    users = Counter(port.nic for source in sources for port in source.ports)
    late = {source.endpoint for source in behind}
    holders = [_sender(source, users, gpus_per_instance) for source in sources]
    leaf_rate: Counter[tuple[bool, int]] = Counter()
    for holder in holders:
        leaf_rate[holder.endpoint in late, holder.leaf] += holder.rate

    def place(holder: Holder) -> tuple[bool, int, int, Endpoint]:
        waits = holder.endpoint in late
        return waits, -leaf_rate[waits, holder.leaf], holder.leaf, holder.endpoint

    return sorted(holders, key=place)


def _sender(source: Source, users: Counter[int], gpus_per_instance: int) -> Holder:
    lanes = [(port.gpu, max(1, port.bandwidth_bytes_per_s // users[port.nic])) for port in source.ports]
    if source.endpoint[0] != "replica":
        part = max(1, sum(rate for _, rate in lanes) // gpus_per_instance)
        lanes = [(-1, part)] * gpus_per_instance
    assert len(lanes) == gpus_per_instance, f"{source.endpoint} has {len(lanes)} ports"
    return Holder(source.endpoint, source.ports[0].leaf, tuple(lanes), sum(rate for _, rate in lanes))


def groups_to_serve(wanted: ScaleUp, order: Sequence[Holder], grouping: Grouping) -> list[Group]:
    """Line 2, and the trimming of line 5: the groups in the order they are served, n instances in all.

    Groups are ordered by where their leaf first occurs among the senders, then by bandwidth, then ids. Inside
    a group the fastest instances come first, so that trimming keeps them.
    """
    place = {holder.leaf: -position for position, holder in enumerate(reversed(order))}
    together: dict[int, list[tuple[int, int, Target]]] = {}
    for target in wanted.targets:
        assert len(target.ports) == wanted.gpus_per_instance, f"target {target.replica} has other ports"
        key = target.ports[0].domain if grouping == "domain" else target.replica
        together.setdefault(key, []).append((-_usable_bandwidth(target.ports), target.replica, target))
    ranked = []
    for members in together.values():
        members.sort()
        group = Group(members[0][2].ports[0].leaf, tuple([target for _, _, target in members]))
        less = members[0][0]
        if len(members) > 1:
            less = -_usable_bandwidth([port for target in group.targets for port in target.ports])
        ranked.append((place.get(group.leaf, 1), less, members[0][1], group))
    return _without_surplus((group for *_, group in sorted(ranked)), wanted.instances)


def _without_surplus(groups: Iterable[Group], instances: int) -> list[Group]:
    kept_groups: list[Group] = []
    for group in groups:
        if instances <= 0:
            break
        whole = len(group.targets) <= instances
        kept_groups.append(group if whole else Group(group.leaf, group.targets[:instances]))
        instances -= len(group.targets)
    return kept_groups


def receivers(groups: Sequence[Group]) -> list[list[Holder]]:
    """The targets of each group. All served instances behind a NIC share its bandwidth."""
    users = Counter(port.nic for group in groups for target in group.targets for port in target.ports)
    return [[_receiver(target, group.leaf, users) for target in group.targets] for group in groups]


def _receiver(target: Target, leaf: int, users: Counter[int]) -> Holder:
    lanes = tuple([(port.gpu, max(1, capped(port) // users[port.nic])) for port in target.ports])
    return Holder(("replica", target.replica), leaf, lanes, _total(lanes))


def capped(port: Port) -> int:
    """Incoming limit of a NIC, in bytes/s: half if a GPU behind it serves prefill (BlitzScale's rule)."""
    return port.bandwidth_bytes_per_s // 2 if port.serves_prefill else port.bandwidth_bytes_per_s


def _usable_bandwidth(ports: Sequence[Port]) -> int:
    """Bandwidth into these GPUs together, each NIC counted once."""
    if len(ports) == 1:
        return capped(ports[0])
    return sum({port.nic: capped(port) for port in ports}.values())


def sharded(givers: Sequence[Holder], takers: Sequence[Holder]) -> tuple[int, tuple[Shard, ...]]:
    """Line 9: (bytes/s of the whole, shards), rank by rank, each side's shares as its GPUs' rates.

    The slowest rank sets the pace. Between equal GPUs rank r of the i-th source sends to rank r of the i-th
    taker; otherwise a GPU may exchange with several GPUs of the other side.
    """
    ranks = len(takers[0].lanes)
    shards: list[tuple[int, int, float]] = []
    pace = 0
    for rank in range(ranks):
        out = [holder.lanes[rank] for holder in givers]
        into = [holder.lanes[rank] for holder in takers]
        total_out, total_into = _total(out), _total(into)
        least = min(total_out, total_into)
        pace = min(pace, least) if rank else least
        whole = total_out * total_into * ranks
        if len(out) == len(into) == 1:
            shards.append((out[0][0], into[0][0], 1 / ranks))
        else:
            shards += [(a, b, part / whole) for a, b, part in _overlaps(out, into, total_out, total_into)]
    rate = ranks * pace
    return rate, tuple([Shard(source, target, share, share * rate) for source, target, share in shards])


def _total(lanes: Sequence[tuple[int, int]]) -> int:
    return lanes[0][1] if len(lanes) == 1 else sum([rate for _, rate in lanes])


def _overlaps(
    out: Sequence[tuple[int, int]], into: Sequence[tuple[int, int]], total_out: int, total_into: int
) -> Iterable[tuple[int, int, int]]:
    """Yield (source, target, part): both sides laid along a line of length total_out * total_into."""
    targets = iter(into)
    target, room = next(targets)
    room *= total_out
    for source, rate in out:
        left = rate * total_into
        while left:
            if not room:
                target, room = next(targets)
                room *= total_out
            part = min(left, room)
            yield source, target, part
            left -= part
            room -= part


class SourceOrder:
    """S of Fig. 11: senders in order, stored as runs of one leaf, so rotating costs leaves and not GPUs."""

    __slots__ = ("_leaf_rate", "_runs")

    def __init__(self, holders: Sequence[Holder]) -> None:
        self._runs: deque[tuple[int, deque[Holder]]] = deque()
        self._leaf_rate: Counter[int] = Counter()
        for holder in holders:
            self.put_last(holder.leaf, [holder])

    def rate_in(self, leaf: int) -> int:
        """Bandwidth of the senders in a leaf, bytes/s."""
        return self._leaf_rate[leaf]

    def turn_to(self, leaf: int) -> None:
        """Rotate left until the first sender is in ``leaf``; there must be one."""
        while self._runs[0][0] != leaf:
            self._runs.rotate(-1)

    def take(self, rate: int, leaf: int | None) -> list[Holder]:
        """Remove the shortest prefix (of those in ``leaf``, if given) of at least this rate, else all."""
        taken: list[Holder] = []
        emptied = False
        for here, run in self._runs:
            if leaf is not None and here != leaf:
                continue
            while run and rate > 0:
                holder = run.popleft()
                rate -= holder.rate
                self._leaf_rate[here] -= holder.rate
                taken.append(holder)
            emptied = emptied or not run
            if rate <= 0:
                break
        if emptied:
            self._runs = deque(run for run in self._runs if run[1])
        return taken

    def put_first(self, leaf: int, holders: Sequence[Holder]) -> None:
        """Insert senders, in order, before all others."""
        self._leaf_rate[leaf] += sum([holder.rate for holder in holders])
        if not self._runs or self._runs[0][0] != leaf:
            self._runs.appendleft((leaf, deque()))
        self._runs[0][1].extendleft(reversed(holders))

    def put_last(self, leaf: int, holders: Sequence[Holder]) -> None:
        """Insert senders, in order, after all others."""
        self._leaf_rate[leaf] += sum([holder.rate for holder in holders])
        if not self._runs or self._runs[-1][0] != leaf:
            self._runs.append((leaf, deque()))
        self._runs[-1][1].extend(holders)
