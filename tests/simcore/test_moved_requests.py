"""A request that moved is of one machine alone, though it would end at the same step of both."""

from serving.vocabulary.actions import Run
from serving.vocabulary.request import Request
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.replica.resident_requests import ResidentRequests
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Collected

NS = 1 << 24
SKEWED = ToyRows(5 * NS, NS // 3, NS // 50, 6 * NS, NS // 5, skew_percent=40)


def test_equal_counters_on_two_machines_bring_no_moved_request_back() -> None:
    lives = {0: Lifetime(Request(0, 0, 10, 50, "m"), 20), 1: Lifetime(Request(1, 0, 3, 50, "m"), 40)}
    for life in lives.values():
        life.generated, life.last_token_fixed = 1, 0
    recorder = Collected()
    source, destination = (ResidentRequests(id, lives, recorder, SKEWED) for id in (0, 1))  # type: ignore[arg-type]
    source._take_in((0, 1), 0)
    for machine in (source, destination):
        machine._steps_done, machine._context = 7, machine._context + 7 * machine.decoding
    assert source._largest() == 10 + 1 + 7
    source._take_out(0, 0, 0)
    destination._take_in((0,), 0)
    assert (lives[0].end, lives[0].generated) == (19, 8)
    assert (source.decoding, source._context, source._largest()) == (1, 3 + 8, 3 + 8)
    assert (destination.decoding, destination._largest()) == (1, 18)
    source._steps_done = destination._steps_done = (
        19  # where it would have ended on the one, and ends on the other
    )
    ended = list[int]()
    source._finish_decodes(ended, 100)
    assert ended == [] and source.decoding == 1
    destination._finish_decodes(ended, 100)
    assert ended == [0] and recorder.done[0][:2] == (1, 20) and destination.decoding == 0


def test_nor_does_one_that_went_there_and_back() -> None:
    lives = {0: Lifetime(Request(0, 0, 10, 50, "m"), 20)}
    lives[0].generated, lives[0].last_token_fixed = 1, 0
    recorder = Collected()
    here, there = (ResidentRequests(id, lives, recorder, SKEWED) for id in (0, 1))  # type: ignore[arg-type]
    here._take_in((0,), 0)
    here._take_out(0, 0, 0)
    there._take_in((0,), 0)
    there._take_out(0, 0, 0)
    here._take_in((0,), 0)
    assert here._ends == [(19, 0)] and there._ends == []
    here._steps_done = there._steps_done = 19
    ended = list[int]()
    for machine in (there, here):
        machine._finish_decodes(ended, 100)
    assert ended == [0] and recorder.done[0][0] == 0


def test_who_begins_to_decode_after_the_last_one_left_has_not_waited() -> None:
    """A request comes with its KV and leaves before its first token here; the next prompt's gap counts."""
    lives = {0: Lifetime(Request(0, 0, 10, 50, "m"), 20), 1: Lifetime(Request(1, 0, 3, 50, "m"), 4)}
    lives[0].generated, lives[0].last_token_fixed = 1, 0
    recorder = Collected()
    machine = Machine(0, ToyRows(5 * NS, NS, 0, 6 * NS, NS), lives, recorder)
    machine._take_in((0,), 0)
    machine._take_out(0, 0, 0)
    machine.start(10, Run(0, 0, ((1, 0, 3),), True, 1, True, "chunked"))
    machine.complete()
    machine.start(machine.due_ns, Run(0, 0, (), True, 3, True, "decode"))
    machine.complete()
    assert recorder.done[1][:2] == (0, 4)
    assert len(recorder.all_gaps) == 3
