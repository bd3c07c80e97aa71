"""A language model in stages: each a part with replicas of its own, which hold the KV of their layers.

Requests go round in batches. A batch has a path, a replica of each stage; in a round it passes them in order,
and every request of it whose prompt is computed gets a token at the end. A request stays on the path on which
it began, for its KV is there: each replica of the path keeps blocks for its prompt and all tokens that it may
get, from its first round on, so nobody is preempted. As many batches go round as there are replicas.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, Fleet, refusal
from serving.engine.progress import EngineState
from serving.kv.path_kv import PathKv
from serving.live.scaling import LiveScaling
from serving.services.path_batch import PathBatch
from serving.services.stage import Stage
from serving.vocabulary.actions import Action, Assign, Fail, Interrupt, Run
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.layers import Part
from serving.vocabulary.present import Present
from serving.vocabulary.replica import Replica, Role, too_long
from serving.vocabulary.request import Request

_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class LanguageSetup:
    """``parts``: the stages in order. ``max_num_seqs``, ``max_num_batched_tokens``: of a batch's round.

    ``coalesce``: rounds in which nothing is decided are told together.
    """

    parts: tuple[Part, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    coalesce: bool = True


class LanguagePipeline:
    """The requests, batches and stages of one model."""

    __slots__ = (
        "_admission", "_engines", "_kv", "_present", "_pressed", "_setup", "batches", "model",
        "queue", "stages",
    )  # fmt: skip

    def __init__(
        self,
        setup: LanguageSetup,
        replicas: Sequence[Replica],
        engines: Mapping[int, Engine],
        dispatcher: Dispatcher,
        admission: Admission,
        present: Present,
    ) -> None:
        self.model = setup.parts[0].model
        self._setup, self._engines, self._admission, self._present = setup, engines, admission, present
        self._kv = PathKv(engines)
        self._pressed = False  # whether the next round to end is to be reported already
        self.queue: deque[Request] = deque()
        self.batches: dict[int, PathBatch] = {}
        self.stages: list[Stage] = []
        for index, part in enumerate(setup.parts):
            fleet = Fleet(self.model, [one for one in replicas if one.part == part], engines)
            self.stages.append(Stage(index, part, fleet, dispatcher, "stage"))

    @property
    def longest_request_tokens(self) -> int:
        """What the smallest replica holds; 0 where a stage has none."""
        if not all(stage.fleet.replicas for stage in self.stages):
            return 0
        alive = [one for stage in self.stages for one in stage.fleet.alive()]
        return min([self._engines[one].replica.longest_request_tokens for one in alive])

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        begun = sum([one.prompt_tokens_left() for one in self.batches.values()])
        return begun + sum([one.prompt_tokens for one in self.queue])

    @property
    def kv_tokens(self) -> int:
        """KV memory of the first stage that requests have."""
        ledgers = [self._engines[one].ledger for one in self.stages[0].fleet.members]
        return sum([(one.total_blocks - one.free_blocks) * one.block_tokens for one in ledgers])

    @property
    def migrating_tokens(self) -> int:
        """None."""
        return 0

    @property
    def queued(self) -> int:
        """Requests that no batch has."""
        return len(self.queue)

    @property
    def running(self) -> int:
        """Requests that go round."""
        return sum([one.size for one in self.batches.values()])

    @property
    def live(self) -> LiveScaling:
        """A replica of a stage serves when all its layers are there."""
        raise AssertionError("no stage of a pipeline works while it loads")

    def kv_senders(self) -> Collection[int]:
        """Nobody."""
        return ()

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """A stage that nobody serves, too long for some replica, or turned away by the admission policy."""
        for stage in self.stages:
            if not stage.fleet.replicas:
                return f"no replica of stage {stage.index} of {self.model} is alive"
        limit = self._engines[self.stages[0].fleet.replica_at(0)].replica.max_model_len
        return too_long(request, self.longest_request_tokens, limit) or refusal(
            self._admission, now_ns, request, self.stages[0].fleet
        )

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """It begins at once where another batch may, else when a round ends."""
        self.queue.append(request)
        self.feed(actions)

    def feed(self, actions: list[Action]) -> None:
        """New batches for what waits, as many as may be; else the next round to end is to be told."""
        while self.queue and (path := self._new_path()) is not None:
            batch = PathBatch(self._number(), path)
            self.batches[batch.id] = batch
            self._next_round(batch, actions)
        self._press(actions)

    def _number(self) -> int:
        return next(number for number in range(len(self.batches) + 1) if number not in self.batches)

    def _users(self, stage: Stage) -> dict[int, int]:
        """How many batches pass each replica that takes new ones."""
        found = dict.fromkeys(stage.fleet.alive(), 0)
        for batch in self.batches.values():
            if (replica := batch.path[stage.index]) in found:
                found[replica] += 1
        return found

    def _new_path(self) -> tuple[int, ...] | None:
        """Of each stage the replica that the fewest batches pass, of several the one with most free blocks.

        None: there are as many batches as replicas, or the path has no room for the request that waits.
        """
        users = [self._users(stage) for stage in self.stages]
        if not all(users) or len(self.batches) >= sum([len(one) for one in users]):
            return None
        path = tuple(
            [min(one, key=lambda id: (one[id], -self._engines[id].ledger.free_blocks, id)) for one in users]
        )
        return path if self._fits(self.queue[0], path) else None

    def _fits(self, request: Request, path: tuple[int, ...]) -> bool:
        """Whether every replica of the path has blocks for all that the request may write."""
        return self._kv.fits(request.prompt_tokens + request.max_new_tokens, path)

    def _takes(self, batch: PathBatch) -> bool:
        """Whether the request that waits longest may join a batch at the end of its round.

        One with two passers-by more than another replica of its stage has takes nobody: it ends, and what
        comes after it has another path.
        """
        if batch.size >= self._setup.max_num_seqs or not self._fits(self.queue[0], batch.path):
            return False
        for stage in self.stages:
            users, replica = self._users(stage), batch.path[stage.index]
            if replica not in users or users[replica] > min(users.values()) + 1:
                return False
        return True

    def _press(self, actions: list[Action]) -> None:
        """Requests wait: a batch that may take the first of them is to tell of its next round."""
        if self._pressed or not self.queue or not self._setup.coalesce:
            return
        for batch in self.batches.values():
            if self._takes(batch):
                self._pressed = True
                actions.append(Interrupt(batch.path[0], "arrival"))
                return

    def _next_round(self, batch: PathBatch, actions: list[Action]) -> None:
        """A batch takes what it may of those that wait, and goes round, unless nobody is left in it."""
        budget = self._setup.max_num_batched_tokens - len(batch.decoding) - batch.prompt_tokens_left()
        while self.queue and budget > 0 and self._takes(batch):
            request = self.queue.popleft()
            self._admit(request, batch, actions)
            budget -= request.prompt_tokens
        if not batch.size:
            del self.batches[batch.id]
            return
        chunks = batch.next_chunks(self._setup.max_num_batched_tokens)
        steps = _UNLIMITED if self._setup.coalesce and not chunks else 1
        first, why = batch.path[0], f"batch {batch.id}, {len(self.queue)} wait"
        how = self._engines[first].epoch, chunks, True, steps, True, why
        actions.append(Run(first, *how, micro_batch=batch.id, path=batch.path))

    def _admit(self, request: Request, batch: PathBatch, actions: list[Action]) -> None:
        tokens, now_ns = request.prompt_tokens + request.max_new_tokens, self._present.now_ns
        batch.admit(request)
        self._kv.keep(request.id, tokens, batch.path)
        for stage, replica in zip(self.stages, batch.path, strict=True):
            stage.fleet.assigned(replica, request)
            stage.counts.arrived(now_ns)
        actions.append(Assign(request.id, batch.path[0], f"batch {batch.id} on replicas {batch.path}"))

    def _released(self, request: Request, path: tuple[int, ...]) -> None:
        self._kv.free(request.id, path)
        for stage, replica in zip(self.stages, path, strict=True):
            if replica in stage.fleet.members:
                stage.fleet.departed(replica, request)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """A batch has ended a round: who has all tokens leaves, others may join."""
        batch = self.batches[event.micro_batch]
        self._pressed = False
        for request in batch.ran(event.finished):
            self._released(request, batch.path)
        self._next_round(batch, actions)
        self.feed(actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """Activations are part of a round, and nobody tells of them."""
        raise AssertionError(f"transfer {event.transfer} is none of {self.model}")

    def stage_of(self, replica: Replica) -> Stage:
        """Whose replica it is."""
        return self.stages[self._setup.parts.index(replica.part)]

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """A replica takes batches of its stage."""
        self.stage_of(replica).fleet.add(replica)
        self.feed(actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """It was in its stage before."""
        assert engine.state is EngineState.IDLE, "it has its parameters"

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Its batches take nobody any more, and end."""
        self.stage_of(self._engines[replica].replica).fleet.retire(replica)
        self.feed(actions)

    def outstanding(self, replica: int) -> int:
        """Requests whose path it is on."""
        return sum([one.size for one in self.batches.values() if replica in one.path])

    def held(self, replica: int) -> list[int]:
        """Those that blocks are kept for."""
        found = [one for one in self.batches.values() if replica in one.path]
        return [request.id for one in found for request in one.members()]

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """The requests whose path it was on fail: the KV of its layers is gone."""
        stage, failed = self.stage_of(engine.replica), list[int]()
        for batch in [one for one in self.batches.values() if engine.id in one.path]:
            del self.batches[batch.id]
            for request in batch.members():
                self._released(request, batch.path)
                failed.append(request.id)
        engine.lose(actions, cause)
        if engine.id in stage.fleet.members:
            stage.fleet.lose(engine.id)
        failed.sort()
        actions += [Fail(request, cause) for request in failed]
        return failed + self._served_by_nobody(stage, actions)

    def _served_by_nobody(self, stage: Stage, actions: list[Action]) -> list[int]:
        """Those that wait fail where a stage has no replica any more."""
        self._pressed = False
        if stage.fleet.replicas:
            self.feed(actions)
            return []
        failed = [request.id for request in self.queue]
        self.queue.clear()
        actions += [
            Fail(one, f"no replica of stage {stage.index} of {self.model} is alive") for one in failed
        ]
        return failed
