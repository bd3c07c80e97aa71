"""The stages of a language model: of its current cut, of a coming cut, and of old cuts that are finishing."""

from collections.abc import Iterable, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.fleet import Dispatcher, Fleet
from serving.services.language.path_batch import PathBatch
from serving.services.stages.stage import Stage
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, too_long
from serving.vocabulary.request import Request


class PathStages:
    """The stages of one model.

    ``now``: the stages of the cut that new batches pass, in order. ``coming``: the stages of a cut whose
    replicas are loading; empty without such a cut. A stage of both cuts is one object.
    """

    __slots__ = ("_dispatcher", "_engines", "_known", "coming", "now")

    def __init__(
        self,
        parts: Sequence[Part],
        replicas: Sequence[Replica],
        engines: Mapping[int, Engine],
        dispatcher: Dispatcher,
    ) -> None:
        self._engines, self._dispatcher = engines, dispatcher
        self.now = [
            self._stage(index, part, [replica for replica in replicas if replica.part == part])
            for index, part in enumerate(parts)
        ]
        self._known = {stage.part: stage for stage in self.now}
        self.coming: list[Stage] = []

    def _stage(self, index: int, part: Part, own: Sequence[Replica]) -> Stage:
        return Stage(index, part, Fleet(part.model, own, self._engines), self._dispatcher, "stage")

    def all(self) -> Iterable[Stage]:
        """All stages, including those of other cuts, whose replicas may have requests."""
        return self._known.values()

    def of(self, part: Part) -> Stage:
        """The stage of a part, in any cut."""
        return self._known[part]

    def having(self, replica: int) -> Stage:
        """The stage of a replica."""
        return self._known[self._engines[replica].replica.part]

    def index_of(self, part: Part) -> int | None:
        """Index of the stage that new batches pass; None: no stage has that part."""
        for stage in self.now:
            if stage.part == part:
                return stage.index
        return None

    def join(self, replica: Replica, batches: Iterable[PathBatch]) -> None:
        """Let a replica serve; from now on it counts the requests that passed it while it loaded."""
        fleet = self._known[replica.part].fleet
        counted = replica.id in fleet.members  # it was a member before
        fleet.add(replica)
        for request in [member for batch in batches for member in batch.members()]:
            if not counted:
                fleet.assigned(replica.id, request)

    def assigned(self, path: Iterable[int], request: Request) -> None:
        """Count a request on these replicas; a replica in its first load counts it when it serves."""
        for replica in path:
            fleet = self.having(replica).fleet
            if replica in fleet.members:
                fleet.assigned(replica, request)

    def departed(self, path: Iterable[int], request: Request) -> None:
        """Stop counting a request on these replicas."""
        for replica in path:
            fleet = self.having(replica).fleet
            if replica in fleet.members:
                fleet.departed(replica, request)

    def longest_request_tokens(self, prototypes: Mapping[Part, Replica]) -> int:
        """What the smallest replica holds, including a coming cut's; 0 if a stage has no replica."""
        if prototypes:
            parts = [stage.part for stage in (*self.now, *self.coming)]
            return min([prototypes[part].longest_request_tokens for part in parts])
        if not all(stage.fleet.replicas for stage in self.now):
            return 0
        alive = [replica for stage in self.now for replica in stage.fleet.alive()]
        return min([self._engines[replica].replica.longest_request_tokens for replica in alive])

    def refusal(self, request: Request, prototypes: Mapping[Part, Replica]) -> str | None:
        """Reason: a stage has no replica and gets none, or the request is too long for a replica."""
        first = self.now[0]
        for stage in self.now if not prototypes else ():
            if not stage.fleet.replicas:
                return f"no replica of stage {stage.index} of {stage.part.model} is alive"
        known = prototypes.get(first.part) or self._engines[first.fleet.replica_at(0)].replica
        return too_long(request, self.longest_request_tokens(prototypes), known.max_model_len)

    def first_kv_tokens(self) -> int:
        """KV tokens in use or reserved for requests in the first layer."""
        firsts = [stage for stage in self._known.values() if not stage.part.first]
        ledgers = [self._engines[member].ledger for stage in firsts for member in stage.fleet.members]
        return sum([(ledger.total_blocks - ledger.free_blocks) * ledger.block_tokens for ledger in ledgers])

    # Changes of the cut.

    def propose(self, parts: Sequence[Part]) -> list[Stage]:
        """Announce another cut; returns its stages. Stages that already exist are kept."""
        assert not self.coming, "one cut comes at a time"
        for part in parts:
            if part not in self._known:
                self._known[part] = self._stage(0, part, ())
        self.coming = [self._known[part] for part in parts]
        return self.coming

    def give_up(self) -> list[Stage]:
        """Abandon the coming cut; returns the stages that only it has."""
        only = [stage for stage in self.coming if stage not in self.now]
        self.coming = []
        return only

    def take(self) -> list[Stage]:
        """Activate the coming cut: new batches pass it. Returns the stages that only the old cut had."""
        before, self.now, self.coming = self.now, self.coming, []
        arrivals = before[0].counts.arrivals_alone()
        for index, stage in enumerate(self.now):
            stage.index = index
            if stage not in before:
                stage.counts = arrivals.copy()
        return [stage for stage in before if stage not in self.now]
