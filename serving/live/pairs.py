"""A pair while its target loads: the target and sources share the layers of prefill batches.

Three steps (OSDI 2025, section 5.2). From its first layer on the target takes requests from the queue and
runs the layers it has. A source finishes its current work and then pulls the earliest batch that has a layer
done, with its activations, and runs the other layers. Once fully loaded, the target finishes what it has
begun and becomes an ordinary instance. Pairing is dynamic: the source of a batch is the first idle one. A
batch changes instances at a layer boundary only. If the earliest batch is running, a source claims it and
waits for the layer to end, instead of taking a later batch or prompts from the queue.
docs/contributing/STATES.md has the tables of batches and pairs.

A batch with a ``quota`` is planned: the target runs ``quota`` layers of it, then a source the others, planned
batches in order; it is claimed during the last of these layers. Quotas end once the target is fully loaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from serving.vocabulary.request import Request

Where = Literal["embedding", "waiting", "running", "claimed", "moving", "pulled", "over"]
_NO_REPLICA = -1


class LiveBatch:
    """Requests whose prompts are computed together; ``done`` layers, the first ``split`` on the target.

    source: the instance that embeds, claims, pulls or has pulled the batch; -1 for none.
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
        """Tokens of all its prompts."""
        return sum([request.prompt_tokens for request in self.requests])

    @property
    def left_target(self) -> bool:
        """Whether it was pulled before the target ran a layer: only its prompts went to the source."""
        return self.where == "pulled" and not self.split


@dataclass(frozen=True, slots=True)
class LivePass:
    """Layers [first, last) of a batch, to be run by ``replica``; a call of ``LivePair.ended`` follows."""

    replica: int
    batch: LiveBatch
    first: int
    last: int


# Returns the next batch from the queue that fits into the target's memory, and its quota; may be empty.
Fetch = Callable[[], tuple[tuple[Request, ...], int | None]]


class LivePair:
    """The batches of one target. ``embeds``: it has the embedding, and can begin a batch without a source.

    The caller books events as they come, then calls ``pull`` for idle sources, and ``work``. Both return a
    pass to be run. Otherwise the state of a batch says what the caller must do. "moving": send its
    activations from the target to the source. "embedding" with no ``source``: choose a source that embeds its
    prompts and sends them (``activations_arrived`` follows both). "over": its KV is computed.
    """

    __slots__ = (
        "_layers", "_running", "batches", "begun", "embeds", "layer_counts", "loaded", "stopped",
        "target",
    )  # fmt: skip

    def __init__(self, target: int, layers: int, embeds: bool = True) -> None:
        self.target = target
        self.embeds = embeds
        self._layers = layers
        self.begun = 0  # number of batches
        self._running: dict[int, LiveBatch] = {}
        self.batches: list[LiveBatch] = []  # not over, in order of arrival
        self.loaded = 0  # layers that its passes may use; Residency has how many are loaded
        self.stopped = False  # no more layers will be loaded: sources finish the batches
        self.layer_counts: set[int] = set()  # how many layers were loaded when a pass began on the target

    @property
    def layers(self) -> int:
        """Number of layers of the model, or of the part of the model that the target has."""
        return self._layers

    @property
    def fully_loaded(self) -> bool:
        """Whether the target has all layers."""
        return self.loaded == self._layers

    @property
    def is_complete(self) -> bool:
        """Whether the pair has no work left."""
        return (self.fully_loaded or self.stopped) and not self.batches

    def layers_loaded(self, loaded: int) -> None:
        """Note how many layers are on the target."""
        assert self.loaded <= loaded <= self._layers, "layers do not go away"
        self.loaded = loaded
        if self.fully_loaded:
            self._end_waits()

    def stop(self) -> None:
        """Note that no more layers will come."""
        self.stopped = True
        self._end_waits()

    def _end_waits(self) -> None:
        """Let no batch wait any more for a quota, or for embedded prompts that no source is sending."""
        for batch in self.batches:
            batch.quota = None
            if batch.where == "embedding" and batch.source == _NO_REPLICA:
                batch.where = "waiting"

    def plan(self, batches: Sequence[tuple[Request, ...]], quotas: Sequence[int | None]) -> None:
        """Take these batches now; the target runs the first ``quotas`` layers of each."""
        for requests, quota in zip(batches, quotas, strict=True):
            self._begin(requests, quota)

    def activations_arrived(self, batch: LiveBatch) -> LivePass | None:
        """Handle the arrival of a batch's activations; returns the pass that needed them, if any."""
        if batch.where == "embedding":
            batch.where, batch.source = "waiting", _NO_REPLICA
            return None
        assert batch.where == "moving", f"activations of batch {batch.number} came, which is {batch.where}"
        batch.where = "pulled"
        return self._run(batch.source, batch, self._layers)

    def ended(self, replica: int) -> LiveBatch:
        """Handle the end of a batch's pass on that instance."""
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
        """Handle a lost source: batches that it had pulled continue from the target's layers."""
        self._running.pop(source, None)
        returned = [batch for batch in self.batches if batch.source == source]
        for batch in returned:
            if batch.where == "claimed":
                batch.where, batch.source = "running", _NO_REPLICA
                continue
            embedding = batch.where == "embedding" and not (self.fully_loaded or self.stopped)
            batch.where = "embedding" if embedding else "waiting"
            batch.source, batch.done = _NO_REPLICA, batch.split
        return returned

    def take_back(self, batch: LiveBatch) -> None:
        """Remove a batch of which no layer has run, so that it goes back to the queue."""
        assert batch.where in ("waiting", "embedding") and not batch.done, "a batch that was begun is kept"
        self.batches.remove(batch)

    def offer(self) -> LiveBatch | None:
        """The batch an idle source takes next: the earliest one with a layer done, or running.

        Planned batches come in order, once the target has run its share.
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
        """Whether a source may take the batch, now or when the target has ended its layer."""
        if batch.where == "running" and self.fully_loaded:
            return False  # the target runs it to the end
        if self.stopped:
            return True
        if batch.quota is None:
            return batch.done > 0 or self.fully_loaded  # else the target runs its first layer
        return batch.done >= batch.quota

    def pull(self, source: int, batch: LiveBatch) -> LivePass | None:
        """An idle source takes the offered batch; returns the pass that it runs at once, if any."""
        batch.source = source
        if batch.where == "running":
            batch.where = "claimed"
            return None
        if batch.done:
            batch.where = "moving"
            return None
        batch.where = "pulled"  # only prompts need to be sent
        return self._run(source, batch, self._layers)

    @property
    def may_work(self) -> bool:
        """Whether the state of this pair permits the target to run layers."""
        return not self.stopped and self.target not in self._running

    def work(self, fetch: Fetch) -> LivePass | None:
        """One layer of the earliest batch that can run, or of a batch from the queue that begins now.

        For a target that ``may_work`` and is idle.
        """
        while (next_pass := self._next_pass()) is None:
            if (
                not self.loaded
                or self.fully_loaded
                or any(batch.where == "embedding" for batch in self.batches)
            ):
                return None  # fully loaded: ordinary passes take from the queue
            requests, quota = fetch()
            if not requests:
                return None
            self._begin(requests, quota)
        return next_pass

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
        """Batches whose prompts no source is embedding yet."""
        return [batch for batch in self.batches if batch.where == "embedding" and batch.source == _NO_REPLICA]

    def next_own(self) -> LiveBatch | None:
        """The first batch of which the target still has to run layers."""
        return next((batch for batch in self.batches if batch.where in ("embedding", "waiting")), None)

    def _run(self, replica: int, batch: LiveBatch, last: int) -> LivePass:
        first, batch.done = batch.done, last
        if replica == self.target:
            batch.split = last
            if not self.fully_loaded:
                self.layer_counts.add(self.loaded)
        self._running[replica] = batch
        return LivePass(replica, batch, first, last)
