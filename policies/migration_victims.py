"""Move requests that would be preempted to an instance with free blocks (``migration.victims``)."""

from collections.abc import Sequence

from serving.protocols.batch import Batch, Batcher, ReplicaView
from serving.protocols.migration import InstancesView, Pair, SourceView


class NextVictim:
    """The next request to be preempted moves to the instance with the most free blocks.

    By load reports, blocks that waiting requests need are not free. Without reports the destination is the
    instance with the fewest requests, if it has fewer than half of the source's.
    """

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """Pair an instance whose memory is nearly full with the freest."""
        pairs = list[Pair]()
        for source in view.nearly_full:
            targets = [
                _freest_instance(view, source, other) for other in view.taking if not view.engaged(other)
            ]
            free, other = max([target for target in targets if target is not None], default=(0, 0))
            if free > 0:
                pairs.append(Pair(source, -other, f"{source} is nearly full, {-other} has {free} free"))
        return pairs

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The request of the lowest priority; among these the last admitted."""
        options = [(view.priority(request), -place, request) for place, request in enumerate(view.decoding())]
        return (min(options)[2], "it would be preempted next") if len(options) > 1 else None


def _freest_instance(view: InstancesView, source: int, other: int) -> tuple[int, int] | None:
    """(room, minus its number) of the freest instance; on a tie the lowest number."""
    if other == source:
        return None
    free = view.free_blocks(other)
    if free is None:
        free = view.load(source, "outstanding") - 2 * view.load(other, "outstanding")
    return free, -other


class StopsAtReserve:
    """A batcher that ends a run before a step that would leave fewer than ``reserve_blocks`` free blocks."""

    def __init__(self, inner: Batcher, reserve_blocks: int) -> None:
        self._inner, self._reserve_blocks = inner, reserve_blocks

    def choose(self, view: ReplicaView) -> Batch | None:
        """The inner batcher's choice, for fewer steps."""
        batch = self._inner.choose(view)
        if batch is None or batch.max_steps == 1:
            return batch
        steps = 1 if batch.chunks else max(1, view.kv.steps_until_full(self._reserve_blocks))
        if steps >= batch.max_steps:
            return batch
        return batch._replace(max_steps=steps, interruptible=batch.interruptible and steps > 1)
