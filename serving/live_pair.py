"""A pair while its new instance loads: the old one and the new one share the layers of prefill batches.

Three steps (OSDI 2025, section 5.2). From its first layer on the new instance takes requests from the queue
and runs the layers it has. The old one ends what it runs and then pulls the earliest batch that has a layer
done, with its activations, and runs the rest. When everything is loaded the new one ends what it has begun,
and both are ordinary instances. A batch changes hands at a layer boundary only. What a batch does when:

| batch   | new is idle           | old is idle           | activations came | its pass ended    |
|---------|-----------------------|-----------------------|------------------|-------------------|
| waiting | runs layers (running) | is pulled (moving)    | refused          | refused           |
| running | -                     | -                     | refused          | waiting, or over  |
| moving  | -                     | -                     | runs (pulled)    | refused           |
| pulled  | -                     | -                     | refused          | over              |
"""

from typing import Literal, Protocol

from serving.request import Request

Where = Literal["waiting", "running", "moving", "pulled", "over"]
Side = Literal["old", "new"]


class LiveBatch:
    """Requests whose prompts are computed together; ``done`` layers, the first ``split`` on the new one."""

    __slots__ = ("done", "number", "requests", "split", "where")

    def __init__(self, number: int, requests: tuple[Request, ...]) -> None:
        self.number = number
        self.requests = requests
        self.done = self.split = 0
        self.where: Where = "waiting"


class LiveHands(Protocol):
    """Who carries out what a pair decides: the service of the model, for its two instances."""

    def idle(self, side: Side) -> bool:
        """Whether that instance could begin a pass now."""

    def fetch(self, side: Side) -> tuple[Request, ...]:
        """The next batch from the queue that the instance has memory for; empty when there is none."""

    def holds(self, side: Side, batch: LiveBatch) -> bool:
        """Take memory for the batch there; False when there is not enough."""

    def run(self, side: Side, batch: LiveBatch, first: int, last: int) -> None:
        """Run layers [first, last) of the batch; ``LivePair.ended`` follows."""

    def send(self, batch: LiveBatch) -> None:
        """Send its activations from the new instance to the old; ``LivePair.came`` follows."""

    def over(self, side: Side, batch: LiveBatch) -> None:
        """All layers are done, the last of them on that instance: its KV can be fetched."""


class LivePair:
    """``pulls``: whether an idle old instance takes batches that the new one has begun (else it never does).

    Facts are booked as they come; ``go_on`` then gives both instances what they can do, the old one first.
    """

    __slots__ = (
        "_hands", "_layers", "_numbers", "_running", "batches", "layer_counts", "loaded", "old", "pulls",
    )  # fmt: skip

    def __init__(self, layers: int, hands: LiveHands, pulls: bool = True) -> None:
        self._hands = hands
        self._layers = layers
        self._numbers = 0
        self._running: dict[Side, LiveBatch | None] = {"old": None, "new": None}
        self.batches: list[LiveBatch] = []  # not over, in the order in which they came
        self.loaded = 0
        self.layer_counts: set[int] = set()  # how many layers were there when a pass began on the new one
        self.old = True  # whether the old one still takes part
        self.pulls = pulls

    @property
    def whole(self) -> bool:
        """Whether the new instance has all layers."""
        return self.loaded == self._layers

    @property
    def ended_for_good(self) -> bool:
        """Whether the two are ordinary instances again."""
        return self.whole and not self.batches

    def layers_came(self, loaded: int) -> None:
        """So many layers are on the new instance."""
        assert self.loaded <= loaded <= self._layers, "layers do not go away"
        self.loaded = loaded

    def old_left(self) -> None:
        """The old instance drains, or is gone: it pulls nothing more."""
        self.old = False

    def came(self, batch: LiveBatch) -> None:
        """The activations of a batch are on the old instance."""
        assert batch.where == "moving", f"activations of batch {batch.number} came, which is {batch.where}"
        batch.where = "pulled"
        self._run("old", batch, self._layers)

    def ended(self, side: Side) -> None:
        """The pass of a batch on that instance has ended."""
        batch = self._running[side]
        assert batch is not None, f"a pass ended on the {side} instance, which ran none of this pair"
        self._running[side] = None
        if batch.done == self._layers:
            batch.where = "over"
            self.batches.remove(batch)
            self._hands.over(side, batch)
        else:
            batch.where = "waiting"

    def go_on(self) -> None:
        """Something may be possible now that was not."""
        if self.pulls and self.old and self._hands.idle("old"):
            self._pull()
        if self._hands.idle("new") and self._running["new"] is None:
            self._work()

    def _pull(self) -> None:
        """The old instance takes the earliest batch that has a layer done and does not run."""
        if any(batch.where in ("moving", "pulled") for batch in self.batches):
            return
        for batch in self.batches:
            if batch.where == "waiting" and batch.done:
                if self._hands.holds("old", batch):
                    batch.where = "moving"
                    self._hands.send(batch)
                return

    def _work(self) -> None:
        """The new instance runs one layer of the earliest batch that has one to run, or begins another."""
        for batch in self.batches:
            if batch.where == "waiting" and batch.done < self.loaded:
                batch.where = "running"
                self._run("new", batch, self._layers if self.whole else batch.done + 1)
                return
        if not self.loaded or self.whole:
            return  # whole: what the queue has is for ordinary passes
        requests = self._hands.fetch("new")
        if requests:
            batch = LiveBatch(self._numbers, requests)
            self._numbers += 1
            self.batches.append(batch)
            batch.where = "running"
            self._run("new", batch, 1)

    def _run(self, side: Side, batch: LiveBatch, last: int) -> None:
        first, batch.done = batch.done, last
        if side == "new":
            batch.split = last
            self.layer_counts.add(self.loaded)
        self._running[side] = batch
        self._hands.run(side, batch, first, last)
