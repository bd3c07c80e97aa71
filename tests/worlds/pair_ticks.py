"""A live pair played in ticks."""

from serving.live.pairs import LiveBatch, LivePair
from serving.vocabulary.request import Request

OLD, NEW = 0, 1


class Ticks:
    """Two instances in ticks: a layer of a batch takes its first request's prompt; sends take no time."""

    def __init__(self, layers: int, costs: list[int], load: int, pulls: bool = True) -> None:
        self.queue = [Request(number, 0, cost, 1, "m") for number, cost in enumerate(costs)]
        self.pair = LivePair(NEW, layers, self)
        self.layers, self.load, self.now, self.pulls = layers, load, 0, pulls
        self.quotas: list[int] = []
        self.due: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.splits: dict[int, int] = {}
        self.sent: list[LiveBatch] = []
        self.ordinary: int | None = None  # runs on the new instance after the pair is over

    def idle(self, replica: int) -> bool:
        return replica not in self.due

    def fetch(self, new: int) -> tuple[tuple[Request, ...], int | None]:
        quota = self.quotas.pop(0) if self.quotas else None
        return ((self.queue.pop(0),) if self.queue else ()), quota

    def embed(self, new: int, batch: LiveBatch) -> int:
        self.sent.append(batch)
        return OLD

    def run(self, replica: int, batch: LiveBatch, first: int, last: int) -> None:
        assert replica not in self.due and first < last
        self.due[replica] = self.now + (last - first) * batch.requests[0].prompt_tokens

    def send(self, new: int, batch: LiveBatch) -> None:
        self.sent.append(batch)

    def over(self, replica: int, new: int, batch: LiveBatch) -> None:
        self.finish[batch.requests[0].id] = self.now
        self.splits[batch.requests[0].id] = batch.split

    def deliver(self) -> None:
        while self.sent:
            self.pair.came(self.sent.pop())

    def play(self) -> list[int]:
        """Finish times by batch. What ends at a tick is booked before anything begins."""
        wanted = len(self.queue) + len(self.pair.batches)
        while len(self.finish) < wanted:
            assert self.now < 10_000, "the pair stands still"
            self.pair.layers_came(min(self.layers, 1 + self.now // self.load))
            for replica in [replica for replica in (OLD, NEW) if self.due.get(replica) == self.now]:
                del self.due[replica]
                if replica == NEW and self.ordinary is not None:
                    self.finish[self.ordinary], self.ordinary = self.now, None
                else:
                    self.pair.ended(replica)
            promised = any(batch.old == OLD for batch in self.pair.batches)
            if self.pulls and self.idle(OLD) and not promised and (offered := self.pair.offer()):
                self.pair.pull(OLD, offered)
                self.deliver()
            self.pair.work()
            self.deliver()
            self.pair.work()
            if self.pair.ended_for_good and self.queue and self.idle(NEW):
                self.ordinary = self.queue[0].id
                self.due[NEW] = self.now + self.layers * self.queue.pop(0).prompt_tokens
            self.now += 1
        return [self.finish[number] for number in range(wanted)]
