"""The view of a model's instances for a policy that pairs them for migration."""

from collections.abc import Mapping, Sequence
from typing import Literal

from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.memory_watch import MemoryWatch
from serving.engine.progress import EngineState
from serving.kv.migration import Migrations
from serving.kv.migration_stage import engaged
from serving.protocols.load_report import LoadReport
from serving.vocabulary.present import Present
from serving.vocabulary.request import Request, demand_tokens


class Instances:
    """The view of a policy that pairs instances (``serving.protocols.migration.InstancesView``)."""

    __slots__ = (
        "_engines", "_fleet", "_into_loading", "_migrations", "_period_ns", "_present", "_reader",
        "_requests", "head_tokens", "memory_watch", "model", "nearly_full",
    )  # fmt: skip

    def __init__(
        self,
        fleet: Fleet,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        migrations: Migrations,
        present: Present,
        period_ns: int,
        into_loading: bool = False,
    ) -> None:
        """``into_loading``: requests may migrate to instances that still load."""
        self._fleet, self._engines, self._migrations, self._present = fleet, engines, migrations, present
        self._requests, self._period_ns, self.model = requests, period_ns, fleet.model
        self.head_tokens, self._reader = 0, -1
        self._into_loading = into_loading
        self.memory_watch: MemoryWatch | None = None
        self.nearly_full: Sequence[int] = ()

    @property
    def now_ns(self) -> int:
        """The current time."""
        return self._present.now_ns

    @property
    def round(self) -> int:
        """Number of periods that have ended."""
        return self._present.now_ns // self._period_ns

    @property
    def taking(self) -> Sequence[int]:
        """Instances that take requests, ascending."""
        return self._fleet.alive()

    @property
    def loading(self) -> Sequence[int]:
        """Instances that take requests once they have their parameters, ascending."""
        if not self._into_loading:
            return ()
        found = [one for one in self._engines.values() if one.state is EngineState.LOADING]
        return sorted([one.id for one in found if one.replica.model == self.model])

    @property
    def leaving(self) -> Sequence[int]:
        """Instances that take no requests and still have some, ascending."""
        fleet = self._fleet
        if len(fleet.members) == fleet.replicas:
            return ()
        return sorted([one for one in fleet.members if one not in fleet and fleet.load(one, "outstanding")])

    def quiet_until_ns(self) -> int:
        """Until then no instance is short of memory, if nothing happens; 0: unknown."""
        watch, fleet = self.memory_watch, self._fleet
        return 0 if watch is None or len(fleet.members) != fleet.replicas else watch.until_ns()

    def short(self) -> Sequence[int]:
        """See ``LoadReports``; all instances if memory is not watched."""
        reports = self._fleet.reports
        return self._fleet.alive() if reports is None or self.memory_watch is None else reports.short()

    def newly_reported(self) -> Sequence[int]:
        """All instances at the first call, then those with a new report since the last call."""
        reports = self._fleet.reports
        assert reports is not None, "a policy that reads load reports must set reads_load_reports = True"
        if self._reader < 0:
            self._reader = reports.reader()
            return self._fleet.alive()
        return reports.changed(self._reader)

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """The instance's load, as dispatchers see it."""
        return self._fleet.load(replica, signal)

    def report(self, replica: int) -> LoadReport | None:
        """See ``Fleet``."""
        return self._fleet.report(replica)

    def free_blocks(self, replica: int) -> int | None:
        """Free blocks that no request waits for, by its last load report; None: no policy reads reports."""
        report = None if self._fleet.reports is None else self._fleet.report(replica)
        if report is None:
            return None
        waiting = -(-report.waiting_tokens // report.block_tokens)
        return report.free_blocks - report.watermark_blocks - waiting

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """By request that runs there: its prompt and the output expected of it."""
        running = sorted(self._engines[replica].running)
        found = [self._requests[one] for one in running if one in self._requests]
        return {one.id: demand_tokens(one) for one in found}

    def kv_tokens(self, replica: int) -> int:
        """KV positions that its memory holds."""
        ledger = self._engines[replica].ledger
        return ledger.total_blocks * ledger.block_tokens

    def engaged(self, replica: int) -> bool:
        """Whether a migration from or to it is under way."""
        return engaged(self._migrations.of_replica, replica)
