"""Which replicas a new batch of a language model in stages passes, and which batches take another request."""

from collections.abc import Mapping, Sequence

from serving.engine.engine import Engine
from serving.kv.path_kv import PathKv
from serving.services.path_batch import PathBatch
from serving.services.stage import Stage
from serving.vocabulary.request import Request


class PathChoice:
    """``batches``: those that go round now, by number."""

    __slots__ = ("_batches", "_engines", "_kv", "_max_num_seqs", "_stages")

    def __init__(
        self,
        stages: Sequence[Stage],
        engines: Mapping[int, Engine],
        kv: PathKv,
        batches: Mapping[int, PathBatch],
        max_num_seqs: int,
    ) -> None:
        self._stages, self._engines, self._kv, self._batches = stages, engines, kv, batches
        self._max_num_seqs = max_num_seqs

    def _users(self, stage: Stage) -> dict[int, int]:
        """How many batches pass each replica that takes new ones."""
        found = dict.fromkeys(stage.fleet.alive(), 0)
        for batch in self._batches.values():
            if (replica := batch.path[stage.index]) in found:
                found[replica] += 1
        return found

    def new(self, request: Request) -> tuple[int, ...] | None:
        """Of each stage the replica that the fewest batches pass, of several the one with most free blocks.

        None: there are as many batches as replicas, or the path has no room for the request.
        """
        users = [self._users(stage) for stage in self._stages]
        if not all(users) or len(self._batches) >= sum([len(one) for one in users]):
            return None
        path = tuple(
            [min(one, key=lambda id: (one[id], -self._engines[id].ledger.free_blocks, id)) for one in users]
        )
        return path if self._fits(request, path) else None

    def _fits(self, request: Request, path: tuple[int, ...]) -> bool:
        """Whether every replica of the path has blocks for all that the request may write."""
        return self._kv.fits(request.prompt_tokens + request.max_new_tokens, path)

    def without(self, path: Sequence[int]) -> tuple[int, ...] | None:
        """The same with others in the place of replicas that take nothing new; None: a stage has none."""
        found = list[int]()
        for stage, replica in zip(self._stages, path, strict=True):
            users = self._users(stage)
            if not users:
                return None
            found.append(replica if replica in users else min(users, key=lambda id: (users[id], id)))
        return tuple(found)

    def takes(self, batch: PathBatch, request: Request) -> bool:
        """Whether a request may join a batch at the end of its round.

        One with two passers-by more than another replica of its stage has takes nobody: it ends, and what
        comes after it has another path.
        """
        if batch.size >= self._max_num_seqs or not self._fits(request, batch.path):
            return False
        for stage in self._stages:
            users, replica = self._users(stage), batch.path[stage.index]
            if replica not in users or users[replica] > min(users.values()) + 1:
                return False
        return True
