"""Frames, the proof of the secret, and listeners that refuse what they should and go on serving."""

import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from realexec.wire import handshake
from realexec.wire.channel import SENT_BYTES, Channel, _batches
from realexec.wire.frames import (
    HEADER_BYTES,
    MAGIC,
    VERSION,
    ChannelClosed,
    FrameLimits,
    ProtocolError,
    encoded,
)
from realexec.wire.listener import LOOPBACK, MOST_STRANGERS, Listener, dial
from realexec.wire.outbox import Outbox
from tests.worlds.processes import patience_s, wait_until
from tests.worlds.refusals import refuses

SECRET = b"s" * 32
HOSTS = pytest.mark.parametrize("host", [None, LOOPBACK], ids=["unix", "tcp"])


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = map(Channel, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def header(magic: bytes = MAGIC, version: int = VERSION, head: int = 2, payload: int = 0) -> bytes:
    return struct.pack("!4sIIQ", magic, version, head, payload)


def sent_raw(pair: tuple[Channel, Channel], raw: bytes) -> Channel:
    pair[0].send_views([raw])
    return pair[1]


def test_one_call_sends_as_many_bytes_as_it_may(pair: tuple[Channel, Channel]) -> None:
    """A frame's head goes with the first of a large buffer, and buffers are cut only at the limit."""
    head, large, small = b"head", bytes(2 * SENT_BYTES), b"end"
    batches = [list(map(len, batch)) for batch in _batches([head, large, small])]
    assert batches == [[4, SENT_BYTES - 4], [SENT_BYTES], [4, 3]]


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="Linux only")
def test_a_connection_within_a_host_is_not_paced(pair: tuple[Channel, Channel]) -> None:
    """Reno, whatever the system uses; a Unix socket has no such choice and stays usable."""
    with socket.create_server((LOOPBACK, 0)) as door, socket.create_connection(door.getsockname()) as ours:
        Channel(ours).send_unpaced_within_host()
        used = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert used.rstrip(b"\0") == b"reno"
    pair[0].send_unpaced_within_host()
    pair[0].send({"type": "still"})
    assert pair[1].receive()[0] == {"type": "still"}


@pytest.mark.parametrize("size", [0, 1, 65_516, 65_517, 3_000_000])
def test_a_frame_arrives_as_it_was_sent(pair: tuple[Channel, Channel], size: int) -> None:
    payload = os.urandom(size)
    head = {"type": "é", "numbers": [1, -2, 2**62, 0.5, None, True], "nested": {"a": "\n"}}
    threading.Thread(target=lambda: [pair[0].send(head, payload) for _ in range(3)]).start()
    assert [pair[1].receive() for _ in range(3)] == [(head, payload)] * 3


def test_frames_of_many_threads_do_not_mix(pair: tuple[Channel, Channel]) -> None:
    def send(number: int) -> None:
        for turn in range(50):
            pair[0].send({"from": number, "turn": turn}, bytes([number]) * (number * 3000))

    for number in range(4):
        threading.Thread(target=send, args=(number,), daemon=True).start()
    came: dict[int, list[int]] = {number: [] for number in range(4)}
    for _ in range(200):
        head, payload = pair[1].receive()
        assert payload == bytes([head["from"]]) * (head["from"] * 3000)
        came[head["from"]].append(head["turn"])
    assert all(turns == list(range(50)) for turns in came.values())


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n..........", "not a frame of this program"),
        (header(magic=b"SvTx"), "not a frame of this program"),
        (header(version=VERSION + 1), f"speaks version {VERSION + 1}, and this is version {VERSION}"),
        (header(head=(1 << 20) + 1), "is longer than"),
        (header(payload=(64 << 20) + 1), "is longer than"),
        (header(head=2**32 - 1, payload=2**64 - 1), "is longer than"),
        (header() + b"[]", "no JSON object"),
        (header() + b"{,", "no JSON"),
        (header(head=4) + b"\xff\xfe\xfd\xfc", "no JSON"),
        (header(head=200_000) + b"[" * 200_000, "no JSON"),
    ],
)
def test_what_is_no_frame_is_refused(pair: tuple[Channel, Channel], raw: bytes, why: str) -> None:
    refuses(ProtocolError, why, sent_raw(pair, raw).receive)


def test_nothing_is_allocated_for_a_frame_that_is_too_long(pair: tuple[Channel, Channel]) -> None:
    import tracemalloc

    pair[1].limits = FrameLimits(head_bytes=100, payload_bytes=1000)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="is longer than the 100 and 1000 that are taken"):
        sent_raw(pair, header(head=2, payload=1 << 40)).receive()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    with pytest.raises(ChannelClosed):
        pair[1].receive()  # what follows a frame that was refused is not looked at


def test_an_end_is_told_wherever_it_comes(pair: tuple[Channel, Channel]) -> None:
    whole = encoded({"type": "x"}, 10) + bytes(10)
    for length in (0, 1, HEADER_BYTES, HEADER_BYTES + 3, len(whole) - 1):
        ours, theirs = map(Channel, socket.socketpair())
        if length:
            ours.send_views([whole[:length]])
        ours.close()
        refuses(ChannelClosed, "peer closed", theirs.receive)
        theirs.close()
        refuses(ChannelClosed, "closed here", theirs.send, {})


def test_who_waits_is_told_that_the_channel_was_closed_here(pair: tuple[Channel, Channel]) -> None:
    failure: list[BaseException] = []

    def receive() -> None:
        try:
            pair[0].receive()
        except ChannelClosed as error:
            failure.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    pair[0].close()
    thread.join(patience_s())
    assert len(failure) == 1


@contextmanager
def listening(host: str | None, **options: Any) -> Iterator[tuple[Listener, list[dict[str, Any]]]]:
    """Answers each frame of a peer with the same."""
    admitted: list[dict[str, Any]] = []

    def serve(channel: Channel, identity: dict[str, Any]) -> None:
        admitted.append(identity)
        try:
            while True:
                channel.send(*channel.receive())
        except ConnectionError:
            channel.close()

    with closing(Listener(SECRET, serve, tcp_host=host, **options)) as listener:
        yield listener, admitted


def serves(listener: Listener) -> bool:
    channel = dial(listener.address, SECRET, {"worker": 1})
    channel.send({"hello": 1}, b"there")
    assert channel.receive() == ({"hello": 1}, b"there")
    channel.close()
    return True


def plain(listener: Listener) -> socket.socket:
    """A stranger's connection."""
    address = listener.address
    if "path" in address:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address["path"])
        return connection
    return socket.create_connection((address["host"], address["port"]))


@HOSTS
def test_who_knows_the_secret_is_let_in_and_known(host: str | None) -> None:
    with listening(host) as (listener, admitted):
        assert serves(listener) and serves(listener)
        assert admitted == [{"worker": 1}] * 2 and listener.refused == []
        assert listener.address.get("host", LOOPBACK) == LOOPBACK
    refuses(ChannelClosed, "no process answers", dial, listener.address, SECRET, {})


def test_a_unix_socket_lies_where_only_this_user_reaches_it() -> None:
    with listening(None) as (listener, _):
        folder = Path(listener.address["path"]).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


@HOSTS
def test_who_has_another_secret_is_refused_on_both_sides(host: str | None) -> None:
    with listening(host) as (listener, admitted):
        with pytest.raises(ProtocolError, match="the listener does not know the secret"):
            dial(listener.address, b"t" * 32, {"worker": 1})
        wait_until(lambda: listener.refused, "it was not refused")
        assert serves(listener) and admitted == [{"worker": 1}]


def liar(proof: Callable[[dict[str, Any]], str]) -> Callable[[Channel], None]:
    """A client that does not care what the listener proves, and sends this proof."""

    def attack(channel: Channel) -> None:
        channel.send_views([hello()])
        challenge, _ = channel.receive()
        channel.send_views([framed({"type": "proof", "proof": proof(challenge)})])

    return attack


def raw(*parts: bytes) -> Callable[[Channel], None]:
    return lambda channel: channel.send_views(parts)


def framed(head: dict[str, Any]) -> bytes:
    text = json.dumps(head).encode()
    return header(head=len(text)) + text


def hello(**parts: Any) -> bytes:
    return framed({"type": "hello", "nonce": "ab" * 32, "identity": {}, **parts})


ATTACKS: dict[str, tuple[Callable[[Channel], None], str]] = {
    "garbage": (raw(bytes(range(256))), "not a frame"),
    "nothing": (raw(b"SvTw"), "took too long"),
    "wrong version": (raw(header(version=99) + b"{}"), "speaks version 99"),
    "oversized head": (raw(header(head=5000)), "is longer than"),
    "oversized payload": (raw(header(payload=1)), "is longer than"),
    "no hello": (raw(header() + b"{}"), "in place of 'hello'"),
    "no nonce": (raw(hello(nonce=None)), "has no nonce"),
    "short nonce": (raw(hello(nonce="ab")), "no nonce or no identity"),
    "no identity": (raw(hello(identity=[])), "no nonce or no identity"),
    "reflected proof": (liar(lambda challenge: challenge["proof"]), "does not know the secret"),
    "no proof": (liar(lambda challenge: ""), "does not know the secret"),
    "proof of surrogates": (liar(lambda challenge: "\udcff" * 64), "does not know the secret"),
}


@HOSTS
@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_and_the_service_goes_on(host: str | None, attack: str) -> None:
    act, why = ATTACKS[attack]
    with listening(host, timeout_s=1.0 if attack == "nothing" else patience_s()) as (listener, admitted):
        stranger = Channel(plain(listener))
        act(stranger)
        with pytest.raises((ChannelClosed, ProtocolError)):
            while True:
                head, _ = stranger.receive()
                assert head["type"] == "challenge"
        wait_until(lambda: listener.refused, "it was not refused")
        stranger.close()
        assert re.search(why, listener.refused[0]), listener.refused
        assert admitted == [] and serves(listener)


def test_a_conversation_that_was_overheard_lets_nobody_in() -> None:
    """All that an honest client sent, sent again: the listener's nonce is another."""
    said: list[bytes] = []

    class Overheard(Channel):
        def send_views(self, views: Any) -> None:
            said.extend(bytes(view) for view in views)
            super().send_views(views)

    with listening(None) as (listener, admitted):
        honest = Overheard(plain(listener))
        handshake.join(honest, SECRET, {"worker": 1})
        honest.close()
        replayed = Channel(plain(listener))
        replayed.send_views(said)
        with pytest.raises(ChannelClosed):
            while True:
                replayed.receive()
        wait_until(lambda: listener.refused, "it was not refused")
        assert "does not know the secret" in listener.refused[0] and admitted == [{"worker": 1}]


def test_a_listener_that_does_not_know_the_secret_gets_no_proof() -> None:
    """A client tells nobody anything by which it could be let in elsewhere."""
    ours, theirs = map(Channel, socket.socketpair())
    threading.Thread(target=lambda: _fake_listener(theirs), daemon=True).start()
    refuses(ProtocolError, "the listener does not know the secret", handshake.join, ours, SECRET, {})
    with pytest.raises(ChannelClosed):
        theirs.receive()


def _fake_listener(channel: Channel) -> None:
    channel.receive()
    channel.send({"type": "challenge", "nonce": "cd" * 32, "proof": "ef" * 32})


@HOSTS
def test_who_dribbles_or_says_nothing_holds_nobody_up(host: str | None) -> None:
    """Strangers in every place: those are full, and are free again when their time is over."""
    with listening(host, timeout_s=1.0) as (listener, admitted):
        stop = threading.Event()
        slow = [plain(listener) for _ in range(3)]

        def dribble(connection: socket.socket) -> None:
            for byte in hello() * 1000:
                try:
                    connection.send(bytes([byte]))
                except OSError:
                    return
                if stop.wait(0.02):
                    return

        for connection in slow:
            threading.Thread(target=dribble, args=(connection,), daemon=True).start()
        assert serves(listener), "while they dribble"
        wait_until(lambda: len(listener.refused) == 3, "the time of those who dribble does not end")
        silent = [plain(listener) for _ in range(MOST_STRANGERS + 4)]
        wait_until(lambda: any("too many connections" in why for why in listener.refused), "all were taken")
        wait_until(
            lambda: len(listener.refused) == 3 + len(silent), "the time of those who are silent does not end"
        )
        stop.set()
        assert serves(listener) and admitted == [{"worker": 1}] * 2
        for connection in [*slow, *silent]:
            connection.close()


@HOSTS
def test_strangers_in_every_place_keep_nobody_out_who_knows_the_secret(host: str | None) -> None:
    with listening(host, timeout_s=patience_s()) as (listener, admitted):
        silent = [plain(listener) for _ in range(3 * MOST_STRANGERS)]
        wait_until(lambda: len(listener.refused) == 2 * MOST_STRANGERS, "those before were not pushed out")
        assert set(listener.refused) == {"too many connections that have not proved the secret"}
        assert serves(listener) and admitted == [{"worker": 1}]
        for connection in silent:
            connection.close()


def test_a_peer_that_was_pushed_out_connects_again() -> None:
    """A listener that hangs up three times before it listens: nothing is lost but a little time."""
    with socket.create_server((LOOPBACK, 0)) as busy:
        address = {"host": LOOPBACK, "port": busy.getsockname()[1]}
        came: list[dict[str, Any]] = []

        def serve() -> None:
            for _ in range(3):
                busy.accept()[0].close()
            came.append(handshake.admit(Channel(busy.accept()[0]), SECRET))

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        dial(address, SECRET, {"worker": 7}, timeout_s=patience_s()).close()
        serving.join()
    assert came == [{"worker": 7}]


def test_a_peer_asks_no_longer_than_it_may() -> None:
    with socket.create_server((LOOPBACK, 0)) as busy:
        address = {"host": LOOPBACK, "port": busy.getsockname()[1]}
        threading.Thread(target=_hang_up, args=(busy,), daemon=True).start()
        with pytest.raises((ChannelClosed, TimeoutError)):
            dial(address, SECRET, {}, timeout_s=0.1)


def _hang_up(busy: socket.socket) -> None:
    while True:
        try:
            busy.accept()[0].close()
        except OSError:
            return


def test_one_whose_place_was_taken_is_not_told_that_it_is_welcome() -> None:
    ours, theirs = map(Channel, socket.socketpair())

    def too_late() -> None:
        raise ChannelClosed("too late")

    told: list[BaseException] = []

    def admit() -> None:
        try:
            handshake.admit(theirs, SECRET, proved=too_late)
        except ChannelClosed as error:
            told.append(error)

    admitting = threading.Thread(target=admit, daemon=True)
    admitting.start()
    with pytest.raises(ChannelClosed):
        handshake.join(ours, SECRET, {})
    admitting.join()
    assert [str(one) for one in told] == ["too late"]


def test_proofs_differ_by_all_that_they_are_about() -> None:
    said = [
        handshake._proof(secret, side, client, listener, identity)
        for secret in (SECRET, b"t" * 32)
        for side in ("client", "listener")
        for client, listener in (("a", "b"), ("b", "a"), ("ab", ""))
        for identity in ({"worker": 1}, {"worker": 2})
    ]
    assert len(set(said)) == 24


def test_an_outbox_waits_for_nobody_and_keeps_the_order() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    outbox = Outbox()
    outbox.put({"number": -1})  # before there is a channel
    outbox.open(ours)
    for number in range(300):  # far more than the system holds for a peer that does not read
        outbox.put({"number": number}, bytes(10_000))
    came = [theirs.receive() for _ in range(301)]
    assert [head["number"] for head, _ in came] == list(range(-1, 300))
    assert {len(payload) for _, payload in came[1:]} == {10_000}
    outbox.put({"number": 300})
    assert theirs.receive() == ({"number": 300}, b"")
    theirs.close()
    for _ in range(100):
        outbox.put({}, bytes(100_000))  # nobody reads it any more
    ours.close()
    outbox.close()
    outbox.put({})


def test_an_outbox_is_closed_while_its_peer_does_not_read() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    outbox = Outbox()
    outbox.open(ours)
    outbox.put({}, bytes(10_000_000))
    began_s = time.monotonic()
    ours.close()
    outbox.close()
    assert time.monotonic() - began_s < patience_s()
    theirs.close()
