"""Records, during a run, the data that its series are computed from.

The sink takes the journal's place, receives every event with the controller's actions, and forwards both to
the journal if there is one. A run without series has no sink.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from servetwin.results.migrated_blocks import MigratedBlocks
from serving.vocabulary.actions import (
    Abort,
    Action,
    Assign,
    Detach,
    Fail,
    JoinBatch,
    Migrate,
    Preempt,
    Reject,
    Run,
    Send,
)
from serving.vocabulary.driver import JournalSink
from serving.vocabulary.events import Arrived, Event, Lost, Ran, Sent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from serving.engine.engine import Engine

WAITING: Final = 0
RUNNING: Final = 1
GONE: Final = 2
NO_ENGINE: Final = -1
STEPS_UNKNOWN: Final = -1
STEPS_BETWEEN: Final = -2  # steps are interpolated by time between adjacent readings
MOVE_FIELDS: Final = ("now_ns", "request", "engine", "state", "tokens")
READING_FIELDS: Final = ("now_ns", "engine", "used_blocks", "growing", "steps_done")
HEAD_FIELDS: Final = ("now_ns", "engine", "blocks")
_KV: Final = "kv"


class SeriesSink:
    """Implements serving.vocabulary.driver.JournalSink.

    ``moves``: a request begins to wait or to run at an engine, or leaves without an answer (MOVE_FIELDS);
    ``tokens`` are its prompt's when it arrives, and the tokens already computed when it begins to run. Each
    prompt chunk adds a row; the first counts. ``readings``: an engine's block ledger (READING_FIELDS) when
    one of its requests has finished or was preempted, when a step with prompts begins, when a stage of a
    migration begins, and when the engine is lost. These moments are the same in coalesced and in exact runs,
    and so is the ledger then. ``growing``: how many requests take one token's space per step from then on.
    When a migration ends, its instances' steps are unknown (STEPS_BETWEEN), and both fields hold the change.
    ``heads``: the blocks that the head of an engine's queue needs from then on, 0: empty queue (HEAD_FIELDS).
    ``preempted``: (time, engine) of each preemption. ``one_pass``: no engine has run several passes at once
    so far, so that the steps in progress are known (``busy_s``).
    """

    def __init__(
        self, period_s: float, engines: Mapping[int, Engine], journal: JournalSink | None = None
    ) -> None:
        self.period_s = period_s
        self.engines = engines
        self.moves = array("q")
        self.readings = array("q")
        self.heads = array("q")
        self.preempted = array("q")
        self.one_pass = True
        self._busy = array("q")  # begin and end of consecutive steps without a gap
        self._since: dict[int, int] = {}  # engine -> begin of the current ones
        self._journal = journal
        self._sends: dict[int, Send] = {}
        self._migrated = MigratedBlocks(engines)
        self._completing: dict[int, int] = {}  # requests whose prompts the current step completes
        self._head: dict[int, int] = {}  # engine -> blocks that the head of its queue needs
        self._queues: set[int] = set()  # engines whose queue may have changed with this event
        self._queued_at: dict[int, int] = {}

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """Record one event and the controller's actions."""
        if self._journal is not None:
            self._journal.write(now_ns, event, actions, counts)
        read = rests = NO_ENGINE
        before = len(self.readings)
        if type(event) is Ran:
            self._completing.pop(event.replica, None)
            if event.finished:
                read = event.replica
            if not event.running:
                rests = event.replica
        elif type(event) is Arrived:
            request = event.request
            self.moves.extend((now_ns, request.id, NO_ENGINE, WAITING, request.prompt_tokens))
        elif type(event) is Sent:
            self._sent(now_ns, event)
        elif type(event) is Lost:
            # Only runs with engine.exact=true report the steps between the engine's last report and its loss.
            rests = event.replica
            self._completing.pop(rests, None)
            self.readings.extend((now_ns, rests, 0, 0, STEPS_UNKNOWN))
            self._queues.add(rests)
        for action in actions:
            if type(action) is Run:
                if action.replica == rests:
                    rests = NO_ENGINE
                elif action.replica not in self._since:
                    self._since[action.replica] = now_ns
                if action.micro_batch >= 0:
                    self.one_pass = False
                if action.chunks:
                    self._begins(now_ns, action)
                    if action.replica == read:
                        read = NO_ENGINE
            elif type(action) is Preempt:
                self.moves.extend((now_ns, action.request, action.replica, WAITING, 0))
                self.preempted.extend((now_ns, action.replica))
                self._queues.add(action.replica)
                read = action.replica
            else:
                self._seldom(now_ns, action, before)
        if self._queues:
            self._note_heads(now_ns)
        if rests >= 0 and rests in self._since:
            self._busy.extend((self._since.pop(rests), now_ns))
        if read >= 0:
            self._read(now_ns, read, self.engines[read].ledger.decoding)

    def busy_s(self, span_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return begins and ends (s) of stretches of steps; those in progress end at ``span_s``."""
        import numpy as np

        ended = np.frombuffer(self._busy, dtype=np.int64).reshape(-1, 2) / 1e9
        under_way = np.array([[now_ns / 1e9, span_s] for now_ns in self._since.values()]).reshape(-1, 2)
        begin, end = np.minimum(np.concatenate([ended, under_way]), span_s).T
        return begin, end

    def _begins(self, now_ns: int, run: Run) -> None:
        """Record a step with prompts. The requests that it completes decode from the next step on."""
        engine, moves, completing = self.engines[run.replica], self.moves, 0
        prefilling = engine.prefilling
        for request, start, tokens in run.chunks:
            moves.extend((now_ns, request, run.replica, RUNNING, start))
            progress = prefilling.get(request)
            if progress is not None and not run.hand_over and start + tokens == progress.known_tokens:
                completing += 1
            self._queued_at.pop(request, None)
        self._completing[run.replica] = completing
        self._queues.add(run.replica)
        self._read(now_ns, run.replica, engine.ledger.decoding + completing)

    def _seldom(self, now_ns: int, action: Action, before: int) -> None:
        """Record other actions. ``before``: length of ``readings`` when the event arrived."""
        if type(action) is Assign:
            before_it = self._queued_at.get(action.request, action.replica)
            self._queues.update((before_it, action.replica))
            self._queued_at[action.request] = action.replica
            self.moves.extend((now_ns, action.request, action.replica, WAITING, 0))
        elif type(action) is Reject or type(action) is Fail:
            self.moves.extend((now_ns, action.request, NO_ENGINE, GONE, 0))
        elif type(action) is Abort:
            self._aborts(now_ns, action)
        elif type(action) is Send and action.what == _KV:
            if self._migrated.is_stage(action):
                self._migrated.stage(action)
                self._read_now(now_ns, action.source, action.target)
            else:
                self._sends[action.transfer] = action
        elif type(action) is JoinBatch:
            self._queues.add(action.replica)  # its KV may have been in host memory
        elif type(action) is Detach:
            self._migrated.paused(action)
            self._read_now(now_ns, action.replica)
        elif type(action) is Migrate:
            self._migrates(now_ns, action, before)

    def _aborts(self, now_ns: int, action: Abort) -> None:
        """Record that a request whose client went away has left a queue or a batch."""
        self._queued_at.pop(action.request, None)
        self.moves.extend((now_ns, action.request, NO_ENGINE, GONE, 0))
        if action.replica >= 0:
            self._queues.add(action.replica)
            self._read_now(now_ns, action.replica)

    def _migrates(self, now_ns: int, action: Migrate, before: int) -> None:
        """Record a migration. The request decodes at its destination once the migration is committed."""
        if action.phase == "begun":
            self._migrated.begun(action)
            return
        changes = self._migrated.ended(action)
        if changes and action.phase == "committed":
            self.moves.extend((now_ns, action.request, action.target, RUNNING, 0))
        known = self.readings[before + 1 :: len(READING_FIELDS)]  # including readings of this event
        for engine, blocks, growing in changes:
            if engine not in known:
                self.readings.extend((now_ns, engine, blocks, growing, STEPS_BETWEEN))

    def _sent(self, now_ns: int, event: Sent) -> None:
        """Record that requests decode where their KV was sent."""
        send = self._sends.pop(event.transfer, None)
        if send is not None and not event.cause:
            for request in send.requests:
                self.moves.extend((now_ns, request, send.target, RUNNING, 0))

    def _note_heads(self, now_ns: int) -> None:
        for replica in self._queues:
            engine = self.engines[replica]
            queue = engine.waiting or engine.unseen_arrivals
            blocks = engine.ledger.blocks_for(queue[0].known_tokens) if queue else 0
            if blocks != self._head.get(replica, 0):
                self._head[replica] = blocks
                self.heads.extend((now_ns, replica, blocks))
        self._queues.clear()

    def _read_now(self, now_ns: int, *replicas: int) -> None:
        """Read the ledgers, in the middle of a step or between two."""
        for replica in replicas:
            engine = self.engines[replica]
            growing = engine.ledger.decoding + len(engine.attached) + self._completing.get(replica, 0)
            self._read(now_ns, replica, growing)

    def _read(self, now_ns: int, replica: int, growing: int) -> None:
        """Read the ledger without the blocks of finished requests that the engine has not freed yet."""
        engine = self.engines[replica]
        ledger = engine.ledger
        used = ledger.total_blocks - ledger.free_blocks
        for position in range(len(engine.ended)):
            used -= ledger.blocks_freed(tuple(engine.ended[: position + 1]))
        self.readings.extend((now_ns, replica, used, growing, ledger.steps_done))


def series_sink(
    period_s: float | None, engines: Mapping[int, Engine], journal: JournalSink | None
) -> SeriesSink | None:
    """Return a sink in front of the journal if the run has series."""
    return None if period_s is None else SeriesSink(period_s, engines, journal)
