"""The decode instances of a model as a policy sees them that pairs them for migration."""

from collections.abc import Mapping, Sequence
from typing import Literal

from serving.engine.engine import Engine
from serving.kv.handover import HandOvers
from serving.kv.migration import Migrations
from serving.protocols.load_report import LoadReport
from serving.services.disaggregated import Disaggregated
from serving.vocabulary.present import Present


class DecodeInstances:
    """What a policy sees when it pairs (``serving.protocols.migration.InstancesView``).

    Loads and reports are of the room that hand-overs keep, which is known at any moment; nobody reports them.
    """

    __slots__ = (
        "_decode", "_engines", "_hand_overs", "_migrations", "_period_ns", "_present", "loading", "model",
        "nearly_full",
    )  # fmt: skip

    def __init__(
        self,
        service: Disaggregated,
        engines: Mapping[int, Engine],
        migrations: Migrations,
        present: Present,
        period_ns: int,
    ) -> None:
        self.model = service.model
        self._decode: set[int] = service.decode
        self._hand_overs: HandOvers = service.hand_overs
        self._engines, self._migrations = engines, migrations
        self._present, self._period_ns = present, period_ns
        self.nearly_full: Sequence[int] = ()
        self.loading: Sequence[int] = ()

    @property
    def now_ns(self) -> int:
        """The time."""
        return self._present.now_ns

    @property
    def round(self) -> int:
        """How many periods are over."""
        return self._present.now_ns // self._period_ns

    @property
    def head_tokens(self) -> int:
        """What the first completed prompt takes that waits for room; 0: none waits."""
        return self._hand_overs.head_need()

    @property
    def taking(self) -> Sequence[int]:
        """Decode instances that take requests, ascending."""
        return sorted(self._decode)

    @property
    def leaving(self) -> Sequence[int]:
        """Those that take none and have some left, ascending."""
        taken = self._hand_overs.reserved_requests
        return sorted([one for one, requests in taken.items() if requests and one not in self._decode])

    def short(self) -> Sequence[int]:
        """All: they make no reports to tell by."""
        return self.taking

    def newly_reported(self) -> Sequence[int]:
        """As ``short``."""
        return self.taking

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """Requests, or tokens, that room is kept for there."""
        books = self._hand_overs
        return (books.reserved_requests if signal == "outstanding" else books.demands)[replica]

    def report(self, replica: int) -> LoadReport | None:
        """As if it told of that room now. The first hand-over that waits counts where it would go: with the
        least demand.
        """
        demands = self._hand_overs.demands
        if replica not in self._decode:
            return None
        ledger, engine = self._engines[replica].ledger, self._engines[replica]
        free = max(0, self.kv_tokens(replica) - demands[replica]) // ledger.block_tokens
        head = self.head_tokens if replica == min(self.taking, key=lambda one: (demands[one], one)) else 0
        preempted = len(engine.waiting)
        running = self._hand_overs.reserved_requests[replica] - preempted
        waiting = (preempted + (head > 0), preempted, head, head)
        return LoadReport(ledger.total_blocks, 0, ledger.block_tokens, free, running, *waiting)

    def free_blocks(self, replica: int) -> int | None:
        """Room that is not kept, in blocks."""
        report = self.report(replica)
        return None if report is None else report.free_blocks

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """Room that is kept for each request that is there, ascending."""
        engine, need_of = self._engines[replica], self._hand_overs.need_of
        here = {*engine.running, *[one.id for one in engine.attached]}.difference(engine.ended)
        return {request: need_of(request) for request in sorted(here)}

    def kv_tokens(self, replica: int) -> int:
        """Room that it has."""
        return self._engines[replica].replica.longest_request_tokens

    def engaged(self, replica: int) -> bool:
        """Whether it is in a migration, or has turned to decoding and has prompts of its own to keep."""
        engine = self._engines[replica]
        if replica in self._migrations.of_replica or engine.outgoing:
            return True
        return engine.handing_over and engine.handing_over_tokens() > 0
