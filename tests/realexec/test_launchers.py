"""Who starts workers, with no Ray cluster: what the driver makes of an actor's words, clocks, refusals."""

import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from realexec.driver.processes import RemoteClock
from realexec.launchers import ray_cluster as ray_nodes
from realexec.launchers.ray_actor import Look, Where
from realexec.launchers.ray_cluster import Nodes, imported, refuse_unreached
from realexec.launchers.ray_process import NO_ANSWER, RayProcess, first_line
from realexec.wire.listener import LOOPBACK
from realexec.wire.messages import Alive, RoundsDone, StepsDone
from serving.vocabulary.errors import UserError
from tests.worlds.processes import wait_until

HERE = Where("a1b2c3d4e5", "10.0.0.7", "boot", "CPython 3.11")


def test_times_of_another_host_are_told_in_those_of_this_one() -> None:
    """Its clock shows 1,000 less; heart-beats take 30, 20 and 90 to come."""
    clock = RemoteClock()
    assert [clock.beat(sent, sent + 1000 + late) for sent, late in ((0, 30), (100, 20), (200, 90))] == [
        1030,
        1120,
        1220,
    ]
    done = StepsDone(
        epoch=0, started_ns=300, ends_ns=(310, 320), tokens={7: (1, 2)}, finished=(), running=False
    )
    assert clock.here(done) == done._replace(started_ns=1320, ends_ns=(1330, 1340))
    rounds = RoundsDone(0, (410, 430), {}, (), ((10, 0, 0, 0),))
    assert clock.here(rounds) == rounds._replace(ends_ns=(1430, 1450))
    failed = RoundsDone(
        number=0,
        ends_ns=(),
        tokens={},
        finished=(),
        costs=(),
        cause="its requests are no longer on this worker",
    )
    assert clock.here(failed) == failed and clock.here(Alive()) == Alive()
    clock.beat(500, 1505)  # came faster, but steps have been told by then
    assert clock.here(done).started_ns == 1320


class FakeRay:
    """Answers are there when a test says so. ``calls``: what was asked of the actor."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: list[Any] = []
        self.exceptions = SimpleNamespace(RayError=ConnectionError)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda: self.calls.append(name) or len(self.calls))

    def wait(self, asked: list[int], timeout: float) -> tuple[list[int], list[int]]:
        assert timeout == 0
        return (asked, []) if self.answers else ([], asked)

    def get(self, asked: int, timeout: float = 0.0) -> Any:
        if not self.answers:
            raise TimeoutError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def process(actor: Any, lost: str | None = None) -> RayProcess:
    return RayProcess(actor, 4711, HERE, False, lambda: lost)


def test_a_seat_is_asked_once_at_a_time_and_never_waited_for(ray: FakeRay) -> None:
    worker = process(ray)
    assert worker.ended() is None and not worker.ran() and ray.calls == ["look"]
    ray.answers.append(Look(None, True, "it runs", 5))
    assert worker.ran() and ray.calls == ["look", "look"]
    assert not worker.ran(), "what was seen before counts once"
    ray.answers.append(Look("the worker process ended with exit status 3", False, "", 0))
    assert worker.ended() == "the worker process ended with exit status 3"
    assert worker.ended() == "the worker process ended with exit status 3"


def test_what_a_seat_does_not_say_is_not_made_up(ray: FakeRay) -> None:
    worker = process(ray)
    assert (worker.silence(), worker.cpu_ns()) == (NO_ANSWER, 0)
    ray.answers += [Look(None, False, "it is stopped", 9), Look(None, False, "it is stopped", 9)]
    assert (worker.silence(), worker.cpu_ns()) == ("it is stopped", 9)
    assert worker.end_within(0.01) is None


@pytest.mark.parametrize(
    ("lost", "cause"),
    [
        (None, "its Ray actor is gone (The actor died)"),
        ("Ray node a1b2c3d4 (10.0.0.7) is gone", "Ray node a1b2c3d4 (10.0.0.7) is gone"),
    ],
)
def test_a_seat_that_is_gone_tells_by_that(ray: FakeRay, lost: str | None, cause: str) -> None:
    ray.answers.append(ConnectionError("\nThe actor died.\nMore."))
    worker = process(ray, lost)
    worker.ran()
    assert worker.end_within(10.0) == cause == worker.ended()
    assert worker.cut_off() == lost


def test_the_first_line_that_says_something() -> None:
    assert first_line(ValueError("\n\n  no such node.  \nat 12")) == "no such node"
    assert first_line(ValueError()) == "ValueError"


def test_a_node_is_gone_when_it_is_no_member_or_takes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_nodes, "LOOK_S", 0.01)
    with socket.create_server((LOOPBACK, 0)) as raylet:
        port = raylet.getsockname()[1]
        up, left, refuses = (
            {"NodeID": name * 10, "Alive": True, "NodeManagerAddress": LOOPBACK, "NodeManagerPort": port}
            for name in "abc"
        )
        with socket.create_server((LOOPBACK, 0)) as other:
            refuses["NodeManagerPort"] = other.getsockname()[1]
        nodes = Nodes(SimpleNamespace(nodes=lambda: [up, left, refuses]))
        try:
            wait_until(lambda: nodes.lost("c" * 10), "it does not look")
            assert nodes.lost("c" * 10) == f"Ray node cccccccc ({LOOPBACK}) is gone"
            assert nodes.lost("a" * 10) is nodes.lost("b" * 10) is None
            left["Alive"] = False
            wait_until(lambda: nodes.lost("b" * 10), "it does not look")
            assert nodes.lost("a" * 10) is None
        finally:
            nodes.close()


def test_what_keeps_from_a_cluster_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_unreached("auto")
    with socket.create_server((LOOPBACK, 0)) as head:
        address = f"{LOOPBACK}:{head.getsockname()[1]}"
        refuse_unreached(address)
    with pytest.raises(UserError, match=rf"no Ray cluster is reached by ray.address={address} \(.*refused\)"):
        refuse_unreached(address)
    for wrong in ("ray://head:10001", "head", ":6379", "head:port"):
        with pytest.raises(UserError, match=f"ray.address={wrong} is no HOST:PORT: write that of"):
            refuse_unreached(wrong)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"launcher=ray needs ray: pip install 'servetwin\[ray\]'"):
        imported()
