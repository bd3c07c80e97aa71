"""What serves one model: where its requests wait and which of its instances do what."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from serving.engine.engine import Engine
from serving.kv.transfer_ids import TransferIds
from serving.live.scaling import LiveScaling
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Dropped, Observed, Ran, Sent, Streamed
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request


class Streaming(Protocol):
    """The requests of a model whose engines run by themselves, and send tokens."""

    def streamed(self, event: Streamed, actions: list[Action]) -> None:
        """Tokens came; who finished is still known."""

    def dropped(self, event: Dropped, actions: list[Action]) -> bool:
        """An engine did not answer a request; whether that fails."""

    def observed(self, event: Observed) -> None:
        """An engine told of itself."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Whose an event is: ``transfer_ids``, the model of each transfer; ``streaming``, services by model."""

    transfer_ids: TransferIds
    streaming: Mapping[str, Streaming]


class Service(Protocol):
    """The requests of one model, from their arrival to their end.

    ``backlog_tokens``: prompt tokens not computed yet; ``kv_tokens``: KV memory in use or kept for requests;
    ``migrating_tokens``: KV on its way, or waiting to go. They change at events only, so that a coalesced run
    and one step by step agree on them.
    """

    @property
    def longest_request_tokens(self) -> int:
        """Prompt + output that an instance of this model surely holds; 0 without any."""

    @property
    def backlog_tokens(self) -> int: ...

    @property
    def kv_tokens(self) -> int: ...

    @property
    def migrating_tokens(self) -> int: ...

    @property
    def queued(self) -> int:
        """Requests that no instance has yet."""

    @property
    def live(self) -> LiveScaling:
        """Instances that work while they load."""

    def kv_senders(self) -> Collection[int]:
        """The instances that KV leaves now, for another one to decode with."""

    def feed(self, actions: list[Action]) -> None:
        """Something of a live instance changed: idle instances begin what can be run now."""

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Why the request is not let in; None: it is."""

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """A request was let in."""

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """An instance reports: its engine answers, who finished is still known."""

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV or activations have come; returns the instance that gave KV and may now be empty, if any."""

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """An instance takes requests from now on, for the first time or again."""

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """An instance that is there from the start has its parameters, unless it is lost meanwhile."""

    def leave(self, replica: int, actions: list[Action]) -> None:
        """An instance takes nothing new from now on, and finishes what it has."""

    def outstanding(self, replica: int) -> int:
        """How many requests an instance has, on their way to or from it too."""

    def held(self, replica: int) -> list[int]:
        """Requests that memory is kept for at an instance and that are not attached there."""

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """An instance is gone: the requests that fail with it, which are still known."""
