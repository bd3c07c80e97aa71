"""Every cell of the table of migrations is played through the controller; who owns what in every phase."""

from dataclasses import replace

import pytest

from serving.engine.progress import AT_WORK, Progress
from serving.engine.request_state import RequestState
from serving.kv.migration_rules import MigrationPhase
from serving.vocabulary.actions import Detach, Fail, JoinBatch, Migrate, Preempt, Send, StopSend
from serving.vocabulary.events import Arrived, Ran, Sent
from serving.vocabulary.request import Request
from tests.states.migration_states import CELLS
from tests.worlds.migration_rig import BLOCK, CONTROL_NS, WHO, MigrationRig

SENT = ("stage received", "a transfer was stopped")
RECOMPUTING = MigrationPhase.RECOMPUTING


def rig_in(state: str, prompt: int = 30) -> MigrationRig:
    """A rig whose migration is in that phase; who is ``paired`` knows no request yet."""
    mode = "recompute" if state == "recomputing" else "live"
    rig = MigrationRig(mode, prompt=prompt, loading=state == "waiting")  # type: ignore[arg-type]
    rig.look()
    if state != "paired":
        rig.boundary()
    if state in ("preparing", "waiting", "last stage", "committed"):
        rig.come()
    if state in ("last stage", "committed"):
        rig.boundary()
    if state == "committed":
        rig.come()
    if state == "aborted":
        rig.migrations.left(1, rig.actions)
    assert phase_of(rig) == (None if state in ("committed", "aborted") else state)
    return rig


def phase_of(rig: MigrationRig) -> str | None:
    migration = rig.migration
    if migration is None:
        return None
    return "paired" if migration.request < 0 else migration.phase.name.lower().replace("_", " ")


def play(state: str, event: str) -> str:
    """What the code makes of the event, in the words of the table; "-" where it cannot come."""
    rig = rig_in(state)
    if CELLS[state, event] in ("-", "refused"):
        return cannot_come(rig, state, event)
    if state in ("committed", "aborted"):
        before = rig.state(0), rig.state(1)
        rig.come("stopped" if "stopped" in event else "")
        assert (rig.state(0), rig.state(1)) == before
        return "ignored"
    if event.startswith("both ends"):
        return boundary(rig, state, event)
    if event == "destination refuses":
        return refused(rig, state)
    if event == "stage limit exceeded":
        return too_many(rig, state)
    if event in SENT:
        rig.come("link lost" if "stopped" in event else "")
    elif event == "request finished":
        if state == "recomputing":  # its last token is the one that the computed prompt gives
            rig.step(1), rig.step(1, WHO)
        else:
            rig.step(0, WHO)
    elif event == "request preempted":
        return preempted_elsewhere(rig) if state == "recomputing" else preempted(state)
    elif event == "source lost":
        rig.lose(0)
    elif event == "destination lost":
        rig.lose(1)
    elif event == "destination leaves":
        rig.actions = []
        (rig.migrations.left if state == "waiting" else rig.service.leave)(1, rig.actions)
    elif event == "destination loaded":
        rig.load()
    else:
        assert event == "KV recomputed"
        rig.step(1)  # the step that was under way
        rig.step(1)
    return told(rig, state)


def boundary(rig: MigrationRig, state: str, event: str) -> str:
    if "little" in event and state == "paired":
        rig = rig_in("paired", prompt=2)  # not one full block
    if "much" in event and state == "preparing":
        assert rig.migration is not None
        rig.migration.sent_tokens = 16
    if state == "recomputing":
        rig.step(0) if rig.source.state in AT_WORK else None
    else:
        rig.boundary()
    return told(rig, state)


def refused(rig: MigrationRig, state: str) -> str:
    """All memory is another's when the source is at its boundary."""
    rig.step(1)
    fill(rig)
    event = Ran(0, rig.source.epoch, 1, ())
    rig.actions = list(rig.controller.handle(rig.now_ns + 10, event))
    return told(rig, state)


def fill(rig: MigrationRig) -> None:
    """All memory of the destination is another's."""
    free = rig.destination.ledger.free_blocks
    rig.destination.running[99] = Progress(Request(99, 0, 4 * free, 1, "m"))
    rig.destination.ledger.reserve(99, 4 * free)


def too_many(rig: MigrationRig, state: str) -> str:
    rig.migration.stages = 3  # type: ignore[union-attr]
    rig.boundary()
    return told(rig, state)


def preempted(state: str) -> str:
    """The source's memory becomes full of it and of another, which was admitted before it."""
    waits = state == "waiting"
    rig = MigrationRig(prompt=30, blocks=24, max_stages=9, other_prompt=30, loading=waits)
    rig.tell(Arrived(Request(2, 0, 30, 60, "m")))
    rig.step(0), rig.step(0)
    rig.source.running[WHO] = rig.source.running.pop(WHO)  # the youngest is preempted
    rig.look()
    if state != "paired":
        rig.boundary()
    if state in ("preparing", "waiting"):
        rig.come()
    for _ in range(60):
        if rig.migration is None or _has(rig, Preempt):
            break
        if state in ("paired", "preparing"):
            rig.migration.awaited.add(1)  # the destination's step is a long one
        rig.step(0)
    return told(rig, state)


def preempted_elsewhere(rig: MigrationRig) -> str:
    """By a batcher that computes its prompt in parts: it waits where its KV is to be computed."""
    rig.step(1)
    rig.destination._preempt((WHO,), rig.actions)
    return told(rig, "recomputing")


def cannot_come(rig: MigrationRig, state: str, event: str) -> str:
    """The event is refused, or nothing brings it: what would leaves the phase as it is."""
    refused = event in SENT or (state == "last stage" and event in ("request finished", "request preempted"))
    assert CELLS[state, event] == ("refused" if refused else "-")
    before, rig.actions = phase_of(rig), []
    if event in SENT:
        for transfer in range(3):  # all there ever was, and one more
            with pytest.raises(KeyError):
                rig.tell(Sent(transfer, 8, "link lost" if "stopped" in event else ""))
    elif state in ("committed", "aborted"):
        over(rig, event)
    elif event in ("destination refuses", "stage limit exceeded"):
        assert rig.migration is not None
        if state == "paired":
            assert rig.migration.stages == 0 and rig.migrations._rules.max_stages > 0
            return "-"
        fill_and_count(rig)
    elif event in ("request finished", "request preempted"):
        for replica, engine in rig.controller.engines.items():
            assert WHO not in engine.running
            with pytest.raises((KeyError, AssertionError)):
                rig.step(replica, WHO) if event == "request finished" else engine._preempt((WHO,), [])
    else:
        assert event == "KV recomputed"
        rig.step(1) if rig.destination.state in AT_WORK else None
        assert not rig.destination.ledger.decodes(WHO)
    assert phase_of(rig) == before and not _has(rig, Migrate)
    return CELLS[state, event]


def fill_and_count(rig: MigrationRig) -> None:
    """The destination is full and no stage is left: nobody asks before a stage is to begin."""
    assert rig.migration is not None
    rig.migration.stages = 9
    ledger = rig.destination.ledger
    ledger.reserve(99, 4 * ledger.free_blocks)
    rig.actions = []
    for replica in (1, 0):
        engine = rig.controller.engines[replica]
        if engine.state in AT_WORK and not (replica == 1 and rig.migration.phase is RECOMPUTING):
            rig.actions += rig.controller.handle(rig.now_ns + 10, Ran(replica, engine.epoch, 1, ()))


def over(rig: MigrationRig, event: str) -> None:
    """No migration is there that could answer."""
    rig.actions = []
    if event == "source lost":
        rig.lose(0)
    elif event == "destination lost":
        rig.lose(1)
    elif event == "destination leaves":
        rig.service.leave(1, rig.actions)
    elif event == "destination loaded":
        rig.load()
    else:
        rig.boundary()
    assert rig.migrations.of_replica == {}


def told(rig: MigrationRig, state: str) -> str:
    """Phase, where the request is, and whether something was stopped."""
    stopped = ", its transfers are stopped" if _has(rig, StopSend) else ""
    phase = phase_of(rig)
    if phase is None:
        ends = [one.phase for one in rig.actions if isinstance(one, Migrate) and one.phase != "begun"]
        phase = ends[0] if ends else "over"
    place = _place(rig)
    if state == "last stage" and phase == "aborted":
        place = place.replace("decodes", "resumes")  # at once: nothing else runs there
    return f"{phase}: {place}{stopped}"


def _place(rig: MigrationRig) -> str:
    if any(isinstance(one, Fail) and one.request == WHO for one in rig.actions):
        lost = next(n for n in (0, 1) if rig.controller.engines[n].state.name == "LOST")
        return f"it fails with the {('source', 'destination')[lost]}"
    if WHO not in rig.controller.requests:
        return "it has finished"
    here, there = rig.state(0), rig.state(1)
    if here is RequestState.ABSENT:
        assert there not in (RequestState.ABSENT, RequestState.RESERVED)
        return "it belongs to the destination"
    assert there in (RequestState.ABSENT, RequestState.RESERVED)
    assert (there is RequestState.RESERVED) == (rig.migration is not None and rig.migration.move is not None)
    return {
        RequestState.DECODING: "it decodes at the source",
        RequestState.OUTGOING: "it is paused at the source",
        RequestState.WAITING: "it waits at the source",
    }[here]


def _has(rig: MigrationRig, kind: type) -> bool:
    return any(isinstance(one, kind) for one in rig.actions)


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_phase_answers_every_event(state: str, event: str) -> None:
    assert play(state, event) == CELLS[state, event]


def test_the_stages_of_a_migration_send_each_position_once() -> None:
    """30 tokens in blocks of 4: 28 positions while it decodes, then all that is left."""
    rig = rig_in("committed")
    first, last = rig.sends
    assert first == Send(0, "kv", (WHO,), 0, 1, 28 * 8, "stage 0 of its migration", None, ((0, 28),))
    assert last.positions == ((28, 32),) and last.size_bytes == 4 * 8 and last.control_ns == CONTROL_NS
    assert [one for one in rig.history if isinstance(one, Detach)] == [
        Detach(0, WHO, "the last stage of its migration to 1")
    ]
    rig.step(1)
    assert [one.requests for one in rig.actions if isinstance(one, JoinBatch)] == [(WHO,)]
    assert rig.destination.ledger.context_tokens(WHO) == 33
    (record,) = rig.migrations.log.records
    assert (record.stages, record.moved_bytes, record.outcome) == (2, 32 * 8, "committed")
    assert record.down_ns == 10


def test_a_pair_whose_source_has_become_empty_is_forgotten() -> None:
    """The destination's step is a long one: it does not halt for good."""
    rig = rig_in("paired")
    rig.step(0, WHO)
    assert rig.migration is None and not rig.destination.halts and rig.migrations.log.declined == 1


def test_the_request_that_resumes_decodes_from_the_next_boundary_on() -> None:
    rig = rig_in("last stage")
    rig.lose(1)
    joined = [one for one in rig.history if isinstance(one, JoinBatch)]
    assert [(one.replica, one.requests) for one in joined] == [(0, (WHO,))]
    assert rig.source.ledger.decodes(WHO)


def test_a_destination_without_a_place_refuses() -> None:
    rig = MigrationRig()
    rig.look()
    rig.migrations._rules = type(rig.migrations._rules)("live", 1, 3, 7, 8, 1)
    rig.boundary()
    (record,) = rig.migrations.log.records
    assert record.outcome == "refused" and rig.destination.ledger.held_blocks(WHO) == 0


@pytest.mark.parametrize(
    ("steps", "max_stages", "stages"),
    [(1, 4, 2), (4, 4, 2), (10, 4, 3), (10, 2, 2)],
    ids=["little is left", "half a step", "more than half a step", "no stage more"],
)
def test_the_last_stage_takes_half_a_step_at_most(steps: int, max_stages: int, stages: int) -> None:
    """What is left, times the steps that the stage before took for all it copied, against half of that."""
    rig = MigrationRig(prompt=100, blocks=60, max_stages=max_stages)
    rules = rig.migrations._rules
    rig.migrations._rules = replace(rules, last_within_step=True)
    rig.look(), rig.boundary()
    for _ in range(steps):
        rig.step(0)
    rig.come(), rig.boundary()
    if stages == 3:
        assert phase_of(rig) == "copying" and rig.sends[-1].positions[0][1] % BLOCK == 0
        rig.come(), rig.boundary()
    assert phase_of(rig) == "last stage" and len(rig.sends) == stages
    rig.come()
    assert rig.migrations.log.records[-1].outcome == "committed"


def test_what_is_copied_while_the_destination_loads_is_not_copied_again() -> None:
    """Stage 0 during the load, the last one when it is over: nothing begins in between."""
    rig = MigrationRig(loading=True, last_stage_blocks=16)
    rig.look(), rig.boundary(), rig.come()
    rig.step(0), rig.step(0), rig.step(0)
    assert [one.positions for one in rig.sends] == [((0, 28),)] and not rig.source.halts
    rig.load()
    rig.boundary()
    assert [one.positions for one in rig.sends] == [((0, 28),), ((28, 35),)]
    rig.come()
    assert rig.migrations.log.records[-1].outcome == "committed"


def test_a_request_without_a_full_block_waits_for_the_load_before_anything_is_sent() -> None:
    rig = MigrationRig(prompt=1, loading=True)
    rig.look(), rig.boundary()
    assert phase_of(rig) == "waiting" and rig.sends == []
    rig.load(), rig.boundary()
    assert phase_of(rig) == "last stage"


def test_nobody_migrates_to_one_that_loads_where_that_is_off() -> None:
    rig = MigrationRig(loading=True)
    rig.migrations._rules = type(rig.migrations._rules)("live", 1, 3, 7, 8, 8)
    rig.look()
    assert rig.migration is None and rig.migrations.log.declined == 1
