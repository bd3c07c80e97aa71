"""The controller: the only mutator of control state. It routes facts to the state machines they concern."""

from collections.abc import Callable, Sequence

from serving.elastic.elastic import Elastic
from serving.engine.engine import Engine
from serving.engine.fleet import Admission, Dispatcher, Fleet
from serving.engine.progress import EngineState
from serving.kv.handover import HandOverRules
from serving.kv.transfer_ids import TransferIds
from serving.parameters.loads import Loads, replicas_of
from serving.protocols.batch import Batcher
from serving.protocols.policy_faults import event_text
from serving.services.colocated import Colocated, Queue
from serving.services.disaggregated import Disaggregated
from serving.services.service import Service
from serving.vocabulary.actions import Action, Load, Reject
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.events import Arrived, Event, Loaded, LoadStopped, Lost, Opened, Ran, Sent, Woke
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

_IDLE = EngineState.IDLE


class Controller:
    """Engines, the service of every model and the front door behind one method.

    ``batcher_for`` is asked once per replica, so that a batcher may keep state of its own. With
    ``coalesce`` False every decode run is one step (exact mode); with ``asynchronous`` True engines choose a
    step while the one before it runs. ``starts``: loads to ask for when the world opens; the replicas they
    go to take requests at once and serve them when their parameters are there. ``hand_overs``: for the models
    whose prefill and decode are on instances of their own, with ``batch_tokens`` per prefill pass.
    ``elastic``: adds and removes instances; None: the replicas stay what they are. ``queue``: where requests
    of the other models wait (``Colocated``). ``check_batches``: whether batchers' answers are checked in full
    (``serving.engine.batch_answers``), as those of strangers must be.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        dispatcher: Dispatcher,
        batcher_for: Callable[[Replica], Batcher],
        admission: Admission,
        coalesce: bool = True,
        asynchronous: bool = False,
        starts: Sequence[Load] = (),
        hand_overs: dict[str, HandOverRules] | None = None,
        batch_tokens: int = 0,
        elastic: Elastic | None = None,
        queue: Queue | None = None,
        check_batches: bool = True,
    ) -> None:
        assert [replica.id for replica in replicas] == list(range(len(replicas)))
        self.starts, self.loads = tuple(starts), Loads()
        self._batcher_for, self._coalesce, self._asynchronous = batcher_for, coalesce, asynchronous
        self._check_batches = check_batches
        self.dispatcher, self.admission, self.elastic = dispatcher, admission, elastic
        self.requests: dict[int, Request] = {}
        self.engines: dict[int, Engine] = {}
        cold = replicas_of(starts)
        for replica in replicas:
            self._make_engine(replica, replica.id not in cold)
        self.services: dict[str, Service] = {}
        self._transfer_ids = TransferIds()
        self._serve(replicas, hand_overs or {}, batch_tokens, queue)
        self._service_of = {replica.id: self.services[replica.model] for replica in replicas}
        if elastic is not None:
            elastic.connect(self.engines, self.services, self.loads, self._placed)
        self.arrived = self.finished = self.rejected = self.failed = 0
        self._now_ns = 0

    def _serve(
        self,
        replicas: Sequence[Replica],
        hand_overs: dict[str, HandOverRules],
        tokens: int,
        queue: Queue | None,
    ) -> None:
        """Make the service of every model, of those without a replica too."""
        elastic = self.elastic
        prototypes = dict(elastic.prototypes) if elastic is not None else {}
        models = {replica.model: replica for replica in replicas} | prototypes
        for model, prototype in sorted(models.items()):
            own = [replica for replica in replicas if replica.model == model]
            if model not in hand_overs:
                fleet = Fleet(model, own)
                self.services[model] = Colocated(
                    fleet,
                    self.engines,
                    self.requests,
                    self.dispatcher,
                    self.admission,
                    prototypes.get(model),
                    tokens,
                    self._transfer_ids,
                    elastic.live_setup(model) if elastic is not None else None,
                    queue,
                )
                continue
            service = self.services[model] = Disaggregated(
                prototype,
                self.engines,
                self.requests,
                self.admission,
                hand_overs[model],
                tokens,
                self._transfer_ids,
                elastic.live_setup(model) if elastic is not None else None,
            )
            for replica in own:
                if self.engines[replica.id].state is EngineState.IDLE:
                    service.join(replica, replica.role, [])

    def _make_engine(self, replica: Replica, loaded: bool) -> None:
        batcher = self._batcher_for(replica)
        # Signals of scalers must not depend on how many steps one report covers.
        prompts_alone, checks = self.elastic is not None, self._check_batches
        self.engines[replica.id] = Engine(
            replica, batcher, self._coalesce, self._asynchronous, loaded, prompts_alone, checks
        )

    def _placed(self, seat: Replica, role: Role, loaded: bool) -> None:
        """A seat's GPUs are its own (again)."""
        engine = self.engines.get(seat.id)
        if engine is not None:
            engine.place(role, loaded)
            return
        self._make_engine(seat, loaded)
        self.engines[seat.id].turn(role)
        self._service_of[seat.id] = self.services[seat.model]

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        """What the world should do about this fact.

        Raises PolicyError for a policy's fault, after which nothing goes on; AssertionError when the clock
        goes back.
        """
        assert now_ns >= self._now_ns, "the clock went back"
        self._now_ns = now_ns
        actions: list[Action] = []
        try:
            if type(event) is Ran:
                replica = event.replica
                engine = self.engines[replica]
                if event.epoch < engine.epoch:
                    return actions  # from before the replica was lost
                self._service_of[replica].ran(engine, event, actions)
                finished = event.finished
                if finished:
                    requests = self.requests
                    for request in finished:
                        del requests[request]
                    self.finished += len(finished)
                if self.elastic is not None and (engine.hands_over or engine.state is _IDLE):
                    self.elastic.ran(now_ns, replica, actions)
            elif type(event) is Arrived:
                self._arrived(now_ns, event.request, actions)
            elif type(event) is Sent:
                self._sent(now_ns, event, actions)
            elif type(event) is Woke:
                assert self.elastic is not None, "nobody asked to be woken"
                self.elastic.woke(now_ns, actions)
            elif type(event) is Lost:
                self._lost(now_ns, event, actions)
            else:
                self._parameters(now_ns, event, actions)
        except PolicyError as fault:
            fault.event = event_text(now_ns, event)
            raise
        return actions

    def _arrived(self, now_ns: int, request: Request, actions: list[Action]) -> None:
        self.arrived += 1
        service = self.services.get(request.model)
        if service is None:
            self._reject(request, f"model {request.model} is not served", actions)
            return
        refusal = service.refusal(now_ns, request)
        if refusal is not None:
            self._reject(request, refusal, actions)
            return
        self.requests[request.id] = request
        service.arrived(request, actions)
        if self.elastic is not None:
            self.elastic.arrived(now_ns, request.model, actions)

    def _reject(self, request: Request, reason: str, actions: list[Action]) -> None:
        self.rejected += 1
        actions.append(Reject(request.id, reason))

    def _sent(self, now_ns: int, event: Sent, actions: list[Action]) -> None:
        """KV has come, or activations."""
        source = self.services[self._transfer_ids.model_of(event.transfer)].sent(event, actions)
        if source is not None and self.elastic is not None:
            self.elastic.ran(now_ns, source, actions)

    def _parameters(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        """Facts about parameters on their way."""
        if type(event) is Opened:
            for load in self.starts:
                self.loads.begin(load)
                actions.append(load)
        elif type(event) is Loaded:
            if self.elastic is not None:
                self.elastic.deployment.loaded(now_ns, event, actions)
                return
            stop = self.loads.loaded(event)
            if stop is not None and stop[0] == "replica":
                self._started(self.engines[stop[1]], actions)
        else:
            assert type(event) is LoadStopped
            if self.elastic is not None:
                self.elastic.deployment.load_stopped(now_ns, event, actions)
            else:
                self.loads.ended_early(event)

    def _started(self, engine: Engine, actions: list[Action]) -> None:
        """A replica that began cold has its parameters."""
        engine.ready(actions)
        service = self._service_of[engine.id]
        if not isinstance(service, Disaggregated):
            service.feed(actions)
        elif engine.state is EngineState.IDLE:
            service.join(engine.replica, engine.replica.role, actions)

    def _lost(self, now_ns: int, event: Lost, actions: list[Action]) -> None:
        engine = self.engines[event.replica]
        if engine.state is EngineState.LOST:
            return
        if engine.state is EngineState.VACANT:  # it left before, and had nothing but old parameters
            if self.elastic is not None:
                self.elastic.deployment.instances.unpark(event.replica)
            return
        failed = self._service_of[event.replica].lose(engine, event.cause, actions)
        for request in failed:
            del self.requests[request]
        self.failed += len(failed)
        if self.elastic is not None:
            self.elastic.lost(now_ns, event.replica, event.cause, actions)
