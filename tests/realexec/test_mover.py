"""What goes wrong in threads that move bytes ends the worker at once, and its cause is told."""

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.driver import driver
from realexec.driver.driver import WorkerFleet
from realexec.driver.processes import WorkerPool
from realexec.transports.base import Segment
from realexec.wire.messages import Open, Pull, StopFetch
from realexec.worker.mover import Mover
from realexec.worker.worker import Worker
from serving.vocabulary.events import Lost, Sent
from tests.worlds.processes import patience_s
from tests.worlds.real_runs import TINY
from tests.worlds.real_scripts import Move, run
from tests.worlds.wired import Wired

pytestmark = pytest.mark.real

CAUSE = "ValueError: as the test says"
SOON_S = 2.0


def fails(*_: object) -> None:
    raise ValueError("as the test says")


def silent(*_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("send", "begin"),
    [
        (silent, lambda mover: mover.fetch(0, 0, [Segment(0, 0, 8)], fails)),
        (fails, lambda mover: mover.fetch(0, 0, [Segment(0, 0, 8)], silent)),
        (silent, lambda mover: mover.read(0, [Segment(0, 0, 8)], fails)),
        (fails, lambda mover: mover.handle(Pull(0, 1, ("replica", 0), "replica"))),
        (silent, lambda mover: mover.delay_pulls(SimpleNamespace(wait=fails))),
    ],
    ids=["told that it came", "says that it came", "rows of a stage", "says of a unit", "held up"],
)
def test_an_exception_of_a_data_thread_is_told(
    send: Callable[[object], None], begin: Callable[[Mover], None]
) -> None:
    failed: list[Exception] = []
    told = threading.Event()

    def tell(error: Exception) -> None:
        failed.append(error)
        told.set()

    peers: Any = SimpleNamespace(read=silent, close=silent)
    mover = Mover(peers, SimpleNamespace(at=fails), send, tell)  # type: ignore[arg-type]
    begin(mover)
    assert told.wait(patience_s()), "it was swallowed"
    mover.close()
    assert [str(error) for error in failed] == ["as the test says"]


class _Says:
    """A driver's end: the worker cannot do the second thing that it is told."""

    def __init__(self) -> None:
        self.says, self.opened = (
            [Open(slot=0, kv_bytes=0, warm=True, host=False, paths=None, every_step=False), StopFetch(0)],
            threading.Event(),
        )

    def recv(self) -> Any:
        if len(self.says) == 1:
            assert self.opened.wait(patience_s())
        if not self.says:
            threading.Event().wait(2 * patience_s())  # it says no more, and does not go away
        return self.says.pop(0)

    def send(self, message: Any) -> None:
        self.opened.set()


def test_what_the_listening_thread_cannot_do_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    mover = SimpleNamespace(handle=fails)
    memory = SimpleNamespace(address={}, engine=None, mover=mover, close=lambda: None)
    monkeypatch.setattr("realexec.worker.slot_memory.SlotMemory", lambda **_: memory)
    with pytest.raises(ValueError, match="as the test says"):
        Worker(Wired(_Says()), TINY, 5, 4).serve()


def test_a_run_ends_with_the_cause_and_not_with_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's data thread fails when it has KV of the source: the worker is lost, and the transfer."""
    faulty = "tests.worlds.real_workers:cannot_tell_of_transfers"
    monkeypatch.setattr(driver, "WorkerPool", partial(WorkerPool, entry=faulty))
    move = Move(victim=1, how=0)
    report, records = run(move, 2, WorkerFleet(opens=True))
    assert report.lost == ((1, CAUSE),) and move.of(Lost) == [Lost(1, CAUSE)]
    (sent,) = move.of(Sent)
    assert sent.cause == CAUSE and records.ended == {0: "failed: its KV did not come"}
    asked_ns = next(at for at, one in zip(move.told_ns, move.events) if type(one).__name__ == "Ran")
    lost_ns = move.told_ns[move.events.index(Lost(1, CAUSE))]
    assert (lost_ns - asked_ns) / 1e9 < SOON_S
