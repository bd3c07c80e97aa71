"""Separate prefill and decode, with migration of decoding requests: wraps the disaggregated service.

While a request moves, room is reserved twice: at the source, and from before its first stage at the
destination. When a commit or an abort frees room, a hand-over that waits for room may begin.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from serving.engine import boundary
from serving.engine.engine import Engine
from serving.engine.progress import EngineState
from serving.kv.handover import HandOvers
from serving.kv.migration import Migrations
from serving.kv.migration_rules import MigrationPhase, MigrationRules
from serving.kv.moves import Moves
from serving.kv.pieces import Pieces
from serving.kv.transfer_ids import TransferIds
from serving.live.scaling import LiveScaling
from serving.protocols.load_report import LoadReport
from serving.protocols.migration import NEVER_NS, Migrator, chosen_request, paired
from serving.services.decoding_view import Decoding
from serving.services.disaggregated.service import Disaggregated
from serving.services.rounds import Rounds
from serving.vocabulary.abort import AbortState
from serving.vocabulary.actions import Action
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.replica import Replica, Role
from serving.vocabulary.request import Request

# The view of a model's decode instances for a policy that pairs them for migration.


class DecodeInstances:
    """The view of a policy that pairs instances (``serving.protocols.migration.InstancesView``).

    Loads and reports are computed from the room that hand-overs reserve, which is always known; instances
    send no reports.
    """

    __slots__ = (
        "_decode", "_engines", "_hand_overs", "_migrations", "_period_ns", "_present", "_split", "loading",
        "model", "nearly_full",
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
        self._split = service.view
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
        head = (
            self.head_tokens
            if replica == min(self.taking, key=lambda member: (demands[member], member))
            else 0
        )
        preempted = len(engine.waiting)
        running = self._hand_overs.reserved_requests[replica] - preempted
        return LoadReport(
            total_blocks=ledger.total_blocks,
            watermark_blocks=0,
            block_tokens=ledger.block_tokens,
            free_blocks=free,
            running=running,
            waiting=preempted + (head > 0),
            preempted=preempted,
            first_waiting_tokens=head,
            waiting_tokens=head,
        )

    def free_blocks(self, replica: int) -> int | None:
        """Room that is not reserved, in blocks."""
        report = self.report(replica)
        return None if report is None else report.free_blocks

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """Room reserved for each request that is there, ascending."""
        engine, need_of = self._engines[replica], self._hand_overs.need_of
        here = {*engine.running, *[progress.id for progress in engine.attached]}.difference(engine.ended)
        return {request: need_of(request) for request in sorted(here)}

    def prompt_tokens(self, replica: int) -> int:
        """Prompt tokens of the requests that decode there or are on their way."""
        return self._split.decoding(replica)[1]

    def kv_tokens(self, replica: int) -> int:
        """Tokens of one request that it can hold."""
        return self._engines[replica].replica.room_tokens

    def engaged(self, replica: int) -> bool:
        """Whether it is in a migration, or switched to decode and still has its own prompts to hand over."""
        engine = self._engines[replica]
        if replica in self._migrations.of_replica or engine.outgoing:
            return True
        return engine.handing_over and engine.handing_over_tokens() > 0


_IDLE = EngineState.IDLE


class DecodeMigrating:
    """Wraps the disaggregated service ``inner``: pairs its decode instances, migrates decoding requests."""

    __slots__ = (
        "_engines", "_for_head", "_kept", "_migrator", "_requests", "_view", "inner", "migrations", "rounds",
    )  # fmt: skip

    def __init__(
        self,
        inner: Disaggregated,
        *,
        engines: Mapping[int, Engine],
        requests: Mapping[int, Request],
        migrator: Migrator,
        rules: MigrationRules,
        transfer_ids: TransferIds,
        present: Present,
        period_ns: int,
    ) -> None:
        """``period_ns``: time between two rounds of pairing."""
        assert not inner.live.enabled, "decode instances that help live ones do not migrate requests"
        self.inner, self._engines, self._requests, self._migrator = inner, engines, requests, migrator
        moves = Moves(engines, Pieces(engines, rules.kv_bytes), transfer_ids)
        self.migrations = Migrations(engines, moves, rules, present, self)
        inner.migrating = self.migrations.of_replica
        self._view = DecodeInstances(inner, engines, self.migrations, present, period_ns)
        self._kept: dict[int, int] = {}  # by migrating request, the room reserved at its destination
        self._for_head = getattr(migrator, "for_head", False) is True
        self.rounds: Rounds | None = None  # set if idle rounds are skipped, to request a round

    def look(self, actions: list[Action]) -> None:
        """Begin a round: pair decode instances and start their migrations."""
        for pair in paired(self._migrator, self._view):
            self.migrations.begin(pair, actions)

    def quiet_until_ns(self) -> int:
        """Until then no instances are paired: nothing decodes, or the policy acts only for hand-overs."""
        hand_overs = self.inner.hand_overs
        if self._for_head and not (hand_overs.waiting or self._view.leaving):
            return NEVER_NS
        return 0 if any(hand_overs.reserved_requests.values()) else NEVER_NS

    def _rouse(self, actions: list[Action]) -> None:
        """After a change: request a round if instances may be paired now."""
        if self.rounds is not None:
            self.rounds.rouse(self.quiet_until_ns(), actions)

    # Called by migrations.

    def choose(self, source: int, destination: int) -> tuple[int, str] | None:
        """The migrator's choice of a request that leaves the source, and why; None: no request."""
        view = Decoding(self._engines[source], destination, self._requests, self._view.report)
        return chosen_request(self._migrator, view)

    def keep(self, request: int, destination: int) -> bool:
        """Reserve room for the request as for a hand-over; returns False if there is not enough."""
        hand_overs, engine = self.inner.hand_overs, self._engines[destination]
        need = hand_overs.need_of(request)
        if destination not in self.inner.decode or not hand_overs.has_capacity(engine, need, 1):
            return False
        self._kept[request] = need
        hand_overs.change(destination, need, 1)
        return True

    def drop(self, request: int, destination: int) -> None:
        """Release the room reserved for a request that does not come."""
        self.inner.hand_overs.change(destination, -self._kept.pop(request), -1)

    def handed_over(self, request: int, source: int, destination: int) -> None:
        """Give the request to the destination, in the room reserved for it."""
        self.inner.hand_overs.change(source, -self._kept.pop(request), -1)

    # Events that concern migrations.

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Handle an instance's report; a halted instance continues after its migration step."""
        inner, migrations = self.inner, self.migrations
        if engine.id not in migrations.of_replica:
            inner.ran(engine, event, actions)
            self._rouse(actions)
            return
        halted = engine.halts and not event.running
        inner.ran(engine, event, actions)
        if halted:
            boundary.enter(engine, actions)
        migrations.ran(engine, event, actions)
        if halted:
            boundary.go_on(engine, actions)
        migrations.chose(engine, actions)
        self._match(actions)

    def _match(self, actions: list[Action]) -> None:
        """Room may have been freed: begin hand-overs that wait for room."""
        if self.inner.hand_overs.waiting:
            self.inner.hand_overs.match(actions)
        self._rouse(actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """KV of a migration or of a hand-over has arrived."""
        if event.transfer not in self.migrations.moves:
            source = self.inner.sent(event, actions)
            self._rouse(actions)
            return source
        source = self.migrations.sent(event, actions)
        self._match(actions)
        return source

    def leave(self, replica: int, actions: list[Action]) -> None:
        """Retire an instance: migrations to it are cancelled, migrations from it continue."""
        self.migrations.left(replica, actions)
        self.inner.leave(replica, actions)
        self._match(actions)

    def lose(self, engine: Engine, cause: str, actions: list[Action]) -> list[int]:
        """Handle the loss of an instance."""
        self.migrations.lost(engine.id, actions)
        failed = self.inner.lose(engine, cause, actions)
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
        self._match(actions)

    def outstanding(self, replica: int) -> int:
        """Number of its requests, including arriving ones; at least one while it is in a migration."""
        outstanding = self.inner.outstanding(replica) + len(self.migrations.moves.requests_to(replica))
        return outstanding or int(replica in self.migrations.of_replica)

    def held(self, replica: int) -> list[int]:
        """Requests for which memory is reserved there."""
        return [*self.inner.held(replica), *self.migrations.moves.requests_to(replica)]

    def kept(self, replica: int) -> list[int]:
        """Requests of other instances for which room is reserved there."""
        migration = self.migrations.of_replica.get(replica)
        return (
            [migration.request]
            if migration is not None and migration.kept and migration.destination == replica
            else []
        )

    def paused(self, replica: int) -> list[int]:
        """Requests in no batch there, because the last of their KV is in transfer."""
        migration = self.migrations.of_replica.get(replica)
        stopped = (
            migration is not None
            and migration.phase is MigrationPhase.LAST_STAGE
            and migration.source == replica
        )
        return [migration.request] if migration is not None and stopped else []

    def kv_senders(self) -> Collection[int]:
        """The instances that send KV now."""
        return {*self.inner.kv_senders(), *self.migrations.moves.senders()}

    # Everything else is delegated to the inner service.

    @property
    def model(self) -> str:
        """The model of these requests."""
        return self.inner.model

    @property
    def longest_request_tokens(self) -> int:
        """The inner service's longest request."""
        return self.inner.longest_request_tokens

    @property
    def backlog_tokens(self) -> int:
        """Prompt tokens not computed yet."""
        return self.inner.backlog_tokens

    @property
    def kv_tokens(self) -> int:
        """KV tokens of the inner service: a migrating request counts once."""
        return self.inner.kv_tokens

    @property
    def migrating_tokens(self) -> int:
        """KV tokens in hand-overs."""
        return self.inner.migrating_tokens

    @property
    def queued(self) -> int:
        """Requests that are at no instance yet."""
        return self.inner.queued

    @property
    def live(self) -> LiveScaling:
        """No instance works while it loads."""
        return self.inner.live

    def feed(self, actions: list[Action]) -> None:
        """Give idle instances work."""
        self.inner.feed(actions)

    def refusal(self, now_ns: int, request: Request) -> str | None:
        """Why the inner service refuses the request; None: it accepts it."""
        return self.inner.refusal(now_ns, request)

    def arrived(self, request: Request, actions: list[Action]) -> None:
        """Let the inner service take the request."""
        self.inner.arrived(request, actions)

    def join(self, replica: Replica, role: Role, actions: list[Action]) -> None:
        """Let an instance prefill or decode from now on."""
        self.inner.join(replica, role, actions)
        self._rouse(actions)

    def started(self, engine: Engine, actions: list[Action]) -> None:
        """Let the inner service use an instance that has started."""
        self.inner.started(engine, actions)
