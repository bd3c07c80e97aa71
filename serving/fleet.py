"""The replicas that serve one model, with the loads dispatchers may ask for, kept up to date by change."""

from collections.abc import Sequence
from typing import Literal, Protocol

from serving.least_index import LeastIndex
from serving.replica import Replica
from serving.request import Request

# Loads in the controller's own books, in requests or tokens. They change only when a request comes or goes:
# one that moved while decoding goes on (blocks in use, say) would have to be read at the present instant,
# which the controller cannot know between two reports.
Signal = Literal[
    "outstanding",  # requests assigned and not finished
    "kv_demand",  # prompt + max_new_tokens of those requests
]


class Fleet:
    """Alive replicas of one model. An order is kept only for signals somebody asked for."""

    __slots__ = (
        "_alive",
        "_kv_demand",
        "_loads",
        "_longest",
        "_order_by",
        "_orders",
        "_outstanding",
        "longest_request_tokens",
        "model",
    )

    def __init__(self, model: str, replicas: Sequence[Replica]) -> None:
        self.model = model
        self._longest = {replica.id: replica.longest_request_tokens for replica in replicas}
        self.longest_request_tokens = min(self._longest.values())
        self._alive = sorted(replica.id for replica in replicas)
        self._outstanding = dict.fromkeys(self._alive, 0)
        self._kv_demand = dict.fromkeys(self._alive, 0)
        self._loads: dict[Signal, dict[int, int]] = {
            "outstanding": self._outstanding,
            "kv_demand": self._kv_demand,
        }
        self._order_by: dict[Signal, LeastIndex] = {}
        self._orders: list[LeastIndex] = []

    def assigned(self, replica: int, request: Request) -> None:
        """A request joined a replica."""
        self._outstanding[replica] += 1
        self._kv_demand[replica] += request.prompt_tokens + request.max_new_tokens

    def departed(self, replica: int, request: Request) -> None:
        """A request left a replica, finished or failed."""
        self._outstanding[replica] -= 1
        self._kv_demand[replica] -= request.prompt_tokens + request.max_new_tokens
        for order in self._orders:
            order.shrank(replica)

    def lose(self, replica: int) -> None:
        """A replica is gone."""
        self._alive.remove(replica)
        del self._longest[replica]
        self.longest_request_tokens = min(self._longest.values(), default=0)
        for loads in self._loads.values():
            del loads[replica]

    def least(self, signal: Signal) -> int:
        """The alive replica with the least load, the lowest id among equals."""
        order = self._order_by.get(signal)
        if order is None:
            order = self._order_by[signal] = LeastIndex(self._loads[signal])
            self._orders.append(order)
        return order.least()

    def load(self, replica: int, signal: Signal) -> int:
        """One replica's load."""
        return self._loads[signal][replica]

    @property
    def replicas(self) -> int:
        """How many replicas are alive."""
        return len(self._alive)

    def replica_at(self, position: int) -> int:
        """The alive replica at this position in id order."""
        return self._alive[position]


class FleetView(Protocol):
    """What dispatchers and admission policies may see of a Fleet."""

    @property
    def replicas(self) -> int:
        """How many replicas are alive."""

    def replica_at(self, position: int) -> int:
        """The alive replica at this position in id order."""

    def least(self, signal: Signal) -> int:
        """The alive replica with the least load, the lowest id among equals."""

    def load(self, replica: int, signal: Signal) -> int:
        """One replica's load."""


class Dispatcher(Protocol):
    """Chooses the replica of a request."""

    def dispatch(self, request: Request, fleet: FleetView) -> tuple[int, str]:
        """(replica id, reason). The fleet has at least one replica."""


class Admission(Protocol):
    """Lets a request in or turns it away."""

    def admit(self, now_ns: int, request: Request, fleet: FleetView) -> str | None:
        """None to let it in, else the reason for the refusal."""
