"""Channels: parallel parts of one load, and which of them move as one flow.

Channels that share no link with another channel and are otherwise alike become one flow over the links of all
of them; each link carries one channel's bytes. The slowest channel sets the pace.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwmodels.loading.plan import Hop

Stage = Sequence[Hop]
"""Channels that begin at the same places; ``Hop.after`` counts over the channels of the stage before."""


@dataclass(frozen=True, slots=True)
class LoadRoute:
    """hops: the hops of a ``Chain``. ends: for each target, the hops that end at it."""

    hops: tuple[Hop, ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def links(self) -> frozenset[int]:
        """All links that the route crosses."""
        return frozenset([link for hop in self.hops for link in hop.links])


def merged_stages(
    stages: Sequence[Stage], ends: Sequence[Sequence[tuple[int, int]]], bundled: bool
) -> LoadRoute:
    """The stages' channels as hops. ends: per target the (stage, channel) that end at it."""
    hops: list[Hop] = []
    numbers: list[dict[int, int]] = []  # per stage: channel -> hop
    for stage, channels in enumerate(stages):
        own: dict[int, int] = {}
        for members in bundles(channels) if bundled else [[channel] for channel in range(len(channels))]:
            own.update(dict.fromkeys(members, len(hops)))
            hop = merged([channels[channel] for channel in members])
            before = tuple(sorted({numbers[stage - 1][channel] for channel in _after(channels, members)}))
            hops.append(hop if hop.after == before else replace(hop, after=before))
        numbers.append(own)
    needs = [tuple(sorted({numbers[stage][channel] for stage, channel in end})) for end in ends]
    return LoadRoute(tuple(hops), tuple(needs))


def bundles(channels: Stage) -> list[list[int]]:
    """Groups of channels, by number, that move as one flow."""
    if len(channels) == 1:
        return [[0]]
    users = Counter([link for channel in channels for link in channel.links])
    groups: dict[object, list[int]] = {}
    for number, channel in enumerate(channels):
        alone = not channel.links or any(users[link] > 1 for link in channel.links)
        groups.setdefault(number if alone else _likeness(channel), []).append(number)
    return list(groups.values())


def merged(channels: Stage) -> Hop:
    """One hop over the links of all these channels."""
    if len(channels) == 1:
        return channels[0]
    return replace(channels[0], links=tuple([link for channel in channels for link in channel.links]))


def _likeness(channel: Hop) -> tuple[object, ...]:
    """A key that is equal for channels that may be one flow, ignoring rounding of shares and caps."""
    share, cap = f"{channel.share:.12g}", f"{channel.cap_bytes_per_s:.12g}"
    return share, cap, channel.latency_s, channel.weight, channel.priority


def _after(channels: Stage, members: Sequence[int]) -> set[int]:
    reached: set[int] = set()
    for member in members:
        after = channels[member].after
        assert isinstance(after, tuple), "a channel names the channels before it"
        reached.update(after)
    return reached
