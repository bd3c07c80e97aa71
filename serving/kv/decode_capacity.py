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
    """kv_bytes_per_token: of the model on all ranks together. max_num_seqs: that decode on one instance."""

    kv_bytes_per_token: int
    max_num_seqs: int


class DecodeCapacity:
    """Eligible decode targets, by demand: tokens that room is kept for. Each receives one batch at a time.

    An instance that keeps room for ``max_num_seqs`` requests is no target. Blocks are another book: KvLedger.
    """

    __slots__ = (
        "_block_tokens", "_eligible_count", "_open", "capacities_tokens", "demands", "max_num_seqs",
        "needs", "receiving", "reserved_requests",
    )  # fmt: skip

    def __init__(self, rules: HandOverRules, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.max_num_seqs = rules.max_num_seqs
        self._open = LeastIndex({})  # eligible targets now, by demand
        self._eligible_count = 0  # how many those are
        self.receiving: set[int] = set()  # instances that a batch is on its way to
        self.capacities_tokens: dict[int, int] = {}  # of each decode instance that takes requests, in tokens
        self.demands: dict[int, int] = {}  # decode instance -> tokens that room is kept for
        self.reserved_requests: dict[int, int] = {}  # decode instance -> requests that room is kept for
        self.needs: dict[int, int] = {}  # request -> tokens of room, from when its prompt is computed

    def open(self, replica: int, capacity_tokens: int) -> None:
        """A decode instance with so many tokens of memory takes requests from now on."""
        self.capacities_tokens[replica] = capacity_tokens
        self.demands.setdefault(replica, 0)
        self.reserved_requests.setdefault(replica, 0)
        self._add_target(replica)

    def close(self, replica: int) -> None:
        """It is no target any more; what is on its way still comes."""
        self._remove_target(replica)
        self.capacities_tokens.pop(replica, None)

    def need_tokens(self, request: Request, capacity_tokens: int) -> int:
        """Room that a request takes: prompt and reserved output.

        Whole blocks, for the last one is not shared: else the memory may be short of what was kept.
        """
        block = self._block_tokens
        tokens = request.prompt_tokens + (request.reserved_tokens or request.max_new_tokens)
        need = -(-tokens // block) * block
        return need if need < capacity_tokens else capacity_tokens

    def fits(self, replica: int, capacity_tokens: int, tokens: int = 0, requests: int = 0) -> bool:
        """Whether its memory and ``max_num_seqs`` are enough for all that it keeps room for and so many more.

        An instance that turned to decoding may keep more than it has.
        """
        if self.reserved_requests.get(replica, 0) + requests > self.max_num_seqs:
            return False
        return self.demands.get(replica, 0) + tokens <= capacity_tokens

    def least(self) -> tuple[int, int] | None:
        """(instance, demand) of the eligible target of least demand; None without one."""
        return self._open.least() if self._eligible_count else None

    def fitting_batch(
        self, waiting: Sequence[Progress], target: Engine, demand: int, pieces: Pieces
    ) -> tuple[list[Progress], int]:
        """The head of the queue, as far as the target's memory and ``max_num_seqs`` allow; the demand."""
        ledger, needs, split = target.ledger, self.needs, len(pieces) > 0
        capacity_tokens, free_requests = (
            self.capacities_tokens[target.id],
            self.max_num_seqs - self.reserved_requests[target.id],
        )
        # What the step under way takes is counted too: room may be kept for less than is written.
        blocks, block = ledger.free_blocks - ledger.step_blocks(), ledger.block_tokens
        if split:
            capacity_tokens -= block * pieces.held_blocks(target.id)
        batch: list[Progress] = []
        for progress in waiting:
            need = needs[progress.id]
            blocks -= -(-progress.known_tokens // block)
            forced = False
            if split and pieces.has_one(progress.id, target.id):
                held = ledger.held_blocks(progress.id)
                blocks, capacity_tokens = blocks + held, capacity_tokens + block * held
                # Where no request decodes none will make room: waiting would never end.
                forced = not (batch or target.running or target.attached)
            if (demand + need > capacity_tokens or blocks < 0 or len(batch) >= free_requests) and not forced:
                break
            demand += need
            batch.append(progress)
        return batch, demand

    def begin_batch(self, replica: int, demand: int, requests: int) -> None:
        """A batch of so many requests is on its way to it, with which it has this demand."""
        self._remove_target(replica)
        self.demands[replica] = demand
        self.reserved_requests[replica] += requests
        self.receiving.add(replica)

    def end_batch(self, replica: int) -> None:
        """The batch has come, or will not: the next may be sent."""
        self.receiving.discard(replica)
        self._add_target(replica)

    def change(self, replica: int, tokens: int, requests: int) -> None:
        """Room for so many requests and tokens more is kept there, for less if negative."""
        demands, reserved_requests = self.demands, self.reserved_requests
        before, taken, most = demands[replica], reserved_requests[replica], self.max_num_seqs
        if taken < most and taken + requests < most:
            demands[replica], reserved_requests[replica] = before + tokens, taken + requests
            if replica in self.capacities_tokens and replica not in self.receiving:
                self._open.move(replica, before, before + tokens)
            return
        self._remove_target(replica)
        demands[replica], reserved_requests[replica] = before + tokens, taken + requests
        self._add_target(replica)

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
        self.reserved_requests.pop(replica, None)

    def _eligible(self, replica: int) -> bool:
        if replica not in self.capacities_tokens or replica in self.receiving:
            return False
        return self.reserved_requests[replica] < self.max_num_seqs

    def _add_target(self, replica: int) -> None:
        """After a change: it is among the eligible targets if it is one now."""
        if self._eligible(replica):
            self._open.add(replica, self.demands[replica])
            self._eligible_count += 1

    def _remove_target(self, replica: int) -> None:
        """Before a change."""
        if self._eligible(replica):
            self._open.remove(replica, self.demands[replica])
            self._eligible_count -= 1
