"""The controller: the only mutator of control state. It routes facts to the state machines they concern."""

from collections.abc import Callable, Sequence

from serving.actions import Action, Assign, Load, Reject
from serving.batch import Batcher
from serving.engine import Engine, EngineState
from serving.events import Arrived, Event, Loaded, LoadStopped, Lost, Opened, Ran
from serving.fleet import Admission, Dispatcher, Fleet
from serving.loads import Loads, replicas_of
from serving.replica import Replica
from serving.request import Request

# Serves a model that no replica has: it can hold no request.
_NOBODY = Fleet("", ())


class Controller:
    """Engines, fleets and the front door behind one method.

    ``batcher_for`` is asked once per replica, so that a batcher may keep state of its own. With
    ``coalesce`` False every decode run is one step (exact mode); with ``asynchronous`` True engines choose a
    step while the one before it runs. ``starts``: loads to ask for when the world opens; the replicas they
    go to take requests at once and serve them when their parameters are there.
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
    ) -> None:
        assert [replica.id for replica in replicas] == list(range(len(replicas)))
        self.starts, self.loads = tuple(starts), Loads()
        cold = replicas_of(starts)
        self.engines = [
            Engine(replica, batcher_for(replica), coalesce, asynchronous, replica.id not in cold)
            for replica in replicas
        ]
        models = sorted({replica.model for replica in replicas})
        self.fleets = {
            model: Fleet(model, [replica for replica in replicas if replica.model == model])
            for model in models
        }
        self._fleet_of = [self.fleets[replica.model] for replica in replicas]
        self.dispatcher = dispatcher
        self.admission = admission
        self.requests: dict[int, Request] = {}
        self.arrived = self.finished = self.rejected = self.failed = 0
        self._now_ns = 0

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        """What the world should do about this fact. Raises AssertionError when the clock goes back."""
        assert now_ns >= self._now_ns, "the clock went back"
        self._now_ns = now_ns
        actions: list[Action] = []
        if type(event) is Ran:
            engine = self.engines[event.replica]
            engine.ran(event, actions)
            if event.finished and event.epoch == engine.epoch:
                self._depart(event)
        elif type(event) is Arrived:
            self._arrived(now_ns, event.request, actions)
        elif type(event) is Lost:
            self._lost(event, actions)
        else:
            self._parameters(event, actions)
        return actions

    def _parameters(self, event: Event, actions: list[Action]) -> None:
        """Facts about parameters on their way."""
        if type(event) is Loaded:
            stop = self.loads.loaded(event)
            if stop is not None and stop[0] == "replica":
                self.engines[stop[1]].ready(actions)
        elif type(event) is LoadStopped:
            self.loads.ended_early(event)
        else:
            assert type(event) is Opened, "nobody sends state yet"
            for load in self.starts:
                self.loads.begin(load)
                actions.append(load)

    def _arrived(self, now_ns: int, request: Request, actions: list[Action]) -> None:
        self.arrived += 1
        fleet = self.fleets.get(request.model, _NOBODY)
        tokens = request.prompt_tokens + request.max_new_tokens
        if tokens > fleet.longest_request_tokens:
            refusal: str | None = self._why_not(request, fleet)
        else:
            refusal = self.admission.admit(now_ns, request, fleet)
        if refusal is not None:
            self.rejected += 1
            actions.append(Reject(request.id, refusal))
            return
        replica, reason = self.dispatcher.dispatch(request, fleet)
        self.requests[request.id] = request
        fleet.assigned(replica, request)
        actions.append(Assign(request.id, replica, reason))
        self.engines[replica].enqueue(request, actions)

    @staticmethod
    def _why_not(request: Request, fleet: Fleet) -> str:
        if fleet is _NOBODY:
            return f"model {request.model} is not served"
        if not fleet.replicas:
            return f"no replica of {request.model} is alive"
        return f"prompt + max_new_tokens exceed the {fleet.longest_request_tokens} KV tokens of a replica"

    def _depart(self, event: Ran) -> None:
        fleet, requests = self._fleet_of[event.replica], self.requests
        for request in event.finished:
            fleet.departed(event.replica, requests.pop(request))
        self.finished += len(event.finished)

    def _lost(self, event: Lost, actions: list[Action]) -> None:
        engine = self.engines[event.replica]
        if engine.state is EngineState.LOST:
            return
        fleet = self._fleet_of[event.replica]
        failed = engine.lose(actions, event.cause)
        for request in failed:
            fleet.departed(event.replica, self.requests.pop(request))
        self.failed += len(failed)
        fleet.lose(event.replica)
