"""Places on a cluster's nodes, with a stand-in for Ray whose actors are objects of this process."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from realexec.http import ray_hosts
from realexec.http.instance_launcher import NotReady
from realexec.http.kept_server import Seen, how_ended
from realexec.http.ray_hosts import RayHosts, RaySeat, Share, room_for, share_of
from realexec.http.ray_server import MOST_LOG_BYTES, ServerActor, ServerLook
from realexec.http.server_keeper import KILL, TERMINATE
from realexec.launchers.ray_actor import Where, boot_id
from serving.vocabulary.errors import UserError
from tests.worlds.processes import wait_until

NODE = "a" * 40


def listed(cpus: float, gpus: float = 0.0, alive: bool = True) -> dict[str, Any]:
    return {
        "NodeID": NODE, "NodeManagerAddress": "10.0.0.7", "NodeManagerPort": 1, "Alive": alive,
        "Resources": {"CPU": cpus, **({"GPU": gpus} if gpus else {})},
    }  # fmt: skip


class Gone(Exception):
    """Stands for RayError."""


@dataclass
class Ray:
    """``placed``: whether there is a place; ``done``: what was asked of it, in this order."""

    nodes_are: list[Mapping[str, Any]] = field(default_factory=lambda: [listed(2)])
    placed: bool = True
    gone: bool = False
    done: list[Any] = field(default_factory=list)
    exceptions: Any = field(default_factory=lambda: SimpleNamespace(RayError=Gone))

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[Mapping[str, Any]]:
        return self.nodes_are

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.done.append(options)
        return lambda kind: SimpleNamespace(remote=lambda: Handle(self, kind()))

    def wait(self, asked: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return (asked, []) if self.placed else ([], asked)

    def get(self, asked: Any) -> Any:
        if self.gone:
            raise Gone("\nThe actor died.\nMore.")
        return asked

    def kill(self, actor: "Handle") -> None:
        self.done.append("kill")
        actor.of.tell(KILL)


@dataclass
class Handle:
    ray: Ray
    of: ServerActor

    def __getattr__(self, name: str) -> Any:
        def called(*words: Any) -> Any:
            if name == "place":
                return Where(NODE, "127.0.0.1", boot_id(), ""), 8000, ["0"]
            self.ray.done.append(name)
            return getattr(self.of, name)(*words)

        return SimpleNamespace(remote=called)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    found = Ray()
    monkeypatch.setitem(sys.modules, "ray", found)
    monkeypatch.setattr(ray_hosts, "imported", lambda: found)
    monkeypatch.setattr("realexec.launchers.ray_cluster._answers", lambda _: True)
    return found


@pytest.fixture
def hosts(ray: Ray) -> Iterator[RayHosts]:
    made = RayHosts(None, Share(2, 1), 1)
    ray.nodes_are = [listed(2, 1)]
    made.open()
    yield made
    made.close()


def seat_of(hosts: RayHosts, within_s: float = 60.0) -> RaySeat:
    return asyncio.run(hosts.seat(time.monotonic_ns() + round(within_s * 1e9)))


@pytest.mark.parametrize(
    ("cores", "gpus", "share", "said"),
    [
        (None, None, Share(1, 0), "1 CPU"),
        (4, None, Share(4, 0), "4 CPUs"),
        (None, 1, Share(0, 1), "1 GPU"),
        (8, 2, Share(8, 2), "8 CPUs and 2 GPUs"),
    ],
)
def test_a_server_takes_what_it_declares(
    cores: int | None, gpus: int | None, share: Share, said: str
) -> None:
    assert share_of(cores, gpus) == share and str(share) == said


def test_servers_fit_on_nodes_as_a_whole() -> None:
    nodes = [listed(7, 2), listed(3), listed(3, 1), listed(64, 8, alive=False)]
    assert [room_for(share, nodes) for share in (Share(2, 0), Share(2, 1), Share(0, 1), Share(8, 0))] == [
        3 + 1 + 1, 2 + 0 + 1, 2 + 0 + 1, 0,
    ]  # fmt: skip


def test_a_cluster_without_room_is_refused(ray: Ray) -> None:
    with pytest.raises(UserError, match=r"has room for 1 servers of 2 CPUs each, and there may be 3: write"):
        RayHosts(None, Share(2, 0), 3).open()


def test_a_server_begins_and_ends_by_its_actor(ray: Ray, hosts: RayHosts, tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text("before\n")
    began_ns = time.monotonic_ns()
    seat = seat_of(hosts)
    asked = {"num_cpus": 2, "num_gpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    assert ray.done == [asked] and seat.look() == Seen(None, "") and seat.placed_ns is not None
    assert seat.facts() == {
        "node": f"Ray node {NODE[:8]} (10.0.0.7)", "host": "127.0.0.1", "port": 8000,
        "cpus": 2, "gpus": ["0"],
    }  # fmt: skip
    seat.start(["sh", "-c", "echo served; trap 'echo ends; exit 7' TERM; while :; do sleep 0.01; done"], log)
    wait_until(
        lambda: seat.look().began_ns is not None and b"served\n" in log.read_bytes(), "it did not begin"
    )
    assert began_ns <= seat.placed_ns <= (seat.look().began_ns or 0) <= time.monotonic_ns()
    seat.tell(TERMINATE)
    wait_until(lambda: seat.look().ended, "it did not end")
    assert seat.look().ended == how_ended(7) == "its process ended with exit status 7"
    lines = log.read_text().splitlines()
    assert (lines[:2], lines[-1]) == (["before", "served"], "ends")
    seat.free()
    assert [one for one in ray.done[1:] if one != "look"] == ["start", "tell", "kill"]


def test_a_killed_server_and_a_command_that_is_none(hosts: RayHosts, tmp_path: Path) -> None:
    for command, ended in (
        (["sh", "-c", "kill -9 $$"], "its process was ended by SIGKILL"),
        (["no-such-command"], "its process ended with exit status 127"),
    ):
        seat = seat_of(hosts)
        seat.start(command, tmp_path / "0.log")
        wait_until(lambda: seat.look().ended, "it did not end")  # noqa: B023
        assert seat.look().ended == ended
        seat.free()
    assert "no-such-command: No such file" in (tmp_path / "0.log").read_text()


def test_an_actor_without_a_place_in_time_is_ended(ray: Ray, hosts: RayHosts) -> None:
    ray.placed = False
    with pytest.raises(NotReady, match="started no actor in time: no node has 2 CPUs and 1 GPU free"):
        seat_of(hosts, 0.0)
    ray.placed, ray.gone = True, True
    with pytest.raises(NotReady, match=r"cannot start servers \(The actor died\): install this version"):
        seat_of(hosts)
    assert [one for one in ray.done if one == "kill"] == ["kill", "kill"]


# What is told of an actor elsewhere.


class Script:
    """An actor whose answers are written here."""

    def __init__(self, *looks: ServerLook) -> None:
        self.looks = list(looks)
        self.look = SimpleNamespace(remote=lambda: self.looks.pop(0) if self.looks else object())
        self.start = self.tell = SimpleNamespace(remote=lambda *_: None)


def elsewhere(actor: Any, log: Path, lost: Callable[[], str | None] = lambda: None) -> RaySeat:
    place = ray_hosts.Place(Where(NODE, "10.0.0.7", "another boot", ""), 8000, ())
    seat = RaySeat(actor, place, Share(), node="n", node_lost=lost, end=lambda: None)
    seat.start(["serve"], log)
    return seat


def test_times_of_another_clock_become_ours(ray: Ray, tmp_path: Path) -> None:
    looks = [ServerLook(1000, 1000 + 5 * 10**9, "", b""), ServerLook(1000, 1000 + 9 * 10**9, "", b"x")]
    seat = elsewhere(Script(*looks), tmp_path / "log")
    assert seat.look() == Seen(None, ""), "it was only asked"
    before_ns = time.monotonic_ns()
    began_ns = seat.look().began_ns
    assert began_ns is not None and before_ns <= began_ns + 5 * 10**9 <= time.monotonic_ns()
    assert seat.look().began_ns == began_ns, "a later answer does not move it"
    assert (tmp_path / "log").read_bytes() == b"x"


def test_the_end_of_a_node_is_told_before_that_of_its_actor(
    ray: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, lost = [100.0], [None, "node n is gone"]
    monkeypatch.setattr(ray_hosts.time, "monotonic", lambda: now_s[0])
    ray.gone = True
    for node_lost, ended in ((lost[0], "its Ray actor is gone (The actor died)"), (lost[1], lost[1])):
        told: list[str | None] = [None]
        seat = elsewhere(Script(), tmp_path / "log", lambda told=told: told[0])  # type: ignore[misc]
        assert [seat.look().ended, seat.look().ended] == ["", ""], "which of the two is not known yet"
        told[0] = node_lost
        now_s[0] += 0.0 if node_lost else 2.1
        assert seat.look().ended == ended
        seat.free()


def test_a_server_has_ended_once_its_whole_log_is_here(tmp_path: Path) -> None:
    actor = ServerActor()
    actor.start(["sh", "-c", f"head -c {MOST_LOG_BYTES + 10} /dev/zero; exit 3"])
    seen: list[ServerLook] = []

    def ended() -> bool:
        seen.append(actor.look())
        return bool(seen[-1].ended)

    wait_until(ended, "it did not end")
    assert sum(len(one.log) for one in seen) == MOST_LOG_BYTES + 10
    assert [bool(one.ended) for one in seen[:-1]] == [False] * (len(seen) - 1)
