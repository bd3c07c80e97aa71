"""Chooses stock engines that prefill or decode for requests, and tracks KV in transfer between them.

The engines' own connectors transfer the KV; this module only says from where to where (``Send``). Some
connectors fetch it once the prompt is computed, so the decode engine is chosen then. Others must know both
engines from the start (``together``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.kv.transfer_ids import TransferIds
from serving.services.stock.requests import StockEngines, StockRequest
from serving.services.stock.views import StockFleet
from serving.vocabulary.actions import Action, Preempt, Send
from serving.vocabulary.events import Sent, Streamed
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.replica import Replica, Role


@dataclass(frozen=True, slots=True)
class HandOverParts:
    """Settings. ``together``: both engines get a request at once; else the second after a token."""

    kv_bytes: KvBytes
    together: bool = False


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """A request's KV in transfer; ``positions``: number of tokens."""

    transfer: int
    source: int
    target: int
    positions: int


class StockHandOvers:
    """Hand-overs of one model. ``on_the_way``: for each request, its hand-over until its KV has arrived.

    ``done``: number of completed transfers.
    """

    __slots__ = ("_fleet", "_ids", "_parts", "_request_of", "_roles", "_stock", "done", "on_the_way")

    def __init__(
        self,
        parts: HandOverParts,
        replicas: Sequence[Replica],
        fleet: StockFleet,
        stock: StockEngines,
        ids: TransferIds,
    ) -> None:
        self._parts, self._fleet, self._stock, self._ids = parts, fleet, stock, ids
        self._roles: dict[int, Role] = {replica.id: replica.role for replica in replicas}
        self.on_the_way: dict[int, OnTheWay] = {}
        self._request_of: dict[int, int] = {}
        self.done = 0

    @property
    def together(self) -> bool:
        """Whether both engines get a request at once."""
        return self._parts.together

    def prefills(self, replica: int) -> bool:
        """Whether the engine's role is prefill."""
        return self._roles[replica] == "prefill"

    def _alive(self, prefills: bool) -> list[int]:
        return [replica for replica in self._fleet.alive() if self.prefills(replica) is prefills]

    def serves(self) -> bool:
        """Whether an engine of each role is left."""
        return bool(self._alive(True) and self._alive(False))

    def prefill(self) -> tuple[int, str]:
        """The prefill engine with the fewest tokens waiting to be computed, and the reason."""
        replica, tokens = self._best(self._alive(True), self._backlog_tokens)
        return replica, f"{tokens} tokens wait there, the fewest"

    def _best(self, replicas: Sequence[int], key: Callable[[int], int]) -> tuple[int, int]:
        """The engine with the least key; ties: fewest requests, then lowest id. Returns it and its key."""
        least = min(
            [(key(replica), self._fleet.load(replica, "outstanding"), replica) for replica in replicas]
        )
        return least[2], least[0]

    def _backlog_tokens(self, replica: int) -> int:
        tokens = self._stock.by_replica[replica].waiting_tokens
        if self.together:  # those requests are already counted at the decode engine
            tokens += sum(
                [hand_over.positions for hand_over in self.on_the_way.values() if hand_over.source == replica]
            )
        return tokens

    def _full_blocks(self, replica: int) -> int:
        """Blocks that waiting requests need minus free blocks; lower is better."""
        report = self._stock.by_replica[replica].report()
        return -(-report.waiting_tokens // report.block_tokens) - report.free_blocks

    def begin(self, stock_request: StockRequest, actions: list[Action]) -> None:
        """Send a request's KV from its engine to the decode engine with the most room."""
        source, request = stock_request.replica, stock_request.request
        target, full = self._best(self._alive(False), self._full_blocks)
        self._stock.take(request.id)
        self._fleet.departed(source, request)
        # The token that the prefill produced has no KV yet.
        positions = stock_request.known_tokens - (not self.together)
        transfer = self._ids.begin(request.model)
        self.on_the_way[request.id] = OnTheWay(transfer, source, target, positions)
        self._request_of[transfer] = request.id
        self._fleet.assigned(target, request)
        self._stock.send(stock_request, target)
        size_bytes = self._parts.kv_bytes.of(positions)
        reason = f"{-full} KV blocks are free there, the most"
        actions.append(
            Send(
                transfer,
                "kv",
                requests=(request.id,),
                source=source,
                target=target,
                size_bytes=size_bytes,
                reason=reason,
            )
        )

    def streamed(self, event: Streamed, actions: list[Action]) -> None:
        """Begin the transfer of unfinished requests whose prompt a prefill engine has computed."""
        if not self.prefills(event.replica):
            return
        for request, tokens in event.tokens:
            if tokens and request not in event.finished:
                self.begin(self._stock.requests[request], actions)

    def sent(self, event: Sent) -> None:
        """A transfer has ended. A failed one is also reported as dropped or lost, unless it was given up."""
        request = self._request_of.pop(event.transfer)
        hand_over = self.on_the_way.get(request)
        if hand_over is not None and hand_over.transfer == event.transfer and not event.cause:
            del self.on_the_way[request]
            self.done += 1

    def stranded(self) -> list[int]:
        """Requests at prefill engines if no decode engine is left."""
        if self._alive(False):
            return []
        return [request for request, at in self._stock.requests.items() if self.prefills(at.replica)]

    def forget(self, request: int) -> None:
        """Forget a request that leaves the engine waiting for its KV."""
        self.on_the_way.pop(request, None)

    def cut_off(self, replica: int, cause: str, actions: list[Action]) -> list[int]:
        """Requests whose KV was in transfer from a lost engine; they are ended at their decode engines."""
        hand_overs = [
            (request, hand_over)
            for request, hand_over in self.on_the_way.items()
            if hand_over.source == replica
        ]
        for request, hand_over in hand_overs:
            actions.append(Preempt(hand_over.target, request, f"the server with its KV is lost ({cause})"))
        return [request for request, _ in hand_overs]
