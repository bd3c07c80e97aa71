"""State is told of, and gets room, while a worker computes; what waits for a boundary keeps its order."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from realexec.wire.messages import Fetch, Forget, Hold, Locate, Located, Open, RunSteps, StepsDone
from realexec.worker.worker import Worker
from tests.worlds.real_runs import TINY
from tests.worlds.wired import Wired

pytestmark = pytest.mark.real
pytest.importorskip("torch")
pytest.importorskip("transformers")

SLOW_S = 60.0


class World:
    """A driver's end, a worker's memory and its engine: a step ends when the driver has said all it says."""

    def __init__(self, *says: Any) -> None:
        self.done: list[Any] = []
        self.opened, self.stepping = threading.Event(), threading.Event()
        self.said, self.ended = threading.Event(), threading.Event()
        self.address: dict[str, Any] = {}
        self.mover = self.peers = SimpleNamespace()
        self.engine = self
        self._says = [
            Open(slot=0, kv_bytes=0, warm=True, host=False, paths=None, every_step=False),
            RunSteps(0, ((0, 0, 8),), False, 1, False),
            *says,
        ]

    def close(self) -> None:
        """Nothing is pinned."""

    def wait(self) -> None:
        """It computes on a CPU."""

    # The driver.

    def recv(self) -> Any:
        if not self._says:
            self.said.set()
            assert self.ended.wait(SLOW_S)
            raise EOFError
        if isinstance(self._says[0], RunSteps):
            assert self.opened.wait(SLOW_S)
        elif not isinstance(self._says[0], Open):
            assert self.stepping.wait(SLOW_S)
        return self._says.pop(0)

    def send(self, message: Any) -> None:
        self.opened.set()
        if isinstance(message, StepsDone):
            self.ended.set()
        elif isinstance(message, Located):
            self.done.append(f"located {message.transfer}")

    # The memory and its engine.

    def step(self, chunks: Any, decode: bool, hand_over: bool) -> Any:
        self.stepping.set()
        assert self.said.wait(SLOW_S)
        self.done.append("computed")
        return {}, ()

    def has_residents(self) -> bool:
        return False

    def assign(self, request: int, *_: Any) -> None:
        self.done.append(f"held {request}")

    def forget(self, request: int) -> None:
        self.done.append(f"forgot {request}")

    def holds(self, request: int) -> bool:
        return True

    def held(self, request: int) -> Any:
        return SimpleNamespace(decoding=request == 4)

    def locate(self, message: Locate) -> Located:
        return Located(message.transfer, ())

    def fetch(self, message: Fetch) -> None:
        self.done.append(f"fetched {message.transfer}")


def done_by(monkeypatch: pytest.MonkeyPatch, *says: Any) -> list[str]:
    """What a worker does of this, told in the middle of a step."""
    world = World(*says)
    monkeypatch.setattr("realexec.worker.slot_memory.SlotMemory", lambda **_: world)
    with pytest.raises(EOFError):
        Worker(Wired(world), TINY, 5, 4).serve()
    return world.done


def kv(transfer: int) -> Locate:
    return Locate(transfer, "kv", (1,), None, ())


def test_state_does_not_wait_for_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, fetch = Hold(1, (1, 2), (), 3), Fetch(8, "kv", 1, ())
    assert done_by(monkeypatch, kv(7), hold, fetch) == ["located 7", "held 1", "fetched 8", "computed"]


def test_what_was_told_before_is_done_before(monkeypatch: pytest.MonkeyPatch) -> None:
    done = done_by(monkeypatch, kv(6), Forget(4), Hold(4, (1, 2), (), 3), kv(7))
    assert done == ["located 6", "computed", "forgot 4", "held 4", "located 7"]


def test_only_who_is_in_the_step_is_forgotten_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert done_by(monkeypatch, Forget(5), kv(7)) == ["forgot 5", "located 7", "computed"]
    assert done_by(monkeypatch, Forget(0), kv(7)) == ["computed", "forgot 0", "located 7"], "its chunk is"


def test_hidden_states_wait_for_the_step_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = Fetch(8, "activations", 1, ())
    assert done_by(monkeypatch, kv(7), fetch, kv(9)) == ["located 7", "computed", "fetched 8", "located 9"]


def test_what_goes_wrong_meanwhile_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("nobody holds it")

    monkeypatch.setattr(World, "locate", fails)
    world = World(kv(7))
    world.ended.set()
    monkeypatch.setattr("realexec.worker.slot_memory.SlotMemory", lambda **_: world)
    with pytest.raises(KeyError, match="nobody holds it"):
        Worker(Wired(world), TINY, 5, 4).serve()
