"""Workers that go while parameters or KV are on their way: nothing waits for ever, and others go on."""

import signal

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.driver.driver import WorkerFleet
from serving.vocabulary.events import Loaded, LoadStopped, Lost, Sent
from tests.worlds.real_scripts import Chain, Move, run

pytestmark = pytest.mark.real

KILLED = "the worker process was ended by SIGKILL"
STOPPED = "nothing was heard of the worker process for 4 s: it is stopped (SIGSTOP or a debugger)"
# So that a layer takes a second, and a death comes in the middle of something, however busy the machine.
SLOW = {"nic": 2e5}


@pytest.mark.parametrize(
    ("victim", "how", "cause", "transport"),
    [
        (0, signal.SIGKILL, KILLED, "shared_memory"),
        (1, signal.SIGKILL, KILLED, "tcp"),
        (2, signal.SIGKILL, KILLED, "tcp"),
        (2, signal.SIGSTOP, STOPPED, "shared_memory"),
    ],
    ids=["source", "middle", "target", "target stopped"],
)
def test_a_chain_that_loses_a_worker(victim: int, how: signal.Signals, cause: str, transport: str) -> None:
    chain = Chain(victim, how)
    report, records = run(chain, 3, WorkerFleet(replicas=(0,), opens=True, rates=SLOW, transport=transport))
    assert report.lost == ((victim, cause),) and chain.of(Lost) == [Lost(victim, cause)]
    stopped = {event.load: event for event in chain.of(LoadStopped)}
    assert set(stopped) == ({1} if victim == 2 else {0, 1})
    for event in stopped.values():
        assert event.cause.endswith(cause), "the driver's word goes before that of who read from it"
        told = [one.layers for one in chain.of(Loaded) if one.load == event.load]
        assert event.layers == max(told), "what is whole stays whole"
    whole = [event.load for event in chain.of(Loaded) if event.fully_loaded]
    assert whole == ([0] if victim == 2 else [])
    assert records.ended == {0: "refused: nobody has the whole model" if victim == 0 else "finished"}


@pytest.mark.parametrize("victim", [0, 1], ids=["source", "target"])
def test_kv_on_its_way_ends_with_either_worker(victim: int) -> None:
    move = Move(victim, signal.SIGKILL)
    slow = WorkerFleet(opens=True, rates={"nic": 3e3})  # 20 positions of 3 layers: 15 KB
    report, records = run(move, 2, slow)
    (sent,) = move.of(Sent)
    assert (sent.cause, sent.moved_bytes) == (KILLED, 0)
    assert report.lost == ((victim, KILLED),)
    assert records.ended == {0: "failed: its KV did not come"}
