"""A language model in stages: each a part with replicas of its own, which hold the KV of their layers.

Requests go round in batches. A batch has a path, a replica of each stage; in a round it passes them in order,
and every request of it whose prompt is computed gets a token at the end. A request stays on the path on which
it began, for its KV is there: each replica of the path keeps blocks for its prompt and all tokens that it may
get, from its first round on, so nobody is preempted. As many batches go round as there are replicas.

Replicas may come and go (``serving.elastic.stage_control``): a new one has the batches that begin from then
on, one that is to go ends those whose path it is on, which take nobody any more. The model may be cut anew:
then batches of the old cut move to paths of the new one, or end.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, refusal
from serving.engine.progress import EngineState
from serving.kv.moves import Moves
from serving.kv.path_kv import PathKv
from serving.live.scaling import LiveScaling
from serving.services.cut_changes import CutChanges
from serving.services.gpu_seats import GpuSeats
from serving.services.language_setup import LanguageSetup
from serving.services.path_batch import PathBatch
from serving.services.path_choice import Path, PathChoice
from serving.services.path_live import PathLive
from serving.services.path_moves import PathMoves
from serving.services.path_stages import PathStages
from serving.services.stage import Stage
from serving.vocabulary.actions import Action, Assign, Fail, Interrupt, Run
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.layers import Part
from serving.vocabulary.present import Present
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

_UNLIMITED = 1 << 40


class LanguagePipeline:
    """The requests, batches and stages of one model."""

    __slots__ = (
        "_admission", "_engines", "_kv", "_paths", "_present", "_pressed", "_setup", "batches", "cores",
        "cut_changes", "cuts", "live_stages", "model", "moves", "queue", "seats",
    )  # fmt: skip

    def __init__(
        self,
        setup: LanguageSetup,
        replicas: Sequence[Replica],
        engines: Mapping[int, Engine],
        dispatcher: Dispatcher,
        admission: Admission,
        seats: GpuSeats,
        present: Present,
        moves: Moves | None = None,
    ) -> None:
        self.model = setup.parts[0].model
        self._setup, self._engines, self._admission, self._present = setup, engines, admission, present
        self._kv = PathKv(engines)
        self._pressed = False  # whether the next round to end is to be reported already
        self.seats, self.cores = seats, dict[int, int]()
        self.live_stages = PathLive(engines, self._layers_changed) if setup.live else None
        self.queue: deque[Request] = deque()
        self.batches: dict[int, PathBatch] = {}
        for replica in replicas:
            seats.enter(replica)
        self.cuts = PathStages(setup.parts, replicas, engines, dispatcher)
        paths = self.cuts, engines, self._kv, self.batches, setup.max_num_seqs
        self._paths = PathChoice(*paths, self.live_stages)
        kv = self._kv, setup.kv_layer_bytes
        self.moves = None if moves is None else PathMoves(engines, *kv, moves, self._paths, self)
        self.cut_changes = CutChanges(setup, self.cuts, self.moves, self)

    @property
    def stages(self) -> list[Stage]:
        """That new batches pass, in order."""
        return self.cuts.now

    @property
    def longest_request_tokens(self) -> int:
        """What the smallest replica holds."""
        return self.cuts.longest_request_tokens(self._setup.prototypes)

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        begun = sum([one.prompt_tokens_left() for one in self.batches.values()])
        return begun + sum([one.prompt_tokens for one in self.queue])

    @property
    def kv_tokens(self) -> int:
        """KV memory of the first layer that requests have."""
        return self.cuts.first_kv_tokens()

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
        return self.cuts.refusal(request, self._setup.prototypes) or refusal(
            self._admission, now_ns, request, self.stages[0].fleet
        )

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """It begins at once where another batch may, else when a round ends."""
        for stage in self.stages:
            stage.counts.arrived(self._present.now_ns)
        self.queue.append(request)
        self.feed(actions)

    def feed(self, actions: list[Action]) -> None:
        """New batches for what waits, as many as may be; else the next round to end is to be told."""
        while self.queue and (path := self._paths.new(self.queue[0])) is not None:
            number = next(one for one in range(len(self.batches) + 1) if one not in self.batches)
            batch = self.batches[number] = PathBatch(number, *path)
            self._next_round(batch, actions)
        self._press(actions)

    def _press(self, actions: list[Action]) -> None:
        """A batch that may take the first request that waits, or moves, is to tell of its next round."""
        wished: Collection[int] = () if self.moves is None else self.moves.wished
        if self._pressed or not (self.queue or wished) or not self._setup.coalesce:
            return
        for batch in self.batches.values():
            if batch.id in wished or (self.queue and self._paths.takes(batch, self.queue[0])):
                self._pressed = True
                actions.append(Interrupt(batch.path[0], "arrival"))
                return

    def _next_round(self, batch: PathBatch, actions: list[Action]) -> None:
        """A batch takes what it may of those that wait, and goes round, unless nobody is left in it."""
        budget = self._setup.max_num_batched_tokens - len(batch.decoding) - batch.prompt_tokens_left()
        while self.queue and budget > 0 and self._paths.takes(batch, self.queue[0]):
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
        actions.append(Run(first, *how, micro_batch=batch.id, path=batch.path, spans=batch.spans))

    def _admit(self, request: Request, batch: PathBatch, actions: list[Action]) -> None:
        batch.admit(request)
        self._kv.keep(request.id, request.prompt_tokens + request.max_new_tokens, batch.path)
        self.cuts.assigned(batch.path, request)
        if self.live_stages is not None:
            self.live_stages.joined(batch.path)
        actions.append(Assign(request.id, batch.path[0], f"batch {batch.id} on replicas {batch.path}"))

    def _released(self, request: Request, path: tuple[int, ...]) -> None:
        self._kv.free(request.id, path)
        self.cuts.departed(path, request)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """A batch has ended a round: who has all tokens leaves, others may join."""
        batch = self.batches[event.micro_batch]
        self._pressed = False
        for request, tokens in batch.ran(event.steps, event.finished):
            self._released(request, batch.path)
            if self.moves is not None:
                self.moves.left(batch, request.id)
            for stage in self.stages if self._setup.work else ():
                stage.counts.ran(self._setup.work[stage.part].of_ns(request.prompt_tokens, tokens), [])
        if self.moves is None or not self.moves.round_ended(batch, actions):
            self._next_round(batch, actions)
        self.feed(actions)

    def go_on(self, batch: PathBatch, path: Path, actions: list[Action]) -> None:
        """A batch that halted goes round this path."""
        left = [one for one in batch.path if one not in path.replicas]
        new = [one for one in path.replicas if one not in batch.path]
        for request in batch.members():
            self.cuts.departed(left, request)
            self.cuts.assigned(new, request)
        (batch.path, batch.spans), self._pressed = path, False
        self._next_round(batch, actions)

    def _layers_changed(self, replica: int, actions: list[Action]) -> None:
        """One that loads has more layers, or gets no more: batches over it may run more, or fewer, there."""
        assert self.moves is not None, "it has KV of layers, which is to move"
        self.moves.wish(replica)
        self.feed(actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV of a batch that moves; activations are part of a round, and nobody tells of them."""
        assert self.moves is not None, f"transfer {event.transfer} is none of {self.model}"
        self.moves.sent(event, actions)
        self.feed(actions)
        return self.stages[0].fleet.replica_at(0) if self.stages[0].fleet.replicas else None

    @property
    def batch(self) -> int:
        """A replica takes what the batches have."""
        return 1

    @property
    def cores_count(self) -> bool:
        """Its steps are of GPUs alone."""
        return False

    def most_of(self, replica: int) -> int:
        """As the batches have it."""
        return 1

    def set_batches(self, replicas: Sequence[int], most: int) -> None:
        """A replica takes what the batches have."""

    def forget(self, replica: int) -> None:
        """It is gone."""
        self.cores.pop(replica, None)

    def replica_of(self, part: Part, number: int, gpu: int) -> Replica:
        """A new replica of a stage, with KV memory of its own."""
        return replace(self._setup.prototypes[part], id=number, gpus=(gpu,))

    def index_of(self, replica: int) -> int | None:
        """Of the stage that a replica is of; None: it is another model's, or of another cut."""
        return self.cuts.index_of(self._engines[replica].replica.part)

    def queued_at(self, stage: Stage) -> int:
        """Those that wait are to pass every stage."""
        return len(self.queue)

    def computes(self, stage: Stage) -> bool:
        """Batches pass all stages."""
        return bool(self.batches)

    def stage_of(self, replica: Replica) -> Stage:
        """Whose replica it is."""
        return self.cuts.of(replica.part)

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """A replica takes batches of its stage."""
        self.cuts.join(replica, [one for one in self.batches.values() if replica.id in one.path])
        self.feed(actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """It was in its stage before."""
        assert engine.state is EngineState.IDLE, "it has its parameters"

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Its batches take nobody any more, and end."""
        self.stage_of(self._engines[replica].replica).fleet.retire(replica)
        if self.moves is not None:
            self.moves.leave(replica, actions)
        self.feed(actions)

    def outstanding(self, replica: int) -> int:
        """Requests whose path it is on."""
        return sum([one.size for one in self.batches.values() if replica in one.path])

    def held(self, replica: int) -> list[int]:
        """Those that blocks are kept for."""
        found = [one for one in self.batches.values() if replica in one.path]
        coming = [] if self.moves is None else self.moves.held(replica)
        return [*coming, *[request.id for one in found for request in one.members()]]

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """The requests whose path it was on fail: the KV of its layers is gone."""
        stage, failed = self.stage_of(engine.replica), list[int]()
        if self.live_stages is not None:
            self.live_stages.lose(engine.id)
        if self.moves is not None:
            self.moves.lost(engine.id, actions)
        for batch in [one for one in self.batches.values() if engine.id in one.path]:
            del self.batches[batch.id]
            for request in batch.members():
                self._released(request, batch.path)
                failed.append(request.id)
        engine.lose(actions, cause)
        self.seats.leave(engine.replica)
        if engine.id in stage.fleet.members:
            stage.fleet.lose(engine.id)
        failed.sort()
        actions += [Fail(request, cause) for request in failed]
        return failed + self._served_by_nobody(stage, actions)

    def _served_by_nobody(self, stage: Stage, actions: list[Action]) -> list[int]:
        """Those that wait fail where a stage has no replica any more, and gets none."""
        self._pressed = False
        if stage.fleet.replicas or self._setup.prototypes:
            self.feed(actions)
            return []
        failed = [request.id for request in self.queue]
        self.queue.clear()
        actions += [
            Fail(one, f"no replica of stage {stage.index} of {self.model} is alive") for one in failed
        ]
        return failed
