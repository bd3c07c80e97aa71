"""The controller: only it changes control state. It routes each event to the state machines it concerns."""

from serving.elastic.replica_control import Handler, ReplicaControl
from serving.engine.engine import Engine
from serving.engine.progress import EngineState
from serving.protocols.policy_faults import event_text
from serving.services.service import Routes, Service, Streaming
from serving.vocabulary.abort import CLIENT_LEFT
from serving.vocabulary.actions import Action, Fail, Reject
from serving.vocabulary.current_event import Present
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.events import (
    Arrived,
    Closing,
    Disconnected,
    Dropped,
    Event,
    Lost,
    Observed,
    Ran,
    SchedulerBack,
    SchedulerLost,
    Sent,
    Streamed,
)
from serving.vocabulary.request import Request

_IDLE = EngineState.IDLE


class Controller:
    """Owns the engines and the service of every model; the driver passes every event to ``handle``.

    ``serving.composition`` builds it. ``requests``: requests in flight; ``routes``: map an event to its
    model; ``elastic``: brings parameters to replicas, and may add and remove replicas. ``step_counts``: a
    driver whose instances make load reports registers itself there.
    """

    def __init__(
        self,
        *,
        engines: dict[int, Engine],
        requests: dict[int, Request],
        services: dict[str, Service],
        routes: Routes,
        elastic: ReplicaControl,
        present: Present,
    ) -> None:
        self.engines, self.requests, self.services = engines, requests, services
        self.aborts = routes.aborts
        self.elastic, self._transfer_ids, self._streams = elastic, routes.transfer_ids, routes.streaming
        # Reports and arrivals are too frequent to forward to a ReplicaControl that ignores them.
        self._scales = elastic.scales
        self._touched = elastic.touched
        own: dict[type, Handler] = {
            Sent: self._sent,
            Lost: self._lost,
            SchedulerLost: self._scheduler_lost,
            SchedulerBack: self._scheduler_back,
            Disconnected: self._disconnected,
            Closing: self._close,
            Streamed: self._streamed,
            Dropped: self._dropped,
            Observed: self._observed,
        }
        self._handlers = {**own, **elastic.handlers()}
        self.arrived = self.finished = self.rejected = self.failed = self.aborted = 0
        self.closed = False  # whether the driver has ended the run with requests in flight
        self._present = present
        self.step_counts = present.step_counts

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        """Return the actions that the driver must carry out after this event.

        Raises PolicyError for a policy's fault, after which the run cannot go on; AssertionError if the clock
        goes back.
        """
        present = self._present
        assert now_ns >= present.now_ns, "the clock went back"
        present.now_ns, present.event = now_ns, event
        actions: list[Action] = []
        try:
            if type(event) is Ran:
                engine = self.engines[event.replica]
                if event.epoch < engine.epoch:
                    return actions  # the report was sent before the replica was lost
                self.services[engine.replica.model].ran(engine, event, actions)
                finished = event.finished
                if finished:
                    requests = self.requests
                    for request in finished:
                        del requests[request]
                    self.finished += len(finished)
                if self._scales:
                    self._touched.add(engine.replica.model)
                    if engine.hands_over or engine.state is _IDLE:
                        self.elastic.ran(now_ns, event.replica, actions)
            elif type(event) is Arrived:
                self._arrived(now_ns, event.request, actions)
            else:
                self._handlers[type(event)](now_ns, event, actions)
        except PolicyError as fault:
            fault.event = event_text(now_ns, event)
            raise
        if present.unsettled:
            self._settle(now_ns, actions)
        return actions

    def _settle(self, now_ns: int, actions: list[Action]) -> None:
        """End the requests that waited too long for a stage, and those whose clients went away."""
        going = (*self._present.timed_out, *self.aborts.leaving)
        self._touched.update([self.requests[one].model for one in going if one in self.requests])
        for request in self._present.timed_out:
            del self.requests[request]
        self.failed += len(self._present.timed_out)
        self._present.timed_out.clear()
        ended = self.aborts.settle(actions)
        for abort in ended:
            del self.requests[abort.request]
        left = sum([abort.reason == CLIENT_LEFT for abort in ended])
        self.aborted += left
        self.failed += len(ended) - left
        if self._scales:
            for replica in sorted({abort.replica for abort in ended if abort.replica >= 0}):
                self.elastic.ran(now_ns, replica, actions)
        self.aborts.forget()

    def _disconnected(self, now_ns: int, event: Disconnected, actions: list[Action]) -> None:
        self.aborts.disconnected(event)

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
        if self._scales:
            self._touched.add(request.model)
            self.elastic.arrived(now_ns, request, actions)

    def _reject(self, request: Request, reason: str, actions: list[Action]) -> None:
        self.rejected += 1
        actions.append(Reject(request.id, reason))

    def _sent(self, now_ns: int, event: Sent, actions: list[Action]) -> None:
        """A transfer of KV or activations has ended."""
        model = self._transfer_ids.model_of(event.transfer)
        self._touched.add(model)
        source = self.services[model].sent(event, actions)
        if source is not None:
            self.elastic.ran(now_ns, source, actions)

    def _streaming(self, replica: int) -> Streaming:
        model = self.engines[replica].replica.model
        assert model in self._streams, f"replica {replica} does not run by itself"
        self._touched.add(model)
        return self._streams[model]

    def _streamed(self, now_ns: int, event: Streamed, actions: list[Action]) -> None:
        self._streaming(event.replica).streamed(event, actions)
        for request in event.finished:
            del self.requests[request]
        self.finished += len(event.finished)
        if self._scales:
            self.elastic.ran(now_ns, event.replica, actions)

    def _dropped(self, now_ns: int, event: Dropped, actions: list[Action]) -> None:
        if self._streaming(event.replica).dropped(event, actions):
            del self.requests[event.request]
            self.failed += 1
        if self._scales:
            self.elastic.ran(now_ns, event.replica, actions)

    def _observed(self, now_ns: int, event: Observed, actions: list[Action]) -> None:
        self._streaming(event.replica).observed(event)

    def _close(self, now_ns: int, event: Closing, actions: list[Action]) -> None:
        """Fail the requests in flight; leave the state of services and instances as it is."""
        actions += [Fail(request, event.cause) for request in sorted(self.requests)]
        self.failed += len(self.requests)
        self.requests.clear()
        self.closed = True

    def _scheduler_lost(self, now_ns: int, event: SchedulerLost, actions: list[Action]) -> None:
        """Dispatch without the global scheduler, and begin no migration or scaling, until it is back."""
        self._present.scheduler_lost = True

    def _scheduler_back(self, now_ns: int, event: SchedulerBack, actions: list[Action]) -> None:
        self._present.scheduler_lost = False

    def _lost(self, now_ns: int, event: Lost, actions: list[Action]) -> None:
        engine = self.engines[event.replica]
        if engine.state is EngineState.LOST:
            return
        self._touched.add(engine.replica.model)
        if engine.state is not EngineState.VACANT:  # else it left before, with old parameters only
            failed = self.services[engine.replica.model].lose(engine, event.cause, actions)
            for request in failed:
                del self.requests[request]
            self.failed += len(failed)
        self.elastic.lost(now_ns, event.replica, event.cause, actions)
