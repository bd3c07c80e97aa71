"""The replicas that serve one model, with the loads that dispatchers use, updated at every change."""

from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from serving.engine.engine import Engine
from serving.engine.least_index import LeastIndex
from serving.engine.load_reports import LoadReports
from serving.protocols.load_report import LoadReport
from serving.protocols.policy_faults import Question, raised, refused, wrong_reason
from serving.vocabulary.current_event import Present
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request, demand_tokens

# What a router may assume to be in the KV memory of replicas: the prompts that it sent there.
# No engine is asked. What an engine holds now depends on how far its run has come, which the controller
# learns only with the next report (docs/contributing/decisions/0005); what was sent where changes with
# requests alone.
# Routers without reports from the engines do the same (NVIDIA Dynamo with ``--no-kv-events``; the
# estimating prefix scorer of the Kubernetes Gateway API Inference Extension).


class SentPrefixes:
    """Prompts sent to one model's replicas; beyond a replica's KV memory the least recently used are
    forgotten.

    A prompt is stored as the parts that it shares with others and its own part (``Request.shared_prefix``),
    so a text is stored once: for each owner, the positions at which its own tokens begin and end.
    """

    __slots__ = ("_block_tokens", "_held_tokens", "_parts", "_prompt_tokens", "_room_tokens")

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, tuple[int, int]]] = {}  # the least recently used first
        self._held_tokens: dict[int, int] = {}
        self._room_tokens: dict[int, int] = {}
        self._block_tokens: dict[int, int] = {}
        self._prompt_tokens: dict[int, int] = {}

    def add(self, replica: Replica) -> None:
        """Add a replica that takes requests; nothing is known to be in its memory."""
        id = replica.id
        self._parts[id] = {}
        self._held_tokens[id] = 0
        self._room_tokens[id] = replica.kv_blocks * replica.block_tokens if replica.prefix_caching else 0
        self._block_tokens[id] = replica.block_tokens
        self._prompt_tokens.setdefault(id, 0)

    def retire(self, replica: int) -> None:
        """Stop tracking prompts of a replica that takes no more requests."""
        del self._parts[replica], self._held_tokens[replica]

    def lose(self, replica: int) -> None:
        """Forget a replica that is lost, after it was retired."""
        del self._prompt_tokens[replica]

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of the replica's unfinished requests."""
        return self._prompt_tokens[replica]

    def assigned(self, replica: int, request: Request) -> None:
        """Record a request sent to a replica."""
        self._prompt_tokens[replica] += request.prompt_tokens
        parts = self._parts.get(replica)
        if parts is None or not self._room_tokens[replica]:
            return
        starts, start = [], 0
        for owner, end in request.shared_prefix:
            starts.append((owner, start, end))
            start = end
        if start < request.prompt_tokens:
            starts.append((request.id, start, request.prompt_tokens))
        held = self._held_tokens[replica]
        for owner, start, end in reversed(starts):  # the most shared part counts as used last
            before = parts.pop(owner, None)
            if before is not None:
                held -= before[1] - before[0]
                end = max(end, before[1])
            parts[owner] = start, end
            held += end - start
        while held > self._room_tokens[replica]:
            start, end = parts.pop(next(iter(parts)))
            held -= end - start
        self._held_tokens[replica] = held

    def departed(self, replica: int, request: Request) -> None:
        """Record that a request left a replica, finished or failed; its prompt stays in memory."""
        self._prompt_tokens[replica] -= request.prompt_tokens

    def cached_tokens(self, replica: int, request: Request) -> int:
        """Tokens at the start of its prompt that were sent there before, in whole blocks.

        The last prompt token does not count: it is always computed, since its output is the next token.
        """
        parts, shared_tokens = self._parts[replica], 0
        for owner, end in request.shared_prefix:
            held = parts.get(owner)
            if held is None or held[1] < end:
                shared_tokens = shared_tokens if held is None else max(shared_tokens, held[1])
                break
            shared_tokens = end
        block = self._block_tokens[replica]
        return min(shared_tokens, request.prompt_tokens - 1) // block * block


# Loads in the controller's own records, in requests or tokens. They change only when a request comes or goes.
# A load that changed during decoding (blocks in use, say) would have to be read now, and the controller
# cannot know it between two reports.
Signal = Literal[
    "outstanding",  # requests assigned and not finished
    "kv_demand",  # prompt + expected output of those requests, with the tokens of their own blocks
]


class Fleet:
    """Alive replicas of one model. An order is kept only for signals that a policy has asked for."""

    __slots__ = (
        "_alive",
        "_by_kv_demand",
        "_by_outstanding",
        "_engines",
        "_kv_demand",
        "_longest",
        "_outstanding",
        "_replicas",
        "_retired",
        "_sent",
        "longest_request_tokens",
        "model",
        "reports",
        "sequence_tokens",
    )

    def __init__(
        self,
        model: str,
        replicas: Sequence[Replica],
        engines: Mapping[int, Engine] | None = None,
        reports: LoadReports | None = None,
    ) -> None:
        """``engines``: all replicas' engines, for ``running``. ``reports``: None if no policy reads them."""
        self.model = model
        self.reports = reports
        self._engines = {} if engines is None else engines
        self._longest = {replica.id: replica.longest_request_tokens for replica in replicas}
        self.longest_request_tokens = min(self._longest.values(), default=0)
        # Of every request, besides its own tokens: all replicas of a fleet hold the same layers.
        self.sequence_tokens = max([replica.sequence_tokens for replica in replicas], default=0)
        self._alive = sorted(replica.id for replica in replicas)
        self._outstanding = dict.fromkeys(self._alive, 0)
        self._kv_demand = dict.fromkeys(self._alive, 0)
        self._retired: set[int] = set()
        self._by_outstanding: LeastIndex | None = None
        self._by_kv_demand: LeastIndex | None = None
        self._replicas = {replica.id: replica for replica in replicas}
        self._sent: SentPrefixes | None = None  # created when a policy first asks for it

    def assigned(self, replica: int, request: Request) -> None:
        """Count a request that joined a replica."""
        self._change(replica, 1, demand_tokens(request) + self.sequence_tokens)
        if self._sent is not None:
            self._sent.assigned(replica, request)
        if request.priority > 0 and self.reports is not None:
            self.reports.count_high(replica, 1)

    def departed(self, replica: int, request: Request) -> None:
        """Count a request that left a replica, finished or failed."""
        self._change(replica, -1, -demand_tokens(request) - self.sequence_tokens)
        if self._sent is not None:
            self._sent.departed(replica, request)
        if request.priority > 0 and self.reports is not None:
            self.reports.count_high(replica, -1)

    def _change(self, replica: int, requests: int, tokens: int) -> None:
        """Add to both loads of a replica."""
        outstanding, kv_demand = self._outstanding, self._kv_demand
        before, before_tokens = outstanding[replica], kv_demand[replica]
        outstanding[replica] = before + requests
        kv_demand[replica] = before_tokens + tokens
        if replica in self._retired:
            return
        if self._by_outstanding is not None:
            self._by_outstanding.move(replica, before, before + requests)
        if self._by_kv_demand is not None:
            self._by_kv_demand.move(replica, before_tokens, before_tokens + tokens)

    def add(self, replica: Replica) -> None:
        """Add a replica that takes requests, for the first time or again."""
        id = replica.id
        assert id not in self._longest, f"replica {id} joined twice"
        self._retired.discard(id)
        insort(self._alive, id)
        self.sequence_tokens = replica.sequence_tokens
        self._longest[id] = replica.longest_request_tokens
        self.longest_request_tokens = min(self._longest.values())
        self._replicas[id] = replica
        if self.reports is not None:
            self.reports.joined(self._engines[id])
        if self._sent is not None:
            self._sent.add(replica)
        outstanding = self._outstanding.setdefault(id, 0)
        kv_demand = self._kv_demand.setdefault(id, 0)
        if self._by_outstanding is not None:
            self._by_outstanding.add(id, outstanding)
        if self._by_kv_demand is not None:
            self._by_kv_demand.add(id, kv_demand)

    def retire(self, replica: int) -> None:
        """Stop giving a replica requests; those it has are still counted."""
        if self.reports is not None:
            self.reports.settle(replica)
        self._alive.remove(replica)
        self._retired.add(replica)
        del self._longest[replica]
        self.longest_request_tokens = min(self._longest.values(), default=0)
        if self._sent is not None:
            self._sent.retire(replica)
        if self._by_outstanding is not None:
            self._by_outstanding.remove(replica, self._outstanding[replica])
        if self._by_kv_demand is not None:
            self._by_kv_demand.remove(replica, self._kv_demand[replica])

    def lose(self, replica: int) -> None:
        """Remove a lost replica."""
        if replica not in self._retired:
            self.retire(replica)
        self._retired.discard(replica)
        del self._outstanding[replica], self._kv_demand[replica]
        if self.reports is not None:
            self.reports.lose(replica)
        if self._sent is not None:
            self._sent.lose(replica)

    def __contains__(self, replica: int) -> bool:
        """Whether a replica takes requests."""
        return replica in self._longest

    @property
    def members(self) -> Collection[int]:
        """Replicas that take requests, and those that have some left."""
        return self._outstanding

    @property
    def kv_demand(self) -> int:
        """The sum of that signal over all members."""
        return sum(self._kv_demand.values())

    def least(self, signal: Signal) -> tuple[int, int]:
        """(replica, load) of the least loaded alive replica, the lowest id among equals."""
        if signal == "outstanding":
            if self._by_outstanding is None:
                self._by_outstanding = LeastIndex(self._of_alive(self._outstanding))
            return self._by_outstanding.least()
        if self._by_kv_demand is None:
            self._by_kv_demand = LeastIndex(self._of_alive(self._loads(signal)))
        return self._by_kv_demand.least()

    def _of_alive(self, loads: dict[int, int]) -> dict[int, int]:
        return {replica: loads[replica] for replica in self._alive}

    def load(self, replica: int, signal: Signal) -> int:
        """One replica's load."""
        return self._loads(signal)[replica]

    def _loads(self, signal: Signal) -> dict[int, int]:
        if signal == "outstanding":
            return self._outstanding
        if signal == "kv_demand":
            return self._kv_demand
        raise ValueError(f"the signal {signal!r} is unknown: write outstanding or kv_demand")

    def cached_tokens(self, replica: int, request: Request) -> int:
        """Prompt tokens of the request that were sent to an alive replica before and fit into its memory."""
        return self._sent_prefixes().cached_tokens(replica, request)

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of its outstanding requests, counted since this or the above was first called."""
        return self._sent_prefixes().prompt_tokens(replica)

    def running(self, replica: int) -> int:
        """Number of the replica's outstanding requests that its engine has admitted; the others wait.

        It changes when an engine chooses a pass, which is at the same time for all ways of reporting steps.
        """
        engine = self._engines[replica]
        return len(engine.running) - len(engine.ended)

    def report(self, replica: int) -> LoadReport | None:
        """The last load report; None: the replica is lost, or takes no requests any more."""
        assert self.reports is not None, "a policy that reads load reports must set reads_load_reports = True"
        return None if replica in self._retired else self.reports.of(replica)

    def newly_reported(self) -> Sequence[int]:
        """Replicas with a new load report since the last call."""
        assert self.reports is not None, "a policy that reads load reports must set reads_load_reports = True"
        return self.reports.changed()

    def _sent_prefixes(self) -> SentPrefixes:
        if self._sent is None:
            self._sent = sent = SentPrefixes()
            for id in self._outstanding:
                sent.add(self._replicas[id])
            for id in self._retired:
                sent.retire(id)
        return self._sent

    @property
    def replicas(self) -> int:
        """Number of alive replicas."""
        return len(self._alive)

    def replica_at(self, position: int) -> int:
        """The id of an alive replica; see ``FleetView``."""
        return self._alive[position]

    def alive(self) -> list[int]:
        """The ids of all alive replicas, ascending."""
        return list(self._alive)


class FleetView(Protocol):
    """The replicas of one model."""

    @property
    def replicas(self) -> int:
        """Number of alive replicas."""

    def replica_at(self, position: int) -> int:
        """The id of an alive replica; ``position`` counts them by ascending id, from 0 to ``replicas``-1."""

    def least(self, signal: Signal) -> tuple[int, int]:
        """(replica, load) of the least loaded alive replica, the lowest id among equals."""

    def load(self, replica: int, signal: Signal) -> int:
        """A replica's load: requests ("outstanding"), or their prompts and expected outputs ("kv_demand")."""

    def running(self, replica: int) -> int:
        """Number of the replica's outstanding requests that its engine has admitted; the others wait."""

    def report(self, replica: int) -> LoadReport | None:
        """Its last load report, for policies with ``reads_load_reports``; None: it takes no requests."""

    def newly_reported(self) -> Sequence[int]:
        """Replicas with a new load report since the last call."""

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of one replica's requests that are assigned and not finished."""

    def cached_tokens(self, replica: int, request: Request) -> int:
        """Tokens at the start of the prompt that were sent to this replica before, in whole blocks."""


class Dispatcher(Protocol):
    """Chooses the replica of a request."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """Asked when a request arrives, or must be sent again; the fleet has at least one replica."""


class SchedulerBypass:
    """The dispatcher of a global scheduler that may fail, and the rule of the frontends without it.

    Source: Llumnix (OSDI 2024), section 5, fault tolerance: while the global scheduler has failed, request
    frontends send requests to instances directly by a simple rule.
    """

    __slots__ = ("_fallback", "_policy", "_present")

    def __init__(self, policy: Dispatcher, fallback: Dispatcher, present: Present) -> None:
        self._policy, self._fallback, self._present = policy, fallback, present

    @property
    def acting(self) -> Dispatcher:
        """The scheduler's policy while it works; else this object, whose reasons say that it does not."""
        return self if self._present.scheduler_lost else self._policy

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """The answer of the frontends' rule."""
        replica, reason = self._fallback.dispatch(request, fleet)
        return replica, f"without the global scheduler: {reason}"


class Admission(Protocol):
    """Admits or refuses requests."""

    def admit(self, now_ns: int, request: Request, fleet: FleetView) -> str | None:
        """Asked when a request arrives."""


DISPATCH: Final = Question(
    "dispatch",
    "a tuple (replica, reason): the id of a replica that accepts requests, an int, and a str that is not "
    "empty",
)
ADMIT: Final = Question(
    "admit", "None to let the request in, or the reason for refusing it, a str that is not empty"
)


def dispatched(policy: Any, request: Request, fleet: Fleet) -> tuple[int, str]:
    """The dispatcher's checked answer. Raises PolicyError."""
    if type(policy) is SchedulerBypass:
        policy = policy.acting
    try:
        answer = policy.dispatch(request, fleet)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(policy, DISPATCH, error) from error
    if type(answer) is tuple and len(answer) == 2:
        replica, reason = answer
        if type(replica) is int and replica in fleet._longest and type(reason) is str and reason:
            return answer
    raise refused(policy, DISPATCH, answer, _not_dispatched(answer, fleet))


def _not_dispatched(answer: object, fleet: Fleet) -> str:
    if type(answer) is not tuple or len(answer) != 2:
        return "the answer is not a tuple (replica, reason)"
    replica, reason = answer
    if type(replica) is not int:
        return f"a replica id must be an int, not a {type(replica).__name__}"
    if replica not in fleet:
        return f"replica {replica} accepts no requests of {fleet.model} now"
    return wrong_reason(reason)


def refusal(policy: Any, now_ns: int, request: Request, fleet: FleetView) -> str | None:
    """The admission policy's checked answer. Raises PolicyError."""
    try:
        answer = policy.admit(now_ns, request, fleet)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(policy, ADMIT, error) from error
    if answer is None or (type(answer) is str and answer):
        return answer
    raise refused(policy, ADMIT, answer, wrong_reason(answer))
