"""Groups of GPUs that hold the same parameters: each channel carries a part, then the group gathers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwmodels.errors import HardwareError
from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import SOURCE, Hop
from hwmodels.loading.ranks import Ranks
from hwmodels.models.load_units import Unit, shard


@dataclass(frozen=True, slots=True)
class Group:
    """A group of target GPUs, each of which needs the whole.

    channels: one hop for each GPU, from its partner in the previous group (or in the source group). gathers:
    for each GPU the tree over the scale-up links by which it sends its part to the others (empty for one
    GPU). ``Hop.after`` is set here.
    """

    channels: tuple[Hop, ...]
    gathers: tuple[Hop, ...] = ()


def group_chain(
    units: Sequence[Unit],
    groups: Sequence[Group],
    *,
    chunk_bytes: int | None = None,
    sequential: bool = False,
) -> Ranks:
    """A chain of groups; a unit arrives at group k (``Arrival.hop``) when each of its GPUs has all of it.

    With g channels of rate B each, all of |M| has crossed after |M|/(g*B). The gather of a chunk runs beside
    the next chunk, so only that of the last one adds time. Parts move on to the next group without waiting
    for it. Raises HardwareError.
    """
    count = len(groups[0].channels) if groups else 0
    for index, group in enumerate(groups):
        if len(group.channels) != count or len(group.gathers) != (count if count > 1 else 0):
            raise HardwareError(
                f"group {index} has {len(group.channels)} channels and {len(group.gathers)} gathers: "
                f"write {count} "
                "channels as in group 0, and as many gathers (none with one channel)"
            )
    chains = [
        Chain(
            shard(units, count, channel),
            _hops_of(channel, groups),
            chunk_bytes=chunk_bytes,
            sequential=sequential,
            rank=channel,
        )
        for channel in range(count)
    ]
    stride = 2 if count > 1 else 1
    return Ranks(chains, {stride * index + stride - 1: index for index in range(len(groups))})


def _hops_of(channel: int, groups: Sequence[Group]) -> list[Hop]:
    """The hops of one channel: to each group in turn, each followed by its gather, which no hop follows."""
    hops: list[Hop] = []
    start = SOURCE
    for group in groups:
        hops.append(replace(group.channels[channel], after=start))
        start = len(hops) - 1
        if group.gathers:
            hops.append(replace(group.gathers[channel], after=start))
    return hops
