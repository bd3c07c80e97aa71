"""The room that decode instances of one model keep for requests whose KV comes to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from serving.engine.least_index import LeastIndex
from serving.vocabulary.fact import fact

if TYPE_CHECKING:
    from serving.engine.engine import Engine
    from serving.engine.progress import Progress
    from serving.kv.pieces import Pieces
    from serving.vocabulary.request import Request


@fact
class HandOverRules:
    """kv_bytes_per_token: of the model on all ranks together. most_requests: that decode on one instance."""

    kv_bytes_per_token: int
    most_requests: int


class DecodeRoom:
    """Eligible decode targets, by demand: tokens that room is kept for. Each receives one batch at a time.

    A request takes tokens and one of ``most_requests`` seats. Without a free seat an instance is no target.
    """

    __slots__ = (
        "_block_tokens", "_listed", "_open", "demands", "most_requests", "needs", "receiving", "rooms",
        "seats",
    )  # fmt: skip

    def __init__(self, rules: HandOverRules, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.most_requests = rules.most_requests
        self._open = LeastIndex({})  # eligible targets now, by demand
        self._listed = 0  # how many those are
        self.receiving: set[int] = set()  # instances that a batch is on its way to
        self.rooms: dict[int, int] = {}  # of each decode instance that takes requests, in tokens
        self.demands: dict[int, int] = {}  # decode instance -> tokens that room is kept for
        self.seats: dict[int, int] = {}  # decode instance -> requests that room is kept for
        self.needs: dict[int, int] = {}  # request -> tokens of room, from when its prompt is computed

    def open(self, replica: int, room: int) -> None:
        """A decode instance with so many tokens of memory takes requests from now on."""
        self.rooms[replica] = room
        self.demands.setdefault(replica, 0)
        self.seats.setdefault(replica, 0)
        self._list(replica)

    def close(self, replica: int) -> None:
        """It is no target any more; what is on its way still comes."""
        self._unlist(replica)
        self.rooms.pop(replica, None)

    def need_tokens(self, request: Request, room: int) -> int:
        """Room that a request takes: prompt and reserved output.

        Whole blocks, for the last one is not shared: else the memory may be short of what was kept.
        """
        block = self._block_tokens
        tokens = request.prompt_tokens + (request.reserved_tokens or request.max_new_tokens)
        need = -(-tokens // block) * block
        return need if need < room else room

    def fits(self, replica: int, room: int, tokens: int = 0, requests: int = 0) -> bool:
        """Whether it has memory and seats for all that it keeps room for, and for so many more.

        An instance that turned to decoding may keep more than it has.
        """
        if self.seats.get(replica, 0) + requests > self.most_requests:
            return False
        return self.demands.get(replica, 0) + tokens <= room

    def least(self) -> tuple[int, int] | None:
        """(instance, demand) of the eligible target of least demand; None without one."""
        return self._open.least() if self._listed else None

    def fitting_batch(
        self, waiting: Sequence[Progress], target: Engine, demand: int, pieces: Pieces
    ) -> tuple[list[Progress], int]:
        """The head of the queue, as far as the target has seats and memory for it; its demand with that."""
        ledger, needs, split = target.ledger, self.needs, len(pieces) > 0
        room, seats = self.rooms[target.id], self.most_requests - self.seats[target.id]
        # What the step under way takes is counted too: room may be kept for less than is written.
        blocks, block = ledger.free_blocks - ledger.step_blocks(), ledger.block_tokens
        if split:
            room -= block * pieces.held_blocks(target.id)
        batch: list[Progress] = []
        for progress in waiting:
            need = needs[progress.id]
            blocks -= -(-progress.known_tokens // block)
            forced = False
            if split and pieces.has_one(progress.id, target.id):
                held = ledger.held_blocks(progress.id)
                blocks, room = blocks + held, room + block * held
                # Where no request decodes none will make room: waiting would never end.
                forced = not (batch or target.running or target.adopted)
            if (demand + need > room or blocks < 0 or len(batch) >= seats) and not forced:
                break
            demand += need
            batch.append(progress)
        return batch, demand

    def begin_batch(self, replica: int, demand: int, requests: int) -> None:
        """A batch of so many requests is on its way to it, with which it has this demand."""
        self._unlist(replica)
        self.demands[replica] = demand
        self.seats[replica] += requests
        self.receiving.add(replica)

    def end_batch(self, replica: int) -> None:
        """The batch has come, or will not: the next may be sent."""
        self.receiving.discard(replica)
        self._list(replica)

    def change(self, replica: int, tokens: int, requests: int) -> None:
        """Room for so many requests and tokens more is kept there, for less if negative."""
        demands, seats = self.demands, self.seats
        before, taken, most = demands[replica], seats[replica], self.most_requests
        if taken < most and taken + requests < most:
            demands[replica], seats[replica] = before + tokens, taken + requests
            if replica in self.rooms and replica not in self.receiving:
                self._open.move(replica, before, before + tokens)
            return
        self._unlist(replica)
        demands[replica], seats[replica] = before + tokens, taken + requests
        self._list(replica)

    def departed(self, replica: int, request: int) -> int:
        """A request left a decode instance; returns the tokens it needed."""
        need = self.needs.pop(request)
        self.change(replica, -need, -1)
        return need

    def forget(self, requests: Iterable[int]) -> int:
        """These requests need no room any more, and none is kept; returns the tokens they needed."""
        return sum([self.needs.pop(request) for request in requests])

    def lost(self, replica: int) -> None:
        """A closed instance is gone."""
        self.receiving.discard(replica)
        self.demands.pop(replica, None)
        self.seats.pop(replica, None)

    def _eligible(self, replica: int) -> bool:
        if replica not in self.rooms or replica in self.receiving:
            return False
        return self.seats[replica] < self.most_requests

    def _list(self, replica: int) -> None:
        """After a change: it is among the eligible targets if it is one now."""
        if self._eligible(replica):
            self._open.add(replica, self.demands[replica])
            self._listed += 1

    def _unlist(self, replica: int) -> None:
        """Before a change."""
        if self._eligible(replica):
            self._open.remove(replica, self.demands[replica])
            self._listed -= 1
