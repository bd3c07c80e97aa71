"""The stages of a language model: those of its cut, those of the cut that comes, those that only end."""

from collections.abc import Iterable, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.fleet import Dispatcher, Fleet
from serving.services.path_batch import PathBatch
from serving.services.stage import Stage
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, too_long
from serving.vocabulary.request import Request


class PathStages:
    """``now``: of the cut that new batches pass, in order. ``coming``: of one whose replicas load, empty
    where none comes; stages that both have are the same objects.
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
            self._stage(index, part, [one for one in replicas if one.part == part])
            for index, part in enumerate(parts)
        ]
        self._known = {stage.part: stage for stage in self.now}
        self.coming: list[Stage] = []

    def _stage(self, index: int, part: Part, own: Sequence[Replica]) -> Stage:
        return Stage(index, part, Fleet(part.model, own, self._engines), self._dispatcher, "stage")

    def all(self) -> Iterable[Stage]:
        """Also those of other cuts, whose replicas may have requests."""
        return self._known.values()

    def of(self, part: Part) -> Stage:
        """The stage of a part, of whichever cut."""
        return self._known[part]

    def having(self, replica: int) -> Stage:
        """The stage whose replica it is."""
        return self._known[self._engines[replica].replica.part]

    def index_of(self, part: Part) -> int | None:
        """Of the stage that new batches pass; None: there is none of that part."""
        for stage in self.now:
            if stage.part == part:
                return stage.index
        return None

    def join(self, replica: Replica, batches: Iterable[PathBatch]) -> None:
        """A replica serves; batches that passed it while it loaded are counted from now on."""
        fleet = self._known[replica.part].fleet
        counted = replica.id in fleet.members  # it was there before
        fleet.add(replica)
        for request in [one for batch in batches for one in batch.members()]:
            if not counted:
                fleet.assigned(replica.id, request)

    def assigned(self, path: Iterable[int], request: Request) -> None:
        """A request is on these replicas; those that load for the first time are counted when they serve."""
        for replica in path:
            fleet = self.having(replica).fleet
            if replica in fleet.members:
                fleet.assigned(replica, request)

    def departed(self, path: Iterable[int], request: Request) -> None:
        """It is no more."""
        for replica in path:
            fleet = self.having(replica).fleet
            if replica in fleet.members:
                fleet.departed(replica, request)

    def longest_request_tokens(self, prototypes: Mapping[Part, Replica]) -> int:
        """What the smallest replica holds, of a cut that comes too; 0 where a stage is without one."""
        if prototypes:
            parts = [stage.part for stage in (*self.now, *self.coming)]
            return min([prototypes[one].longest_request_tokens for one in parts])
        if not all(stage.fleet.replicas for stage in self.now):
            return 0
        alive = [one for stage in self.now for one in stage.fleet.alive()]
        return min([self._engines[one].replica.longest_request_tokens for one in alive])

    def refusal(self, request: Request, prototypes: Mapping[Part, Replica]) -> str | None:
        """A stage that nobody serves and gets nobody, or a request too long for some replica."""
        first = self.now[0]
        for stage in self.now if not prototypes else ():
            if not stage.fleet.replicas:
                return f"no replica of stage {stage.index} of {stage.part.model} is alive"
        known = prototypes.get(first.part) or self._engines[first.fleet.replica_at(0)].replica
        return too_long(request, self.longest_request_tokens(prototypes), known.max_model_len)

    def first_kv_tokens(self) -> int:
        """KV memory of the first layer that requests have."""
        firsts = [stage for stage in self._known.values() if not stage.part.first]
        ledgers = [self._engines[one].ledger for stage in firsts for one in stage.fleet.members]
        return sum([(one.total_blocks - one.free_blocks) * one.block_tokens for one in ledgers])

    # Another cut.

    def propose(self, parts: Sequence[Part]) -> list[Stage]:
        """A cut comes: its stages, of which those that are there already stay."""
        assert not self.coming, "one cut comes at a time"
        for part in parts:
            if part not in self._known:
                self._known[part] = self._stage(0, part, ())
        self.coming = [self._known[part] for part in parts]
        return self.coming

    def give_up(self) -> list[Stage]:
        """The cut does not come; the stages that only it has."""
        only = [stage for stage in self.coming if stage not in self.now]
        self.coming = []
        return only

    def take(self) -> list[Stage]:
        """The cut is there: new batches pass it. The stages that only the one before had."""
        before, self.now, self.coming = self.now, self.coming, []
        arrivals = before[0].counts.arrivals_alone()
        for index, stage in enumerate(self.now):
            stage.index = index
            if stage not in before:
                stage.counts = arrivals.copy()
        return [stage for stage in before if stage not in self.now]
