"""The view of a model's decode instances for a policy that pairs them for migration."""

from collections.abc import Mapping, Sequence
from typing import Literal

from serving.engine.engine import Engine
from serving.kv.handover import HandOvers
from serving.kv.migration import Migrations
from serving.protocols.load_report import LoadReport
from serving.services.disaggregated.service import Disaggregated
from serving.vocabulary.present import Present


class DecodeInstances:
    """The view of a policy that pairs instances (``serving.protocols.migration.InstancesView``).

    Loads and reports are computed from the room that hand-overs reserve, which is always known; instances
    send no reports.
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
        """The current time."""
        return self._present.now_ns

    @property
    def round(self) -> int:
        """Number of periods that have ended."""
        return self._present.now_ns // self._period_ns

    @property
    def head_tokens(self) -> int:
        """Room that the first completed prompt waiting for room takes; 0: none waits."""
        return self._hand_overs.head_need()

    @property
    def taking(self) -> Sequence[int]:
        """Decode instances that take requests, ascending."""
        return sorted(self._decode)

    @property
    def leaving(self) -> Sequence[int]:
        """Instances that take no requests and still have some, ascending."""
        taken = self._hand_overs.reserved_requests
        return sorted([one for one, requests in taken.items() if requests and one not in self._decode])

    def short(self) -> Sequence[int]:
        """All instances: there are no reports to exclude any."""
        return self.taking

    def newly_reported(self) -> Sequence[int]:
        """All instances, as for ``short``."""
        return self.taking

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """Requests, or tokens, for which room is reserved there."""
        books = self._hand_overs
        return (books.reserved_requests if signal == "outstanding" else books.demands)[replica]

    def report(self, replica: int) -> LoadReport | None:
        """Make a report from the reserved room, as of now.

        The first waiting hand-over counts at its destination: the instance with the least demand.
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
        """Room that is not reserved, in blocks."""
        report = self.report(replica)
        return None if report is None else report.free_blocks

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """Room reserved for each request that is there, ascending."""
        engine, need_of = self._engines[replica], self._hand_overs.need_of
        here = {*engine.running, *[one.id for one in engine.attached]}.difference(engine.ended)
        return {request: need_of(request) for request in sorted(here)}

    def kv_tokens(self, replica: int) -> int:
        """Tokens of one request that it can hold."""
        return self._engines[replica].replica.longest_request_tokens

    def engaged(self, replica: int) -> bool:
        """Whether it is in a migration, or switched to decode and still has its own prompts to hand over."""
        engine = self._engines[replica]
        if replica in self._migrations.of_replica or engine.outgoing:
            return True
        return engine.handing_over and engine.handing_over_tokens() > 0
