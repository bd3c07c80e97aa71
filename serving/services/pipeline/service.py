"""Serves a model in stages: each stage has its own replicas and queue; a request passes each stage once.

For models that answer in one pass and keep no KV. A pass of a replica is a ``LayerPass`` of its engine. The
activations of the previous stage stay where they were computed until a replica takes the request. They are
inputs of its ``Run``; their transfer is neither decided nor reported. Requests whose activations are lost
with a replica begin again at the first stage.
"""

from collections.abc import Collection, Mapping, Sequence

from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, Fleet, refusal
from serving.engine.layer_pass import LayerPass
from serving.engine.progress import EngineState
from serving.live.scaling import LiveScaling
from serving.services.language.cut_changes import CutChanges
from serving.services.pipeline.setup import PipelineSetup
from serving.services.pipeline.stage_live import StageLive
from serving.services.pipeline.stage_log import StageLog
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import NOBODY, Stage, Waiting
from serving.vocabulary.actions import Action, Assign, Fail, Span
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request


class Pipeline:
    """The requests and stages of one model. ``log``: what the stages did."""

    __slots__ = (
        "_admission", "_engines", "_present", "_setup", "batches", "cores", "live_stages", "log", "model",
        "seats", "stages",
    )  # fmt: skip

    def __init__(
        self,
        setup: PipelineSetup,
        *,
        replicas: Sequence[Replica],
        engines: Mapping[int, Engine],
        dispatcher: Dispatcher,
        admission: Admission,
        seats: GpuSeats,
        present: Present,
    ) -> None:
        self.model = setup.parts[0].model
        self._setup, self._engines = setup, engines
        self._admission, self._present = admission, present
        self.seats = seats
        self.cores: dict[int, int] = {}  # of replicas whose number differs from the default
        self.batches: dict[int, int] = {}  # requests per pass, of replicas that take fewer than the default
        self.log = StageLog()
        self.live_stages = StageLive(engines, self, present) if setup.live else None
        self.stages: list[Stage] = []
        for index, part in enumerate(setup.parts):
            own = [one for one in replicas if one.part == part]
            for replica in own:
                seats.enter(replica)
            fleet = Fleet(self.model, own, engines)
            self.stages.append(Stage(index, part, fleet, dispatcher, setup.queues))

    @property
    def batch(self) -> int:
        """Requests of a pass at most, for any replica."""
        return self._setup.batch

    @property
    def cut_changes(self) -> CutChanges | None:
        """None: the model is not re-cut."""
        return None

    @property
    def cores_count(self) -> bool:
        """Always True: a pass is faster with more cores."""
        return True

    def most_of(self, replica: int) -> int:
        """Requests of the replica's next pass at most."""
        return self.batches.get(replica, self._setup.batch)

    def set_batches(self, replicas: Sequence[int], most: int) -> None:
        """Set the requests of a pass at most, from each replica's next pass on."""
        self.batches.update(dict.fromkeys(replicas, most))

    def forget(self, replica: int) -> None:
        """Forget a removed replica's settings."""
        self.cores.pop(replica, None)
        self.batches.pop(replica, None)

    def replica_of(self, part: Part, number: int, gpu: int) -> Replica:
        """A new replica of a stage."""
        return Replica(
            id=number,
            model=part.model,
            layers=LayerRange(part.first, part.last),
            gpus=(gpu,),
            kv_blocks=1,
            block_tokens=1,
        )

    def queued_at(self, stage: Stage) -> int:
        """Requests that wait for the stage."""
        return stage.queued

    def computes(self, stage: Stage) -> bool:
        """Whether a replica of the stage runs a pass."""
        return bool(stage.passes)

    @property
    def longest_request_tokens(self) -> int:
        """No limit: nothing is kept of a request."""
        return 1 << 60

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens of requests that wait for the first stage."""
        return sum([waiting.request.prompt_tokens for waiting in self.stages[0].waiting()])

    @property
    def kv_tokens(self) -> int:
        """Always 0: there is no KV."""
        return 0

    @property
    def migrating_tokens(self) -> int:
        """Always 0: there is no KV."""
        return 0

    @property
    def queued(self) -> int:
        """Requests that no replica runs."""
        live = [] if self.live_stages is None else self.live_stages.waiting()
        return sum([stage.queued for stage in self.stages], len(live))

    @property
    def running(self) -> int:
        """Requests that replicas run."""
        return sum([len(stage_pass.batch) for stage in self.stages for stage_pass in stage.passes.values()])

    @property
    def live(self) -> LiveScaling:
        """Not available: stages that serve while they load use `live_stages`."""
        raise AssertionError("a pipeline of stages has no LiveScaling: use live_stages")

    def kv_senders(self) -> Collection[int]:
        """Return no instances."""
        return ()

    def index_of(self, replica: int) -> int | None:
        """Index of the replica's stage; None: the replica is of another model."""
        part = self._engines[replica].replica.part
        return self._setup.parts.index(part) if part.model == self.model else None

    def stage_of(self, replica: Replica) -> Stage:
        """The stage of this replica."""
        return self.stages[self._setup.parts.index(replica.part)]

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Reason: not one output token, a stage without replicas, or rejection by the admission policy."""
        if request.max_new_tokens != 1:
            return f"{self.model} answers in one pass: write max_new_tokens of 1"
        if not self._setup.elastic:
            for stage in self.stages:
                if not stage.fleet.replicas:
                    return f"no replica of stage {stage.index} of {self.model} is alive"
        return refusal(self._admission, now_ns, request, self.stages[0].fleet)

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Queue a request for the first stage."""
        now_ns = self._present.now_ns
        self.stages[0].counts.arrived(now_ns)
        waiting = Waiting(request, NOBODY, now_ns, self._setup.until_ns(0, now_ns))
        self._queue_request(self.stages[0], waiting, actions)

    def _queue_request(
        self, stage: Stage, waiting: Waiting, actions: list[Action], first: bool = False
    ) -> None:
        stage.add(waiting, first)
        self._feed(stage, actions)

    def feed(self, actions: list[Action]) -> None:
        """Let idle replicas of all stages take waiting requests."""
        for stage in self.stages:
            self._feed(stage, actions)

    def _feed(self, stage: Stage, actions: list[Action]) -> None:
        live = self.live_stages
        if self._setup.timeout_ns:
            self._fail_timed_out(stage, actions)
        if live is not None:
            live.pull(stage, actions)
        while ready := stage.can_begin():
            replica = self.seats.best(ready)
            batch = stage.take(replica, self.most_of(replica), self._present.now_ns).batch
            self.run(stage, replica, batch, layers=stage.part.layers, holder=None, actions=actions)
        if live is not None:
            live.work(stage, actions)

    def _fail_timed_out(self, stage: Stage, actions: list[Action]) -> None:
        """Fail the requests that have waited too long; a pass that has begun is not interrupted."""
        for waiting in stage.timed_out(self._present.now_ns):
            actions.append(Fail(waiting.request.id, f"timed out at stage {stage.index}"))
            self._present.timed_out.append(waiting.request.id)
            self._present.unsettled = True

    def run(
        self,
        stage: Stage,
        replica: int,
        batch: Sequence[Waiting],
        *,
        layers: Span,
        holder: int | None,
        actions: list[Action],
    ) -> None:
        """Let a replica run layers with the holder's activations; None: each request's own source."""
        why = f"stage {stage.index}, {stage.queued} wait"
        chunks, inputs = [], dict[int, int]()
        for request, came_from, _, _ in batch:
            actions.append(Assign(request.id, replica, why))
            chunks.append((request.id, 0, request.prompt_tokens))
            source = came_from if holder is None else holder
            if source not in (NOBODY, replica) and self._setup.activation_bytes:
                inputs[source] = inputs.get(source, 0) + self._setup.activation_bytes
        self.seats.begin(replica)
        cores = self.cores.get(replica, self._setup.cpu_cores)
        layer_pass = LayerPass(tuple(chunks), layers, why, tuple(inputs.items()), cores)
        self._engines[replica].run_layers(layer_pass, actions)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Handle the end of a pass: its requests go on to the next stage, or have their answer."""
        stage, now_ns = self.stage_of(engine.replica), self._present.now_ns
        engine.layers_ran()
        self.seats.end(engine.id)
        if self.live_stages is not None and self.live_stages.ran(stage, engine, event, actions):
            self._feed(stage, actions)
            return
        batch, began_ns = stage.ended(engine.id)
        if not event.steps:
            self.again(batch, actions)
            self._feed(stage, actions)
            return
        stage.counts.ran(now_ns - began_ns, [now_ns - waiting.since_ns for waiting in batch])
        self.passed(stage, batch, engine.id, began_ns, actions)
        self._feed(stage, actions)

    def passed(
        self, stage: Stage, batch: Sequence[Waiting], replica: int, began_ns: int, actions: list[Action]
    ) -> None:
        """Send requests to the next stage; after the last one they have their answer."""
        now_ns = self._present.now_ns
        for waiting in batch:
            self.log.add(
                waiting.request.id,
                stage.index,
                replica,
                arrived_ns=waiting.since_ns,
                began_ns=began_ns,
                ended_ns=now_ns,
            )
        if stage.index + 1 < len(self.stages):
            following = self.stages[stage.index + 1]
            for waiting in batch:
                following.counts.arrived(now_ns)
                until_ns = min(waiting.until_ns, self._setup.until_ns(following.index, now_ns))
                following.add(Waiting(waiting.request, replica, now_ns, until_ns))
            self._feed(following, actions)

    def again(self, batch: Sequence[Waiting], actions: list[Action]) -> None:
        """Restart requests whose activations are lost: they wait for the first stage, before all others."""
        for waiting in reversed(batch):
            restarted = Waiting(waiting.request, NOBODY, self._present.now_ns, waiting.until_ns)
            self._queue_request(self.stages[0], restarted, actions, True)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """Not expected: only inputs are sent, and they are not reported."""
        raise AssertionError(f"transfer {event.transfer} is none of {self.model}")

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let a replica take requests of its stage."""
        stage = self.stage_of(replica)
        stage.fleet.add(replica)
        if self.live_stages is not None:
            self.live_stages.joined(stage, replica.id)
        self._open_replica(stage, replica.id, actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Let a replica that was in its stage from the start take requests."""
        self._open_replica(self.stage_of(engine.replica), engine.id, actions)

    def _open_replica(self, stage: Stage, replica: int, actions: list[Action]) -> None:
        if self._engines[replica].state is EngineState.IDLE:
            stage.idle.add(replica)
        for free_replica in stage.opened():
            stage.add(free_replica)
        self._feed(stage, actions)

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire a replica: it finishes its pass and takes no new requests."""
        stage = self.stage_of(self._engines[replica].replica)
        stage.fleet.retire(replica)
        for waiting in stage.close(replica):
            stage.add(waiting)
        self._feed(stage, actions)

    def outstanding(self, replica: int) -> int:
        """Number of requests that the replica runs or that wait for it alone."""
        stage = self.stage_of(self._engines[replica].replica)
        live = 0 if self.live_stages is None else self.live_stages.outstanding(replica)
        return live + (stage.fleet.load(replica, "outstanding") if replica in stage.fleet.members else 0)

    def held(self, replica: int) -> list[int]:
        """Return no requests: no memory is reserved for them."""
        return []

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Restart requests that it ran or had activations of, at the first stage. None fails: returns []."""
        stage, replica = self.stage_of(engine.replica), engine.id
        engine.lose(actions, cause)
        restarting = [] if self.live_stages is None else self.live_stages.lost(stage, replica)
        if replica in stage.passes:
            self.seats.end(replica)
            restarting += stage.ended(replica).batch
        self.seats.leave(engine.replica)
        waiting = stage.close(replica)
        if replica in stage.fleet.members:
            stage.fleet.lose(replica)
        for request in waiting:
            stage.add(request)
        for other in self.stages:
            restarting += other.without(replica)
        self.again(restarting, actions)
        self.feed(actions)
        return []
