"""Workers of stages that tell each other: when it is whose turn, what waits, and what the driver hears of."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from realexec.wire.handshake import new_secret
from realexec.wire.listener import Listener
from realexec.wire.messages import Passed, RoundsDone, RunRounds
from realexec.wire.stage_costs import StageCosts

PATH = ((4, 0, 1), (6, 1, 3))
PROMPT = ((7, 0, 3),)
MANY = 1 << 40


class Engine:
    """Samples 100 and upwards; ``ends``: the token with which a request ends. ``gone``: nobody is here."""

    def __init__(self) -> None:
        self.at, self.ends, self.gone = 100, 0, False
        self.ran: list[Any] = []

    def holds(self, request: int) -> bool:
        return not self.gone

    def told(self, tokens: dict[int, int]) -> None:
        self.ran.append(tokens)

    def run_layers(self, chunks: Any, layers: Any, requests: Any, hand_over: bool) -> Any:
        sampled = {}
        for request in [*[one[0] for one in chunks], *requests]:
            sampled[request], self.at = self.at, self.at + 1
        return sampled, tuple(one for one, token in sampled.items() if token == self.ends)


class Told:
    """A worker's rounds with nothing around them. ``said``: to the driver; ``passed``: (slot, message)."""

    def __init__(self, slot: int) -> None:
        pytest.importorskip("torch")
        from realexec.worker.stage_work import StageWork

        self.engine, self.said, self.passed = Engine(), [], []
        self.lost: str = ""
        memory: Any = SimpleNamespace(peers=SimpleNamespace(slot=slot), engine=self.engine, wait=lambda: None)
        self.work = StageWork(memory, self, self.said.append, lambda thing: thing())  # type: ignore[arg-type]
        # What lies in memory and is read from there is for real workers to show.
        self.work._write_rows = lambda batch, requests: (64, 128)  # type: ignore[method-assign]
        self.work._read_input = lambda rounds, decode, what: self.work._run_pass(
            rounds, decode, before=what.costs
        )  # type: ignore[method-assign]

    def tell(self, slot: int, message: Passed) -> str:
        self.passed.append((slot, message))
        return self.lost


def rounds(number: int, decode: Any = (), chunks: Any = (), most: int = MANY, path: Any = PATH) -> RunRounds:
    return RunRounds(number=number, batch=0, path=path, chunks=chunks, decode=decode, rounds=most)


def test_the_first_stage_begins_and_tells_the_next_where_its_rows_lie() -> None:
    first = Told(4)
    first.work.begin(rounds(0, ((7, 42),)))
    ((slot, message),) = first.passed
    assert (
        slot == 6
        and message[:4] == (0, 0, (64, 128), (7, 42))
        and len(message.costs) == len(StageCosts._fields)
    )
    first.work.passed(Passed(0, 0, (), (7, 43), ()))
    assert first.passed[1][1].decode == (7, 43) and first.engine.ran == [{7: 42}, {7: 43}]
    assert first.said == [], "the driver hears of it from the last stage"


def test_the_last_stage_tells_the_first_until_a_request_has_ended() -> None:
    last = Told(6)
    last.engine.ends = 101
    last.work.begin(rounds(3, ((7, 42),)))
    assert (last.passed, last.said) == ([], []), "it is not its turn"
    last.work.passed(Passed(3, 0, (64, 128), (7, 42), (5, 0, 2, 0)))
    assert last.passed == [(4, Passed(3, 0, (), (7, 100), ()))]
    last.work.passed(Passed(3, 0, (64, 128), (7, 100), (6, 0, 3, 0)))
    (done,) = last.said
    assert (done.number, done.tokens, done.finished, len(done.ends_ns)) == (3, {7: (100, 101)}, (7,), 2)
    assert done.costs[0] == (11, 0, 5, 0) and len(done.costs) == 2 and len(last.passed) == 1


def test_a_turn_that_comes_before_the_word_of_the_driver_waits_for_it() -> None:
    last = Told(6)
    last.work.passed(Passed(0, 0, (64, 128), (), (5, 0, 2, 0)))
    assert (last.passed, last.said) == ([], [])
    last.work.begin(rounds(0, (), PROMPT, 1))
    assert last.said[0].tokens == {7: (100,)}, "a prompt is one round"
    for number, most in ((1, MANY), (2, 1)):  # as if what was told of 1 had been lost on its way
        last.work.begin(rounds(2, ((7, 100),), most=most))
        last.work.passed(Passed(number, 0, (64, 128), (7, 100), (5, 0, 2, 0)))
        assert len(last.said) == number, "a turn of rounds that are over is none"


def test_one_round_is_told_for_a_stop_and_none_where_nothing_goes_round() -> None:
    last = Told(6)
    last.work.stop()
    last.work.begin(rounds(0, ((7, 42),)))
    turn = Passed(0, 0, (64, 128), (7, 42), (5, 0, 2, 0))
    last.work.passed(turn)
    assert last.said == [], "the stop came before"
    last.work.stop()
    last.work.passed(turn)
    assert [len(one.ends_ns) for one in last.said] == [2]
    last.work.stop()
    last.work.begin(rounds(1, ((7, 42),)))
    last.work.passed(turn._replace(number=1))
    assert len(last.said) == 1, "it was told already"


def test_what_goes_no_further_is_told_with_its_cause() -> None:
    first, last = Told(4), Told(6)
    first.lost = "the worker in slot 6 is not reached"
    first.work.begin(rounds(0, ((7, 42),)))
    assert first.said == [
        RoundsDone(number=0, ends_ns=(), tokens={}, finished=(), costs=(), cause=first.lost, lost_peer=6)
    ]
    last.engine.gone = True
    last.work.begin(rounds(0, ((7, 42),)))
    last.work.passed(Passed(0, 0, (64, 128), (7, 42), (5, 0, 2, 0)))
    assert (
        last.said[0].cause == "its requests are no longer on this worker" and last.said[0].lost_peer is None
    )


def test_a_stage_alone_goes_round_by_itself() -> None:
    alone = Told(4)
    alone.work.begin(rounds(0, ((7, 42),), most=3, path=((4, 0, 3),)))
    assert alone.said[0].tokens == {7: (100, 101, 102)} and alone.passed == []


def test_workers_reach_each_other_with_the_secret_of_the_run_and_hear_when_they_wait() -> None:
    from realexec.worker.compute_inbox import ComputeInbox
    from realexec.worker.stage_peers import StageChannels
    from tests.worlds.wired import Wired

    class Silent:
        def recv(self) -> Any:
            threading.Event().wait()

        send = None

    secret = new_secret()
    driver = Listener(secret, lambda channel, _: channel.close())
    run = {"secret": secret.hex(), "address": driver.address}
    inboxes = [ComputeInbox(Wired(Silent()), print) for _ in range(2)]
    near, far = (StageChannels(slot, run, "127.0.0.1", one) for slot, one in enumerate(inboxes))
    stranger = StageChannels(2, run | {"secret": new_secret().hex()}, "127.0.0.1", inboxes[0])
    for one in (near, far, stranger):
        one.meet([near.address, far.address])
    message = Passed(1, 2, (3, 4), (5, 6), ())
    assert near.tell(1, message) == "" and inboxes[1].next(wait=True) == message
    assert "is not reached" in stranger.tell(1, message)
    far.close()
    near.close()
    stranger.close()
    driver.close()
    assert "is not reached" in far.tell(0, message), "nobody listens there any more"
