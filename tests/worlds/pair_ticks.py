"""A live pair played in ticks."""

from serving.live.pairs import LiveBatch, LivePair, LivePass
from serving.vocabulary.request import Request

OLD, NEW = 0, 1


class Ticks:
    """Two instances in ticks: a layer of a batch takes its first request's prompt; sends take no time."""

    def __init__(self, layers: int, costs: list[int], load: int, pulls: bool = True) -> None:
        self.queue = [Request(number, 0, cost, 1, "m") for number, cost in enumerate(costs)]
        self.pair = LivePair(NEW, layers)
        self.layers, self.load, self.now, self.pulls = layers, load, 0, pulls
        self.quotas: list[int] = []
        self.due: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.splits: dict[int, int] = {}
        self.sent: list[LiveBatch] = []
        self.ordinary: int | None = None  # runs on the new instance after the pair is over

    def idle(self, replica: int) -> bool:
        return replica not in self.due

    def fetch(self) -> tuple[tuple[Request, ...], int | None]:
        quota = self.quotas.pop(0) if self.quotas else None
        return ((self.queue.pop(0),) if self.queue else ()), quota

    def embed(self) -> None:
        for batch in self.pair.not_embedded():
            batch.source = OLD
            self.sent.append(batch)

    def run(self, one: LivePass | None) -> None:
        if one is not None:
            assert one.replica not in self.due and one.first < one.last
            self.due[one.replica] = self.now + (one.last - one.first) * one.batch.requests[0].prompt_tokens

    def pull(self, batch: LiveBatch) -> None:
        self.run(self.pair.pull(OLD, batch))
        if batch.where == "moving":
            self.sent.append(batch)

    def ended(self, replica: int) -> None:
        batch = self.pair.ended(replica)
        if batch.where == "moving":
            self.sent.append(batch)
        elif batch.where == "over":
            self.finish[batch.requests[0].id] = self.now
            self.splits[batch.requests[0].id] = batch.split

    def work(self) -> None:
        if self.pair.may_work and self.idle(NEW):
            self.embed()
            self.run(self.pair.work(self.fetch))
            self.embed()

    def deliver(self) -> None:
        while self.sent:
            self.run(self.pair.activations_arrived(self.sent.pop()))

    def play(self) -> list[int]:
        """Finish times by batch. What ends at a tick is booked before anything begins."""
        wanted = len(self.queue) + len(self.pair.batches)
        while len(self.finish) < wanted:
            assert self.now < 10_000, "the pair stands still"
            self.pair.layers_loaded(min(self.layers, 1 + self.now // self.load))
            for replica in [replica for replica in (OLD, NEW) if self.due.get(replica) == self.now]:
                del self.due[replica]
                if replica == NEW and self.ordinary is not None:
                    self.finish[self.ordinary], self.ordinary = self.now, None
                else:
                    self.ended(replica)
            promised = any(batch.source == OLD for batch in self.pair.batches)
            if self.pulls and self.idle(OLD) and not promised and (offered := self.pair.offer()):
                self.pull(offered)
                self.deliver()
            self.work()
            self.deliver()
            self.work()
            if self.pair.is_complete and self.queue and self.idle(NEW):
                self.ordinary = self.queue[0].id
                self.due[NEW] = self.now + self.layers * self.queue.pop(0).prompt_tokens
            self.now += 1
        return [self.finish[number] for number in range(wanted)]
