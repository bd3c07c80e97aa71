"""What a worker tells of a peer that it lost waits until the driver knows whether that one died."""

import threading
from typing import Any

import pytest

from realexec.memory.arena import Arena
from realexec.transports.base import PeerLost, Segment
from realexec.wire.messages import Died, Fetched, Locate, Located, Meet, Open, Pull, Pulled
from realexec.worker.peers import Peers
from realexec.worker.worker import Worker
from realexec.world import execution as held_reports
from realexec.world.execution import HeldReports
from tests.worlds.real_runs import TINY
from tests.worlds.told_workers import ToldWorld
from tests.worlds.transports_here import transports
from tests.worlds.wired import Wired

LOST = Pulled(0, 2, 0, "the peer's process has ended", 1)


def doubting() -> tuple[ToldWorld, HeldReports]:
    told = ToldWorld()
    return told, HeldReports(told.world.slots)


@pytest.mark.parametrize("message", [LOST, Fetched(3, 0, "the connection broke", 1)], ids=["unit", "state"])
def test_it_waits_for_the_end_of_the_peer(message: Any) -> None:
    told, unsure = doubting()
    assert unsure.puts_off(2, message) and unsure and unsure.settled() is None
    told.world.lose(1, "killed", has_hosts=True)
    assert unsure.settled() == (2, message) and not unsure and unsure.settled() is None


def test_a_peer_that_runs_is_not_lost() -> None:
    told, unsure = doubting()
    told.pool.workers[1].beat_ns = held_reports.time.monotonic_ns()  # sent before it was lost, and read later
    assert unsure.puts_off(2, LOST) and unsure.settled() is None
    told.pool.workers[1].beat_ns = held_reports.time.monotonic_ns()
    assert unsure.settled() == (2, LOST)


def test_nobody_doubts_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    _, unsure = doubting()
    assert unsure.puts_off(2, LOST)
    monkeypatch.setattr(held_reports, "PATIENCE_NS", -1)
    assert unsure.settled() == (2, LOST)


@pytest.mark.parametrize(
    "message", [Pulled(0, 2, 64, ""), Pulled(0, 2, 0, "ValueError: no such unit"), Died("killed")], ids=str
)
def test_what_is_no_loss_is_believed(message: Any) -> None:
    _, unsure = doubting()
    assert not unsure.puts_off(2, message) and not unsure


def test_only_who_runs_or_is_known_to_be_dead_lets_a_run_be_called_stalled() -> None:
    told, since_ns = ToldWorld(3), held_reports.time.monotonic_ns()
    slots = told.world.slots
    assert slots.unknown_since(since_ns) == [0, 1, 2]
    told.pool.workers[0].beat_ns = since_ns + 1
    assert slots.unknown_since(since_ns) == [1, 2]
    told.world.lose(1, "killed", has_hosts=False)
    assert slots.unknown_since(since_ns) == [2]


class _Says:
    """A driver's end: says `Meet` and `Pull` in one breath, while the worker's compute thread is busy."""

    def __init__(self) -> None:
        self.opened, self.busy, self.pulled = threading.Event(), threading.Event(), threading.Event()
        busy = Locate(0, "kv", (), None, ())
        self.says: list[Any] = [
            Open(slot=0, kv_bytes=0, warm=True, host=False, paths=None, every_step=False),
            self.opened,
            busy,
            self.busy,
        ]
        self.says += [Meet(({}, {})), Pull(0, 1, ("replica", 1), "replica"), self.pulled]

    def recv(self) -> Any:
        while self.says and isinstance(self.says[0], threading.Event):
            assert self.says.pop(0).wait(60)
        if not self.says:
            raise EOFError
        return self.says.pop(0)

    def send(self, message: Any) -> None:
        self.opened.set()


class _Memory:
    """Of a worker; what its data threads are told, and how many peers they know by then."""

    def __init__(self, driver: _Says) -> None:
        self.driver, self.address, self.peers, self.mover, self.engine = driver, {}, self, self, None
        self.known, self.at_pull = 0, -1

    def close(self) -> None:
        """Nothing is pinned."""

    def locate(self, message: Any) -> Any:
        self.driver.busy.set()
        assert self.driver.pulled.wait(60), "the compute thread was waited for"
        return Located(0, ())

    def meet(self, addresses: tuple[Any, ...], linked: Any) -> None:
        self.known = len(addresses)

    def handle(self, message: Any) -> None:
        self.at_pull = self.known
        self.driver.pulled.set()


@pytest.mark.real
def test_peers_are_known_before_a_pull_however_busy_the_worker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    driver = _Says()
    memory = _Memory(driver)
    monkeypatch.setattr("realexec.worker.slot_memory.SlotMemory", lambda **_: memory)
    with pytest.raises(EOFError):
        Worker(Wired(driver), TINY, 5, 4).serve()
    assert memory.at_pull == 2


@pytest.mark.parametrize("name", transports())
def test_a_link_that_broke_is_made_anew(name: str) -> None:
    with Arena.create(4096) as theirs, Arena.create(4096) as ours:
        source, target = (
            Peers(0, theirs, paths=None, transport=name),
            Peers(1, ours, paths=None, transport=name),
        )
        target.meet([source.address({}), target.address({})])
        theirs.buffer[:5] = b"layer"
        target.read(0, [Segment(0, 64, 5)])
        target._links[0].close()
        with pytest.raises(PeerLost):
            target.read(0, [Segment(0, 128, 5)])
        target.read(0, [Segment(0, 128, 5)])
        assert bytes(ours.buffer[128:133]) == b"layer"
        target.close()
        source.close()
