"""Chooses the replicas that a batch of a language model in stages passes, and the requests it takes."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from serving.engine.engine import Engine
from serving.kv.path_kv import PathKv
from serving.services.language.path_batch import PathBatch
from serving.services.language.path_live import PathLive
from serving.services.language.path_stages import PathStages
from serving.services.stages.stage import Stage
from serving.vocabulary.actions import Span
from serving.vocabulary.request import Request


class Path(NamedTuple):
    """The replicas that a batch passes and the layers that each runs; no spans: all its own."""

    replicas: tuple[int, ...]
    spans: tuple[Span, ...] = ()


class PathChoice:
    """Chooses paths. ``batches``: by number. ``live``: None if no replica works while it loads."""

    __slots__ = ("_batches", "_engines", "_kv", "_live", "_max_num_seqs", "_stages")

    def __init__(
        self,
        stages: PathStages,
        *,
        engines: Mapping[int, Engine],
        kv: PathKv,
        batches: Mapping[int, PathBatch],
        max_num_seqs: int,
        live: PathLive | None = None,
    ) -> None:
        self._stages, self._engines, self._kv, self._batches = stages, engines, kv, batches
        self._max_num_seqs, self._live = max_num_seqs, live

    def _batch_counts(self) -> Counter[int]:
        """Number of batches that pass each replica."""
        return Counter([replica for batch in self._batches.values() for replica in batch.path])

    def _serving_counts(self, stage: Stage, passing: Mapping[int, int]) -> dict[int, int]:
        """Number of batches that pass each replica that takes new batches."""
        return {replica: passing.get(replica, 0) for replica in stage.fleet.alive()}

    def _loading_counts(self, stage: Stage, passing: Mapping[int, int]) -> dict[int, int]:
        """Number of batches that pass each loading replica that has layers to run."""
        if self._live is None:
            return {}
        return {
            replica: passing.get(replica, 0)
            for replica, layers in self._live.layers.items()
            if layers and self._engines[replica].replica.part == stage.part
        }

    def new(self, request: Request) -> Path | None:
        """For each stage the replica with the fewest batches; among equals the one with the most free blocks.

        Serving replicas come before loading ones. None: there are as many batches as allowed, or the path has
        no room for the request.
        """
        stages, passing = self._stages.now, self._batch_counts()
        users = [self._serving_counts(stage, passing) for stage in stages]
        loading = [self._loading_counts(stage, passing) for stage in stages]
        more = sum([len(replicas) for replicas in users]) - len(self._batches)
        if not all(users) or more + sum([len(replicas) for replicas in loading]) <= 0:
            return None
        if more <= 0 and any(self.takes(batch, request) for batch in self._batches.values()):
            return None  # on a loading replica a new batch would take passes of a serving one
        legs = list[tuple[int, Span]]()
        for stage, serving, coming in zip(stages, users, loading, strict=True):
            replica = min(serving, key=lambda id: (serving[id], -self._engines[id].ledger.free_blocks, id))
            late = min(coming, key=lambda id: (coming[id], id), default=None)
            if late is not None and coming[late] < serving[replica]:
                legs += self._split(late, replica)
            else:
                legs.append((replica, stage.part.layers))
        path = self._path(legs)
        return path if self._fits(request, path.replicas) else None

    def _split(self, late: int, replica: int) -> list[tuple[int, Span]]:
        """The loading replica runs the layers it has; the serving replica runs the rest of the stage."""
        assert self._live is not None
        first, last = self._engines[late].replica.part.layers
        border = first + self._live.layers[late]
        return [(late, (first, border)), (replica, (border, last))]

    def _path(self, legs: list[tuple[int, Span]]) -> Path:
        replicas = tuple([replica for replica, _ in legs])
        whole = all(self._engines[leg].replica.part.layers == span for leg, span in legs)
        return Path(replicas, () if whole else tuple([span for _, span in legs]))

    def _fits(self, request: Request, path: tuple[int, ...]) -> bool:
        """Whether every replica of the path has blocks for all tokens of the request."""
        return self._kv.fits(request.prompt_tokens + request.max_new_tokens, path)

    def better(self, batch: PathBatch) -> Path | None:
        """The path that the batch should pass now: no retired replicas, no replicas of another cut, and all
        loaded layers of loading replicas. None: it has that path already, or a stage has no replica for it.
        """
        legs, passing = list[tuple[int, Span]](), self._batch_counts()
        for stage in self._stages.now:
            own = [one for one in batch.path if self._engines[one].replica.part == stage.part]
            users = self._serving_counts(stage, passing)
            late, replica = (None, *own)[-2:] if own else (None, -1)
            if late is not None and late in users:
                replica, late = late, None  # its layers are all loaded
            if replica not in users:
                if not users:
                    return None
                replica = min(users, key=lambda id: (users[id], id))
            if late is not None and self._live is not None and self._live.layers.get(late):
                legs += self._split(late, replica)
            else:
                legs.append((replica, stage.part.layers))
        path = self._path(legs)
        return None if path == (batch.path, batch.spans) else path

    def takes(self, batch: PathBatch, request: Request) -> bool:
        """Whether a request may join a batch at the end of its round.

        A batch takes no request if its replica has at least two batches more than another replica of the
        stage: it finishes, and a later batch gets another path. A batch of another cut takes none either.
        """
        if batch.size >= self._max_num_seqs or not self._fits(request, batch.path):
            return False
        passed, passing = 0, self._batch_counts()
        for stage in self._stages.now:
            users, loading = self._serving_counts(stage, passing), self._loading_counts(stage, passing)
            for replica in batch.path:
                if replica in loading:
                    passed += 1
                elif replica in users:
                    if users[replica] > min(users.values()) + 1:
                        return False
                    passed += 1
        return passed == len(batch.path)
