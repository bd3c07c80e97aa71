"""The room that decode instances of one model keep for requests whose KV comes to them."""

from collections.abc import Iterable

from serving.fact import fact
from serving.least_index import LeastIndex
from serving.request import Request


@fact
class HandOverRules:
    """kv_bytes_per_token: of the model on all ranks together. most_requests: that decode on one instance."""

    kv_bytes_per_token: int
    most_requests: int


class DecodeRoom:
    """Who may be sent to, by demand: the tokens that room is kept for. One batch at a time comes to each."""

    __slots__ = (
        "_block_tokens", "_listed", "_open", "_rules", "demands", "needs", "receiving", "rooms",
    )  # fmt: skip

    def __init__(self, rules: HandOverRules, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._rules = rules
        self._open = LeastIndex({})  # decode instances that may be sent to now, by demand
        self._listed = 0  # how many those are
        self.receiving: set[int] = set()  # those that a batch comes to
        self.rooms: dict[int, int] = {}  # of each decode instance that takes requests, in tokens
        self.demands: dict[int, int] = {}  # decode instance -> tokens that room is kept for
        self.needs: dict[int, int] = {}  # tokens of room, of everybody whose prompt is computed

    def open(self, replica: int, room: int) -> None:
        """A decode instance with so many tokens of memory takes requests from now on."""
        self.rooms[replica] = room
        self.demands.setdefault(replica, 0)
        if replica not in self.receiving:
            self._list(replica)

    def close(self, replica: int) -> None:
        """It takes no new ones; what is on its way still comes."""
        if self.rooms.pop(replica, None) is not None and replica not in self.receiving:
            self._unlist(replica)

    def need_tokens(self, request: Request, room: int) -> int:
        """Room that a request takes: prompt and reserved output, at least a seat's part of the memory.

        Whole blocks, for the last one is not shared: else the memory may be short of what was kept.
        """
        least, block = -(-room // self._rules.most_requests), self._block_tokens
        tokens = request.prompt_tokens + (request.reserved_tokens or request.max_new_tokens)
        need = -(-tokens // block) * block
        if need < least:
            need = least
        return need if need < room else room

    def fits(self, replica: int, room: int) -> bool:
        """Whether it has memory for all it keeps room for; one that turned to decoding may have kept more."""
        return self.demands.get(replica, 0) <= room

    def least(self) -> tuple[int, int] | None:
        """(instance, its demand) of the least demand of those that may be sent to now; None: nobody may."""
        return self._open.least() if self._listed else None

    def comes(self, replica: int, demand: int) -> None:
        """A batch is on its way to it, with which it has this demand."""
        self._unlist(replica)
        self.demands[replica] = demand
        self.receiving.add(replica)

    def has_come(self, replica: int) -> None:
        """The batch has come, or does not come: another may."""
        self.receiving.discard(replica)
        if replica in self.rooms:
            self._list(replica)

    def changes(self, replica: int, tokens: int) -> None:
        """Room for so many tokens more is kept there, for less if negative."""
        before = self.demands[replica]
        self.demands[replica] = before + tokens
        if replica in self.rooms and replica not in self.receiving:
            self._open.move(replica, before, before + tokens)

    def departed(self, replica: int, request: int) -> int:
        """A request left a decode instance; returns the tokens it needed."""
        need = self.needs.pop(request)
        self.changes(replica, -need)
        return need

    def forget(self, requests: Iterable[int]) -> int:
        """These need no room any more, and none is kept; returns the tokens they needed."""
        return sum([self.needs.pop(request) for request in requests])

    def lost(self, replica: int) -> None:
        """A closed instance is gone."""
        self.receiving.discard(replica)
        self.demands.pop(replica, None)

    def _list(self, replica: int) -> None:
        self._open.add(replica, self.demands[replica])
        self._listed += 1

    def _unlist(self, replica: int) -> None:
        self._open.remove(replica, self.demands[replica])
        self._listed -= 1
