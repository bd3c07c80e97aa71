"""Live migration: a request that decodes goes to another instance with its KV, and hardly stops.

A migration is a move (``serving.kv.moves``) in stages. Each begins between two steps of the source: the
destination is asked for the blocks, and may refuse. All stages but the last copy full blocks while the
request decodes on. Before the last one it leaves the batch: what is left is copied, a control term paid, and
the destination goes on with it. Until then its KV is the source's, and an aborted migration changes nothing
but the time. docs/MIGRATION.md says who has what when, docs/STATES.md has the table.

Both ends halt before a stage begins (``serving.engine.boundary``), so a coalesced run shows there what one
step by step would. While KV is copied they run on without further reports. A destination that still loads
(``MigrationRules.into_loading``) gets one stage; the migration then waits until it takes requests.
"""

from collections.abc import Mapping
from math import inf

from serving.engine import boundary
from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, EngineState
from serving.kv.migration_log import COMMITTED, MigrationLog
from serving.kv.migration_rules import (
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
from serving.vocabulary.events import Ran, Sent
from serving.vocabulary.present import Present

_PREPARING, _COPYING, _LAST_STAGE, _RECOMPUTING, _COMMITTED, _ABORTED, _WAITING = MigrationPhase


class Migrations:
    """Those of one model, at most one at an instance. ``of_replica``: by each of the two ends."""

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
        # Who reports: step by step, those below it have told of boundaries that are due now. -1: nobody has.
        self._rank = -1.0

    # What begins one.

    def begin(self, pair: Pair, actions: list[Action], rank: float = -1.0) -> None:
        """A request is to leave the source for the destination. ``rank``: who reports, if anybody does."""
        source, destination = self._engines[pair.source], self._engines[pair.destination]
        if not may_begin(source, destination, self._rules, pair.source in self.of_replica):
            self.log.declined += 1
            return
        for waits in [self.of_replica[one] for one in pair[:2] if one in self.of_replica]:
            self._abort(waits, SUPERSEDED, actions)
        migration = Migration(pair.source, pair.destination, pair.reason)
        self.of_replica[pair.source] = self.of_replica[pair.destination] = migration
        self._coalesce = source.coalesce
        self._rank = rank
        self._prepare(migration, actions)

    def _prepare(self, migration: Migration, actions: list[Action]) -> None:
        """Both ends come to a boundary, and halt at each from there on; after a stage both are loaded."""
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

    # What happens.

    def ran(self, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """An end has reported; the pass that follows is not chosen yet if it halts."""
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
        """An end has chosen its next pass: has it preempted the request?"""
        migration = self.of_replica.get(engine.id)
        if migration is None or engine.id != migration.source:
            return
        if migration.request < 0:
            if engine.state not in AT_WORK:  # nobody is left there to choose from, and no boundary comes
                self.log.declined += 1
                self._end(migration, _ABORTED)
            return
        self._rank = float(engine.id)
        if migration.phase in (_PREPARING, _COPYING, _WAITING) and not engine.ledger.decodes(
            migration.request
        ):
            self._abort(migration, PREEMPTED, actions)

    def sent(self, event: Sent, actions: list[Action]) -> int | None:
        """A stage has ended, or was stopped; returns the source if the request has left it."""
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
        """An instance takes requests from now on: what was copied while it loaded goes on."""
        migration = self.of_replica.get(replica)
        if migration is not None and migration.phase is _WAITING:
            self._rank = -1.0
            self._prepare(migration, actions)

    def left(self, replica: int, actions: list[Action]) -> None:
        """An instance takes no requests any more: none comes to it."""
        migration = self.of_replica.get(replica)
        self._rank = -1.0
        if migration is not None and replica == migration.destination and migration.phase is not _RECOMPUTING:
            self._abort(migration, DESTINATION_LEFT, actions)

    def lost(self, replica: int, actions: list[Action]) -> None:
        """An instance is gone; call it before its engine forgets what it had."""
        migration = self.of_replica.get(replica)
        if migration is None:
            return
        self._rank = inf
        cause = SOURCE_LOST if replica == migration.source else DESTINATION_LOST
        if migration.phase is _RECOMPUTING and cause == SOURCE_LOST:
            return  # the request is the destination's
        self._abort(migration, cause, actions)

    # A stage.

    def _stage(self, migration: Migration, actions: list[Action]) -> None:
        """The source is between two steps, and it is known how the destination stands."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        if migration.request < 0 and not self._chosen(migration, actions):
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
        """Whether there is a request that leaves: then the migration is begun."""
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
        """Blocks are kept at the destination, and what is not there yet is sent."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        request, first, stage = migration.request, migration.sent_tokens, migration.stages
        if last and not stage and self._rules.mode == "live":
            stage = 1  # without a full block stage 0 had nothing to copy
        if migration.move is None:
            batch = (source.running[request],)
            migration.move = self.moves.reserve(source, destination, batch, upto)
        else:
            self.moves.reserve_more(migration.move, upto)
        migration.stages, migration.sent_tokens = stage + 1, upto
        if last:
            boundary.pause(source, request, f"the last stage of its migration to {destination.id}", actions)
            migration.paused_ns = self._present.now_ns
        migration.phase = _LAST_STAGE if last else _COPYING
        self._release(migration)
        positions = source.ledger.blocks_for(upto) * source.ledger.block_tokens - first  # whole blocks
        what = [(source.id, (request,), positions * self._rules.kv_bytes_per_token)]
        reason = f"stage {stage} of its migration{', the last' if last else ''}"
        control_ns = self._rules.control_ns if last else 0
        terms = control_ns, self._rules.slowdown_ppm
        self.moves.send(migration.move, what, reason, actions, ((first, upto),), *terms)

    def _commit(self, migration: Migration, move: Move, actions: list[Action]) -> None:
        """All KV is at the destination: the source frees its own, and the request decodes there."""
        source, destination = self._engines[migration.source], self._engines[migration.destination]
        self.moves.commit(move)
        destination.limit_decoding(self._rules.max_num_seqs)
        destination.attach(move.batch)
        self._hand_over(migration)
        self._end(migration, _COMMITTED)
        self.log.add(migration, COMMITTED, self._present.now_ns)
        self._tell(migration, "committed", f"{migration.stages} stages", actions)
        boundary.look_again(destination, "a request has come", actions)
        self._freed(source, actions)

    def _hand_over(self, migration: Migration) -> None:
        """The request is the destination's from now on."""
        migration.kept = False
        self._host.handed_over(migration.request, migration.source, migration.destination)

    # Recomputing instead.

    def _recompute(
        self, migration: Migration, source: Engine, destination: Engine, actions: list[Action]
    ) -> None:
        """The request leaves without its KV, and is the destination's from now on."""
        leave_without_kv(source, destination, migration.request, self._coalesce, actions)
        migration.paused_ns, migration.phase = self._present.now_ns, _RECOMPUTING
        self._hand_over(migration)
        actions.append(Assign(migration.request, destination.id, migration.reason))
        later = destination.id < self._rank
        boundary.look_again(destination, "a request has come", actions, later)

    def _recomputed(self, migration: Migration, engine: Engine, event: Ran, actions: list[Action]) -> None:
        """Has it its KV again?"""
        request = migration.request
        if engine.id == migration.destination and (
            engine.ledger.decodes(request) or request in event.finished
        ):
            self._end(migration, _COMMITTED)
            self.log.add(migration, COMMITTED, self._present.now_ns)
            self._tell(migration, "committed", "its KV is computed again", actions)

    # The end.

    def _abort(self, migration: Migration, cause: str, actions: list[Action]) -> None:
        """The destination keeps nothing of it; a request that is in no batch goes on at the source."""
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
            if cause != SOURCE_LOST:  # else it fails with the others there
                boundary.look_again(source, "a request stays", actions, source.id < self._rank)
        if migration.request >= 0:
            self.log.add(migration, cause, self._present.now_ns)
            self._tell(migration, "aborted", cause, actions)
        if cause != DESTINATION_LOST:
            self._freed(destination, actions)

    def _freed(self, engine: Engine, actions: list[Action]) -> None:
        """Memory was given back: who waits for it may run."""
        if engine.waiting or engine.state not in AT_WORK:
            boundary.look_again(engine, "memory was given back", actions, engine.id < self._rank)

    def _end(self, migration: Migration, phase: MigrationPhase) -> None:
        migration.phase = phase
        self._release(migration)
        del self.of_replica[migration.source], self.of_replica[migration.destination]

    def _release(self, migration: Migration) -> None:
        """Neither end halts any more."""
        migration.awaited.clear()
        for replica in (migration.source, migration.destination):
            if self._engines[replica].halts:
                boundary.let_run(self._engines[replica], self._coalesce)

    def _tell(self, one: Migration, phase: str, reason: str, actions: list[Action]) -> None:
        actions.append(Migrate(one.request, one.source, one.destination, phase, reason))
