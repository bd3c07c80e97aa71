"""A pair while its target loads: the target and sources share the layers of prefill batches.

Three steps (OSDI 2025, section 5.2). From its first layer on the target takes requests from the queue
and runs the layers it has. A source ends what it runs and then pulls the earliest batch that has a layer
done, with its activations, and runs the rest. When everything is loaded the target ends what it has begun,
and is an ordinary instance. Pairing is dynamic: the source of a batch is the one that is idle first. A batch
changes hands at a layer boundary only: a source that finds the earliest batch running claims it, and waits
for the layer to end, rather than take a later batch or prompts from the queue. docs/STATES.md has the tables
of batches and pairs.

A batch with a ``quota`` is planned: the target runs so many layers of it, then a source the others,
planned batches in order; it is claimed in its last one. When everything is loaded quotas end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from serving.vocabulary.request import Request

Where = Literal["embedding", "waiting", "running", "claimed", "moving", "pulled", "over"]
_NO_REPLICA = -1


class LiveBatch:
    """Requests whose prompts are computed together; ``done`` layers, the first ``split`` on the target.

    source: the instance that embeds, claims, pulls or has pulled it; -1 for none.
    """

    __slots__ = ("done", "number", "quota", "requests", "source", "split", "target", "where")

    def __init__(
        self, target: int, number: int, requests: tuple[Request, ...], quota: int | None = None
    ) -> None:
        self.target = target
        self.number = number
        self.requests = requests
        self.quota = quota
        self.done = self.split = 0
        self.source = _NO_REPLICA
        self.where: Where = "waiting"

    @property
    def tokens(self) -> int:
        """Of all its prompts."""
        return sum([request.prompt_tokens for request in self.requests])

    @property
    def left_target(self) -> bool:
        """Whether it was pulled before the target ran a layer: its prompts alone went to the source."""
        return self.where == "pulled" and not self.split


@dataclass(frozen=True, slots=True)
class LivePass:
    """Layers [first, last) of a batch, to be run by ``replica``; ``LivePair.ended`` follows."""

    replica: int
    batch: LiveBatch
    first: int
    last: int


# The next batch from the queue that the target has memory for, and its quota; empty: none.
Fetch = Callable[[], tuple[tuple[Request, ...], int | None]]


class LivePair:
    """The batches of one target. ``embeds``: it has the embedding, and can begin a batch without a source.

    Facts are booked as they come; then ``pull`` is asked for sources that are idle, and ``work``. A
    pass that is to be run is returned. Else the state of a batch says what is to be done: "moving", its
    activations are to be sent from the target to the source; "embedding" with no ``source``, one is to
    be chosen, which embeds its prompts and sends them (``activations_arrived`` follows both); "over", its KV
    is computed.
    """

    __slots__ = (
        "_layers", "_running", "batches", "begun", "embeds", "layer_counts", "loaded", "stopped",
        "target",
    )  # fmt: skip

    def __init__(self, target: int, layers: int, embeds: bool = True) -> None:
        self.target = target
        self.embeds = embeds
        self._layers = layers
        self.begun = 0  # batches
        self._running: dict[int, LiveBatch] = {}
        self.batches: list[LiveBatch] = []  # not over, in the order in which they came
        self.loaded = 0  # layers that its passes may use; how many are there is in Residency
        self.stopped = False  # nothing more is loaded: what was begun is ended by sources
        self.layer_counts: set[int] = set()  # how many layers were there when a pass began on the target

    @property
    def layers(self) -> int:
        """Of the model, or of the part that the target is to have."""
        return self._layers

    @property
    def fully_loaded(self) -> bool:
        """Whether the target has all layers."""
        return self.loaded == self._layers

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do together."""
        return (self.fully_loaded or self.stopped) and not self.batches

    def layers_loaded(self, loaded: int) -> None:
        """So many layers are on the target."""
        assert self.loaded <= loaded <= self._layers, "layers do not go away"
        self.loaded = loaded
        if self.fully_loaded:
            self._end_waits()

    def stop(self) -> None:
        """No layer comes any more."""
        self.stopped = True
        self._end_waits()

    def _end_waits(self) -> None:
        """No batch waits for a quota, or for embedded prompts that are not on their way, any more."""
        for batch in self.batches:
            batch.quota = None
            if batch.where == "embedding" and batch.source == _NO_REPLICA:
                batch.where = "waiting"

    def plan(self, batches: Sequence[tuple[Request, ...]], quotas: Sequence[int | None]) -> None:
        """Take these batches now, the first so many layers of each for the target."""
        for requests, quota in zip(batches, quotas, strict=True):
            self._begin(requests, quota)

    def activations_arrived(self, batch: LiveBatch) -> LivePass | None:
        """The activations of a batch are where they are needed: the pass that they were sent for."""
        if batch.where == "embedding":
            batch.where, batch.source = "waiting", _NO_REPLICA
            return None
        assert batch.where == "moving", f"activations of batch {batch.number} came, which is {batch.where}"
        batch.where = "pulled"
        return self._run(batch.source, batch, self._layers)

    def ended(self, replica: int) -> LiveBatch:
        """The pass of a batch on that instance has ended."""
        batch = self._running.pop(replica, None)
        assert batch is not None, f"a pass ended on replica {replica}, which ran none of this pair"
        if batch.done == self._layers:
            batch.where = "over"
            self.batches.remove(batch)
        elif batch.where == "claimed":
            batch.where = "moving"
        else:
            batch.where = "waiting"
        return batch

    def source_lost(self, source: int) -> list[LiveBatch]:
        """A source is gone: what it had pulled goes on from the layers of the target."""
        self._running.pop(source, None)
        back = [batch for batch in self.batches if batch.source == source]
        for batch in back:
            if batch.where == "claimed":
                batch.where, batch.source = "running", _NO_REPLICA
                continue
            embedding = batch.where == "embedding" and not (self.fully_loaded or self.stopped)
            batch.where = "embedding" if embedding else "waiting"
            batch.source, batch.done = _NO_REPLICA, batch.split
        return back

    def take_back(self, batch: LiveBatch) -> None:
        """A batch of which no layer has been run goes back to the queue."""
        assert batch.where in ("waiting", "embedding") and not batch.done, "a batch that was begun is kept"
        self.batches.remove(batch)

    def offer(self) -> LiveBatch | None:
        """What an idle source takes next: the earliest batch with a layer done, or under way.

        Planned batches in order, when their turn is over.
        """
        for batch in self.batches:
            if batch.where not in ("waiting", "running"):
                continue
            if self._is_due(batch):
                return batch
            if batch.quota is not None and batch.quota < self._layers:
                return None
        return None

    def _is_due(self, batch: LiveBatch) -> bool:
        """Whether a source may take it, now or when the target has ended its layer."""
        if batch.where == "running" and self.fully_loaded:
            return False  # it is run to its end
        if self.stopped:
            return True
        if batch.quota is None:
            return batch.done > 0 or self.fully_loaded  # else the target is to run its first layer
        return batch.done >= batch.quota

    def pull(self, source: int, batch: LiveBatch) -> LivePass | None:
        """An idle source takes what was offered: the pass that it runs at once, if one."""
        batch.source = source
        if batch.where == "running":
            batch.where = "claimed"
            return None
        if batch.done:
            batch.where = "moving"
            return None
        batch.where = "pulled"  # its prompts are all there is
        return self._run(source, batch, self._layers)

    @property
    def may_work(self) -> bool:
        """Whether the target may run layers, as far as this pair knows."""
        return not self.stopped and self.target not in self._running

    def work(self, fetch: Fetch) -> LivePass | None:
        """One layer of the earliest batch that has one to run, or of a batch that is begun now.

        For a target that ``may_work`` and is idle.
        """
        while (found := self._next_pass()) is None:
            if (
                not self.loaded
                or self.fully_loaded
                or any(batch.where == "embedding" for batch in self.batches)
            ):
                return None  # whole: what the queue has is for ordinary passes
            requests, quota = fetch()
            if not requests:
                return None
            self._begin(requests, quota)
        return found

    def _next_pass(self) -> LivePass | None:
        for batch in self.batches:
            most = self.loaded if batch.quota is None else min(self.loaded, batch.quota)
            if batch.where == "waiting" and batch.done < most:
                batch.where = "running"
                return self._run(self.target, batch, self._layers if self.fully_loaded else batch.done + 1)
        return None

    def _begin(self, requests: tuple[Request, ...], quota: int | None) -> None:
        batch = LiveBatch(self.target, self.begun, requests, quota)
        self.begun += 1
        self.batches.append(batch)
        if not (self.embeds or self.fully_loaded):
            batch.where = "embedding"

    def not_embedded(self) -> list[LiveBatch]:
        """Batches whose prompts no source embeds yet."""
        return [batch for batch in self.batches if batch.where == "embedding" and batch.source == _NO_REPLICA]

    def next_own(self) -> LiveBatch | None:
        """The first batch that the target has yet to run layers of."""
        return next((batch for batch in self.batches if batch.where in ("embedding", "waiting")), None)

    def _run(self, replica: int, batch: LiveBatch, last: int) -> LivePass:
        first, batch.done = batch.done, last
        if replica == self.target:
            batch.split = last
            if not self.fully_loaded:
                self.layer_counts.add(self.loaded)
        self._running[replica] = batch
        return LivePass(replica, batch, first, last)
