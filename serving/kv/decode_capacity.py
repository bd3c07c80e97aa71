"""The room that decode instances of one model reserve for requests whose KV is sent to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from serving.engine.least_index import LeastIndex
from serving.vocabulary.fact import fact
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.request import demand_tokens

if TYPE_CHECKING:
    from serving.engine.engine import Engine
    from serving.engine.progress import Progress
    from serving.kv.pieces import Pieces
    from serving.vocabulary.request import Request


@fact
class HandOverRules:
    """Hand-over limits. max_num_seqs: decoding on one instance."""

    kv_bytes: KvBytes
    max_num_seqs: int


class DecodeCapacity:
    """Decode targets by demand: tokens of reserved room. Each receives one batch at a time.

    An instance with room reserved for ``max_num_seqs`` requests is no target. Blocks are counted apart:
    KvLedger.
    """

    __slots__ = (
        "_block_tokens", "_eligible_count", "_open", "_sequence_tokens", "capacities_tokens", "demands",
        "max_num_seqs", "needs", "receiving", "reserved_requests",
    )  # fmt: skip

    def __init__(self, rules: HandOverRules, block_tokens: int, sequence_blocks: int = 0) -> None:
        self._block_tokens = block_tokens
        self._sequence_tokens = sequence_blocks * block_tokens
        self.max_num_seqs = rules.max_num_seqs
        self._open = LeastIndex({})  # eligible targets now, by demand
        self._eligible_count = 0  # their number
        self.receiving: set[int] = set()  # instances with a batch in transfer to them
        self.capacities_tokens: dict[int, int] = {}  # of each decode instance that takes requests, in tokens
        self.demands: dict[int, int] = {}  # decode instance -> tokens of reserved room
        self.reserved_requests: dict[int, int] = {}  # decode instance -> requests with reserved room
        self.needs: dict[int, int] = {}  # request -> tokens of room, from when its prompt is computed

    def open(self, replica: int, capacity_tokens: int) -> None:
        """Let a decode instance with this many tokens of memory take requests from now on."""
        self.capacities_tokens[replica] = capacity_tokens
        self.demands.setdefault(replica, 0)
        self.reserved_requests.setdefault(replica, 0)
        self._add_target(replica)

    def close(self, replica: int) -> None:
        """Stop using an instance as a target; KV in transfer to it still arrives."""
        self._remove_target(replica)
        self.capacities_tokens.pop(replica, None)

    def need_tokens(self, request: Request, capacity_tokens: int) -> int:
        """Room that a request takes: prompt and reserved output, and the sequence's own blocks.

        In whole blocks, since requests do not share their last block; otherwise memory could run out.
        """
        block = self._block_tokens
        tokens = demand_tokens(request)
        need = -(-tokens // block) * block + self._sequence_tokens
        return need if need < capacity_tokens else capacity_tokens

    def fits(self, replica: int, capacity_tokens: int, tokens: int = 0, requests: int = 0) -> bool:
        """Whether memory and ``max_num_seqs`` suffice for the reserved room and this much more.

        An instance that switched to decode may have reserved more than it has.
        """
        if self.reserved_requests.get(replica, 0) + requests > self.max_num_seqs:
            return False
        return self.demands.get(replica, 0) + tokens <= capacity_tokens

    def least(self) -> tuple[int, int] | None:
        """(instance, demand) of the eligible target of least demand; None: there is none."""
        return self._open.least() if self._eligible_count else None

    def fitting_batch(
        self, waiting: Sequence[Progress], target: Engine, demand: int, pieces: Pieces
    ) -> tuple[list[Progress], int]:
        """The head of the queue that fits the target's memory and ``max_num_seqs``; the new demand."""
        ledger, needs, split = target.ledger, self.needs, len(pieces) > 0
        capacity_tokens, free_requests = (
            self.capacities_tokens[target.id],
            self.max_num_seqs - self.reserved_requests[target.id],
        )
        # The blocks of the current step count too: less room may be reserved than is written.
        blocks, block = ledger.free_blocks - ledger.step_blocks(), ledger.block_tokens
        if split:
            capacity_tokens -= block * pieces.held_blocks(target.id)
        batch: list[Progress] = []
        for progress in waiting:
            need = needs[progress.id]
            blocks -= ledger.blocks_for(progress.known_tokens)
            forced = False
            if split and pieces.has_one(progress.id, target.id):
                held = ledger.held_blocks(progress.id)
                blocks, capacity_tokens = blocks + held, capacity_tokens + block * held
                # If no request decodes, none will free room: waiting would never end.
                forced = not (batch or target.running or target.attached)
            if (demand + need > capacity_tokens or blocks < 0 or len(batch) >= free_requests) and not forced:
                break
            demand += need
            batch.append(progress)
        return batch, demand

    def begin_batch(self, replica: int, demand: int, requests: int) -> None:
        """A batch of this many requests is sent to the instance, which then has this demand."""
        self._remove_target(replica)
        self.demands[replica] = demand
        self.reserved_requests[replica] += requests
        self.receiving.add(replica)

    def end_batch(self, replica: int) -> None:
        """The batch has arrived or was aborted: the next one may be sent."""
        self.receiving.discard(replica)
        self._add_target(replica)

    def change(self, replica: int, tokens: int, requests: int) -> None:
        """Reserve room for this many more requests and tokens; negative: release it."""
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
        """Forget requests without reserved room; returns the tokens they needed."""
        return sum([self.needs.pop(request) for request in requests])

    def lost(self, replica: int) -> None:
        """Forget a closed instance that is lost."""
        self.receiving.discard(replica)
        self.demands.pop(replica, None)
        self.reserved_requests.pop(replica, None)

    def _eligible(self, replica: int) -> bool:
        if replica not in self.capacities_tokens or replica in self.receiving:
            return False
        return self.reserved_requests[replica] < self.max_num_seqs

    def _add_target(self, replica: int) -> None:
        """After a change: add the instance to the eligible targets if it is one now."""
        if self._eligible(replica):
            self._open.add(replica, self.demands[replica])
            self._eligible_count += 1

    def _remove_target(self, replica: int) -> None:
        """Before a change: remove the instance from the eligible targets."""
        if self._eligible(replica):
            self._open.remove(replica, self.demands[replica])
            self._eligible_count -= 1
