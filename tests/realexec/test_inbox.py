"""What many peers send is read by the one thread that takes it."""

import queue
import select
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from realexec.wire import inbox
from realexec.wire.channel import Channel
from realexec.wire.frames import ChannelClosed, ProtocolError, encoded
from realexec.wire.inbox import Inbox
from tests.worlds.processes import patience_s

LONG = bytes(range(256)) * 1000


class Peers:
    """Two that send, and what becomes of them."""

    def __init__(self) -> None:
        self.inbox: Inbox[tuple[int, Any]] = Inbox()
        self.theirs: list[socket.socket] = []
        self.ours: list[Channel] = []
        self.ends: list[Exception] = []
        for number in range(2):
            ours, theirs = socket.socketpair()
            self.ours.append(Channel(ours))
            self.theirs.append(theirs)
            self.watch(number)

    def watch(self, number: int) -> None:
        def take(head: dict[str, Any], payload: bytes) -> None:
            self.inbox.put((number, head.get("n", payload)))

        self.inbox.watch(self.ours[number], take, self.ends.append)

    def say(self, number: int, *frames: int) -> None:
        self.theirs[number].sendall(b"".join(encoded({"n": frame}, 0) for frame in frames))

    def got(self, count: int) -> list[tuple[int, Any]]:
        return [self.inbox.get(timeout=patience_s()) for _ in range(count)]


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    for one in [*peers.ours, *peers.theirs, peers.inbox]:
        one.close()


def test_frames_of_each_come_in_order_and_none_is_left(peers: Peers) -> None:
    peers.say(0, 1, 2)
    peers.say(1, 3)
    peers.say(0, 4)
    came = peers.got(4)
    assert [n for who, n in came if who == 0] == [1, 2, 4] and (1, 3) in came
    assert peers.inbox.empty()
    with pytest.raises(queue.Empty):
        peers.inbox.get(block=False)


def test_a_frame_that_has_not_all_come_holds_nobody_up(peers: Peers) -> None:
    frame = encoded({"n": 5}, 0)
    peers.theirs[0].sendall(encoded({"n": 4}, 0) + frame[:25])
    peers.say(1, 6)
    assert sorted(peers.got(2)) == [(0, 4), (1, 6)] and peers.inbox.empty()
    peers.theirs[0].sendall(frame[25:])
    assert peers.got(1) == [(0, 5)]


def test_of_a_long_frame_the_rest_is_waited_for(peers: Peers) -> None:
    frame = encoded({}, len(LONG)) + LONG
    sender = threading.Thread(target=peers.theirs[1].sendall, args=(frame + encoded({"n": 1}, 0),))
    sender.start()
    assert peers.got(2) == [(1, LONG), (1, 1)]
    sender.join()


def test_who_waits_is_woken_by_what_others_put(peers: Peers) -> None:
    timer = threading.Timer(0.05, peers.inbox.put, [(7, "put")])
    timer.start()
    assert peers.got(1) == [(7, "put")]
    timer.join()


@pytest.mark.parametrize(
    ("wait_s", "clock_s", "asked_s"),
    [(0.0005, [0.0, 0.0, 0.0005], 0.0005), (0.02, [0.0, 0.0, 0.018, 0.018, 0.02], 0.002)],
)
def test_the_end_of_a_wait_is_exact(
    peers: Peers, monkeypatch: pytest.MonkeyPatch, wait_s: float, clock_s: list[float], asked_s: float
) -> None:
    """Arrivals are waited for so. Its last milliseconds are asked of select: epoll knows whole ones only."""
    asked: list[float] = []
    wait = select.select
    monkeypatch.setattr(select, "select", lambda *of: asked.append(of[3]) or wait(*of))
    monkeypatch.setattr(inbox, "time", SimpleNamespace(monotonic=iter(clock_s).__next__))
    with pytest.raises(queue.Empty):
        peers.inbox.get(timeout=wait_s)
    assert asked == [pytest.approx(asked_s)]


def test_an_end_is_told_once_and_what_came_before_it_first(peers: Peers) -> None:
    peers.say(0, 1)
    peers.theirs[0].close()
    assert peers.got(1) == [(0, 1)] and peers.inbox.empty()
    assert [type(one) for one in peers.ends] == [ChannelClosed]
    peers.say(1, 2)
    assert peers.got(1) == [(1, 2)] and len(peers.ends) == 1


def test_what_is_no_frame_ends_its_sender_alone(peers: Peers) -> None:
    peers.theirs[0].sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
    peers.say(1, 2)
    assert peers.got(1) == [(1, 2)]
    assert [type(one) for one in peers.ends] == [ProtocolError] and peers.ours[0].fileno() == -1


def test_what_came_behind_a_greeting_is_taken(peers: Peers) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(encoded({"hello": 1}, 0) + encoded({"n": 9}, 0))
    peers.ours.append(Channel(ours))
    peers.theirs.append(theirs)
    assert peers.ours[2].receive()[0] == {"hello": 1}
    peers.watch(2)
    assert peers.got(1) == [(2, 9)]
