"""Live migration: moves a decoding request with its KV to another instance, with almost no pause.

A migration is a move (``serving.kv.moves``) in stages. Each stage begins between two steps of the source and
reserves blocks at the destination, which may refuse. All stages but the last copy full blocks while the
request decodes. For the last stage the request leaves its batch: the rest is copied, a control time is added,
and the request continues at the destination. Until then its KV belongs to the source, and an aborted
migration costs only time. docs/explanation/MIGRATION.md lists what each instance has when,
docs/contributing/STATES.md has the table.

Both ends halt before a stage begins (``serving.engine.boundary``), so coalesced and step-by-step runs agree
there. During a copy both ends run without further reports. A destination that still loads
(``MigrationRules.into_loading``) gets one stage; the migration then waits until it takes requests.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from serving.engine import boundary
from serving.engine.engine import Engine
from serving.engine.limits import limit_decoding
from serving.engine.progress import AT_WORK, EngineState
from serving.kv.migration_log import COMMITTED, MigrationLog
from serving.kv.migration_rules import (
    CLIENT_LEFT,
    DESTINATION_LEFT,
    DESTINATION_LOST,
    FINISHED,
    PREEMPTED,
    REFUSED,
    SOURCE_LOST,
    STAGES,
    STOPPED,
    SUPERSEDED,
    Migration,
    MigrationHost,
    MigrationPhase,
    MigrationRules,
)
from serving.kv.migration_stage import has_room, is_last, leave_without_kv, may_begin
from serving.kv.moves import Move, MovePhase, Moves
from serving.protocols.migration import Pair
from serving.vocabulary.actions import Action, Assign, Migrate
from serving.vocabulary.current_event import Present
from serving.vocabulary.events import Ran, Sent

_PREPARING: Final[MigrationPhase] = MigrationPhase.PREPARING
_COPYING: Final[MigrationPhase] = MigrationPhase.COPYING
_LAST_STAGE: Final[MigrationPhase] = MigrationPhase.LAST_STAGE
_RECOMPUTING: Final[MigrationPhase] = MigrationPhase.RECOMPUTING
_COMMITTED: Final[MigrationPhase] = MigrationPhase.COMMITTED
_ABORTED: Final[MigrationPhase] = MigrationPhase.ABORTED
_WAITING: Final[MigrationPhase] = MigrationPhase.WAITING


class Migrations:
    """The migrations of one model. ``of_replica``: for each instance, its only migration, if any."""

    __slots__ = (
        "_coalesce", "_engines", "_host", "_present", "_rank", "_rules", "log", "moves", "of_replica",
    )  # fmt: skip

    def __init__(
        self,
        engines: Mapping[int, Engine],
        moves: Moves,
        rules: MigrationRules,
        present: Present,
        host: MigrationHost,
    ) -> None:
        self._engines, self.moves, self._rules, self._present = engines, moves, rules, present
        self._host = host
        self.of_replica: dict[int, Migration] = {}
        self.log = MigrationLog()
        self._coalesce = True
        # The reporting engine: step by step, lower ones have reported boundaries that are due. -1: none.
        self._rank = -1.0

    # Beginning a migration.

    def begin(self, pair: Pair, actions: list[Action], rank: float = -1.0) -> None:
        """Begin to migrate a request. ``rank``: the reporting engine, if one is."""
        source, destination = self._engines[pair.source], self._engines[pair.destination]
        if not may_begin(source, destination, self._rules, pair.source in self.of_replica):
            self.log.declined += 1
            return
        for waits in [self.of_replica[replica] for replica in pair[:2] if replica in self.of_replica]:
            self._abort(waits, SUPERSEDED, actions)
        migration = Migration(pair.source, pair.destination, pair.reason)
        self.of_replica[pair.source] = self.of_replica[pair.destination] = migration
        self._coalesce = source.coalesce
        self._rank = rank
        self._prepare(migration, actions)

    def _prepare(self, migration: Migration, actions: list[Action]) -> None:
        """Let both ends run to a boundary and halt; a chosen request waits if the destination still loads."""
        if migration.request >= 0 and self._engines[migration.destination].state is EngineState.LOADING:
            self._release(migration)
            migration.phase = _WAITING
            return
        migration.phase = _PREPARING
        for replica in (migration.source, migration.destination):
            engine = self._engines[replica]
            if engine.state in AT_WORK:
                migration.awaited.add(replica)
            boundary.halt(engine, "a request migrates", actions, replica < self._rank)

    # Events.

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """An end has reported; if it halts, its next pass is not chosen yet."""
        migration = self.of_replica[engine.id]
        self._rank = float(engine.id)
        if migration.phase is _RECOMPUTING:
            self._recomputed(migration, engine, event, actions)
            return
        if migration.phase is not _LAST_STAGE and migration.request in event.finished:
            self._abort(migration, FINISHED, actions)
        elif migration.phase is _PREPARING and not event.running:
            migration.awaited.discard(engine.id)
            if engine.id == migration.source and not migration.awaited:
                self._stage(migration, actions)

    def chose(self, engine: Engine, actions: list[Action]) -> None:
        """An end has chosen its next pass: abort the migration if it preempted the request."""
        migration = self.of_replica.get(engine.id)
        if migration is None or engine.id != migration.source:
            return
        if migration.request < 0:
            if engine.state not in AT_WORK:  # no request is left to choose, and no boundary comes
                self.log.declined += 1
                self._end(migration, _ABORTED)
            return
        self._rank = float(engine.id)
        if migration.phase in (_PREPARING, _COPYING, _WAITING) and not engine.ledger.decodes(
            migration.request
        ):
            waits = any(progress.id == migration.request for progress in engine.waiting)
            self._abort(migration, PREEMPTED if waits else CLIENT_LEFT, actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """A stage has ended or was stopped; returns the source if the request has left it."""
        move = self.moves.sent(event, actions)
        if move is None:
            return None
        migration = self.of_replica[move.source]
        migration.moved_bytes += event.moved_bytes
        self._rank = inf if event.cause else -1.0
        if move.phase is MovePhase.ABORTED:
            self._abort(migration, STOPPED, actions)
            return None
        if migration.phase is _COPYING:
            self._prepare(migration, actions)
            return None
        self._commit(migration, move, actions)
        return migration.source

    def joined(self, replica: int, actions: list[Action]) -> None:
        """An instance takes requests from now on: continue a migration that waited for its load."""
        migration = self.of_replica.get(replica)
        if migration is not None and migration.phase is _WAITING:
            self._rank = -1.0
            self._prepare(migration, actions)

    def left(self, replica: int, actions: list[Action]) -> None:
        """An instance takes no more requests: abort a migration to it."""
        migration = self.of_replica.get(replica)
        self._rank = -1.0
        if migration is not None and replica == migration.destination and migration.phase is not _RECOMPUTING:
            self._abort(migration, DESTINATION_LEFT, actions)

    def client_left(self, request: int, rank: float, actions: list[Action]) -> None:
        """A request has left all instances because its client went away: end its migration, if it has one.

        rank: see ``begin``.
        """
        for migration in self.of_replica.values():
            if migration.request != request:
                continue
            self._rank = rank
            if migration.phase is _RECOMPUTING:  # it was the destination's, so there is nothing to give back
                self._end(migration, _ABORTED)
                self.log.add(migration, CLIENT_LEFT, self._present.now_ns)
                self._tell(migration, "aborted", CLIENT_LEFT, actions)
            else:
                self._abort(migration, CLIENT_LEFT, actions)
            return

    def lost(self, replica: int, actions: list[Action]) -> None:
        """An instance is lost; call this before its engine forgets its requests."""
        migration = self.of_replica.get(replica)
        if migration is None:
            return
        self._rank = inf
        cause = SOURCE_LOST if replica == migration.source else DESTINATION_LOST
        if migration.phase is _RECOMPUTING and cause == SOURCE_LOST:
            return  # the request already belongs to the destination
        self._abort(migration, cause, actions)

    # Stages.

    def _stage(self, migration: Migration, actions: list[Action]) -> None:
        """Begin a stage: the source is between two steps, and the destination's state is known."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        if migration.request < 0 and not self._chosen(migration, actions):
            return
        if migration.request in source.leaving:
            self._abort(migration, CLIENT_LEFT, actions)
            return
        if not migration.kept:
            migration.kept = self._host.keep(migration.request, destination.id)
            if not migration.kept:
                self._abort(migration, REFUSED, actions)
                return
        if self._rules.mode == "recompute":
            self._recompute(migration, source, destination, actions)
            return
        if migration.stages >= self._rules.max_stages:
            self._abort(migration, STAGES, actions)
            return
        block = source.ledger.block_tokens
        computed = source.ledger.context_tokens(migration.request) - 1
        last = is_last(migration, self._rules, computed, block)
        if last and destination.state is EngineState.LOADING:
            self._prepare(migration, actions)
            return
        upto = computed if last else computed // block * block
        if not has_room(destination, self._rules, migration.request, upto):
            self._abort(migration, REFUSED, actions)
            return
        self._send(migration, upto, last, actions)

    def _chosen(self, migration: Migration, actions: list[Action]) -> bool:
        """Choose the request that leaves; returns whether there is one, and begins its migration."""
        answer = self._host.choose(migration.source, migration.destination)
        if answer is None:
            self.log.declined += 1
            self._end(migration, _ABORTED)
            return False
        migration.request, reason = answer
        migration.begun_ns = self._present.now_ns
        migration.context_tokens = self._engines[migration.source].ledger.context_tokens(migration.request)
        self._tell(migration, "begun", f"{migration.reason}; {reason}", actions)
        return True

    def _send(self, migration: Migration, upto: int, last: bool, actions: list[Action]) -> None:
        """Reserve blocks at the destination and send the KV that is not there yet."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        request, first, stage = migration.request, migration.sent_tokens, migration.stages
        if last and not stage and self._rules.mode == "live":
            stage = 1  # without a full block stage 0 had nothing to copy
        if migration.move is None:
            batch = (source.running[request],)
            migration.move = self.moves.reserve(source, destination, batch, upto)
        else:
            self.moves.reserve_more(migration.move, upto)
        migration.computed_tokens = source.ledger.context_tokens(request) - 1
        migration.copied_tokens = upto - first
        migration.stages, migration.sent_tokens = stage + 1, upto
        if last:
            boundary.pause(source, request, f"the last stage of its migration to {destination.id}", actions)
            migration.paused_ns = self._present.now_ns
        migration.phase = _LAST_STAGE if last else _COPYING
        self._release(migration)
        block = source.ledger.block_tokens
        positions = -(-upto // block) * block - first  # whole blocks
        sends = [(source.id, (request,), self._rules.kv_bytes.of(positions, int(last)))]
        reason = f"stage {stage} of its migration{', the last' if last else ''}"
        self.moves.send(
            migration.move,
            sends,
            reason,
            actions,
            positions=((first, upto),),
            control_ns=self._rules.control_ns if last else 0,
            slowdown_ppm=self._rules.slowdown_ppm,
        )

    def _commit(self, migration: Migration, move: Move, actions: list[Action]) -> None:
        """All KV is at the destination: the source frees its blocks, and the request decodes there."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        self.moves.commit(move)
        limit_decoding(destination, self._rules.max_num_seqs)
        destination.attach(move.batch)
        self._hand_over(migration)
        self._end(migration, _COMMITTED)
        self.log.add(migration, COMMITTED, self._present.now_ns)
        self._tell(migration, "committed", f"{migration.stages} stages", actions)
        boundary.look_again(destination, "a request has come", actions)
        self._freed(source, actions)

    def _hand_over(self, migration: Migration) -> None:
        """From now on the request belongs to the destination."""
        migration.kept = False
        self._host.handed_over(migration.request, migration.source, migration.destination)

    # Recomputing instead of copying.

    def _recompute(
        self, migration: Migration, source: Engine, destination: Engine, actions: list[Action]
    ) -> None:
        """Move the request without its KV; it belongs to the destination from now on."""
        leave_without_kv(source, destination, migration.request, self._coalesce, actions)
        migration.paused_ns, migration.phase = self._present.now_ns, _RECOMPUTING
        self._hand_over(migration)
        actions.append(Assign(migration.request, destination.id, migration.reason))
        later = destination.id < self._rank
        boundary.look_again(destination, "a request has come", actions, later)

    def _recomputed(self, migration: Migration, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Commit if the destination has recomputed the request's KV."""
        request = migration.request
        if engine.id == migration.destination and (
            engine.ledger.decodes(request) or request in event.finished
        ):
            self._end(migration, _COMMITTED)
            self.log.add(migration, COMMITTED, self._present.now_ns)
            self._tell(migration, "committed", "its KV is computed again", actions)

    # The end of a migration.

    def _abort(self, migration: Migration, cause: str, actions: list[Action]) -> None:
        """Stop a migration: its room at the destination is freed; a paused request resumes at the source."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        move, stopped = migration.move, migration.phase is _LAST_STAGE
        if move is not None and move.phase in (MovePhase.RESERVED, MovePhase.SENDING):
            self.moves.abort(move, f"its migration is aborted: {cause}", actions)
        if migration.kept:
            self._host.drop(migration.request, destination.id)
        self._end(migration, _ABORTED)
        if stopped:
            assert move is not None
            boundary.resume(source, move.batch[0])
            if cause != SOURCE_LOST:  # else it fails with the source's other requests
                boundary.look_again(source, "a request stays", actions, source.id < self._rank)
        if migration.request >= 0:
            self.log.add(migration, cause, self._present.now_ns)
            self._tell(migration, "aborted", cause, actions)
        if cause != DESTINATION_LOST:
            self._freed(destination, actions)

    def _freed(self, engine: Engine, actions: list[Action]) -> None:
        """Memory was freed: let requests that wait for it run."""
        if engine.waiting or engine.state not in AT_WORK:
            boundary.look_again(engine, "memory was given back", actions, engine.id < self._rank)

    def _end(self, migration: Migration, phase: MigrationPhase) -> None:
        migration.phase = phase
        self._release(migration)
        del self.of_replica[migration.source], self.of_replica[migration.destination]

    def _release(self, migration: Migration) -> None:
        """Let both ends run without halting."""
        migration.awaited.clear()
        for replica in (migration.source, migration.destination):
            if self._engines[replica].halts:
                boundary.let_run(self._engines[replica], self._coalesce)

    def _tell(self, migration: Migration, phase: str, reason: str, actions: list[Action]) -> None:
        actions.append(Migrate(migration.request, migration.source, migration.destination, phase, reason))
