"""The interface of what serves one model: its waiting requests and the roles of its instances."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from serving.engine.engine import Engine
from serving.kv.transfer_ids import TransferIds
from serving.live.scaling import LiveScaling
from serving.vocabulary.actions import Abort, Action
from serving.vocabulary.events import Disconnected, Dropped, Observed, Ran, Sent, Streamed
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request


class Streaming(Protocol):
    """Serves a model whose engines run by themselves and stream tokens."""

    def streamed(self, event: Streamed, actions: list[Action]) -> None:
        """Tokens have arrived; finished requests are still known."""

    def dropped(self, event: Dropped, actions: list[Action]) -> bool:
        """An engine did not answer a request; returns whether the request fails."""

    def observed(self, event: Observed) -> None:
        """An engine has reported its state."""


class Departing(Protocol):
    """Ends requests whose clients went away (``serving.services.aborts``)."""

    @property
    def leaving(self) -> Collection[int]:
        """The requests that have not gone yet."""

    def disconnected(self, event: Disconnected) -> None:
        """The client of a request went away."""

    def settle(self, actions: list[Action]) -> list[Abort]:
        """After an event with its actions: let go what can go by now; returns the aborts of this event."""

    def forget(self) -> None:
        """Forget requests that have ended."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Finds what handles an event.

    ``transfer_ids``: the model of each transfer. ``streaming``: for each model, the service that handles
    streamed tokens. ``aborts``: of all models.
    """

    transfer_ids: TransferIds
    streaming: Mapping[str, Streaming]
    aborts: Departing


class Service(Protocol):
    """The requests of one model, from their arrival to their end.

    ``backlog_tokens``: prompt tokens not computed yet; ``kv_tokens``: KV memory used or reserved for
    requests; ``migrating_tokens``: KV in transfer or waiting for one. They change only at events, so
    coalesced and step-by-step runs agree on them.
    """

    @property
    def longest_request_tokens(self) -> int:
        """Prompt + output that any instance of this model holds; 0 if there is none."""

    @property
    def backlog_tokens(self) -> int: ...

    @property
    def kv_tokens(self) -> int: ...

    @property
    def migrating_tokens(self) -> int: ...

    @property
    def queued(self) -> int:
        """Requests that are at no instance yet."""

    @property
    def live(self) -> LiveScaling:
        """Instances that work while they load."""

    def kv_senders(self) -> Collection[int]:
        """The instances that send KV now, for another instance to decode with."""

    def feed(self, actions: list[Action]) -> None:
        """A live instance has changed: idle instances begin what can run now."""

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Why the request is rejected; None: it is admitted."""

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """A request was admitted."""

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """An instance has reported: its engine handles the report. Finished requests are still known."""

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV or activations have arrived; returns the instance that sent KV and may now be empty, if any."""

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """An instance takes requests from now on, for the first time or again."""

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """An instance that exists from the start has its parameters, unless it was lost meanwhile."""

    def leave(self, replica: int, actions: list[Action]) -> None:
        """An instance takes no new requests from now on, and finishes those it has."""

    def outstanding(self, replica: int) -> int:
        """Number of an instance's requests, including those in transfer to or from it."""

    def held(self, replica: int) -> list[int]:
        """Requests that an instance reserves memory for and that are not attached there."""

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """An instance is lost; returns the requests that fail with it, which are still known."""
