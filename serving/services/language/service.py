"""Serves a language model in stages: each stage has its own replicas, which hold the KV of their layers.

Requests run in batches. A batch has a path: one replica per stage. In a round it passes them in order, and
each of its requests with a computed prompt gets a token at the end. A request stays on its first path, where
its KV is. From its first round on, each replica of the path reserves blocks for its prompt and all tokens it
may generate, so no request is preempted. There are as many batches as replicas.

Replicas may come and go (``serving.elastic.stage_control``). A new replica serves the batches that begin from
then on. A leaving replica finishes its batches, which take no new requests. The model may be re-cut: batches
of the old cut then move to paths of the new one, or finish.
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
from serving.services.language.cut_changes import CutChanges
from serving.services.language.path_batch import PathBatch
from serving.services.language.path_choice import Path, PathChoice
from serving.services.language.path_live import PathLive
from serving.services.language.path_moves import PathMoves
from serving.services.language.path_stages import PathStages
from serving.services.language.setup import LanguageSetup
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import Stage
from serving.vocabulary.actions import Action, Assign, Fail, Interrupt, Run
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.layers import Part
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

_UNLIMITED = 1 << 40


class LanguagePipeline:
    """The requests, batches and stages of one model."""

    __slots__ = (
        "_admission", "_engines", "_kv", "_paths", "_present", "_report_requested", "_setup", "batches",
        "cores", "cut_changes", "cuts", "live_stages", "model", "moves", "queue", "seats",
    )  # fmt: skip

    def __init__(
        self,
        setup: LanguageSetup,
        *,
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
        self._report_requested = False  # whether a batch was made to report its next round
        self.seats, self.cores = seats, dict[int, int]()
        self.live_stages = PathLive(engines, self._layers_changed) if setup.live else None
        self.queue: deque[Request] = deque()
        self.batches: dict[int, PathBatch] = {}
        for replica in replicas:
            seats.enter(replica)
        self.cuts = PathStages(setup.parts, replicas, engines, dispatcher)
        self._paths = PathChoice(
            self.cuts,
            engines=engines,
            kv=self._kv,
            batches=self.batches,
            max_num_seqs=setup.max_num_seqs,
            live=self.live_stages,
        )
        self.moves: PathMoves | None = None
        if moves is not None:
            self.moves = PathMoves(
                engines=engines,
                kv=self._kv,
                layer_bytes=setup.kv_layer_bytes,
                moves=moves,
                paths=self._paths,
                host=self,
            )
        self.cut_changes = CutChanges(setup, self.cuts, self.moves, self)

    @property
    def stages(self) -> list[Stage]:
        """The stages that new batches pass, in order."""
        return self.cuts.now

    @property
    def longest_request_tokens(self) -> int:
        """The longest request that the smallest replica holds."""
        return self.cuts.longest_request_tokens(self._setup.prototypes)

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        begun = sum([one.prompt_tokens_left() for one in self.batches.values()])
        return begun + sum([request.prompt_tokens for request in self.queue])

    @property
    def kv_tokens(self) -> int:
        """KV tokens in use or reserved for requests in the first layer."""
        return self.cuts.first_kv_tokens()

    @property
    def migrating_tokens(self) -> int:
        """Return 0: KV of batches that move is not counted."""
        return 0

    @property
    def queued(self) -> int:
        """Requests that are in no batch."""
        return len(self.queue)

    @property
    def running(self) -> int:
        """Requests in batches."""
        return sum([one.size for one in self.batches.values()])

    @property
    def live(self) -> LiveScaling:
        """Not available: stages that serve while they load use `live_stages`."""
        raise AssertionError("a pipeline of stages has no LiveScaling: use live_stages")

    def kv_senders(self) -> Collection[int]:
        """Return no instances."""
        return ()

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Reason: a stage has no replica, the request is too long, or the admission policy rejects it."""
        return self.cuts.refusal(request, self._setup.prototypes) or refusal(
            self._admission, now_ns, request, self.stages[0].fleet
        )

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Queue a request. It begins at once if a new batch may start, else when a round ends."""
        for stage in self.stages:
            stage.counts.arrived(self._present.now_ns)
        self.queue.append(request)
        self.feed(actions)

    def feed(self, actions: list[Action]) -> None:
        """Begin new batches for waiting requests while possible; else ask for the next round's report."""
        while self.queue and (path := self._paths.new(self.queue[0])) is not None:
            number = next(free_id for free_id in range(len(self.batches) + 1) if free_id not in self.batches)
            replicas, spans = path
            batch = self.batches[number] = PathBatch(number, replicas, spans)
            self._next_round(batch, actions)
        self._request_report(actions)

    def _request_report(self, actions: list[Action]) -> None:
        """Make a batch that may take the first waiting request, or must move, report its next round."""
        wished: Collection[int] = () if self.moves is None else self.moves.wished
        if self._report_requested or not (self.queue or wished) or not self._setup.coalesce:
            return
        for batch in self.batches.values():
            if batch.id in wished or (self.queue and self._paths.takes(batch, self.queue[0])):
                self._report_requested = True
                actions.append(Interrupt(batch.path[0], "arrival"))
                return

    def _next_round(self, batch: PathBatch, actions: list[Action]) -> None:
        """Let a batch take waiting requests and run its next round; remove it if it is empty."""
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
        first = batch.path[0]
        actions.append(
            Run(
                first,
                self._engines[first].epoch,
                chunks,
                decode=True,
                max_steps=steps,
                until_finish=True,
                reason=f"batch {batch.id}, {len(self.queue)} wait",
                micro_batch=batch.id,
                path=batch.path,
                spans=batch.spans,
            )
        )

    def _admit(self, request: Request, batch: PathBatch, actions: list[Action]) -> None:
        batch.admit(request)
        self._kv.keep(request.id, request.prompt_tokens + request.max_new_tokens, batch.path)
        self.cuts.assigned(batch.path, request)
        if self.live_stages is not None:
            self.live_stages.joined(batch.path)
        actions.append(Assign(request.id, batch.path[0], f"batch {batch.id} on replicas {batch.path}"))

    def _release_request(self, request: Request, path: tuple[int, ...]) -> None:
        self._kv.free(request.id, path)
        self.cuts.departed(path, request)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Handle a batch's round: finished requests leave, others may join."""
        batch = self.batches[event.micro_batch]
        self._report_requested = False
        for request, tokens in batch.ran(event.steps, event.finished):
            self._release_request(request, batch.path)
            if self.moves is not None:
                self.moves.left(batch, request.id)
            for stage in self.stages if self._setup.work else ():
                stage.counts.ran(self._setup.work[stage.part].of_ns(request.prompt_tokens, tokens), [])
        if self.moves is None or not self.moves.round_ended(batch, actions):
            self._next_round(batch, actions)
        self.feed(actions)

    def go_on(self, batch: PathBatch, path: Path, actions: list[Action]) -> None:
        """Continue a halted batch on this path."""
        left = [replica for replica in batch.path if replica not in path.replicas]
        new = [replica for replica in path.replicas if replica not in batch.path]
        for request in batch.members():
            self.cuts.departed(left, request)
            self.cuts.assigned(new, request)
        (batch.path, batch.spans), self._report_requested = path, False
        self._next_round(batch, actions)

    def _layers_changed(self, replica: int, actions: list[Action]) -> None:
        """A loading replica has more layers, or gets no more: batches that pass it may change their paths."""
        assert self.moves is not None, "it has KV of layers, which is to move"
        self.moves.wish(replica)
        self.feed(actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """Handle sent KV of a moving batch; activations are part of a round and are not reported."""
        assert self.moves is not None, f"transfer {event.transfer} is none of {self.model}"
        self.moves.sent(event, actions)
        self.feed(actions)
        return self.stages[0].fleet.replica_at(0) if self.stages[0].fleet.replicas else None

    @property
    def batch(self) -> int:
        """Always 1: batches decide how many requests a replica runs."""
        return 1

    @property
    def cores_count(self) -> bool:
        """Always False: steps run on GPUs alone."""
        return False

    def most_of(self, replica: int) -> int:
        """Always 1: batches decide how many requests a replica runs."""
        return 1

    def set_batches(self, replicas: Sequence[int], most: int) -> None:
        """Do nothing: batches decide how many requests a replica runs."""

    def forget(self, replica: int) -> None:
        """Forget a removed replica's cores."""
        self.cores.pop(replica, None)

    def replica_of(self, part: Part, number: int, gpu: int) -> Replica:
        """A new replica of a stage, with KV memory of its own."""
        return replace(self._setup.prototypes[part], id=number, gpus=(gpu,))

    def index_of(self, replica: int) -> int | None:
        """Index of the replica's stage; None: the replica is of another model or another cut."""
        return self.cuts.index_of(self._engines[replica].replica.part)

    def queued_at(self, stage: Stage) -> int:
        """Waiting requests; each has yet to pass every stage."""
        return len(self.queue)

    def computes(self, stage: Stage) -> bool:
        """Whether there are batches: each passes all stages."""
        return bool(self.batches)

    def stage_of(self, replica: Replica) -> Stage:
        """The stage of this replica."""
        return self.cuts.of(replica.part)

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let a replica take batches of its stage."""
        self.cuts.join(replica, [one for one in self.batches.values() if replica.id in one.path])
        self.feed(actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Do nothing: the replica was in its stage from the start."""
        assert engine.state is EngineState.IDLE, "it has its parameters"

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire a replica: its batches take no new requests, and finish or move."""
        self.stage_of(self._engines[replica].replica).fleet.retire(replica)
        if self.moves is not None:
            self.moves.leave(replica, actions)
        self.feed(actions)

    def outstanding(self, replica: int) -> int:
        """Number of requests whose path includes the replica."""
        return sum([one.size for one in self.batches.values() if replica in one.path])

    def held(self, replica: int) -> list[int]:
        """Requests that the replica reserves blocks for."""
        batches = [one for one in self.batches.values() if replica in one.path]
        coming = [] if self.moves is None else self.moves.held(replica)
        return [*coming, *[request.id for one in batches for request in one.members()]]

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Fail the requests whose path includes the lost replica, since KV of its layers is lost."""
        stage, failed = self.stage_of(engine.replica), list[int]()
        if self.live_stages is not None:
            self.live_stages.lose(engine.id)
        if self.moves is not None:
            self.moves.lost(engine.id, actions)
        for batch in [one for one in self.batches.values() if engine.id in one.path]:
            del self.batches[batch.id]
            for request in batch.members():
                self._release_request(request, batch.path)
                failed.append(request.id)
        engine.lose(actions, cause)
        self.seats.leave(engine.replica)
        if engine.id in stage.fleet.members:
            stage.fleet.lose(engine.id)
        failed.sort()
        actions += [Fail(request, cause) for request in failed]
        return failed + self._served_by_nobody(stage, actions)

    def _served_by_nobody(self, stage: Stage, actions: list[Action]) -> list[int]:
        """Fail waiting requests if the stage has no replica left and gets none."""
        self._report_requested = False
        if stage.fleet.replicas or self._setup.prototypes:
            self.feed(actions)
            return []
        failed = [request.id for request in self.queue]
        self.queue.clear()
        actions += [
            Fail(request, f"no replica of stage {stage.index} of {self.model} is alive") for request in failed
        ]
        return failed
