"""Schedules of a pair layer by layer, in whole nanoseconds: replay of a split, and rules without a solver.

Events at the same instant happen in this order: finished layers and batches are booked, an idle source starts
a batch, an idle target starts a layer. A layer that has begun always runs to its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from serving.protocols.live import LiveView


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each batch finishes, and how many of its layers the target ran."""

    finish_ns: tuple[int, ...]
    target_layers: tuple[int, ...]

    @property
    def mean_ns(self) -> Fraction:
        """The mean finish time, exact."""
        return Fraction(sum(self.finish_ns), len(self.finish_ns))


class _Pair:
    """The state of both instances, advanced from one instant to the next.

    most: layers the target may run of each batch.
    """

    def __init__(self, view: LiveView, most: Sequence[int]) -> None:
        self.view = view
        self.now_ns = 0
        self.done = [0] * view.batches
        self.waiting = list(range(view.batches))  # neither finished nor with the source
        self.finish_ns = [0] * view.batches
        self.on_target: tuple[int, int] | None = None  # (end of the layer, batch)
        self.on_source: tuple[int, int] | None = None  # (end of the batch, batch)
        self._most = most

    def book(self) -> None:
        """Book the layers and batches that end now."""
        if self.on_source and self.on_source[0] == self.now_ns:
            self.finish_ns[self.on_source[1]] = self.now_ns
            self.on_source = None
        if self.on_target and self.on_target[0] == self.now_ns:
            batch = self.on_target[1]
            self.on_target = None
            self.done[batch] += 1
            if self.done[batch] == self.view.layers:
                self.finish_ns[batch] = self.now_ns
                self.waiting.remove(batch)

    def start_source(self, batch: int) -> None:
        """Start all layers of ``batch`` that the target has not run."""
        left = self.view.layers - self.done[batch]
        self.on_source = self.now_ns + left * self.view.batch_layer_ns[batch], batch
        self.waiting.remove(batch)

    def start_target(self) -> None:
        """Start one layer of the earliest batch that has a layer loaded and not run."""
        loaded = self.view.loaded_at(self.now_ns)
        for batch in self.waiting:
            if self.done[batch] < min(loaded, self._most[batch]) and self.is_there(batch):
                self.on_target = self.now_ns + self.view.batch_layer_ns[batch], batch
                return

    def is_there(self, batch: int) -> bool:
        """Whether the batch has arrived."""
        return self.view.arrived_ns(batch) <= self.now_ns

    def go_on(self) -> None:
        """Advance to the next instant at which the state can change."""
        ends = [busy[0] for busy in (self.on_source, self.on_target) if busy]
        if self.on_target is None and self.view.loaded_at(self.now_ns) < self.view.layers:
            ends.append((self.now_ns // self.view.layer_load_ns + 1) * self.view.layer_load_ns)
        ends += [self.view.arrived_ns(batch) for batch in self.waiting if not self.is_there(batch)]
        self.now_ns = min(ends)


def replay(view: LiveView, split: Sequence[int]) -> Schedule:
    """The target runs the first ``split[i]`` layers of batch i, the source the others, batches in order.

    The source does not wait for a batch whose layers all run on the target.
    """
    if len(split) != view.batches or not all(0 <= layers <= view.layers for layers in split):
        raise ValueError(f"a split of {view.batches} batches has as many numbers from 0 to {view.layers}")
    queue = [batch for batch in reversed(range(view.batches)) if split[batch] < view.layers]

    def next_in_order(pair: _Pair) -> int | None:
        if not queue or pair.done[queue[-1]] < split[queue[-1]] or not pair.is_there(queue[-1]):
            return None
        return queue.pop()

    return _schedule(view, split, next_in_order)


def ilp_free(view: LiveView) -> Schedule:
    """BlitzScale's ZigZag without a solver (OSDI '25, Fig. 16), if no further batch arrives.

    An idle source takes the earliest batch that the target has begun. If the target is running a layer of it,
    the source waits for that layer instead of taking a later batch.
    """

    def earliest_begun(pair: _Pair) -> int | None:
        running = pair.on_target[1] if pair.on_target else None
        earliest = next((batch for batch in pair.waiting if pair.done[batch] or batch == running), None)
        return None if earliest == running else earliest

    return _schedule(view, [view.layers] * view.batches, earliest_begun)


def best_effort(view: LiveView) -> Schedule:
    """At a batch's turn the target runs the layers loaded by then, at most half of all layers."""
    free_ns, split = 0, []
    for batch, layer_ns in enumerate(view.batch_layer_ns):
        start_ns = max(free_ns, view.arrived_ns(batch))
        split.append(min(view.loaded_at(start_ns), view.layers // 2))
        free_ns = start_ns + split[-1] * layer_ns
    return replay(view, split)


def stop_the_world(view: LiveView) -> Schedule:
    """The target runs nothing before all layers are loaded; then both take whole batches in order."""
    source_ns, target_ns = 0, (view.layers - view.loaded) * view.layer_load_ns
    finish_ns, split = [], []
    for batch, layer_ns in enumerate(view.batch_layer_ns):
        whole_ns, there_ns = view.layers * layer_ns, view.arrived_ns(batch)
        to_target = max(target_ns, there_ns) < max(source_ns, there_ns)
        finish_ns.append(max(target_ns if to_target else source_ns, there_ns) + whole_ns)
        split.append(view.layers if to_target else 0)
        if to_target:
            target_ns = finish_ns[-1]
        else:
            source_ns = finish_ns[-1]
    return Schedule(tuple(finish_ns), tuple(split))


def _schedule(view: LiveView, most: Sequence[int], pull: Callable[[_Pair], int | None]) -> Schedule:
    """Run from time 0 to the last finish; ``pull`` returns the batch that an idle source starts, if any."""
    pair = _Pair(view, most)
    while True:
        pair.book()
        if pair.on_source is None and (batch := pull(pair)) is not None:
            pair.start_source(batch)
        if pair.on_target is None:
            pair.start_target()
        if not pair.waiting and pair.on_source is None:
            return Schedule(tuple(pair.finish_ns), tuple(pair.done))
        pair.go_on()
