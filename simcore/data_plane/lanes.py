"""Lanes: parts of one thing that move side by side, and which of them move as one flow.

Lanes that share no link with another and are alike in all else are one flow over the links of all of them,
each of which carries one lane's bytes. The slowest of them sets the pace.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwmodels.loading.plan import Hop

Stage = Sequence[Hop]
"""Lanes that begin at the same places; ``Hop.after`` counts over the lanes of the stage before."""


@dataclass(frozen=True, slots=True)
class Way:
    """hops: of a ``Chain``. ends: per target the hops that bring it something."""

    hops: tuple[Hop, ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def links(self) -> frozenset[int]:
        """All that it crosses."""
        return frozenset([link for hop in self.hops for link in hop.links])


def joined(stages: Sequence[Stage], ends: Sequence[Sequence[tuple[int, int]]], bundled: bool) -> Way:
    """The stages' lanes as hops. ends: per target the (stage, lane) that bring it something."""
    hops: list[Hop] = []
    numbers: list[dict[int, int]] = []  # per stage: lane -> hop
    for stage, lanes in enumerate(stages):
        own: dict[int, int] = {}
        for members in bundles(lanes) if bundled else [[lane] for lane in range(len(lanes))]:
            own.update(dict.fromkeys(members, len(hops)))
            hop = as_one([lanes[lane] for lane in members])
            before = {numbers[stage - 1][lane] for lane in _after(lanes, members)}
            hops.append(replace(hop, after=tuple(sorted(before))))
        numbers.append(own)
    needs = [tuple(sorted({numbers[stage][lane] for stage, lane in one})) for one in ends]
    return Way(tuple(hops), tuple(needs))


def bundles(lanes: Stage) -> list[list[int]]:
    """The lanes by number, those that move as one flow together."""
    users = Counter([link for lane in lanes for link in lane.links])
    groups: dict[object, list[int]] = {}
    for number, lane in enumerate(lanes):
        alone = len(lanes) == 1 or not lane.links or any(users[link] > 1 for link in lane.links)
        groups.setdefault(number if alone else _likeness(lane), []).append(number)
    return list(groups.values())


def as_one(lanes: Stage) -> Hop:
    """One hop over the links of all these lanes."""
    if len(lanes) == 1:
        return lanes[0]
    return replace(lanes[0], links=tuple([link for lane in lanes for link in lane.links]))


def _likeness(lane: Hop) -> tuple[object, ...]:
    """Equal for lanes that may be one flow; shares and caps that differ by rounding only count as equal."""
    share, cap = f"{lane.share:.12g}", f"{lane.cap_bytes_per_s:.12g}"
    return share, cap, lane.latency_s, lane.weight, lane.priority


def _after(lanes: Stage, members: Sequence[int]) -> set[int]:
    found: set[int] = set()
    for member in members:
        after = lanes[member].after
        assert isinstance(after, tuple), "a lane names the lanes before it"
        found.update(after)
    return found
