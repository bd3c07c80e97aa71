"""A colocated model whose running requests migrate between its instances."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from serving.engine import boundary
from serving.engine.engine import Engine
from serving.engine.fleet import Fleet
from serving.engine.memory_watch import MemoryWatch
from serving.engine.progress import EngineState
from serving.kv.migration import Migrations
from serving.kv.migration_rules import MigrationRules
from serving.kv.migration_stage import engaged
from serving.kv.moves import Moves
from serving.kv.pieces import Pieces
from serving.kv.transfer_ids import TransferIds
from serving.live.scaling import LiveScaling
from serving.protocols.load_report import LoadReport
from serving.protocols.migration import AMPLE, Migrator, Pair, ample_blocks, chosen_request, paired
from serving.services.colocated.service import Colocated
from serving.services.colocated.victim_moves import VictimMoves, VictimParts
from serving.services.decoding_view import Decoding
from serving.services.rounds import Rounds
from serving.vocabulary.abort import AbortState
from serving.vocabulary.actions import Action
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request, demand_tokens

# The view of a model's instances for a policy that pairs them for migration.


class Instances:
    """The view of a policy that pairs instances (``serving.protocols.migration.InstancesView``)."""

    __slots__ = (
        "_engines", "_fleet", "_into_loading", "_migrations", "_period_ns", "_present", "_reader",
        "_requests", "head_tokens", "memory_watch", "model", "nearly_full",
    )  # fmt: skip

    def __init__(
        self,
        *,
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
    def scheduler_lost(self) -> bool:
        """Whether the global scheduler, which pairs instances, has failed."""
        return self._present.scheduler_lost

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
        engines = [engine for engine in self._engines.values() if engine.state is EngineState.LOADING]
        return sorted([engine.id for engine in engines if engine.replica.model == self.model])

    @property
    def leaving(self) -> Sequence[int]:
        """Instances that take no requests and still have some, ascending."""
        fleet = self._fleet
        if len(fleet.members) == fleet.replicas:
            return ()
        return sorted(
            [member for member in fleet.members if member not in fleet and fleet.load(member, "outstanding")]
        )

    def quiet_until_ns(self) -> int:
        """Until then no instance is short of memory, if nothing happens; 0: unknown."""
        watch, fleet = self.memory_watch, self._fleet
        return 0 if watch is None or len(fleet.members) != fleet.replicas else watch.until_ns()

    def short(self) -> Sequence[int]:
        """Instances that may have too few free blocks; all instances if memory is not watched."""
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
        """The instance's load by the signal that dispatchers use."""
        return self._fleet.load(replica, signal)

    def report(self, replica: int) -> LoadReport | None:
        """The instance's last load report; None if it takes no requests any more."""
        return self._fleet.report(replica)

    def free_blocks(self, replica: int) -> int | None:
        """Free blocks that no request waits for, by its last load report; None: no policy reads reports."""
        report = None if self._fleet.reports is None else self._fleet.report(replica)
        if report is None:
            return None
        waiting = -(-report.waiting_tokens // report.block_tokens)
        return report.free_blocks - report.watermark_blocks - waiting

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """For each request that runs on the replica: tokens of its prompt and of its expected output."""
        running = sorted(self._engines[replica].running)
        requests = [self._requests[request] for request in running if request in self._requests]
        own = self._fleet.sequence_tokens
        return {request.id: demand_tokens(request) + own for request in requests}

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of the requests that run there."""
        running = self._engines[replica].running
        return sum([self._requests[id].prompt_tokens for id in running if id in self._requests])

    def kv_tokens(self, replica: int) -> int:
        """KV positions that its memory holds."""
        ledger = self._engines[replica].ledger
        return ledger.total_blocks * ledger.block_tokens

    def engaged(self, replica: int) -> bool:
        """Whether a migration from or to it is under way."""
        return engaged(self._migrations.of_replica, replica)


class Migrating:
    """Wraps the colocated service ``inner``: pairs its instances and migrates its running requests."""

    __slots__ = (
        "_engines", "_memory_watch", "_migrator", "_requests", "_victims", "_view", "inner",
        "migrations", "rounds",
    )  # fmt: skip

    def __init__(
        self,
        inner: Colocated,
        *,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        migrator: Migrator,
        rules: MigrationRules,
        transfer_ids: TransferIds,
        present: Present,
        period_ns: int,
        victims: VictimParts | None = None,
    ) -> None:
        """``period_ns``: between two rounds. ``victims``: set to migrate requests instead of preempting."""
        assert not inner.live.enabled, "instances that work while they load do not migrate requests"
        self.inner, self._engines, self._requests, self._migrator = inner, engines, requests, migrator
        moves = Moves(engines, Pieces(engines, rules.kv_bytes), transfer_ids)
        self.migrations = Migrations(engines, moves, rules, present, self)
        self._view = Instances(
            fleet=inner.fleet,
            engines=engines,
            requests=requests,
            migrations=self.migrations,
            present=present,
            period_ns=period_ns,
            into_loading=rules.into_loading,
        )
        self._memory_watch: MemoryWatch | None = None
        if inner.fleet.reports is not None and hasattr(migrator, AMPLE.method):
            self._memory_watch = self._view.memory_watch = inner.fleet.reports.watch(self._ample_blocks)
        self.rounds: Rounds | None = None  # set if rounds without effect are skipped
        self._victims: VictimMoves | None = None
        if victims is not None:
            self._victims = VictimMoves(
                victims.migrator,
                reserve_blocks=victims.reserve_blocks[inner.model],
                pairs=self._pairs_of,
                migrations=self.migrations,
                present=present,
                period_ns=period_ns,
            )

    def look(self, actions: list[Action]) -> None:
        """A period has ended: the pairs of instances that the policy chooses begin to migrate."""
        for pair in paired(self._migrator, self._view):
            if self._victims is not None:
                self._victims.forget(pair.source)
            self.migrations.begin(pair, actions)

    def quiet_until_ns(self) -> int:
        """Until then no instances are paired, if nothing happens; 0: unknown."""
        return self._view.quiet_until_ns()

    def _rouse(self, actions: list[Action]) -> None:
        """Ask for the next round if an event may bring it forward."""
        watch = self._memory_watch
        if watch is not None and watch.news and self.rounds is not None:
            watch.news = False
            self.rounds.rouse(self._view.quiet_until_ns(), actions)

    def _ample_blocks(self, report: LoadReport) -> int:
        return ample_blocks(self._migrator, report)

    def _pairs_of(self, migrator: Migrator, full: int) -> Sequence[Pair]:
        """The pairs that a policy chooses for an instance whose memory is nearly full.

        None while the global scheduler is lost, which alone knows the load of the other instances.
        """
        if self._view.scheduler_lost:
            return ()
        self._view.nearly_full = (full,)
        pairs = paired(migrator, self._view)
        self._view.nearly_full = ()
        return pairs

    def choose(self, source: int, destination: int) -> tuple[int, str] | None:
        """The migrator's choice of a request that leaves the source, and why; None: no request."""
        view = Decoding(self._engines[source], destination, self._requests, self.inner.fleet.report)
        own = None if self._victims is None else self._victims.take_migrator(source)
        if self._view.scheduler_lost:
            return None  # the instances were paired before, and no migration begins now
        return chosen_request(self._migrator if own is None else own, view)

    def keep(self, request: int, destination: int) -> bool:
        """Return True: the engine reserves blocks, and nothing else is needed."""
        return True

    def drop(self, request: int, destination: int) -> None:
        """Do nothing: ``keep`` has reserved no room."""

    def handed_over(self, request: int, source: int, destination: int) -> None:
        """Count the request on the destination instead of the source."""
        self.inner.fleet.departed(source, self._requests[request])
        self.inner.fleet.assigned(destination, self._requests[request])

    # Migrations.

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Handle an instance's report; a halted instance continues after its migration was handled."""
        inner, migrations = self.inner, self.migrations
        if engine.id not in migrations.of_replica:
            inner.ran(engine, event, actions)
            if self._victims is not None:
                self._victims.look(engine, actions)
            if self._memory_watch is not None and self._memory_watch.news:
                self._rouse(actions)
            return
        halted, reports = engine.halts and not event.running, inner.fleet.reports
        migration = migrations.of_replica[engine.id]
        before, ends = (migration.phase, migration.stages), (migration.source, migration.destination)
        self._settle(ends)
        inner.ran(engine, event, actions)
        migrations.ran(engine, event, actions)
        if halted:
            boundary.go_on(engine, actions)
            if reports is not None:
                reports.look(engine.id, bool(event.finished), event.steps)
        migrations.chose(engine, actions)
        if (migration.phase, migration.stages) != before:  # otherwise nothing has changed at the other end
            self._look_at(ends)
        self._rouse(actions)

    def _with_partner(self, replica: int) -> Iterable[int]:
        """The instance and, if it is migrating, the other end of its migration."""
        migration = self.migrations.of_replica.get(replica)
        return (replica,) if migration is None else (migration.source, migration.destination)

    def _look_at(self, replicas: Iterable[int]) -> None:
        """Report requests that have come to these instances, have left, or may begin now."""
        reports = self.inner.fleet.reports
        if reports is not None:
            for replica in replicas:
                reports.moved(replica)

    def _settle(self, replicas: Iterable[int]) -> None:
        """Settle the load reports of instances before their engines change."""
        reports = self.inner.fleet.reports
        if reports is not None:
            for replica in replicas:
                reports.settle(replica)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV of a migration, or KV of first layers, has arrived."""
        if event.transfer in self.migrations.moves:
            ends = self.migrations.moves.ends(event.transfer)
            self._settle(ends)
            source = self.migrations.sent(event, actions)
            self._look_at(ends)
            self._rouse(actions)
            return source
        return self.inner.sent(event, actions)

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire an instance: migrations to it stop, migrations from it continue."""
        ends = self._with_partner(replica)
        self._settle(ends)
        self.migrations.left(replica, actions)
        self.inner.leave(replica, actions)
        self._look_at(ends)
        self._rouse(actions)

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Handle the loss of an instance."""
        ends = self._with_partner(engine.id)
        self._settle(ends)
        self.migrations.lost(engine.id, actions)
        failed = self.inner.lose(engine, cause, actions)
        self._look_at(ends)
        self._rouse(actions)
        return failed

    def abort(self, request: Request, rank: float, actions: list[Action]) -> AbortState:
        """Let a request go; in its migration's last stage, when that is over."""
        return self.inner.abort(request, rank, actions)

    def let_go(self, requests: Sequence[int], rank: float, actions: list[Action]) -> None:
        """End migrations of these requests; others use what is free now."""
        for request in requests:
            self.migrations.client_left(request, rank, actions)
        self.inner.let_go(requests, rank, actions)
        self._rouse(actions)

    def outstanding(self, replica: int) -> int:
        """Number of its requests, including those migrating to it; at least one during a migration."""
        outstanding = self.inner.outstanding(replica) + len(self.migrations.moves.requests_to(replica))
        return outstanding or int(replica in self.migrations.of_replica)

    def held(self, replica: int) -> list[int]:
        """Requests that the instance reserves memory for."""
        return [*self.inner.held(replica), *self.migrations.moves.requests_to(replica)]

    def kv_senders(self) -> Collection[int]:
        """The instances that send KV now."""
        return self.migrations.moves.senders()

    # Delegated to the inner service.

    @property
    def model(self) -> str:
        """The model of these requests."""
        return self.inner.model

    @property
    def longest_request_tokens(self) -> int:
        """The longest request that existing or future instances hold."""
        return self.inner.longest_request_tokens

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        return self.inner.backlog_tokens

    @property
    def kv_tokens(self) -> int:
        """The most tokens that the requests at instances may have."""
        return self.inner.kv_tokens

    @property
    def migrating_tokens(self) -> int:
        """KV tokens of first layers in transfer; migrating KV is counted at its request's instance."""
        return self.inner.migrating_tokens

    @property
    def queued(self) -> int:
        """Requests that are at no instance yet."""
        return self.inner.queued

    @property
    def live(self) -> LiveScaling:
        """The inner service's live scaling: no instance works while it loads."""
        return self.inner.live

    def feed(self, actions: list[Action]) -> None:
        """Give idle instances work, then request a round if instances may be paired now."""
        self.inner.feed(actions)
        self._rouse(actions)

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Why the inner service refuses the request; None: it accepts it."""
        return self.inner.refusal(now_ns, request)

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Let the inner service take the request."""
        self.inner.arrived(request, actions)
        if self._memory_watch is not None and self._memory_watch.news:
            self._rouse(actions)

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let an instance take requests; migrations to it that began while it loaded continue."""
        self.inner.join(replica, role, actions)
        self.migrations.joined(replica.id, actions)
        self._rouse(actions)

    def load_stopped(self, replica: int, actions: list[Action]) -> None:
        """Stop migrations to an instance whose load has stopped."""
        self.migrations.left(replica, actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Let the inner service use an instance that has started."""
        self.inner.started(engine, actions)
        self._rouse(actions)
