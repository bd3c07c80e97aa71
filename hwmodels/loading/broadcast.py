"""Parameters to every GPU of a scale-up domain at once: the switch copies, the source sends once."""

from collections.abc import Sequence
from dataclasses import replace

from hwmodels.loading.chain import Chain
from hwmodels.loading.plan import Hop
from hwmodels.models.load_units import Unit


def broadcast(
    units: Sequence[Unit],
    tree: Hop,
    *,
    before: Sequence[Hop] = (),
    chunk_bytes: int | None = None,
    sequential: bool = False,
) -> Chain:
    """Units over ``tree`` (the source's out-link and the in-link of each target), to all targets together.

    before: the route to the broadcasting GPU if it has to load them first (SSD, host); the tree follows it.
    The arrivals at the targets are those of hop ``len(before)``. Raises HardwareError.
    """
    hops = [*before, replace(tree, after=None)]
    return Chain(units, hops, chunk_bytes=chunk_bytes, sequential=sequential)
