"""Prefill and decode on the same instances, each with a queue of its own, behind one dispatcher.

Where instances come and go no queue grows beyond a pass: other requests wait at a common door, so that a new
instance finds work (queues of their own without it make P99 1.6 to 2.6 times worse).
"""

from collections import deque
from collections.abc import Mapping

from serving.actions import Action, Assign
from serving.engine import Engine
from serving.events import Ran
from serving.fleet import Admission, Dispatcher, Fleet
from serving.live_scaling import Live
from serving.replica import Replica, Role
from serving.request import Request


class Colocated:
    """One model. ``elastic``: it may be without instances for a while; else such a request is refused."""

    __slots__ = (
        "_admission", "_dispatcher", "_engines", "_longest", "_queue_tokens", "_requests", "door", "elastic",
        "fleet", "live",
    )  # fmt: skip

    def __init__(
        self,
        fleet: Fleet,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        dispatcher: Dispatcher,
        admission: Admission,
        prototype: Replica | None = None,
        queue_tokens: int = 0,
    ) -> None:
        """``prototype``: what instances to come are like; None: there are none to come.

        ``queue_tokens``: an elastic model's instance takes no more when so many prompt tokens wait there.
        """
        self._queue_tokens = queue_tokens
        self.fleet = fleet
        self._engines = engines
        self._requests = requests
        self._dispatcher = dispatcher
        self._admission = admission
        self.elastic = prototype is not None
        self._longest = prototype.longest_request_tokens if prototype is not None else 0
        self.door: deque[Request] = deque()
        self.live: Live | None = None

    @property
    def longest_request_tokens(self) -> int:
        """Of the instances there are, or may be."""
        return self._longest or self.fleet.longest_request_tokens

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens at the door and at instances that they have not computed."""
        tokens = sum([request.prompt_tokens for request in self.door])
        for replica in self.fleet.members:
            engine = self._engines[replica]
            begun = (*engine.waiting, *engine.prefilling.values())
            tokens += sum([progress.known_tokens - progress.computed for progress in begun])
        return tokens

    @property
    def kv_tokens(self) -> int:
        """All the tokens that the requests at instances may have."""
        return self.fleet.kv_demand

    @property
    def migrating_tokens(self) -> int:
        """Nothing moves."""
        return 0

    @property
    def queued(self) -> int:
        """Requests that no instance has yet."""
        return len(self.door)

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Too long for an instance, no instance for ever, or turned away by the admission policy."""
        longest = self.longest_request_tokens
        if request.prompt_tokens + request.max_new_tokens <= longest:
            return self._admission.admit(now_ns, request, self.fleet)
        if not self.elastic and not self.fleet.replicas:
            return f"no replica of {request.model} is alive"
        return f"prompt + max_new_tokens exceed the {longest} KV tokens of a replica"

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """To the queue of an instance, by the dispatcher."""
        fleet = self.fleet
        if not fleet.replicas:
            self.door.append(request)
            return
        replica, reason = self._dispatcher.dispatch(request, fleet)
        if self.elastic and not self._takes(replica):
            # Nobody waits at the door while an instance would take it.
            others = [other for other in map(fleet.replica_at, range(fleet.replicas)) if self._takes(other)]
            if self.door or not others:
                self.door.append(request)
                return
            replica, reason = others[0], f"the first with room, for {replica} has none"
        self._assign(request, replica, reason, actions)

    def _assign(self, request: Request, replica: int, reason: str, actions: list[Action]) -> None:
        self.fleet.assigned(replica, request)
        actions.append(Assign(request.id, replica, reason))
        self._engines[replica].enqueue(request, actions)

    def _takes(self, replica: int) -> bool:
        """Whether less than a pass waits in an instance's queue."""
        engine = self._engines[replica]
        tokens = sum([progress.known_tokens for progress in (*engine.waiting, *engine.door)])
        return tokens < self._queue_tokens

    def feed(self, actions: list[Action]) -> None:
        """Nobody is live here."""

    def _feed(self, replica: int, actions: list[Action]) -> None:
        """An instance takes from the door what it has room for."""
        while self.door and self._takes(replica):
            self._assign(self.door.popleft(), replica, f"from the door, {len(self.door)} stay", actions)

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """The engine answers; those who finished leave."""
        engine.ran(event, actions)
        if event.finished:
            departed, requests = self.fleet.departed, self._requests
            for request in event.finished:
                departed(event.replica, requests[request])
        if self.door and event.replica in self.fleet:
            self._feed(event.replica, actions)

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """An instance takes requests; those at the door go to it."""
        assert role == "both", "a colocated model's instances do both"
        self.fleet.add(replica)
        self._feed(replica.id, actions)

    def leave(self, replica: int) -> None:
        """An instance takes nothing new."""
        self.fleet.retire(replica)

    def outstanding(self, replica: int) -> int:
        """Requests assigned to an instance and not finished."""
        return self.fleet.load(replica, "outstanding") if replica in self.fleet.members else 0

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """All it had fails."""
        failed = engine.lose(actions, cause)
        for request in failed:
            self.fleet.departed(engine.id, self._requests[request])
        if engine.id in self.fleet.members:  # it never was, if it was still loading
            self.fleet.lose(engine.id)
        return failed
